package apply

import (
	"cmp"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// deletionPatience is how long the deletion of an object may take until it counts as blocked. The garbage collector,
// and pods with the usual grace period of 30 s, take less.
const deletionPatience = 2 * time.Minute

// noteDeletion sets leaving after the watch showed r.seen instead of before. Only of an object that was being deleted
// before this process saw it, the API server's clock counts: a restart must not begin the time again.
func (r *record) noteDeletion(now time.Time, before sighting) {
	switch {
	case r.seen.state == present:
		r.leaving = time.Time{}
	case r.seen.state != terminating, before.state == terminating && before.uid == r.seen.uid && !r.leaving.IsZero():
	case before.state == unseen && !r.seen.deletion.IsZero() && r.seen.deletion.Before(now):
		r.leaving = r.seen.deletion
	default:
		r.leaving = now
	}
}

// deletionPause returns how long the deletion that is waited for may still take, or that it is blocked.
func (r *record) deletionPause(now time.Time) pause {
	if r.leaving.IsZero() {
		return pause{}
	}
	wait := r.leaving.Add(deletionPatience).Sub(now)
	return pause{wait: max(0, wait), blocked: wait <= 0}
}

// waiting returns the outcome of an object that must wait for a deletion, or for its status.
func (p pause) waiting(id ID) Outcome {
	if p.blocked {
		return Blocked(id).after(p.wait)
	}
	return Waiting(id).after(p.wait)
}

// leaves ends a write that met an object that is being deleted. Without the owner label, the watch does not show when
// it is gone, so it is looked at again.
func (t *tracker) leaves(kind int, key types.NamespacedName) pause {
	t.failed(kind, key)
	t.mu.Lock()
	defer t.mu.Unlock()
	r, now := t.record(kind, key), t.clock.Now()
	if r.leaving.IsZero() {
		r.leaving = now
	}
	p := r.deletionPause(now)
	p.wait = cmp.Or(p.wait, deletionPatience)
	return p
}

// leaving reports whether the watch shows that the object is being deleted.
func (t *tracker) leaving(kind int, key types.NamespacedName) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.kinds[kind].records[key]
	return ok && r.awaited()
}

// IsLeaving reports whether the watch shows that an owned object is being deleted.
func (c *Cluster) IsLeaving(id ID) bool {
	kind, ok := c.kinds[id.GVK]
	return ok && c.tracker.leaving(kind, id.Key)
}

// AccountLeaves returns the error for a token of a service account that is being deleted. The API server still issues
// such tokens, and refuses each of them a minute after the deletion (kubernetes pkg/serviceaccount/claims.go).
func AccountLeaves() error {
	cause := Cause{}.as(DeletionBlocked, "the account is being deleted, so the API server refuses its tokens")
	return &causedError{cause, errors.New(cause.text)}
}
