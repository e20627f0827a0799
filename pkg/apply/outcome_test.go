package apply_test

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/apply"
)

func TestReports(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	good := w.object(`{apiVersion: v1, kind: ConfigMap, metadata: {name: good, namespace: NS}}`)
	bad := w.object(`{apiVersion: v1, kind: ConfigMap, metadata: {name: bad, namespace: NS-absent}}`)
	c := w.started()
	first, second := apply.Apply(t.Context(), c, []object{good}), apply.Apply(t.Context(), c, []object{good, bad})
	both := first.And(second)
	tests := map[string]struct {
		report   apply.Report
		text     string
		complete bool
		writes   int
		failures int
	}{
		"none":   {apply.Report{}, "nothing to do", true, 0, 0},
		"first":  {first, "1 applied", true, 1, 0},
		"second": {second, "1 unchanged, 1 failed", false, 1, 1},
		"both":   {both, "1 unchanged, 1 applied, 1 failed", false, 2, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := test.report
			if r.String() != test.text || r.Complete() != test.complete || r.Writes() != test.writes ||
				len(r.Failures()) != test.failures || (r.Err() != nil) != (test.failures > 0) {
				t.Errorf("%s, complete %t, %d writes, %d failures: %v", r, r.Complete(), r.Writes(), len(r.Failures()), r.Err())
			}
		})
	}
	failure := both.Failures()[0]
	if !errors.Is(both.Err(), failure.Err()) || failure.ID().String() != "ConfigMap "+w.namespace+"-absent/bad" {
		t.Errorf("the failure of %s is not in %v", failure.ID(), both.Err())
	}
}

func TestIDsAreNamed(t *testing.T) {
	t.Parallel()
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "Thing"}
	for want, id := range map[string]apply.ID{
		"Thing":     {GVK: gvk},
		"Thing x":   {GVK: gvk, Key: types.NamespacedName{Name: "x"}},
		"Thing n/x": {GVK: gvk, Key: types.NamespacedName{Namespace: "n", Name: "x"}},
	} {
		if id.String() != want {
			t.Errorf("%q, want %q", id, want)
		}
	}
}
