// Package sides checks that objects are on the right side.
package sides

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/model"
)

// Object is a model.MgmtObject or a model.GuestObject.
type Object interface {
	GVK() schema.GroupVersionKind
	Key() types.NamespacedName
	String() string
	Unstructured() (*unstructured.Unstructured, error)
}

// Check checks that an object has a kind of the side's list, the side's namespace, and the owner label with the given
// value.
func Check(t *testing.T, o Object, kinds []model.Kind, namespace, owner string) {
	t.Helper()
	i := slices.IndexFunc(kinds, func(k model.Kind) bool { return k.GVK == o.GVK() })
	if i < 0 {
		t.Errorf("%s: its kind is not on the list of its side", o)
		return
	}
	want := ""
	if kinds[i].Namespaced {
		want = namespace
	}
	u, err := o.Unstructured()
	if err != nil {
		t.Fatal(err)
	}
	if o.Key().Namespace != want || u.GetNamespace() != want || u.GetName() != o.Key().Name || u.GroupVersionKind() != o.GVK() {
		t.Errorf("%s is %s %s/%s in its JSON, and its namespace should be %q", o, u.GroupVersionKind(), u.GetNamespace(), u.GetName(),
			want)
	}
	if u.GetLabels()[model.OwnerLabel] != owner {
		t.Errorf("%s has the owner %q, want %q", o, u.GetLabels()[model.OwnerLabel], owner)
	}
}
