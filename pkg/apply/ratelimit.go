package apply

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// repairBurst is how many writes of one object can follow each other without a wait. An installation, an upgrade
	// of every stage and a few accidents stay below it. A writer that reverts our writes exceeds it.
	repairBurst = 10
	// repairEvery is the interval at which an object can be written beyond the burst. Two competing writers then cost
	// the API server six small requests a minute. After the other writer stops, the object is correct within ten
	// seconds.
	repairEvery = 10 * time.Second
	// deletionBurst is how many objects of a cluster can be deleted without a wait. A whole installation with all
	// classes is less than half of it. deletionEvery is the interval between deletions beyond the burst.
	deletionBurst = 1000
	deletionEvery = 50 * time.Millisecond
)

// rateLimiter limits how often each object is written or deleted. Each object has a bucket of repairBurst tokens, and
// gets one token every repairEvery. The limiter remembers only objects whose bucket is not full. These objects can
// already be deleted.
type rateLimiter struct {
	buckets map[place]bucket
	swept   time.Time
}

// place identifies an object that exists or existed.
type place struct {
	kind int
	key  types.NamespacedName
}

type bucket struct {
	full    time.Time // when the bucket will be full
	failure *Outcome  // the outcome of the last write in its short form, if it failed
}

// pause is the reason why an object must not be written now. The zero pause allows the write.
type pause struct {
	wait         time.Duration
	failure      *Outcome
	otherManager string // who changes the object, if known
	blocked      bool   // the object is being deleted and does not go
}

// outcome returns the outcome of an object that was left unchanged. If the last write failed, that failure still
// holds and explains more, so outcome returns it.
func (p pause) outcome(id ID) Outcome {
	if p.failure == nil {
		return RateLimited(id, p.wait).By(p.otherManager)
	}
	o := p.failure.withWrites(0)
	o.retry = p.wait
	return o
}

// take takes a token from the bucket of the object. If the bucket is empty, it takes none and returns a pause.
func (d *rateLimiter) take(at place, now time.Time) pause {
	d.sweep(now)
	b := d.buckets[at]
	if b.full.Before(now) {
		b.full = now
	}
	b.full = b.full.Add(repairEvery)
	if wait := b.full.Sub(now) - repairBurst*repairEvery; wait > 0 {
		return pause{wait: wait, failure: b.failure}
	}
	d.buckets[at] = b
	return pause{}
}

// ended stores the result of the write that a token was taken for. A write without a response from the API server is
// not counted. The outage was already a pause, and the writes that it prevented must not wait longer.
func (d *rateLimiter) ended(at place, o Outcome) {
	b, ok := d.buckets[at]
	if !ok {
		return // the bucket became full in the meantime
	}
	b.failure = nil
	switch class := o.cause.Class(); {
	case o.verdict == VerdictSkipped, class == Unreachable, class == Cancelled:
		b.full = b.full.Add(-repairEvery)
	case o.verdict == VerdictFailed:
		b.failure = new(o.short())
	}
	d.buckets[at] = b
}

// sweep forgets the buckets that are full.
func (d *rateLimiter) sweep(now time.Time) {
	if now.Sub(d.swept) < repairEvery {
		return
	}
	d.swept = now
	maps.DeleteFunc(d.buckets, func(_ place, b bucket) bool { return !b.full.After(now) })
}
