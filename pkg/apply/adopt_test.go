package apply_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/apply"
)

// Adopted, an object of somebody else's becomes ours: what we say is taken from him, what we do not say stays his, and from then on it is
// looked after like all that is ours.
func TestAdopt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.started()
	theirs := w.create(`{apiVersion: v1, kind: Namespace, metadata: {name: NS-x, labels: {both: theirs, theirs: theirs}, annotations: {theirs: theirs}}}`)
	objs := []object{w.object(`{apiVersion: v1, kind: Namespace, metadata: {name: NS-x, labels: {both: ours}}}`)}
	if r := apply.Apply(t.Context(), c, objs); r.Outcomes()[0].Cause().Class() != apply.Conflict {
		t.Fatalf("applied and not adopted: %s", r)
	}
	if r := apply.Adopt(t.Context(), c, objs); !r.Complete() || r.Writes() != 1 {
		t.Fatalf("adopted: %s, %d writes: %v", r, r.Writes(), r.Err())
	}
	got := w.live(theirs)
	if diff := cmp.Diff("ours theirs theirs", got.GetLabels()["both"]+" "+got.GetLabels()["theirs"]+" "+got.GetAnnotations()["theirs"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !w.isOurs(objs[0]) || got.GetUID() != theirs.GetUID() {
		t.Error("it is not ours, or another object")
	}
	w.settle(c, objs)
	w.requests.reset()
	if r := apply.Adopt(t.Context(), c, objs); r.Writes() != 0 {
		t.Errorf("adopted once more: %s", r)
	}
	w.patch(objs[0], `{"metadata":{"labels":{"both":"theirs"}}}`)
	w.converge(c, objs, func() bool { return w.live(theirs).GetLabels()["both"] == "ours" })
}
