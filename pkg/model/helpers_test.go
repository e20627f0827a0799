package model_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/model"
)

// object is a MgmtObject or a GuestObject.
type object interface {
	GVK() schema.GroupVersionKind
	Key() types.NamespacedName
	String() string
	Unstructured() (*unstructured.Unstructured, error)
}

// checkSide checks that an object has a kind of the side's list, the side's namespace, and hypergate's label.
func checkSide(t *testing.T, o object, kinds []model.Kind, namespace, owner string) {
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

// mustFail checks that there is an error that contains all wanted texts.
func mustFail(tb testing.TB, err error, want ...string) {
	tb.Helper()
	if err == nil {
		tb.Fatalf("no error, want one that says %q", want)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			tb.Errorf("the error does not say %q:\n%v", w, err)
		}
	}
}
