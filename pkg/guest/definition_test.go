package guest

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
		"many versions": func(n int) crds.Definition { return crds.Definition{Served: make([]string, n/stringSize+n%stringSize)} },
	} {
		if err := checkDefinition(with(limit)); err != nil {
			t.Errorf("%s, at the limit: %v", name, err)
		}
		if err := checkDefinition(with(limit + 1)); err == nil {
			t.Errorf("%s, beyond the limit: accepted", name)
		}
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
