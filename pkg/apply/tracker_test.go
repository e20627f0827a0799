package apply

import (
	"fmt"
	"hash/maphash"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

var tracked = types.NamespacedName{Namespace: "ns", Name: "x"}

// story is a sequence of events of one object, and the tracker that receives them.
type story struct {
	t        *testing.T
	tracker  *tracker
	notified int
}

func newStory(t *testing.T) *story {
	t.Helper()
	s := &story{t: t, tracker: newTracker(make([]Kind, 1), clock.RealClock{})}
	if !s.tracker.start(func() { s.notified++ }, func() uint64 { return 0 }) {
		t.Fatal("the tracker was started before")
	}
	return s
}

// begin checks the plan of the tracker for the object, without ending a write.
func (s *story) begin(hash uint64, want plan) {
	s.t.Helper()
	if got, _ := s.tracker.begin(0, tracked, hash, ""); got != want {
		s.t.Errorf("plan = %d, want %d", got, want)
	}
}

// beginAt is begin for a caller that decided for a version, and for the content of hash 1.
func (s *story) beginAt(version string, want plan) {
	s.t.Helper()
	if got, _ := s.tracker.begin(0, tracked, 1, version); got != want {
		s.t.Errorf("plan at %s = %d, want %d", version, got, want)
	}
}

// wrote adds a write that succeeded.
func (s *story) wrote(hash uint64, rv string, uid types.UID, fields uint64) {
	s.t.Helper()
	if p, _ := s.tracker.begin(0, tracked, hash, ""); p == planNothing || p == planWait {
		s.t.Errorf("plan = %d, want a write", p)
	}
	s.tracker.wrote(0, tracked, memo{hash: hash, rv: rv, uid: uid, fields: fields})
}

func (s *story) shows(rv string, uid types.UID, fields uint64) {
	s.tracker.saw(source{}, tracked, sighting{state: present, rv: rv, uid: uid, fields: fields})
}

func (s *story) showsTerminating(rv string, uid types.UID) {
	s.tracker.saw(source{}, tracked, sighting{state: terminating, rv: rv, uid: uid, fields: 1})
}

func (s *story) showsGone(rv string) {
	s.tracker.saw(source{}, tracked, sighting{state: gone, rv: rv})
}

func (s *story) lists(rv string, all map[types.NamespacedName]sighting) {
	s.tracker.listed(source{}, all, rv)
}

// expect checks the number of notifications since the last call.
func (s *story) expect(notifications int) {
	s.t.Helper()
	if s.notified != notifications {
		s.t.Errorf("notified %d times, want %d", s.notified, notifications)
	}
	s.notified = 0
}

// TestTrackerOwnWrites checks when an object is written, and when another event counts as drift.
func TestTrackerOwnWrites(t *testing.T) {
	t.Parallel()
	runTrackerStories(t, map[string]func(*story){
		"without a watch, nothing is known of an object that we did not write": func(s *story) {
			s.begin(1, planWriteUnknown)
		},
		"once there is a list, an object that is not on it is new": func(s *story) {
			s.lists("5", nil)
			s.begin(1, planWriteNew)
		},
		"an object with our label is ours, whoever wrote it": func(s *story) {
			s.lists("5", map[types.NamespacedName]sighting{tracked: {state: present, rv: "4", uid: "a"}})
			s.begin(1, planWriteOurs)
		},
		"written objects rest, also before the watch shows them": func(s *story) {
			s.wrote(1, "10", "a", 7)
			s.begin(1, planNothing)
			s.shows("10", "a", 7)
			s.begin(1, planNothing)
			s.expect(0)
		},
		"other content is written": func(s *story) {
			s.wrote(1, "10", "a", 7)
			s.begin(2, planWriteOurs)
		},
		"an older event of the object does not count": func(s *story) {
			s.shows("5", "a", 3)
			s.notified = 0
			s.wrote(1, "10", "a", 7)
			s.shows("6", "a", 4)
			s.showsGone("9")
			s.begin(1, planNothing)
			s.expect(0)
		},
		"resource versions are compared as numbers": func(s *story) {
			s.wrote(1, "100", "a", 7)
			s.showsGone("99")
			s.begin(1, planNothing)
			s.showsGone("1000")
			s.begin(1, planWriteUnknown)
			s.expect(1)
		},
		"a status write is not drift": func(s *story) {
			s.wrote(1, "10", "a", 7)
			s.shows("11", "a", 7)
			s.begin(1, planNothing)
			s.expect(0)
		},
		"a field that was taken is drift": func(s *story) {
			s.wrote(1, "10", "a", 7)
			s.shows("11", "a", 8)
			s.expect(1)
			s.begin(1, planWriteOurs)
		},
		"an object that lost all of managedFields has drifted": func(s *story) {
			s.wrote(1, "10", "a", 7)
			s.shows("11", "a", 0)
			s.expect(1)
			s.begin(1, planWriteOurs)
		},
		"a deleted object is written, as one of unknown owner": func(s *story) {
			s.wrote(1, "10", "a", 7)
			s.showsGone("11")
			s.expect(1)
			s.begin(1, planWriteUnknown)
		},
		"another object with our label is taken over": func(s *story) {
			s.wrote(1, "10", "a", 7)
			s.shows("12", "b", 7)
			s.expect(1)
			s.begin(1, planWriteOurs)
		},
	})
}

// TestTrackerLists checks lists of any version, before and after our writes.
func TestTrackerLists(t *testing.T) {
	t.Parallel()
	runTrackerStories(t, map[string]func(*story){
		"a list without the object, newer than the write, says that it is gone": func(s *story) {
			s.wrote(1, "10", "a", 7)
			s.lists("11", nil)
			s.begin(1, planWriteUnknown)
			s.expect(1)
		},
		"a list without the object, older than the write, says nothing": func(s *story) {
			s.wrote(1, "10", "a", 7)
			s.lists("9", nil)
			s.expect(1) // it was the first list
			s.begin(1, planNothing)
			s.lists("9", nil)
			s.expect(0)
		},
		"a list that goes back in time voids what was remembered": func(s *story) {
			s.lists("8", nil)
			s.wrote(1, "10", "a", 7)
			s.shows("10", "a", 7)
			s.notified = 0
			s.lists("6", map[types.NamespacedName]sighting{tracked: {state: present, rv: "5", uid: "a", fields: 6}})
			s.expect(1)
			s.begin(1, planWriteOurs)
		},
		"a list that goes back in time and shows our write is taken for what there is": func(s *story) {
			s.lists("8", nil)
			s.wrote(1, "10", "a", 7)
			s.shows("11", "a", 7)
			s.notified = 0
			s.lists("6", map[types.NamespacedName]sighting{tracked: {state: present, rv: "5", uid: "a", fields: 7}})
			s.expect(0)
			s.begin(1, planNothing)
			s.shows("7", "a", 8) // the new history has not reached version 10 yet
			s.expect(1)
			s.begin(1, planWriteOurs)
		},
		"a newer list that shows what is older than our write voids it": func(s *story) {
			s.lists("4", nil)
			s.wrote(1, "500", "a", 7)
			s.shows("500", "a", 7)
			s.wrote(2, "900", "a", 8)
			s.shows("900", "a", 8)
			s.notified = 0
			// Restored from a backup at version 600. Other clients have written 400 times since then.
			s.lists("1000", map[types.NamespacedName]sighting{tracked: {state: present, rv: "500", uid: "a", fields: 7}})
			s.expect(1)
			s.begin(2, planWriteOurs)
		},
	})
}

// TestTrackerListsAndRestores checks lists around a write or a deletion of ours, and restored backups.
func TestTrackerListsAndRestores(t *testing.T) {
	t.Parallel()
	runTrackerStories(t, map[string]func(*story){
		"a list that voids our write notifies, even if it shows the same as before": func(s *story) {
			s.lists("4", nil)
			s.shows("5", "a", 7)
			s.wrote(2, "10", "a", 8) // the watch never shows it
			s.notified = 0
			s.lists("12", map[types.NamespacedName]sighting{tracked: {state: present, rv: "5", uid: "a", fields: 7}})
			s.expect(1)
			s.begin(2, planWriteOurs)
		},
		"a list of our version that does not show our write voids it": func(s *story) {
			s.lists("4", nil)
			s.wrote(1, "9", "a", 7)
			s.notified = 0
			s.lists("9", nil)
			s.expect(1)
			s.begin(1, planWriteNew)
		},
		"a list that began after our write and is older voids it": func(s *story) {
			s.lists("4", nil)
			s.wrote(1, "900", "a", 7) // the watch never shows it
			s.notified = 0
			s.tracker.begins(source{})
			s.lists("600", nil)
			s.expect(1)
			s.begin(1, planWriteNew)
		},
		"a list that began before our write and is older says nothing of it": func(s *story) {
			s.lists("4", nil)
			s.tracker.begins(source{})
			s.wrote(1, "900", "a", 7)
			s.notified = 0
			s.lists("600", nil)
			s.expect(0)
			s.begin(1, planNothing)
		},
		"what we deleted and a later list shows was restored": func(s *story) {
			s.shows("5", "a", 7)
			s.tracker.forget(0, tracked, "a")
			s.showsGone("6")
			s.tracker.forget(0, tracked, "a")
			s.tracker.begins(source{})
			s.lists("5", map[types.NamespacedName]sighting{tracked: {state: present, rv: "4", uid: "a", fields: 7}})
			s.begin(1, planWriteOurs)
			if v := s.tracker.victims(0, nil); len(v) != 1 {
				s.t.Errorf("victims = %v, want the object", v)
			}
		},
		"in another session nothing is known before a list that began in it": func(s *story) {
			session := uint64(0)
			s.tracker.session = func() uint64 { return session }
			s.tracker.begins(source{})
			s.lists("4", nil)
			known := func(want bool) {
				s.t.Helper()
				if s.tracker.synced(0) != want || s.tracker.known(0) != want {
					s.t.Errorf("synced %t, known %t, want %t", s.tracker.synced(0), s.tracker.known(0), want)
				}
			}
			known(true)
			s.tracker.begins(source{})
			session++
			known(false)
			s.begin(1, planWriteUnknown)
			s.lists("5", nil) // this list began in the previous session
			known(false)
			s.notified = 0
			s.tracker.begins(source{})
			s.lists("5", nil)
			s.expect(1)
			known(true)
		},
	})
}

// TestTrackerDecisionsForAVersion checks decisions that were made for a version of the object.
func TestTrackerDecisionsForAVersion(t *testing.T) {
	t.Parallel()
	runTrackerStories(t, map[string]func(*story){
		"a list without the object shows no version of it": func(s *story) {
			s.wrote(1, "10", "a", 7)
			s.lists("500", nil) // the object lost its label at 110
			s.beginAt("110", planWriteUnknown)
		},
		"a decision for an earlier version than the watch shows is not carried out": func(s *story) {
			s.lists("4", nil)
			s.wrote(1, "10", "a", 7)
			s.beginAt("10", planNothing)
			s.showsGone("11") // it lost its label
			s.beginAt("10", planWait)
			s.beginAt(Absent, planWriteUnknown)
			s.tracker.left(0, tracked)
			s.beginAt("11", planWriteUnknown)
		},
	})
}

// TestTrackerTerminatingObjects checks that objects with a deletionTimestamp are waited for.
func TestTrackerTerminatingObjects(t *testing.T) {
	t.Parallel()
	runTrackerStories(t, map[string]func(*story){
		"an object that is being deleted is waited for": func(s *story) {
			s.wrote(1, "10", "a", 7)
			s.showsTerminating("11", "a")
			s.expect(1)
			s.begin(1, planWait)
			s.showsGone("12")
			s.expect(1)
			s.begin(1, planWriteUnknown)
		},
		"an object that was being deleted before we came is waited for": func(s *story) {
			s.lists("5", map[types.NamespacedName]sighting{tracked: {state: terminating, rv: "4", uid: "a"}})
			s.expect(1)
			s.begin(1, planWait)
			s.showsGone("6")
			s.expect(1)
			s.begin(1, planWriteNew)
		},
		"the deletion of a former object is not waited for": func(s *story) {
			s.showsTerminating("5", "a")
			s.showsGone("6")
			s.wrote(1, "10", "b", 7)
			s.showsTerminating("9", "a")
			s.begin(1, planNothing)
		},
	})
}

// TestTrackerEventsDuringAWrite checks events that arrive before the response to a write, and writes that fail.
func TestTrackerEventsDuringAWrite(t *testing.T) {
	t.Parallel()
	runTrackerStories(t, map[string]func(*story){
		"the echo that comes before the answer does not notify": func(s *story) {
			s.begin(1, planWriteUnknown)
			s.shows("10", "a", 7)
			s.expect(0)
			s.tracker.wrote(0, tracked, memo{hash: 1, rv: "10", uid: "a", fields: 7})
			s.expect(0)
			s.begin(1, planNothing)
		},
		"drift that comes before the answer notifies with the answer": func(s *story) {
			s.begin(1, planWriteUnknown)
			s.shows("10", "a", 7)
			s.shows("11", "a", 8)
			s.tracker.wrote(0, tracked, memo{hash: 1, rv: "10", uid: "a", fields: 7})
			s.expect(1)
			s.begin(1, planWriteOurs)
		},
		"events during a failed write are reported": func(s *story) {
			s.begin(1, planWriteUnknown)
			s.shows("10", "a", 7)
			s.expect(0)
			s.tracker.failed(0, tracked)
			s.expect(1)
			s.begin(1, planWriteOurs)
		},
		"a failed write keeps its turn while the object is wanted": func(s *story) {
			s.begin(1, planWriteUnknown)
			s.tracker.failed(0, tracked)
			s.expect(0)
			if r := s.tracker.kinds[0].records[tracked]; r == nil || r.tried == 0 {
				s.t.Errorf("the record is %+v, want one with its turn", r)
			}
			s.tracker.victims(0, map[types.NamespacedName]bool{tracked: true})
			s.tracker.victims(0, nil)
			if n := len(s.tracker.kinds[0].records); n != 0 {
				s.t.Errorf("%d records, want none", n)
			}
		},
		"resource versions that are not numbers count when they differ": func(s *story) {
			s.wrote(1, "abc", "a", 7)
			s.shows("abc", "a", 7)
			s.begin(1, planNothing)
			s.shows("abd", "a", 8)
			s.begin(1, planWriteOurs)
		},
		"a stray member notifies when it appears and when it goes": func(s *story) {
			s.shows("5", "a", 0)
			s.expect(1)
			s.showsGone("6")
			s.expect(1)
			if n := len(s.tracker.kinds[0].records); n != 0 {
				s.t.Errorf("%d records, want none", n)
			}
		},
	})
}

func runTrackerStories(t *testing.T, cases map[string]func(*story)) {
	t.Helper()
	for name, run := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(newStory(t))
		})
	}
}

