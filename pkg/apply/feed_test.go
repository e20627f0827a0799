package apply

import (
	"errors"
	"net/http"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

var (
	one, two         = types.NamespacedName{Namespace: "ns", Name: "one"}, types.NamespacedName{Namespace: "ns", Name: "two"}
	fromOne, fromTwo = source{feed: 0}, source{feed: 1}
)

// pair returns a tracker of one kind that is watched by two names.
func pair() *tracker {
	return newTracker([]Kind{{Resource: "secrets", Names: []string{"one", "two"}}}, clock.RealClock{})
}

func (t *tracker) planOf(key types.NamespacedName) plan {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.record(0, key).plan(1, t.isListed(0, key))
}

func TestAKindIsSyncedWhenAllNamesAreListed(t *testing.T) {
	t.Parallel()
	tr := pair()
	tr.listed(fromOne, nil, "5")
	if tr.synced(0) || tr.known(0) {
		t.Error("synced after one of two lists")
	}
	if a, b := tr.planOf(one), tr.planOf(two); a != planWriteNew || b != planWriteUnknown {
		t.Errorf("plans = %d, %d, want that only the first name is known to be free", a, b)
	}
	tr.listed(fromTwo, nil, "5")
	if !tr.synced(0) || !tr.known(0) {
		t.Error("not synced after both lists")
	}
}

func TestAListOfOneNameDoesNotCoverOthers(t *testing.T) {
	t.Parallel()
	tr := pair()
	tr.listed(fromOne, map[types.NamespacedName]sighting{one: {state: present, rv: "4", uid: "a"}}, "5")
	tr.listed(fromTwo, nil, "6")
	if !slices.Equal(tr.members(0), []types.NamespacedName{one}) {
		t.Errorf("members = %v, want the first name", tr.members(0))
	}
	tr.wrote(0, one, memo{hash: 1, rv: "10", uid: "a"})
	tr.wrote(0, two, memo{hash: 1, rv: "11", uid: "b"})
	tr.listed(fromOne, nil, "20")
	if a, b := tr.planOf(one), tr.planOf(two); a != planWriteUnknown || b != planNothing {
		t.Errorf("plans = %d, %d, want that only the first one is gone", a, b)
	}
}

// The resource versions that two watches have seen are independent of each other.
func TestResourceVersionsOfWatchesAreIndependent(t *testing.T) {
	t.Parallel()
	tr := pair()
	tr.listed(fromOne, nil, "100")
	tr.listed(fromTwo, nil, "100")
	tr.wrote(0, one, memo{hash: 1, rv: "110", uid: "a"})
	tr.wrote(0, two, memo{hash: 1, rv: "120", uid: "b"})
	tr.saw(fromOne, one, sighting{state: present, rv: "200", uid: "a"})
	tr.listed(fromTwo, map[types.NamespacedName]sighting{two: {state: present, rv: "120", uid: "b"}}, "150")
	if p := tr.planOf(two); p != planNothing {
		t.Errorf("plan = %d, want nothing: no list of this name was ever newer", p)
	}
	tr.listed(fromTwo, map[types.NamespacedName]sighting{two: {state: present, rv: "40", uid: "b", fields: 1}}, "50")
	if a, b := tr.planOf(one), tr.planOf(two); a != planNothing || b != planWriteOurs {
		t.Errorf("plans = %d, %d, want that only the second name is void", a, b)
	}
}

func TestAWorkingWatchDoesNotHideAFailingWatch(t *testing.T) {
	t.Parallel()
	secrets := schema.GroupResource{Resource: "secrets"}
	problem := func(err error) *WatchProblem {
		return &WatchProblem{Cause: Classify(err, "watch", secrets), err: err}
	}
	tr := pair()
	forbidden := problem(apierrors.NewForbidden(secrets, "two", errors.New(`User "x" cannot watch resource "secrets"`)))
	if !tr.setProblem(fromTwo, forbidden) {
		t.Error("a new problem is not reported as a change")
	}
	if tr.setProblem(fromOne, nil) || tr.problem(0) == nil {
		t.Error("the other watch is confused with this one")
	}
	if tr.known(0) {
		t.Error("known, although one name was neither listed nor refused")
	}
	tr.listed(fromOne, nil, "5")
	if !tr.known(0) || tr.synced(0) {
		t.Errorf("known %t, synced %t; want known and not synced: one name was listed, one refused", tr.known(0), tr.synced(0))
	}
	unavailable := problem(apierrors.NewGenericServerResponse(http.StatusServiceUnavailable, "watch", secrets, "one", "", 0, true))
	if !tr.setProblem(fromOne, unavailable) || tr.problem(0) != unavailable {
		t.Errorf("the kind's problem is %v, want that of its first name", tr.problem(0))
	}
	tr.setProblem(fromOne, nil)
	if tr.problem(0) != forbidden {
		t.Errorf("the kind's problem is %v, want that of the second name", tr.problem(0))
	}
	if !tr.setProblem(fromTwo, nil) || tr.problem(0) != nil {
		t.Error("a problem that ended stays")
	}
}

// TestARepeatedRefusalInANewSessionNotifies checks that a pass that waits for the kind is notified when the kind
// becomes known, although the problem is the same as before.
func TestARepeatedRefusalInANewSessionNotifies(t *testing.T) {
	t.Parallel()
	secrets := schema.GroupResource{Resource: "secrets"}
	err := apierrors.NewForbidden(secrets, "", errors.New(`User "x" cannot list resource "secrets"`))
	forbidden := &WatchProblem{Cause: Classify(err, "list", secrets), err: err}
	tr := newTracker([]Kind{{Resource: "secrets"}}, clock.RealClock{})
	session, woken := uint64(1), 0
	tr.start(func() { woken++ }, func() uint64 { return session })
	for _, step := range []struct {
		session uint64
		known   bool // before the refusal
		woken   int  // after it
	}{{1, false, 1}, {1, true, 1}, {2, false, 2}, {2, true, 2}} {
		session = step.session
		tr.begins(source{})
		if tr.known(0) != step.known {
			t.Errorf("session %d: known is %t", step.session, !step.known)
		}
		tr.setProblem(source{}, forbidden)
		if !tr.known(0) || woken != step.woken {
			t.Errorf("session %d: known is %t, and %d passes were woken, want %d", step.session, tr.known(0), woken, step.woken)
		}
	}
}
