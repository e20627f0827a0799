package world

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestWithout(t *testing.T) {
	rule := func(resources, verbs []any) any {
		return map[string]any{
			"apiGroups": []any{"rbac.authorization.k8s.io"}, "resources": resources, "verbs": verbs,
			"resourceNames": []any{"x"},
		}
	}
	role := &unstructured.Unstructured{Object: map[string]any{"kind": "Role", "rules": []any{
		rule([]any{"roles", "rolebindings"}, []any{"get", "patch"}),
		rule([]any{"rolebindings"}, []any{"list"}),
		rule([]any{"rolebindings"}, []any{"create", "patch"}),
	}}}
	want := []any{
		rule([]any{"rolebindings"}, []any{"get"}),
		rule([]any{"roles"}, []any{"get", "patch"}),
		rule([]any{"rolebindings"}, []any{"list"}),
		rule([]any{"rolebindings"}, []any{"create"}),
	}
	if diff := cmp.Diff(want, without(role, "patch", "rolebindings").Object["rules"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := without(role, "patch", "configmaps"); got != nil {
		t.Errorf("a role that does not have it is changed: %v", got)
	}
}
