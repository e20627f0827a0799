package guest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/watch"
	"github.com/hypergate/hypergate/test/hang"
)

const manyInUse = 5000

// TestOfOneObjectAFewFieldsAreKept: the guest decides how many fields of a CRD an object uses.
func TestOfOneObjectAFewFieldsAreKept(t *testing.T) {
	t.Parallel()
	var fields []crds.Field
	spec := map[string]any{}
	for i := range 1000 {
		name := fmt.Sprintf("field%03d", i)
		fields = append(fields, crds.Field{Path: "spec." + name, Versions: []string{"v1"}})
		spec[name] = "x"
	}
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Thing", "spec": spec}}
	kept := usageOf(object, crds.LookupOf(fields), wantedFieldsOf(fields))
	// With 20,000 objects, each of these takes 8 bytes of each.
	if len(kept.fields) != 50 || cap(kept.fields) != 50 {
		t.Errorf("%d of 1,000 fields are kept, want 50", len(kept.fields))
	}
}

// longFields returns fields with long paths, as a hostile CRD can have them. The first one can restrict access.
func longFields() []crds.Field {
	var out []crds.Field
	for i := range maxFieldsInUse {
		out = append(out, crds.Field{Path: fmt.Sprintf("spec.%s%02d", strings.Repeat("é", 1000), i), Versions: []string{"v1"}})
	}
	out[0].Path += "auth"
	return out
}

// manyUsers returns a view with a search that has found manyInUse objects. Each of them uses all of the fields. The
// watch shows what is sent to events.
func manyUsers(tb testing.TB, fields []crds.Field) (v *useView, events *apiwatch.FakeWatcher) {
	tb.Helper()
	object := func(i int) unstructured.Unstructured {
		spec := map[string]any{}
		for _, f := range fields {
			spec[strings.TrimPrefix(f.Path, "spec.")] = "x"
		}
		return unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Thing", "spec": spec,
			"metadata": map[string]any{"namespace": "app", "name": fmt.Sprintf("thing-%05d", i), "resourceVersion": "1"},
		}}
	}
	v = &useView{notify: func() {}, under: map[schema.GroupVersionResource]*underWay{}}
	v.gateways = watch.NewSwitch(watch.Options{})
	events = apiwatch.NewFake()
	s := search{crd: "things.example.com", key: "uid", gvr: schema.GroupVersionResource{Resource: "things"}, fields: fields}
	all, lookup := wantedFieldsOf(fields), crds.LookupOf(fields)
	listed := make(chan struct{}, 1)
	v.under[s.gvr] = &underWay{search: s, Switch: watch.NewSwitch(watch.Options{
		Name: "things",
		List: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			list := &unstructured.UnstructuredList{Object: map[string]any{"metadata": map[string]any{"resourceVersion": "1"}}}
			for i := range manyInUse {
				list.Items = append(list.Items, object(i))
			}
			return list, nil
		},
		Watch: func(_ context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			if o.SendInitialEvents != nil {
				return nil, errors.New("not streamed")
			}
			return events, nil
		},
		Example:   &unstructured.Unstructured{},
		Transform: keeps(usageOnly(lookup, all)),
		OnEvent:   func(watch.Event) { v.changed() },
		OnListed: func(string) { // after the events of the list
			select {
			case listed <- struct{}{}:
			default:
			}
		},
	})}
	v.under[s.gvr].Set(tb.Context(), "uid", "1")
	hang.Gomega(tb).Eventually(listed).Should(gomega.Receive(), "nothing is shown")
	return v, events
}

// TestObjectsInUseAreSearchedOnce checks that a pass without changes does not process the objects again.
func TestObjectsInUseAreSearchedOnce(t *testing.T) {
	v, events := manyUsers(t, longFields())
	g := hang.Gomega(t)
	ours := map[string]bool{"ours": true}
	list, totals := v.inUse(ours)
	g.Expect(list).To(gomega.HaveLen(maxInUse))
	g.Expect(totals).To(gomega.HaveKeyWithValue("things.example.com", manyInUse))
	repeated := func() float64 { return testing.AllocsPerRun(5, func() { v.inUse(ours) }) }
	g.Eventually(repeated).Should(gomega.BeNumerically("<=", 20), "allocations of a repeated call, while the watch begins")

	for _, f := range list[0].Fields {
		if len(f.Path) > longestPath || !strings.HasSuffix(f.Path, "(long)") {
			t.Fatalf("a path of %d bytes: %.20s...", len(f.Path), f.Path)
		}
	}
	t.Log("the caller owns the result, and other classes need another list")
	list[0].Name = "mine"
	totals["things.example.com"] = 0
	list, totals = v.inUse(ours)
	g.Expect(list[0].Name).To(gomega.Equal("thing-00000"))
	g.Expect(totals).To(gomega.HaveKeyWithValue("things.example.com", manyInUse))
	g.Expect(v.listed.holds(v.changes.Load(), map[string]bool{"ours": true})).To(gomega.BeTrue())
	g.Expect(v.listed.holds(v.changes.Load(), map[string]bool{})).To(gomega.BeFalse())
	g.Expect(v.listed.holds(v.changes.Load(), nil)).To(gomega.BeFalse())

	t.Log("a change causes a new list")
	gone := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": "app", "name": "thing-00000", "resourceVersion": "2"},
	}}
	events.Delete(gone)
	g.Eventually(func() int {
		_, totals := v.inUse(ours)
		return totals["things.example.com"]
	}).Should(gomega.Equal(manyInUse - 1))
	list, _ = v.inUse(ours)
	g.Expect(list[0].Name).To(gomega.Equal("thing-00001"))
}

func BenchmarkInUse(b *testing.B) {
	v, _ := manyUsers(b, longFields())
	b.Run("changed", func(b *testing.B) {
		for b.Loop() {
			v.changed()
			v.inUse(nil)
		}
	})
	b.Run("unchanged", func(b *testing.B) {
		for b.Loop() {
			v.inUse(nil)
		}
	})
}
