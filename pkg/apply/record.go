package apply

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// state is what a watch says of an object.
type state int

const (
	unseen state = iota
	gone
	present
	terminating
)

// sighting is what the watch showed last of one object. Gone covers an object that lost our label: the watch cannot tell the difference.
type sighting struct {
	state        state
	rv           string
	uid          types.UID
	fields       uint64 // hash of our entry in managedFields, with its time; 0 when there is none
	otherManager string // who wrote it after us
}

// exists says that there is an object with our label.
func (s sighting) exists() bool { return s.state == present || s.state == terminating }

// memo is what we wrote last of one object. The zero memo means nothing.
type memo struct {
	hash   uint64 // of the JSON
	rv     string // after the write
	uid    types.UID
	fields uint64
	// refusal is the outcome of a write after which the object came back too large; nil if it did not. The object is not sent again before it
	// has changed.
	refusal *Outcome
	number  uint64 // of the write's answer, see tracker.answered
}

func (m memo) exists() bool { return m.rv != "" }

// record is all that is known of one object.
type record struct {
	seen    sighting
	memo    memo
	deleted types.UID // what we deleted, until the watch shows it
	number  uint64    // of the deletion's answer
	busy    bool      // a write is under way: events wait for its memo
	stirred bool      // an event that matters came while busy
	tried   uint64    // the turn of the last try, if that did not succeed; 0 otherwise
}

// outdated says that the watch showed something newer than our write.
func (r *record) outdated() bool {
	return r.seen.state != unseen && (!r.memo.exists() || newer(r.seen.rv, r.memo.rv))
}

// drifted says that something happened to the object since our write that a new write would undo.
func (r *record) drifted() bool {
	return r.memo.exists() && r.outdated() &&
		(r.seen.state == gone || r.seen.uid != r.memo.uid || r.seen.fields != r.memo.fields)
}

// matters says whether the caller should look again, now that the watch shows r.seen where it showed old before. The echo of our own write
// does not matter, nor does a change of what is not ours.
func (r *record) matters(old sighting) bool {
	if !r.memo.exists() {
		return r.seen.state != old.state || r.seen.uid != old.uid || r.seen.fields != old.fields
	}
	return r.drifted() || r.memo.refusal != nil && r.outdated() || r.outdated() && r.seen.state == terminating && old.state != terminating
}

// plan is what Apply is to do with one object.
type plan int

const (
	planNothing      plan = iota
	planWait              // it is being deleted
	planWriteOurs         // it is ours
	planWriteNew          // the watch shows no object of ours, and we wrote none: nothing is there, or somebody else's object
	planWriteUnknown      // we wrote it, and it is gone or lost our label; or there is no watch
	planRateLimited       // it was written too often
	planRefused           // it came back too large, and has not changed since
)

// awaited says that the object is being deleted: a write would be in vain. A former object of the name, from before our write, is not meant.
func (r *record) awaited() bool {
	return r.seen.state == terminating && (!r.memo.exists() || !newer(r.memo.rv, r.seen.rv))
}

// plan decides what to do with the object, whose JSON has the given hash. synced says that a list would have had the object.
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

// wrote reports whether the last write was of the JSON that has the given hash.
func (r *record) wrote(hash uint64) bool { return r.memo.exists() && r.memo.hash == hash }

// isOurs reports whether the object is there as far as is known, and is ours.
func (r *record) isOurs() bool {
	return r.isCurrent() || r.seen.exists() && r.seen.uid != r.deleted
}

// unwritten reports whether the object was neither written nor deleted.
func (r *record) unwritten() bool { return !r.memo.exists() && r.deleted == "" }

// isCurrent reports whether our last write is the newest that is known of the object.
func (r *record) isCurrent() bool { return r.memo.exists() && !r.outdated() }

// isForgettable reports whether nothing of an object that is not wanted need be remembered: another client deleted it, or it never was there and
// only tries to write it are remembered.
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

// victim is the object as prune may delete it. It has no UID where there is nothing to delete: the object is gone, or it only carries our label and
// was never applied by us.
func (r *record) victim(key types.NamespacedName) victim {
	v := victim{key: key, uid: r.seen.uid, rv: r.seen.rv, terminating: r.seen.state == terminating}
	switch {
	case r.isCurrent():
		v.uid, v.rv = r.memo.uid, r.memo.rv
	case r.seen.state == gone, r.seen.fields == 0:
		v.uid = ""
	}
	return v
}

// newer compares two resource versions of one resource. Versions that are no numbers (an aggregated API server may do so) are newer when
// they differ: one write too many at worst.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	if err != nil {
		return a != b
	}
	return order > 0
}
