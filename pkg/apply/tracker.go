package apply

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/hypergate/hypergate/pkg/throttle"
)

// tracker remembers, per kind and object, what we wrote and what the watches show. It is the only mutable state of
// the package. It has a mutex, because the goroutines of the watches update it while Apply reads it.
//
// Each method is one atomic step, and none does I/O. The tracker keeps a few words per owned object and replaces the
// store of an informer.
type tracker struct {
	mu      sync.Mutex
	kinds   []kindRecords
	limiter rateLimiter
	// deletions limits the deletions of all objects together. The number of members is not ours to decide.
	deletions throttle.Limiter
	clock     clock.PassiveClock
	session   func() uint64
	// answered counts the writes and deletions that were answered.
	answered uint64
	started  bool
	notify   func()
	turn     uint64 // counts tries that did not succeed
}

// kindRecords holds the records of one kind, and the feeds that show its objects: one, or one for each name.
type kindRecords struct {
	gvk     schema.GroupVersionKind
	feeds   []feed
	settle  time.Duration
	records map[types.NamespacedName]*record
}

func newTracker(kinds []Kind, now clock.PassiveClock) *tracker {
	t := &tracker{
		kinds: make([]kindRecords, len(kinds)), limiter: rateLimiter{buckets: map[place]bucket{}, swept: now.Now()}, clock: now,
		deletions: throttle.NewLimiter(throttle.Rate{Burst: deletionBurst, Every: deletionEvery}),
		session:   func() uint64 { return 0 }, notify: func() {},
	}
	for i, k := range kinds {
		t.kinds[i] = kindRecords{gvk: k.GVK, feeds: feedsOf(k), settle: k.Settle, records: map[types.NamespacedName]*record{}}
	}
	return t
}

func (t *tracker) record(kind int, key types.NamespacedName) *record {
	r, ok := t.kinds[kind].records[key]
	if !ok {
		r = &record{}
		t.kinds[kind].records[key] = r
	}
	return r
}

// change runs one step under the lock. Afterwards, without the lock, it calls notify if the step returned true.
func (t *tracker) change(step func() bool) {
	t.mu.Lock()
	call, notify := step(), t.notify
	t.mu.Unlock()
	if call {
		notify()
	}
}

// knows reports whether exactly this JSON was written before.
func (t *tracker) knows(kind int, key types.NamespacedName, hash uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.kinds[kind].records[key]
	return ok && r.memo.exists() && r.memo.hash == hash
}

// tried returns the turn of the last unsuccessful try for each job, or 0.
func (t *tracker) tried(jobs []job) []uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	turns := make([]uint64, len(jobs))
	for i, j := range jobs {
		if r, ok := t.kinds[j.kind].records[j.id.Key]; ok {
			turns[i] = r.tried
		}
	}
	return turns
}

// begin decides what to do with an object. hash is the hash of its JSON. at is the version that the caller decided for,
// or "" if the plan decides. If the plan is a write, the caller must call wrote, failed or left afterwards. If the
// write must wait, begin returns planWait, planRateLimited or planSettle, and the pause.
func (t *tracker) begin(kind int, key types.NamespacedName, hash uint64, at string) (plan, pause) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, known := t.kinds[kind].records[key]
	if !known {
		r = &record{}
	}
	p := r.plan(hash, t.isListed(kind, key))
	if p != planNothing && r.passed(at) {
		p = planWait
	}
	switch p {
	case planNothing:
		return p, pause{}
	case planWait:
		if !r.awaited() {
			return p, pause{}
		}
		return p, r.deletionPause(t.clock.Now())
	case planRefused:
		return p, pause{failure: r.memo.refusal}
	default:
	}
	now := t.clock.Now()
	if wait := r.settling(now, t.kinds[kind].settle); wait > 0 && r.wrote(hash) {
		return planSettle, pause{wait: wait}
	}
	if pause := t.limiter.take(place{kind, key}, now); pause.wait > 0 {
		pause.otherManager = r.seen.otherManager
		return planRateLimited, pause
	}
	r.busy, r.stirred = true, false
	t.kinds[kind].records[key] = r
	return p, pause{}
}

// ended stores the outcome of a write or a deletion.
func (t *tracker) ended(kind int, o Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limiter.ended(place{kind, o.id.Key}, o)
}

// uid returns the UID of the object that we wrote last, or "" if there is none.
func (t *tracker) uid(kind int, key types.NamespacedName) types.UID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.record(kind, key).memo.uid
}

// shown returns what is kept of the object that the watch showed last, a *member. It returns nil if there is none.
func (t *tracker) shown(kind int, key types.NamespacedName) any {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.kinds[kind].records[key]
	if !ok || !r.seen.exists() {
		return nil
	}
	return &member{
		ObjectMeta:   metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: r.seen.uid, ResourceVersion: r.seen.rv},
		otherManager: r.seen.otherManager,
	}
}

