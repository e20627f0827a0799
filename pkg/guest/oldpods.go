package guest

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

// oldPods reads of Gateways at the origin whether the pods of earlier templates are the origin's, too. The hosted
// istiod does not serve those of a Gateway that has never moved.
func (m *migrationReader) oldPods(ctx context.Context, released types.UID) error {
	listed := 0
	for _, i := range m.startingWith(released) {
		g := &m.out.Gateways[i]
		if g.Of != migration.OfOrigin || g.Deployment.Old == 0 || !isLabel(g.Key.Name) || listed == gatewaysPerReading {
			continue
		}
		listed++
		only, err := m.onlyOrigin(ctx, m.deployments[g.UID], g.Key.Name)
		if err != nil {
			return err
		}
		g.OldOfOrigin = only
	}
	return nil
}

// onlyOrigin reports whether all pods of a Deployment have the address of the origin. False: that is not known, as
// without the permission to list ReplicaSets. A rollback goes on without it.
func (m *migrationReader) onlyOrigin(ctx context.Context, deployment model.ForeignObject, gateway string) (bool, error) {
	found, others := false, false
	r := &inventoryReader{c: m.c}
	all, err := r.ownSets(ctx, deployment, gateway, func(u *unstructured.Unstructured) bool {
		var set appsv1.ReplicaSet
		err := convert(u, &set)
		if err != nil || hasPods(set) {
			found = true
			others = others || err != nil || addressOf(set.Spec.Template.Spec) != migration.OriginAddress(m.c.cfg)
		}
		return !others
	})
	return found && !others && all, err
}

// ownSets calls keep for the ReplicaSets of a Gateway's Deployment until it returns false. all reports whether all
// ReplicaSets were examined. Those of others can have the label of the Gateway, too, and count towards the limit.
func (r *inventoryReader) ownSets(
	ctx context.Context, deployment model.ForeignObject, gateway string, keep func(*unstructured.Unstructured) bool,
) (all bool, err error) {
	options := metav1.ListOptions{LabelSelector: gatewayNameLabel + "=" + gateway}
	examined := 0
	err = r.each(ctx, replicaSetResource(), deployment.Key.Namespace, options, func(u *unstructured.Unstructured) bool {
		examined++
		more := !metav1.IsControlledBy(u, &metav1.ObjectMeta{UID: deployment.UID}) || keep(u)
		return more && examined < mostReplicaSets
	})
	return examined < mostReplicaSets, err
}

func replicaSetResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
}

// hasPods reports whether a ReplicaSet has pods, or should have some.
func hasPods(set appsv1.ReplicaSet) bool {
	return set.Status.Replicas > 0 || set.Spec.Replicas == nil || *set.Spec.Replicas > 0
}
