package apply_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/pkg/apply"
)

func TestPruneKeepsForeignObjects(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	c, objs := w.started(), w.sample()
	if r := apply.Apply(t.Context(), c, objs); r.Err() != nil {
		t.Fatal(r.Err())
	}
	foreign := w.create(`{apiVersion: v1, kind: ConfigMap, metadata: {name: theirs, namespace: NS, ` +
		`labels: {` + ownerKey + `: another}}}`)
	member := w.createAsUs(`{apiVersion: v1, kind: ConfigMap, metadata: {name: stray, namespace: NS, ` +
		`labels: {` + ownerKey + `: ` + w.owner + `}}}`)
	w.settle(c, append(slices.Clone(objs), w.bare(member)))

	kept := objs[:len(objs)-2] // all but the webhook configurations
	r := c.Prune(t.Context(), apply.IDs(kept)...)
	want := []string{
		"ValidatingWebhookConfiguration " + w.namespace + "-x", "MutatingWebhookConfiguration " + w.namespace + "-x",
		"ConfigMap " + w.namespace + "/stray",
	}
	if diff := cmp.Diff(want, deleted(r)); diff != "" || r.Err() != nil || r.Writes() != len(want) {
		t.Errorf("deleted, in the reverse order of Kinds, with %d writes: %v\n%s", r.Writes(), r.Err(), diff)
	}
	w.settle(c, kept)
	w.requests.reset()
	if r := c.Prune(t.Context(), apply.IDs(kept)...); r.Writes() != 0 || len(r.Outcomes()) != 0 || !r.Complete() {
		t.Errorf("second prune: %s", r)
	}
	if got := w.requests.String(); got != "0 reads, 0 writes" {
		t.Errorf("second prune sent %s", got)
	}

	if r = c.Prune(t.Context()); !r.Complete() || r.Count(apply.VerdictDeleted) != len(kept)-2 {
		t.Errorf("clearing: %s: %v", r, r.Err())
	}
	w.Eventually(c.Members).Should(gomega.ConsistOf(apply.IDs(objs[:2])), "the CRD and the Namespace stay")
	for _, o := range []object{objs[0], objs[1], w.bare(foreign)} {
		if w.live(o.u) == nil {
			t.Errorf("%s %s is gone", o.GVK().Kind, o.Key())
		}
	}

	// Pruned objects can be applied again.
	if r := apply.Apply(t.Context(), c, objs); r.Err() != nil || r.Writes() != len(objs)-2 {
		t.Errorf("applying again: %s, %d writes: %v", r, r.Writes(), r.Err())
	}
}

func deleted(r apply.Report) []string {
	var out []string
	for _, o := range r.Outcomes() {
		if o.Verdict() == apply.VerdictDeleted {
			out = append(out, o.ID().String())
		}
	}
	return out
}

// The watch has not shown the objects that were just written. Prune must know them nevertheless, because no
// notification would call it again.
func TestPruneDeletesObjectsThatTheWatchHasNotShown(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	c, objs := w.started(), w.sample()
	if r := apply.Apply(t.Context(), c, objs); r.Err() != nil {
		t.Fatal(r.Err())
	}
	r := c.Prune(t.Context())
	if got := len(deleted(r)); got != len(objs)-2 || !r.Complete() {
		t.Errorf("%d deleted of %d: %v", got, len(objs)-2, r.Err())
	}
	w.Eventually(c.Members).Should(gomega.ConsistOf(apply.IDs(objs[:2])))
	if r := c.Prune(t.Context()); len(r.Outcomes()) != 0 {
		t.Errorf("second prune: %s", r)
	}
}

// Another client changes the object between the last event of the watch and the delete request.
func TestPruneOfAnObjectThatChanges(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change        func(*fixture, object)
		verdict       apply.Verdict
		writes        int
		stays, always bool
	}{
		"changed": {
			change:  func(w *fixture, o object) { w.patch(o, `{"data":{"theirs":"yes"}}`) },
			verdict: apply.VerdictDeleted, writes: 2,
		},
		"changed every time": {
			change:  func(w *fixture, o object) { w.patch(o, `{"data":{"n":"`+w.requests.String()+`"}}`) },
			verdict: apply.VerdictFailed, writes: 3, stays: true, always: true,
		},
		"stripped": {
			change:  func(w *fixture, o object) { w.patch(o, `{"metadata":{"labels":null}}`) },
			verdict: apply.VerdictUnchanged, writes: 1, stays: true,
		},
		"given to another owner": {
			change:  func(w *fixture, o object) { w.patch(o, `{"metadata":{"labels":{"`+ownerKey+`":"other"}}}`) },
			verdict: apply.VerdictUnchanged, writes: 1, stays: true,
		},
		"without fields of ours": {
			change:  func(w *fixture, o object) { w.patch(o, `{"metadata":{"managedFields":[{}]}}`) },
			verdict: apply.VerdictUnchanged, writes: 1, stays: true,
		},
		"deleted": {change: func(w *fixture, o object) { w.remove(o) }, verdict: apply.VerdictDeleted, writes: 1},
		"replaced": {
			change: func(w *fixture, o object) {
				w.remove(o)
				w.create(`{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: NS, ` +
					`labels: {` + ownerKey + `: ` + w.owner + `}}}`)
			},
			verdict: apply.VerdictUnchanged, writes: 1, stays: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			c := w.started()
			o := w.object(`{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: NS}, data: {ours: "yes"}}`)
			if r := apply.Apply(t.Context(), c, []object{o}); r.Err() != nil {
				t.Fatal(r.Err())
			}
			w.settle(c, []object{o})
			changed := false
			before := func(req *http.Request) {
				if req.Method == http.MethodDelete && (!changed || test.always) {
					changed = true
					test.change(w, o)
				}
			}
			w.requests.before.Store(&before)
			r := c.Prune(t.Context())
			if len(r.Outcomes()) != 1 || r.Outcomes()[0].Verdict() != test.verdict || r.Writes() != test.writes {
				t.Errorf("prune: %s, %d writes, want %s with %d: %v", r, r.Writes(), test.verdict, test.writes, r.Err())
			}
			if got := w.live(o.u) != nil; got != test.stays {
				t.Errorf("the object is there: %t, want %t", got, test.stays)
			}
		})
	}
}

