package apply_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/hypergate/hypergate/pkg/apply"
)

// hurriedClock advances by one minute with each call of Now, so that no object is ever written too often.
type hurriedClock struct {
	clock.RealClock
	minutes atomic.Int64
}

func (c *hurriedClock) Now() time.Time { return time.Unix(c.minutes.Add(1)*60, 0) }

func hurried(o *apply.Options) { o.Clock = &hurriedClock{} }

// Another process with our field manager name writes other values to the same fields.
func TestAValueOfTheSameFieldManagerIsDrift(t *testing.T) {
	t.Parallel()
	for _, i := range []int{7, 8, 10} { // a Secret, a ConfigMap, a Deployment
		w := newFixture(t)
		o := w.object(sample()[i].object)
		t.Run(o.GVK().Kind, func(t *testing.T) {
			t.Parallel()
			w := w.in(t)
			c, objs := w.started(), []object{o}
			if r := apply.Apply(t.Context(), c, objs); r.Err() != nil {
				t.Fatal(r.Err())
			}
			w.rests(c, objs)

			w.requests.reset()
			w.applyAsUs(o) // changes nothing
			w.Consistently(w.notified, "300ms").ShouldNot(gomega.Receive())

			other := w.bare(w.parse(strings.NewReplacer("ours", "theirs", "b3Vycw==", "dGhlaXJz").Replace(string(o.body))))
			w.secondAfter(o)
			w.applyAsUs(other)
			if w.isOurs(o) {
				t.Fatal("nothing was changed: the test shows nothing")
			}
			writes := w.converge(c, objs, func() bool { return w.isOurs(o) })
			if writes != 1 || w.requests.writes.Load() != 1 {
				t.Errorf("it took %d writes to restore it (%s were sent), want 1", writes, w.requests)
			}
			if r := apply.Apply(t.Context(), c, objs); r.Writes() != 0 {
				t.Errorf("%d more writes after it was restored", r.Writes())
			}
		})
	}
}

// applyAsUs applies an object as another process with our field manager name.
func (w *fixture) applyAsUs(o object) {
	w.t.Helper()
	if _, err := w.resource(o.u).Apply(w.t.Context(), o.u.GetName(), o.u,
		metav1.ApplyOptions{FieldManager: manager, Force: true}); err != nil {
		w.t.Fatal(err)
	}
}

// secondAfter waits for the next second of the API server, because the times in managedFields have whole seconds.
func (w *fixture) secondAfter(o object) {
	w.t.Helper()
	var last time.Time
	for _, e := range w.live(o.u).GetManagedFields() {
		if e.Time.After(last) {
			last = e.Time.Time
		}
	}
	w.Eventually(func() time.Time { return time.Now().Truncate(time.Second) }).Should(gomega.BeTemporally(">", last))
}

// Another writer reverts whatever we write, as fast as we write it. We answer with a burst of writes, then with one
// write every ten seconds. Other objects are not affected.
func TestConflictingWritesAreRateLimited(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	now := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	c := w.started(func(o *apply.Options) { o.Clock = now })
	fought := w.object(`{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: NS}, data: {key: ours}}`)
	calm := w.object(`{apiVersion: v1, kind: ConfigMap, metadata: {name: calm, namespace: NS}, data: {key: ours}}`)
	objs := []object{fought, calm}
	round := 0
	// fight waits until our watch has shown the change of the other writer, and applies.
	fight := func() apply.Report {
		round++
		w.patch(fought, fmt.Sprintf(`{"data":{"key":"theirs %d"}}`, round))
		w.Eventually(w.notified).Should(gomega.Receive())
		return apply.Apply(t.Context(), c, objs)
	}
	if r := apply.Apply(t.Context(), c, objs); r.Err() != nil {
		t.Fatal(r.Err())
	}
	w.rests(c, objs)
	writes := 1
	for range 9 {
		writes += fight().Writes()
	}
	if writes != 10 {
		t.Fatalf("%d writes in a burst, want 10", writes)
	}
	w.requests.reset()
	r := fight()
	if r.Count(apply.VerdictRateLimited) != 1 || r.Complete() || r.Err() != nil || r.Writes() != 0 ||
		r.RetryAfter() != 10*time.Second || r.String() != "1 unchanged, 1 rate-limited" {
		t.Errorf("after a burst: %s, complete %t, again after %v: %v", r, r.Complete(), r.RetryAfter(), r.Err())
	}
	if other := r.Outcomes()[0].OtherManager(); !strings.HasSuffix(other, "(data.key)") {
		t.Errorf("the other manager is %q, want the name of the other writer and the field", other)
	}
	if p := c.Prune(t.Context()); p.Count(apply.VerdictRateLimited) != 1 || p.Count(apply.VerdictDeleted) != 1 ||
		p.RetryAfter() != 10*time.Second || p.Complete() {
		t.Errorf("prune after a burst: %s, again after %v", p, p.RetryAfter())
	}
	if got := w.requests.String(); got != "0 reads, 1 writes" {
		t.Errorf("sent %s, want only the deletion of the other object", got)
	}

	now.SetTime(now.Now().Add(r.RetryAfter()))
	r = apply.Apply(t.Context(), c, objs)
	if !r.Complete() || r.RetryAfter() != 0 || !w.isOurs(fought) || !w.isOurs(calm) {
		t.Errorf("when it was time: %s, again after %v: %v", r, r.RetryAfter(), r.Err())
	}
}

// An object that is installed and uninstalled repeatedly counts as one object.
func TestFlappingIsRateLimited(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	now := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	c := w.started(func(o *apply.Options) { o.Clock = now })
	o := w.object(`{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: NS}}`)
	writes := 0
	flap := func() (apply.Report, apply.Report) {
		up := apply.Apply(t.Context(), c, []object{o})
		down := c.Prune(t.Context())
		writes += up.Writes() + down.Writes()
		w.Eventually(c.Members).Should(gomega.BeEmpty())
		return up, down
	}
	for range 5 {
		flap()
	}
	before := writes
	up, _ := flap()
	if before < 10 || up.Count(apply.VerdictRateLimited) != 1 || up.RetryAfter() != 10*time.Second || writes != before {
		t.Errorf("after %d writes: %s, again after %v, %d more", before, up, up.RetryAfter(), writes-before)
	}
	if live := w.live(o.u); live != nil {
		t.Errorf("it is there: %v", live)
	}
}
