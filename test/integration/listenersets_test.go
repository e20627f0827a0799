package integration_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	testcharts "github.com/hypergate/hypergate/test/charts"
)

const listenerSetCRD = "listenersets.gateway.networking.k8s.io"

func listenerSets() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "listenersets"}
}

// TestListenerSetsShowThatTheyAreIgnored checks the condition of ListenerSets with their real CRD. Those of hypergate's
// Gateways get it, with one write each and as OpenShift's ingress operator writes it. What the operator has written
// stays, and so do ListenerSets of other Gateways.
func TestListenerSetsShowThatTheyAreIgnored(t *testing.T) {
	own := ownGuest(t)
	client := own.dynamic
	w, _ := newGatewayWorldOn(own.harness, "web")
	all := testcharts.CRDs(t, testcharts.GatewayCRDsNext(t))
	at := slices.IndexFunc(all, func(u *unstructured.Unstructured) bool { return u.GetName() == listenerSetCRD })
	w.installCRD(client, all[at])
	for name, gateway := range map[string]string{"ours": "web", "theirs": "other"} {
		w.createObject(client, "listenersets", w.listenerSet(name, gateway))
	}
	accepted := func(name string) []any {
		u, err := client.Resource(listenerSets()).Namespace(w.namespace).Get(t.Context(), name, metav1.GetOptions{})
		w.Expect(err).NotTo(gomega.HaveOccurred())
		conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		for _, c := range conditions {
			if c, _ := c.(map[string]any); c["type"] == "Accepted" {
				return []any{c["status"], c["reason"], c["observedGeneration"], len(conditions)}
			}
		}
		return nil
	}
	refused := gomega.Equal([]any{"False", "UnsupportedByController", int64(1), 2})
	w.Eventually(accepted).WithArguments("ours").Should(refused)
	w.settle()
	w.Expect(accepted("theirs")).To(gomega.ContainElement("Pending"))
	w.Expect(w.listenerSetWrites(0)).To(gomega.HaveLen(1))

	t.Log("the operator's condition")
	before := w.guestRequests.count()
	patch := `{"status":{"conditions":[{"type":"Accepted","status":"False","reason":"UnsupportedByController",` +
		`"message":"the operator's","lastTransitionTime":"2026-11-21T12:00:00Z"}]}}`
	_, err := client.Resource(listenerSets()).Namespace(w.namespace).
		Patch(t.Context(), "ours", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.settle()
	w.Expect(w.listenerSetWrites(before)).To(gomega.BeEmpty())

	t.Log("a status without it")
	_, err = client.Resource(listenerSets()).Namespace(w.namespace).
		Patch(t.Context(), "ours", types.MergePatchType, []byte(`{"status":{"conditions":[]}}`), metav1.PatchOptions{}, "status")
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Eventually(accepted).WithArguments("ours").Should(gomega.Equal([]any{"False", "UnsupportedByController", int64(1), 1}))
}

func (w *gatewayWorld) listenerSet(name, gateway string) map[string]any {
	return map[string]any{
		"apiVersion": "gateway.networking.k8s.io/v1", "kind": "ListenerSet",
		"metadata": map[string]any{"namespace": w.namespace, "name": name},
		"spec": map[string]any{
			"parentRef": map[string]any{"name": gateway},
			"listeners": []any{map[string]any{"name": "more", "port": int64(8080), "protocol": "HTTP"}},
		},
	}
}

// listenerSetWrites returns the writes to ListenerSets in the guest since an earlier count of requests.
func (w *gatewayWorld) listenerSetWrites(since int) []string {
	return slices.DeleteFunc(writes(w.guestRequests.since(since)), func(line string) bool {
		return !strings.Contains(line, "listenersets/")
	})
}
