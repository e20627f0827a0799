package throttle

import "time"

// Backoff spaces out the attempts of something that fails. The zero value has no failure. Its limits are arguments of
// Failed, because the cause of a failure decides how soon another attempt makes sense.
type Backoff struct {
	failures int
	delay    time.Duration
	next     time.Time
}

// Failed counts a failed attempt at now, and returns the delay until the next one. The delay starts at first and
// doubles with each failure up to longest.
func (b *Backoff) Failed(now time.Time, first, longest time.Duration) time.Duration {
	b.delay = min(max(2*b.delay, first), longest)
	b.failures, b.next = b.failures+1, now.Add(b.delay)
	return b.delay
}

// Wait returns the time until the next attempt. Zero means now.
func (b *Backoff) Wait(now time.Time) time.Duration { return max(0, b.next.Sub(now)) }

// Failures returns the number of failed attempts since the last Reset.
func (b *Backoff) Failures() int { return b.failures }

// Reset forgets all failures.
func (b *Backoff) Reset() { *b = Backoff{} }

// Hurry allows the next attempt now and restarts the delay, but keeps the count of failures.
func (b *Backoff) Hurry() { *b = Backoff{failures: b.failures} }
