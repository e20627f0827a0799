package apply

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// repairBurst is how many writes of one object may come at once. Installing, an upgrade of every stage and a few accidents stay below it;
	// somebody who undoes what we write does not.
	repairBurst = 10
	// repairEvery is how often an object may be written beyond that. A fight then costs the API server six small requests a minute, and an
	// object that is left in peace is as it should be within ten seconds.
	repairEvery = 10 * time.Second
)

// rateLimiter limits how often each object is written or deleted: each has a bucket of repairBurst tokens, to which one is added every
// repairEvery. It remembers only objects whose bucket is not full; they need not exist any more.
type rateLimiter struct {
	buckets map[place]bucket
	swept   time.Time
}

// place is where an object is, or was.
type place struct {
	kind int
	key  types.NamespacedName
}

type bucket struct {
	full    time.Time // when it will be
	failure *Outcome  // of the last write, if that failed
}

// pause is why an object may not be written now. The zero pause means that it may.
type pause struct {
	wait         time.Duration
	failure      *Outcome
	otherManager string // who changes the object, as far as it shows
}

// outcome is that of an object that was left as it is. Where the last write failed, that is still so, and says more.
func (p pause) outcome(id ID) Outcome {
	if p.failure == nil {
		return RateLimited(id, p.wait).By(p.otherManager)
	}
	o := p.failure.withWrites(0)
	o.retry = p.wait
	return o
}

// take takes a token of the object's bucket; none when there is a pause.
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

// ended keeps what the write came to that a token was taken for. One that the API server did not answer is not counted: the outage is the
// pause, and what it left undone is not to wait any longer.
func (d *rateLimiter) ended(at place, o Outcome) {
	b, ok := d.buckets[at]
	if !ok {
		return // full again meanwhile
	}
	b.failure = nil
	switch class := o.cause.Class(); {
	case o.verdict == VerdictSkipped, class == Unreachable, class == Cancelled:
		b.full = b.full.Add(-repairEvery)
	case o.verdict == VerdictFailed:
		b.failure = &o
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
