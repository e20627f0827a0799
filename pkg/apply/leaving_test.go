package apply

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

// noRequests fails each request.
type noRequests struct{ sent int }

func (s *noRequests) RoundTrip(*http.Request) (*http.Response, error) {
	s.sent++
	return nil, errors.New("no request is expected")
}

// TestABlockedDeletionIsFound checks that an object that is being deleted counts as blocked after deletionPatience,
// wherever it is met, and that one look at that time finds it. Nothing is requested.
func TestABlockedDeletionIsFound(t *testing.T) {
	t.Parallel()
	server := &noRequests{}
	c, now := withMembers(t, server, 1)
	id := ID{GVK: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Key: types.NamespacedName{Namespace: "ns", Name: "x00000"}}
	ours := ID{GVK: schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, Key: types.NamespacedName{Namespace: "ns", Name: "ours"}}
	shows := func(s sighting) {
		s.rv = "7"
		c.tracker.saw(source{kind: 1}, id.Key, s)
	}
	calls := map[string]func() Report{
		"apply": func() Report { return Apply(t.Context(), c, []plain{leavingObject(id)}) },
		"prune": func() Report { return c.Prune(t.Context(), ours) },
	}
	check := func(blocked bool, again time.Duration) {
		t.Helper()
		for name, call := range calls {
			r := call()
			if len(r.Outcomes()) != 1 || r.Count(VerdictWaiting) != 1 || r.Outcomes()[0].IsBlocked() != blocked ||
				r.RetryAfter() != again || r.Complete() || r.Err() != nil {
				t.Errorf("%s: %s, blocked %t, again after %s: %v", name, r, r.Outcomes()[0].IsBlocked(), r.RetryAfter(), r.Err())
			}
		}
	}
	shows(sighting{state: terminating, uid: "x00000", fields: 1})
	check(false, deletionPatience)
	now.SetTime(now.Now().Add(deletionPatience - time.Second))
	shows(sighting{state: terminating, uid: "x00000", fields: 2}) // another change does not begin the time again
	check(false, time.Second)
	now.SetTime(now.Now().Add(time.Second))
	check(true, 0)
	if !c.IsLeaving(id) || c.IsLeaving(ours) {
		t.Errorf("leaving: %t, and the other object %t", c.IsLeaving(id), c.IsLeaving(ours))
	}
	blocked := Blocked(id)
	if blocked.Cause().Class() != DeletionBlocked || blocked.Cause().String() != "the deletion has not ended within 2m0s" {
		t.Errorf("%s: %q", blocked.Cause().Class(), blocked.Cause())
	}
	shows(sighting{state: terminating, uid: "successor", fields: 1})
	check(false, deletionPatience)
	if server.sent != 0 {
		t.Errorf("%d requests", server.sent)
	}
}

// plain is an object as this package needs it.
type plain struct {
	id   ID
	body string
}

func (p plain) GVK() schema.GroupVersionKind { return p.id.GVK }
func (p plain) Key() types.NamespacedName    { return p.id.Key }
func (p plain) JSON() []byte                 { return []byte(p.body) }

func leavingObject(id ID) plain {
	return plain{
		id, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + id.Key.Name + `","namespace":"ns","labels":{"owner":"us"}}}`,
	}
}

// TestADeletionIsOldAfterARestart checks from when a deletion counts that began before this process watched. The clock
// of the API server does not matter for any other deletion.
func TestADeletionIsOldAfterARestart(t *testing.T) {
	t.Parallel()
	start := time.Unix(10_000, 0)
	leaving := func(at time.Time) sighting {
		return sighting{state: terminating, rv: "5", uid: "a", fields: 1, deletion: at}
	}
	for name, tc := range map[string]struct {
		known    bool
		deletion time.Time
		want     time.Duration
		blocked  bool
	}{
		"long ago":                  {deletion: start.Add(-time.Hour), blocked: true},
		"a minute ago":              {deletion: start.Add(-time.Minute), want: deletionPatience - time.Minute},
		"by a clock that is ahead":  {deletion: start.Add(time.Hour), want: deletionPatience},
		"known, by a clock behind":  {known: true, deletion: start.Add(-time.Hour), want: deletionPatience},
		"without a time, as in lie": {want: deletionPatience},
	} {
		tracker := newTracker(make([]Kind, 1), clocktesting.NewFakePassiveClock(start))
		if tc.known {
			tracker.saw(source{}, tracked, sighting{state: present, rv: "4", uid: "a", fields: 1})
		}
		tracker.listed(source{}, map[types.NamespacedName]sighting{tracked: leaving(tc.deletion)}, "6")
		if p, got := tracker.begin(0, tracked, 1, ""); p != planWait || got.wait != tc.want || got.blocked != tc.blocked {
			t.Errorf("%s: plan %d, %s, blocked %t; want %s, blocked %t", name, p, got.wait, got.blocked, tc.want, tc.blocked)
		}
	}
}

// TestADeletionThatNoWatchShows checks an object that lost its owner label before it was deleted. Only answers show it,
// so it is looked at again until it is gone. A write that succeeds ends that.
func TestADeletionThatNoWatchShows(t *testing.T) {
	t.Parallel()
	now := clocktesting.NewFakePassiveClock(time.Unix(10_000, 0))
	tracker := newTracker(make([]Kind, 1), now)
	look := func() pause { return tracker.leaves(0, tracked) }
	if got := look(); got.blocked || got.wait != deletionPatience {
		t.Errorf("at first: %+v", got)
	}
	now.SetTime(now.Now().Add(deletionPatience))
	for range 2 {
		if got := look(); !got.blocked || got.wait != deletionPatience {
			t.Errorf("after %s: %+v", deletionPatience, got)
		}
	}
	tracker.wrote(0, tracked, memo{hash: 1, rv: "9", uid: "b"})
	if got := look(); got.blocked {
		t.Errorf("its successor: %+v", got)
	}
	if keys := slices.Collect(maps.Keys(tracker.kinds[0].records)); len(keys) != 1 {
		t.Errorf("records of %v", keys)
	}
}