func TestTrackerVictims(t *testing.T) {
	t.Parallel()
	kept := map[types.NamespacedName]bool{tracked: true}
	tests := map[string]struct {
		run  func(*story)
		kept map[types.NamespacedName]bool
		want []victim
	}{
		"a member": {run: func(s *story) { s.shows("5", "a", 1) }, want: []victim{{key: tracked, uid: "a", rv: "5"}}},
		"kept":     {run: func(s *story) { s.shows("5", "a", 1) }, kept: kept},
		"never applied by us, labelled by a third party": {run: func(s *story) { s.shows("5", "a", 0) }},
		"gone":          {run: func(s *story) { s.wrote(1, "4", "a", 1); s.showsGone("5") }},
		"not shown yet": {run: func(s *story) { s.wrote(1, "4", "a", 1) }, want: []victim{{key: tracked, uid: "a", rv: "4"}}},
		"recreated, and only the deletion was shown": {
			run:  func(s *story) { s.shows("3", "a", 1); s.showsGone("4"); s.wrote(1, "6", "b", 1); s.showsGone("5") },
			want: []victim{{key: tracked, uid: "b", rv: "6"}},
		},
		"written, then changed by others": {
			run:  func(s *story) { s.wrote(1, "4", "a", 1); s.shows("5", "a", 1) },
			want: []victim{{key: tracked, uid: "a", rv: "5"}},
		},
		"being deleted": {
			run:  func(s *story) { s.showsTerminating("5", "a") },
			want: []victim{{key: tracked, uid: "a", rv: "5", terminating: true}},
		},
		"deleted by us, not shown": {run: func(s *story) { s.shows("5", "a", 1); s.tracker.forget(0, tracked, "a") }},
		"deleted by us, a late event": {
			run: func(s *story) { s.wrote(1, "4", "a", 1); s.tracker.forget(0, tracked, "a"); s.shows("4", "a", 1) },
		},
		"deleted by us, with a finalizer": {
			run: func(s *story) {
				s.shows("5", "a", 1)
				s.tracker.forget(0, tracked, "a")
				s.showsTerminating("6", "a")
			},
			want: []victim{{key: tracked, uid: "a", rv: "6", terminating: true}},
		},
		"deleted by us, and recreated by a third party": {
			run:  func(s *story) { s.shows("5", "a", 1); s.tracker.forget(0, tracked, "a"); s.shows("7", "b", 1) },
			want: []victim{{key: tracked, uid: "b", rv: "7"}},
		},
		"deleted by us, and written again": {
			run: func(s *story) {
				s.shows("5", "a", 1)
				s.tracker.forget(0, tracked, "a")
				s.begin(1, planWriteUnknown) // the object that has the name now can be a foreign one
				s.tracker.wrote(0, tracked, memo{hash: 1, rv: "8", uid: "b"})
			},
			want: []victim{{key: tracked, uid: "b", rv: "8"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStory(t)
			test.run(s)
			got := s.tracker.victims(0, test.kept)
			for i := range got {
				got[i].pause = pause{} // it has a time
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(victim{}, pause{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTrackerForgetsDeletedUnwantedObjects(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	for i := range 100 {
		key := types.NamespacedName{Name: fmt.Sprint(i)}
		s.tracker.begin(0, key, 1, "")
		s.tracker.wrote(0, key, memo{hash: 1, rv: fmt.Sprint(10 + i), uid: types.UID(fmt.Sprint(i))})
		s.tracker.saw(source{}, key, sighting{state: gone, rv: fmt.Sprint(200 + i)})
	}
	s.tracker.victims(0, map[types.NamespacedName]bool{{Name: "7"}: true})
	if n := len(s.tracker.kinds[0].records); n != 1 {
		t.Errorf("%d records, want the one that is kept", n)
	}
	if got := s.tracker.members(0); len(got) != 0 {
		t.Errorf("members = %v, want none", got)
	}
}

// TestTrackerForgetsMembersThatAreGoneFirst checks members that a client of the guest has made, and of which the watch
// shows the end before the deletion is answered. A client can make them without an end, each with a new name.
func TestTrackerForgetsMembersThatAreGoneFirst(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	for i := range 100 {
		key, uid := types.NamespacedName{Name: fmt.Sprint(i)}, types.UID(fmt.Sprint(i))
		s.tracker.saw(source{}, key, sighting{state: present, rv: fmt.Sprint(10 + 2*i), uid: uid, fields: 1})
		if got := s.tracker.victims(0, nil); len(got) != 1 || got[0].uid != uid {
			t.Fatalf("the victims are %v, want the member %s", got, uid)
		}
		s.tracker.saw(source{}, key, sighting{state: gone, rv: fmt.Sprint(11 + 2*i)})
		s.tracker.forget(0, key, uid)
	}
	s.tracker.victims(0, nil)
	if n := len(s.tracker.kinds[0].records); n != 0 {
		t.Errorf("%d records of members that are gone", n)
	}
	if s.tracker.answered != 100 {
		t.Errorf("%d deletions were answered, want 100", s.tracker.answered)
	}
}

func TestStoreTakesWholeObjectsAndStrippedOnes(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	st := store{tracker: s.tracker, fields: fieldsOf{maphash.MakeSeed(), "us"}}
	whole := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x", UID: "a", ResourceVersion: "5"}}
	stripped, err := st.Transformer()(whole)
	if err != nil {
		t.Fatal(err)
	}
	for _, obj := range []any{whole, stripped} {
		if err := st.Replace([]any{obj}, "6"); err != nil {
			t.Error(err)
		}
		if !slices.Equal(s.tracker.members(0), []types.NamespacedName{tracked}) {
			t.Errorf("members = %v", s.tracker.members(0))
		}
		if err := st.Delete(obj); err != nil || len(s.tracker.members(0)) != 0 {
			t.Errorf("after the deletion: %v, %v", s.tracker.members(0), err)
		}
	}
	if st.Add("what?") == nil || st.Replace([]any{1}, "7") == nil {
		t.Error("a value that is not an object was accepted")
	}
}

func TestHashOfOwnFields(t *testing.T) {
	t.Parallel()
	entry := func(change func(*metav1.ManagedFieldsEntry)) metav1.ManagedFieldsEntry {
		e := metav1.ManagedFieldsEntry{
			Manager: "us", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", Time: &metav1.Time{},
			FieldsV1: metav1.NewFieldsV1(`{"f:data":{}}`),
		}
		change(&e)
		return e
	}
	ours := fieldsOf{maphash.MakeSeed(), "us"}
	same := func(*metav1.ManagedFieldsEntry) {}
	want := ours.hash([]metav1.ManagedFieldsEntry{entry(same)})
	tests := map[string]struct {
		change func(*metav1.ManagedFieldsEntry)
		want   func(uint64) bool
	}{
		"the same": {same, func(h uint64) bool { return h == want }},
		"later": {
			func(e *metav1.ManagedFieldsEntry) { e.Time = new(metav1.NewTime(e.Time.Add(time.Second))) },
			func(h uint64) bool { return h != want && h != 0 },
		},
		"without a time": {
			func(e *metav1.ManagedFieldsEntry) { e.Time = nil },
			func(h uint64) bool { return h != want && h != 0 },
		},
		"other fields": {
			func(e *metav1.ManagedFieldsEntry) { e.FieldsV1.SetRawString(`{}`) },
			func(h uint64) bool { return h != want && h != 0 },
		},
		"other version": {
			func(e *metav1.ManagedFieldsEntry) { e.APIVersion = "v2" },
			func(h uint64) bool { return h != want && h != 0 },
		},
		"another manager": {func(e *metav1.ManagedFieldsEntry) { e.Manager = "them" }, func(h uint64) bool { return h == 0 }},
		"by update": {
			func(e *metav1.ManagedFieldsEntry) { e.Operation = metav1.ManagedFieldsOperationUpdate },
			func(h uint64) bool { return h == 0 },
		},
		"of a subresource":   {func(e *metav1.ManagedFieldsEntry) { e.Subresource = "status" }, func(h uint64) bool { return h == 0 }},
		"without any fields": {func(e *metav1.ManagedFieldsEntry) { e.FieldsV1 = nil }, func(h uint64) bool { return h == 0 }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := metav1.ManagedFieldsEntry{
				Manager: "them", Operation: metav1.ManagedFieldsOperationApply,
				FieldsV1: metav1.NewFieldsV1(`{}`),
			}
			if got := ours.hash([]metav1.ManagedFieldsEntry{other, entry(test.change)}); !test.want(got) {
				t.Errorf("hash = %d, where the plain entry has %d", got, want)
			}
		})
	}
}

// TestAChangedObjectSettles: an object of a kind with Settle is restored a while after the first change, once. Later
// changes do not delay it further. A plan for other content, and an object that is gone, do not wait.
func TestAChangedObjectSettles(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	passive := clocktesting.NewFakePassiveClock(now)
	s := &story{t: t, tracker: newTracker([]Kind{{Settle: 50 * time.Millisecond}}, passive)}
	at := func(ms int) { passive.SetTime(now.Add(time.Duration(ms) * time.Millisecond)) }
	wait := func(want time.Duration) {
		t.Helper()
		if p, pause := s.tracker.begin(0, tracked, 1, ""); p != planSettle || pause.wait != want {
			t.Errorf("plan %d after %s, want %d after %s", p, pause.wait, planSettle, want)
		}
	}
	s.wrote(1, "10", "a", 7)
	s.begin(1, planNothing)

	s.shows("11", "a", 8)
	wait(50 * time.Millisecond)
	at(30)
	s.shows("12", "a", 9)
	wait(20 * time.Millisecond)
	at(50)
	s.wrote(1, "13", "a", 7)
	s.begin(1, planNothing)

	at(1000)
	s.shows("14", "a", 8)
	wait(50 * time.Millisecond)
	s.wrote(2, "15", "a", 7)
	s.showsGone("16")
	s.begin(2, planWriteUnknown)
}

// TestASettledObjectIsRestoredAtOnce: a version with the same content, which is a write of the status, ends the wait. A
// version with other content, or the same version again, does not.
func TestASettledObjectIsRestoredAtOnce(t *testing.T) {
	t.Parallel()
	passive := clocktesting.NewFakePassiveClock(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	s := &story{t: t, tracker: newTracker([]Kind{{Settle: 50 * time.Millisecond}}, passive)}
	s.wrote(1, "10", "a", 7)
	s.shows("11", "a", 8)
	s.begin(1, planSettle)
	s.shows("11", "a", 8)
	s.begin(1, planSettle)
	s.shows("12", "a", 9)
	s.begin(1, planSettle)
	s.shows("13", "a", 9)
	s.begin(1, planWriteOurs)
	s.wrote(1, "14", "a", 7)
	s.shows("15", "a", 7)
	s.begin(1, planNothing)
	s.shows("16", "a", 8)
	s.begin(1, planSettle)
}
