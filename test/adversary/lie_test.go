package adversary_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/hypergate/hypergate/test/adversary"
)

// TestLies checks that one seed always makes the same lies, and that each lie is valid JSON. Over many lies, several
// listed places of a Lease are reached.
func TestLies(t *testing.T) {
	t.Parallel()
	const n = 5000
	lease := adversary.ShapeOfType(coordinationv1.Lease{})
	first, second := adversary.NewLiar(7, 1<<10), adversary.NewLiar(7, 1<<10)
	seen := map[string]bool{}
	for range n {
		a, b := map[string]any{}, map[string]any{}
		where := first.Lie(a, lease)
		if again := second.Lie(b, lease); where != again {
			t.Fatalf("one seed lies at %s and at %s", where, again)
		}
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("one seed makes two lies at %s", where)
		}
		if _, err := json.Marshal(a); err != nil {
			t.Fatalf("at %s: %v", where, err)
		}
		seen[where] = true
	}
	for _, where := range []string{
		"spec", "spec.holderIdentity", "spec.renewTime", "metadata.name", "metadata.managedFields",
		"metadata.managedFields.[].fieldsV1", "kind",
	} {
		if !seen[where] {
			t.Errorf("none of %d lies is at %s", n, where)
		}
	}
}

// TestShapes checks that a type which contains itself has a shape, and that a schema has the shape of what it allows.
func TestShapes(t *testing.T) {
	t.Parallel()
	if n := adversary.ShapeOfType(apiextensionsv1.CustomResourceDefinition{}).Paths(); n < 1000 {
		t.Errorf("a CRD has %d places", n)
	}
	got := adversary.ShapeOfSchema(map[string]any{"type": "object", "properties": map[string]any{
		"a": map[string]any{"type": "array", "items": map[string]any{"type": "string"}},
		"m": map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "integer"}},
		"x": map[string]any{"x-kubernetes-int-or-string": true},
	}})
	want := &adversary.Shape{Type: adversary.Object, Fields: map[string]*adversary.Shape{
		"a": {Type: adversary.Array, Of: &adversary.Shape{Type: adversary.String}},
		"m": {Type: adversary.Map, Of: &adversary.Shape{Type: adversary.Integer}},
		"x": {Type: adversary.Any},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !got.Has("a") || got.Has("b") || got.Has("a", "b") {
		t.Error("the shape has other fields than a, m and x")
	}
}
