package untouched

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/summary"
)

func TestNoteOf(t *testing.T) {
	deployment := func(fields ...string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "istiod", "resourceVersion": "1"}, "spec": map[string]any{"replicas": int64(1)},
			"status": map[string]any{"readyReplicas": int64(1)},
		}}
		if len(fields) > 0 {
			if err := unstructured.SetNestedField(o.Object, "other", fields...); err != nil {
				t.Fatal(err)
			}
		}
		return o
	}
	for _, c := range []struct {
		name, resource string
		scope          Scope
		changed        []string
		noticed        bool
	}{
		{"a resourceVersion", "/services", Scope{Nodes: true}, []string{"metadata", "resourceVersion"}, true},
		{"a resourceVersion where there are no nodes", "apps/deployments", Scope{}, []string{"metadata", "resourceVersion"}, true},
		{"how pods are", "apps/deployments", Scope{Nodes: true}, []string{"status", "readyReplicas"}, false},
		{"the resourceVersion of that", "apps/deployments", Scope{Nodes: true}, []string{"metadata", "resourceVersion"}, false},
		{"what is requested", "apps/deployments", Scope{Nodes: true}, []string{"spec", "replicas"}, true},
		{"a label", "apps/deployments", Scope{Nodes: true}, []string{"metadata", "labels", "x"}, true},
		{"another of the same name", "apps/deployments", Scope{Nodes: true}, []string{"metadata", "uid"}, true},
		{"a renewed Lease", leases, Scope{Nodes: true}, []string{"spec", "renewTime"}, false},
		{"the summary of a hypergate", leases, Scope{Nodes: true}, []string{"metadata", "annotations", summary.Annotation}, false},
		{"another annotation", leases, Scope{Nodes: true}, []string{"metadata", "annotations", "x"}, true},
		{"a Lease's holder", leases, Scope{Nodes: true}, []string{"spec", "holderIdentity"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if noticed := c.scope.noteOf(c.resource, deployment()) != c.scope.noteOf(c.resource,
				deployment(c.changed...)); noticed != c.noticed {
				t.Errorf("a change of %v of %s is noticed: %t, want %t", c.changed, c.resource, noticed, c.noticed)
			}
		})
	}
}

func TestLeavesOut(t *testing.T) {
	for _, c := range []struct {
		name, resource, namespace, object string
		scope                             Scope
		out                               bool
	}{
		{"what is in the namespace", "/services", "clusters-guest1", "istiod", Scope{But: "clusters-guest1"}, true},
		{"what is in another", "/services", "clusters-guest2", "istiod", Scope{But: "clusters-guest1"}, false},
		{"the namespace", "/namespaces", "", "clusters-guest1", Scope{But: "clusters-guest1"}, true},
		{"an object of its name in another", "/configmaps", "istio-system", "clusters-guest1", Scope{But: "clusters-guest1"}, false},
		{"what is cluster-wide", "rbac.authorization.k8s.io/clusterroles", "", "istiod", Scope{}, false},
		{"an API server's Lease", leases, "kube-system", "apiserver-x", Scope{}, true},
		{"anything else there", "/configmaps", "kube-system", "x", Scope{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := &unstructured.Unstructured{Object: map[string]any{}}
			o.SetNamespace(c.namespace)
			o.SetName(c.object)
			if out := c.scope.leavesOut(c.resource, o); out != c.out {
				t.Errorf("it is left out: %t, want %t", out, c.out)
			}
		})
	}
}
