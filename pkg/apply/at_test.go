package apply_test

import (
	"net/http"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/apply"
)

// at returns the version of an object for AtVersion.
func at(o object, version string) map[apply.ID]string {
	return map[apply.ID]string{{GVK: o.GVK(), Key: o.Key()}: version}
}

// When we adopt a foreign object, it becomes ours. The apply takes the fields that we set from the other manager. The
// other fields stay with that manager. From then on, the object is managed like every owned object.
func TestApplyAtVersionAdopts(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	c := w.started()
	theirs := w.create(`{apiVersion: v1, kind: Namespace, metadata: {name: NS-x, labels: {both: theirs, theirs: theirs}, ` +
		`annotations: {theirs: theirs}}}`)
	objs := []object{w.object(`{apiVersion: v1, kind: Namespace, metadata: {name: NS-x, labels: {both: ours}}}`)}
	if r := apply.Apply(t.Context(), c, objs); r.Outcomes()[0].Cause().Class() != apply.Conflict {
		t.Fatalf("applied and not adopted: %s", r)
	}
	version := at(objs[0], w.live(theirs).GetResourceVersion())
	if r := apply.AtVersion(t.Context(), c, objs, version); !r.Complete() || r.Writes() != 1 {
		t.Fatalf("adopted: %s, %d writes: %v", r, r.Writes(), r.Err())
	}
	got := w.live(theirs)
	if diff := cmp.Diff("ours theirs theirs",
		got.GetLabels()["both"]+" "+got.GetLabels()["theirs"]+" "+got.GetAnnotations()["theirs"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !w.isOurs(objs[0]) || got.GetUID() != theirs.GetUID() {
		t.Error("it is not ours, or another object")
	}
	w.settle(c, objs)
	w.requests.reset()
	if r := apply.AtVersion(t.Context(), c, objs, version); r.Writes() != 0 {
		t.Errorf("adopted once more: %s", r)
	}
	w.patch(objs[0], `{"metadata":{"labels":{"both":"theirs"}}}`)
	w.converge(c, objs, func() bool { return w.live(theirs).GetLabels()["both"] == "ours" })
}

// TestApplyAtVersionSkipsChangedObjects changes the object immediately before the write. The caller does not know yet
// who changed it, and to what.
func TestApplyAtVersionSkipsChangedObjects(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		before string
		ours   bool
		after  string
	}{
		"a foreign field is changed": {before: `{both: theirs}`, after: `{both: newer}`},
		"ours is changed":            {before: `{both: ours}`, ours: true, after: `{both: newer}`},
		"it comes":                   {after: `{both: newer}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			ours := w.object(`{apiVersion: v1, kind: Namespace, metadata: {name: NS-x, labels: {both: ours}, annotations: {new: ours}}}`)
			version := apply.Absent
			if test.before != "" {
				create := w.create
				if test.ours {
					create = w.createAsUs
				}
				version = create(`{apiVersion: v1, kind: Namespace, metadata: {name: NS-x, ` +
					`labels: ` + test.before + `}}`).GetResourceVersion()
			}
			c := w.started()
			var once sync.Once
			meanwhile := func(r *http.Request) {
				if r.Method == http.MethodPatch {
					once.Do(func() {
						if test.before == "" {
							w.create(`{apiVersion: v1, kind: Namespace, metadata: {name: NS-x, labels: ` + test.after + `}}`)
							return
						}
						w.patch(ours, `{"metadata":{"labels":{"both":"newer"}}}`)
					})
				}
			}
			w.requests.before.Store(&meanwhile)
			r := apply.AtVersion(t.Context(), c, []object{ours}, at(ours, version))
			if r.Count(apply.VerdictWaiting) != 1 || r.Writes() != 1 || r.Err() != nil || w.logged.Load() != 0 {
				t.Fatalf("%s, %d writes: %v", r, r.Writes(), r.Err())
			}
			got := w.live(ours.u)
			if got.GetLabels()["both"] != "newer" || metav1.HasAnnotation(metav1.ObjectMeta{Annotations: got.GetAnnotations()}, "new") {
				t.Errorf("it was written: %v %v", got.GetLabels(), got.GetAnnotations())
			}
			if r := apply.AtVersion(t.Context(), c, []object{ours}, at(ours, got.GetResourceVersion())); !r.Complete() {
				t.Errorf("looked at again: %s: %v", r, r.Err())
			}
		})
	}
}

// An object that is gone is created, whatever version it had.
func TestApplyAtVersionCreatesDeletedObjects(t *testing.T) {
	t.Parallel()
	for _, version := range []string{apply.Absent, "123"} {
		w := newFixture(t)
		ours := w.object(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: x, namespace: NS}}`)
		if r := apply.AtVersion(t.Context(), w.cluster(), []object{ours}, at(ours, version)); !r.Complete() || r.Writes() != 1 {
			t.Errorf("at %s: %s: %v", version, r, r.Err())
		}
	}
}

// If the watch already shows that the object is gone, a decision for an earlier version is not carried out.
func TestApplyAtSendsNothingForAnEarlierVersion(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	c := w.started()
	ours := w.object(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: x, namespace: NS}}`)
	if r := apply.AtVersion(t.Context(), c, []object{ours}, at(ours, apply.Absent)); !r.Complete() {
		t.Fatalf("%s: %v", r, r.Err())
	}
	version := w.live(ours.u).GetResourceVersion()
	w.Eventually(c.Members).Should(gomega.HaveLen(1))
	w.remove(ours)
	w.Eventually(c.Members).Should(gomega.BeEmpty())
	w.requests.reset()
	r := apply.AtVersion(t.Context(), c, []object{ours}, at(ours, version))
	if r.Count(apply.VerdictWaiting) != 1 || w.requests.String() != "0 reads, 0 writes" {
		t.Errorf("%s; %s", r, w.requests)
	}
	if r := apply.AtVersion(t.Context(), c, []object{ours}, at(ours, apply.Absent)); !r.Complete() || r.Writes() != 1 {
		t.Errorf("%s: %v", r, r.Err())
	}
}