func TestPruneWaitsForAFinalizer(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	c := w.started()
	o := w.object(`{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: NS, finalizers: [example.com/slow]}}`)
	if r := apply.Apply(t.Context(), c, []object{o}); r.Err() != nil {
		t.Fatal(r.Err())
	}
	w.rests(c, []object{o})
	if r := c.Prune(t.Context()); r.Count(apply.VerdictDeleted) != 1 {
		t.Errorf("prune: %s: %v", r, r.Err())
	}
	w.Eventually(w.notified).Should(gomega.Receive())
	if r := c.Prune(t.Context()); r.Count(apply.VerdictWaiting) != 1 || r.Writes() != 0 || r.Complete() {
		t.Errorf("prune while it is being deleted: %s", r)
	}
	w.patch(o, `{"metadata":{"finalizers":null}}`)
	w.Eventually(w.notified).Should(gomega.Receive())
	if r := c.Prune(t.Context()); len(r.Outcomes()) != 0 || !r.Complete() {
		t.Errorf("prune after it was deleted: %s", r)
	}
}

// An object that is deleted in the foreground exists until its dependents are gone. This also holds between the
// request and the event of the watch. Until then, the objects that the dependents need exist, too.
func TestPruneInTheForegroundWaits(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	c := w.started(func(o *apply.Options) {
		for i := range o.Kinds {
			o.Kinds[i].Foreground = o.Kinds[i].Resource == "configmaps"
		}
	})
	needed := w.object(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: x, namespace: NS}}`)
	o := w.object(`{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: NS}}`)
	if r := apply.Apply(t.Context(), c, []object{needed, o}); r.Err() != nil {
		t.Fatal(r.Err())
	}
	for range 3 {
		r := c.Prune(t.Context())
		if r.Count(apply.VerdictWaiting) != 1 || len(r.Outcomes()) != 1 || r.Complete() || r.Err() != nil {
			t.Errorf("prune: %s, complete %t: %v", r, r.Complete(), r.Err())
		}
	}
	w.patch(o, `{"metadata":{"finalizers":null}}`) // as the garbage collector does
	w.Eventually(c.Members).Should(gomega.ConsistOf(apply.IDs([]object{needed})))
	if r := c.Prune(t.Context()); !slices.Equal(deleted(r), []string{"ServiceAccount " + w.namespace + "/x"}) || !r.Complete() {
		t.Errorf("prune after it was deleted: %s", r)
	}
	w.Eventually(c.Members).Should(gomega.BeEmpty())
	if r := c.Prune(t.Context()); len(r.Outcomes()) != 0 || !r.Complete() {
		t.Errorf("prune after all were deleted: %s", r)
	}
	if r := apply.Apply(t.Context(), c, []object{o}); !r.Complete() || r.Writes() != 1 {
		t.Errorf("applying again: %s, %d writes: %v", r, r.Writes(), r.Err())
	}
}

func TestPruneBeforeTheFirstListDeletesNothing(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	c, objs := w.cluster(), w.sample()
	if r := apply.Apply(t.Context(), c, objs); r.Err() != nil {
		t.Fatal(r.Err())
	}
	w.requests.reset()
	r := c.Prune(t.Context())
	if r.Complete() || r.Err() != nil || r.Count(apply.VerdictWaiting) != len(kinds())-2 ||
		r.Outcomes()[0].ID().String() != "ServiceAccount" {
		t.Errorf("prune without watches: %s, %v, %s: %v", r, r.Complete(), r.Outcomes()[0].ID(), r.Err())
	}
	if got := w.requests.String(); got != "0 reads, 0 writes" {
		t.Errorf("prune without watches sent %s", got)
	}
}