// wrote ends a write that succeeded.
func (t *tracker) wrote(kind int, key types.NamespacedName, m memo) {
	t.change(func() bool {
		r := t.record(kind, key)
		t.answered++
		m.number = t.answered
		r.memo, r.busy, r.deleted, r.tried, r.refused = m, false, "", 0, nil
		if !r.awaited() {
			r.leaving = time.Time{}
		}
		r.noteDrift(t.clock.Now(), r.seen)
		return r.stirred && r.drifted()
	})
}

// failed ends a write that did not succeed. It notifies now if an event that matters came during the write.
func (t *tracker) failed(kind int, key types.NamespacedName) {
	t.change(func() bool {
		r := t.record(kind, key)
		t.turn++
		r.busy, r.tried = false, t.turn
		return r.stirred
	})
}

// left ends a write that was not tried.
func (t *tracker) left(kind int, key types.NamespacedName) {
	t.change(func() bool {
		r := t.record(kind, key)
		r.busy = false
		if !r.seen.exists() && !r.memo.exists() && r.deleted == "" && r.tried == 0 {
			delete(t.kinds[kind].records, key)
		}
		return r.stirred
	})
}

// saw stores one event of a watch.
func (t *tracker) saw(from source, key types.NamespacedName, s sighting) {
	t.change(func() bool {
		t.feed(from).rv = s.rv
		return t.put(from.kind, key, s)
	})
}

// put stores a sighting and reports whether the caller must look again.
func (t *tracker) put(kind int, key types.NamespacedName, s sighting) bool {
	r := t.record(kind, key)
	old := r.seen
	r.seen = s
	r.noteDrift(t.clock.Now(), old)
	r.noteDeletion(t.clock.Now(), old)
	matters := r.matters(old)
	if r.deleted != "" && (s.state == gone || s.uid != r.deleted) {
		r.deleted = ""
	}
	if s.state == gone && !r.memo.exists() && !r.busy {
		delete(t.kinds[kind].records, key)
	}
	if r.busy {
		r.stirred = r.stirred || matters
		return false
	}
	return matters
}

// listed stores the complete list of a watch at one resource version. An object that the watch covers and that is not
// in the list is gone.
func (t *tracker) listed(from source, all map[types.NamespacedName]sighting, rv string) {
	t.change(func() bool {
		f, records := t.feed(from), t.kinds[from.kind].records
		matters := !f.synced.in(t.session())
		l := list{f.begun, rv, f.synced.set && newer(f.rv, rv)}
		f.synced, f.rv = mark{true, f.begun.session}, rv
		shown := map[types.NamespacedName]sighting{}
		maps.Copy(shown, all)
		for key := range records {
			if _, there := all[key]; !there && f.shows(key) {
				shown[key] = sighting{state: gone, rv: rv, missing: true}
			}
		}
		for key, s := range shown {
			lost := t.record(from.kind, key).rebase(s, l)
			matters = t.put(from.kind, key, s) || lost || matters
		}
		return matters
	})
}

// victim is a member that Prune can delete.
type victim struct {
	kind        int
	key         types.NamespacedName
	uid         types.UID
	rv          string
	terminating bool
	pause       pause // of an object that is being deleted
	tried       uint64
	refused     *Outcome // the failure of an earlier deletion, if Prune reports it
}

// victims returns the members of a kind that are not kept. It includes the members that the watch shows, and those
// that we wrote and the watch has not shown yet.
func (t *tracker) victims(kind int, kept map[types.NamespacedName]bool) []victim {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []victim
	now := t.clock.Now()
	for key, r := range t.kinds[kind].records {
		if kept[key] {
			continue
		}
		if r.isForgettable() {
			delete(t.kinds[kind].records, key)
			continue
		}
		if v := r.victim(kind, key); v.uid != "" && (r.deleted != v.uid || v.terminating) {
			v.pause = r.deletionPause(now)
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(a, b victim) int {
		return cmp.Or(cmp.Compare(a.key.Namespace, b.key.Namespace), cmp.Compare(a.key.Name, b.key.Name))
	})
	return out
}

// forget drops our last write of an object, because we deleted the object under this UID or no longer own it. In both
// cases the watch will show the object as gone. If the object has no record, the watch has done so. It will not do so
// again, so nothing would remove a new record.
func (t *tracker) forget(kind int, key types.NamespacedName, uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answered++
	if r, ok := t.kinds[kind].records[key]; ok {
		r.memo, r.deleted, r.number = memo{}, uid, t.answered
	}
}

// currentUID returns the UID of our last write or, if the watch has shown a newer state, the UID of that state.
func (t *tracker) currentUID(kind int, key types.NamespacedName) types.UID {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.kinds[kind].records[key]
	switch {
	case !ok:
		return ""
	case r.outdated():
		return r.seen.uid
	default:
		return r.memo.uid
	}
}

func (t *tracker) members(kind int) []types.NamespacedName {
	t.mu.Lock()
	defer t.mu.Unlock()
	var keys []types.NamespacedName
	for key, r := range t.kinds[kind].records {
		if r.seen.exists() {
			keys = append(keys, key)
		}
	}
	return keys
}
