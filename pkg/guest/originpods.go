package guest

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hypergate/hypergate/pkg/migration"
)

func podResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "pods"}
}

// podsOfOrigin counts and names the pods of the guest's istiod.
func (r *inventoryReader) podsOfOrigin(ctx context.Context, found *migration.OriginDeployment) error {
	options := metav1.ListOptions{LabelSelector: "app=istiod,istio.io/rev=" + r.c.cfg.Revision}
	return r.each(ctx, podResource(), r.c.cfg.GuestNamespace, options, func(u *unstructured.Unstructured) bool {
		if hasEnded(u) {
			return true
		}
		found.Existing++
		r.originPods = append(r.originPods, bounded(u.GetName(), maxName))
		return len(r.originPods) < mostOriginPods
	})
}

// isLabel reports whether pods can have the name of a Gateway as a label. istiod makes none for a Gateway with a longer
// name, and the API server refuses to list them.
func isLabel(gateway string) bool { return len(gateway) <= validation.LabelValueMaxLength }

// hasEnded reports whether all containers of a pod have ended. Such a pod can exist for days, for example if its node
// has evicted it.
func hasEnded(pod *unstructured.Unstructured) bool {
	phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
	return phase == string(corev1.PodSucceeded) || phase == string(corev1.PodFailed)
}
