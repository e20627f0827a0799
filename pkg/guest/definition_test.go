package guest

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/crds"
)

// TestTheDefinitionOfACRDIsLimited checks the limit of what is kept of a CRD, at the limit and one byte beyond. Each
// text counts.
func TestTheDefinitionOfACRDIsLimited(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	for name, with := range map[string]func(n int) crds.Definition{
		"group":  func(n int) crds.Definition { return crds.Definition{Group: strings.Repeat("x", n)} },
		"kind":   func(n int) crds.Definition { return crds.Definition{Kind: strings.Repeat("x", n)} },
		"plural": func(n int) crds.Definition { return crds.Definition{Plural: strings.Repeat("x", n)} },
		"why":    func(n int) crds.Definition { return crds.Definition{Why: strings.Repeat("x", n)} },
		"a served version": func(n int) crds.Definition {
			return crds.Definition{Served: []string{strings.Repeat("x", n-stringSize)}}
		},
		"a stored version": func(n int) crds.Definition {
			return crds.Definition{Stored: []string{strings.Repeat("x", n-stringSize)}}
		},
		"several versions": func(n int) crds.Definition {
			return crds.Definition{Served: []string{"v1", "v2", strings.Repeat("x", n-3*stringSize-len("v1v2"))}}
		},
	} {
		if err := checkDefinition(with(limit)); err != nil {
			t.Errorf("%s, at the limit: %v", name, err)
		}
		if err := checkDefinition(with(limit + 1)); err == nil {
			t.Errorf("%s, beyond the limit: accepted", name)
		}
	}
}

// TestACRDWithManyVersionsIsUnreadable checks the limit for versions, and that nothing is kept of a CRD beyond it. The
// attack is a CRD of the plan with 3,600 versions and 2,000 fields, of which each is in one version.
func TestACRDWithManyVersionsIsUnreadable(t *testing.T) {
	t.Parallel()
	const routes = "httproutes.gateway.networking.k8s.io"
	view := &crdView{wanted: map[string]bool{routes: true}}
	r := newCRDReader(dynamic.NewForConfigOrDie(&rest.Config{Host: "https://nowhere.invalid"}), nil, nil, view, func() {})
	weigh := func(versions, fields int) reading {
		u, err := crds.GatewayAPI().Object(routes)
		if err != nil {
			t.Fatal(err)
		}
		all := make([]any, versions)
		for i := range all {
			properties := map[string]any{}
			for field := i; field < fields; field += versions {
				properties[fmt.Sprint("f", field)] = map[string]any{"type": "string"}
			}
			schema := map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": properties}}
			all[i] = map[string]any{"name": fmt.Sprint("x", i), "served": true, "storage": i == 0, "schema": schema}
		}
		if err := unstructured.SetNestedSlice(u.Object, all, "spec", "versions"); err != nil {
			t.Fatal(err)
		}
		return r.weigh(u)
	}
	if got := weigh(16, 10); got.content != crds.Read || len(got.searches) == 0 {
		t.Errorf("16 versions: content %v (%s), %d searches", got.content, got.why, len(got.searches))
	}
	if got := weigh(17, 10); got.content != crds.Unreadable {
		t.Errorf("17 versions: content %v", got.content)
	}
	got := weigh(3600, 1990)
	if got.content != crds.Unreadable || len(got.searches)+len(got.definition.Served)+len(got.difference.Lost) > 0 {
		t.Errorf("3,600 versions: content %v, %d searches are kept", got.content, len(got.searches))
	}
	if want := "3600 versions"; !strings.Contains(got.why, want) {
		t.Errorf("the cause is %q, want %q in it", got.why, want)
	}
}

// TestFewCRDsOfOthersAreExamined checks the limit of CRDs that a plan cannot contain. Those of the plan do not count.
func TestFewCRDsOfOthersAreExamined(t *testing.T) {
	t.Parallel()
	view := &crdView{wanted: map[string]bool{}}
	var items []crdItem
	for i := range 40 {
		ours := fmt.Sprintf("b%02d", i)
		view.wanted[ours] = true
		for _, name := range []string{ours, fmt.Sprintf("a%02d", i)} {
			items = append(items, crdItem{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
	}
	kept := view.limited(items)
	if len(kept) != 40+32 || kept[31].Name != "a31" || kept[32].Name != "b00" {
		t.Errorf("%d CRDs are kept, want 72", len(kept))
	}
}

// TestParentsAreLimited checks that a route with more than 64 parents counts as attached to any Gateway, and that none
// of its parents is kept.
func TestParentsAreLimited(t *testing.T) {
	t.Parallel()
	route := func(n int) *unstructured.Unstructured {
		refs := make([]any, n)
		for i := range refs {
			refs[i] = map[string]any{"name": fmt.Sprintf("gw%d", i)}
		}
		return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"parentRefs": refs}}}
	}
	if p := parentsOf(route(64)); p.others || len(p.gateways) != 64 {
		t.Errorf("64 parents: %t, %d are kept", p.others, len(p.gateways))
	}
	if p := parentsOf(route(65)); !p.others || len(p.gateways) != 0 {
		t.Errorf("65 parents: %t, %d are kept", p.others, len(p.gateways))
	}
}
