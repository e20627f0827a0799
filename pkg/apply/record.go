package apply

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// state is what a watch shows of an object.
type state int

const (
	unseen state = iota
	gone
	present
	terminating
)

// sighting is what the watch showed last of one object. The state gone includes an object that lost the owner label,
// because the watch shows no difference.
type sighting struct {
	state        state
	rv           string
	uid          types.UID
	fields       uint64 // hash of our entry in managedFields and of its time; 0 if there is none
	otherManager string // who wrote it after us
	// missing means that a list did not have the object. Then rv is the version of the list, and the object can exist
	// at an older version without the owner label.
	missing bool
	// deletion is the deletionTimestamp of an object that is being deleted.
	deletion time.Time
}

// exists reports whether an object with the owner label exists.
func (s sighting) exists() bool { return s.state == present || s.state == terminating }

// memo is our last write of one object. The zero memo means no write.
type memo struct {
	hash   uint64 // of the JSON
	rv     string // resourceVersion after the write
	uid    types.UID
	fields uint64
	// refusal is the outcome of a write whose response was too large, or nil. The object is not sent again before it
	// has changed.
	refusal *Outcome
	number  uint64 // of the response to the write, see tracker.answered
}

func (m memo) exists() bool { return m.rv != "" }

// record is everything that is known of one object.
type record struct {
	seen    sighting
	memo    memo
	deleted types.UID // UID that we deleted, until the watch shows the deletion
	number  uint64    // of the response to the deletion
	busy    bool      // a write is in progress: events wait for its memo
	stirred bool      // an event that matters came while busy
	tried   uint64    // the turn of the last try, if it did not succeed; 0 otherwise
	refused *Outcome  // the failure of the last deletion, if Prune reports it
	// driftedAt is when the watch first showed a change since our last write. Zero: it showed none. followed is whether
	// it then showed a version with the same content.
	driftedAt time.Time
	followed  bool
	// leaving is since when the deletion of the object is waited for. Zero: it is not.
	leaving time.Time
}

// outdated reports whether the watch showed something newer than our last write.
func (r *record) outdated() bool {
	return r.seen.state != unseen && (!r.memo.exists() || newer(r.seen.rv, r.memo.rv))
}

// drifted reports whether the object changed since our last write in a way that a new write would revert.
func (r *record) drifted() bool {
	return r.memo.exists() && r.outdated() &&
		(r.seen.state == gone || r.seen.uid != r.memo.uid || r.seen.fields != r.memo.fields)
}

// noteDrift sets driftedAt and followed after an event or a write. before is what the watch showed before it.
func (r *record) noteDrift(now time.Time, before sighting) {
	switch {
	case !r.drifted():
		r.driftedAt, r.followed = time.Time{}, false
	case r.driftedAt.IsZero():
		r.driftedAt = now
	default:
		r.followed = r.followed || r.seen.rv != before.rv && r.seen.uid == before.uid && r.seen.fields == before.fields
	}
}

// settling returns how long a changed object is still left as it is: until the API server has written the status, which
// is a version with the same content, and at most for settle. settle counts from the first change, so that a client
// that changes the object again and again does not delay the write further.
func (r *record) settling(now time.Time, settle time.Duration) time.Duration {
	if r.driftedAt.IsZero() || r.followed || r.seen.state != present {
		return 0
	}
	return max(0, r.driftedAt.Add(settle).Sub(now))
}

// matters reports whether the caller must look again, after the watch showed r.seen instead of old. The event of our
// own write does not matter. A change of fields that are not ours does not matter either.
func (r *record) matters(old sighting) bool {
	if !r.memo.exists() {
		return r.seen.state != old.state || r.seen.uid != old.uid || r.seen.fields != old.fields
	}
	return r.drifted() || r.memo.refusal != nil && r.outdated() || r.outdated() && r.seen.state == terminating && old.state != terminating
}

// plan is what Apply does with one object.
type plan int

const (
	planNothing      plan = iota
	planWait              // the object is being deleted
	planWriteOurs         // the object is owned
	planWriteNew          // the watch shows no owned object and we wrote none; a foreign object can exist
	planWriteUnknown      // we wrote it, and it is gone or lost the owner label; or no list has shown it
	planRateLimited       // the object was written too often
	planRefused           // the response was too large, and the object has not changed since
	planSettle            // the object was changed just now, and the API server may still write its status
)

// awaited reports whether the object is being deleted, so that a write would have no effect. It ignores an object of
// the same name from before our last write.
func (r *record) awaited() bool {
	return r.seen.state == terminating && (!r.memo.exists() || !newer(r.memo.rv, r.seen.rv))
}

// plan decides what to do with the object. hash is the hash of its JSON. synced reports whether a list would have
// shown the object.
func (r *record) plan(hash uint64, synced bool) plan {
	switch {
	case r.awaited():
		return planWait
	case r.wrote(hash) && r.memo.refusal != nil && !r.outdated():
		return planRefused
	case r.wrote(hash) && r.memo.refusal == nil && !r.drifted():
		return planNothing
	case r.isOurs():
		return planWriteOurs
	case synced && r.unwritten():
		return planWriteNew
	default:
		return planWriteUnknown
	}
}

// wrote reports whether the last write was of the JSON with the given hash.
func (r *record) wrote(hash uint64) bool { return r.memo.exists() && r.memo.hash == hash }

// isOurs reports whether the object is owned and, as far as is known, exists.
func (r *record) isOurs() bool {
	return r.isCurrent() || r.seen.exists() && r.seen.uid != r.deleted
}

// unwritten reports whether the object was neither written nor deleted.
func (r *record) unwritten() bool { return !r.memo.exists() && r.deleted == "" }

// isCurrent reports whether our last write is the newest known state of the object.
func (r *record) isCurrent() bool { return r.memo.exists() && !r.outdated() }

// isForgettable reports whether the record of an unwanted object can be dropped. This is so if another client deleted
// the object. It is also so if the object never existed and the record only holds failed tries to write it.
func (r *record) isForgettable() bool {
	switch {
	case r.isCurrent():
		return false
	case r.seen.state == gone:
		return true
	default:
		return !r.seen.exists() && r.unwritten() && !r.busy
	}
}

// victim returns the object as Prune can delete it. The victim has no UID if there is nothing to delete: the object
// is gone, or it only carries the owner label and was never applied by us.
func (r *record) victim(kind int, key types.NamespacedName) victim {
	v := victim{
		kind: kind, key: key, uid: r.seen.uid, rv: r.seen.rv, terminating: r.seen.state == terminating,
		tried: r.tried, refused: r.refused,
	}
	switch {
	case r.isCurrent():
		v.uid, v.rv = r.memo.uid, r.memo.rv
	case r.seen.state == gone, r.seen.fields == 0:
		v.uid = ""
	}
	return v
}

// passed reports whether the watch has shown a version of the object after at. A version that is not known ("" or
// Absent) is never passed, and a list without the object shows no version of it.
func (r *record) passed(at string) bool {
	return at != "" && at != Absent && r.seen.state != unseen && !r.seen.missing && newer(r.seen.rv, at)
}

// newer reports whether resourceVersion a is newer than b. Both are of one resource. An aggregated API server can use
// versions that are not numbers. Such versions count as newer if they differ, which costs at most one extra write.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	if err != nil {
		return a != b
	}
	return order > 0
}
