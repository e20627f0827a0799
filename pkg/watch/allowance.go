package watch

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/hypergate/hypergate/pkg/throttle"
)

// Allowance is the byte rate and the pause of one or more watches. A watch that replaces another one shares its
// Allowance. Otherwise a guest that causes new watches would get a full burst, and no pause, with each of them. It is
// safe for concurrent use.
type Allowance struct {
	// rate limits the bytes of lists and events.
	rate *rate.Limiter

	mu sync.Mutex
	// over is the limit that was exceeded last. until is the end of the pause after it.
	over  *LimitError
	until time.Time
	// pauses has the length of the next pause.
	pauses throttle.Backoff
}

// Allowance returns an unused allowance. A nil Budget returns nil.
func (b *Budget) Allowance() *Allowance {
	if b == nil {
		return nil
	}
	return &Allowance{rate: rate.NewLimiter(rate.Limit(b.limits.Rate), b.limits.Burst)}
}

// MeterOf is like Meter, for a watch that shares an allowance with others.
func (b *Budget) MeterOf(resource string, shared *Allowance) *Meter {
	if b == nil {
		return nil
	}
	return &Meter{budget: b, name: resource, settled: true, allowance: shared, own: b.limits.OwnKept}
}

// paused returns the limit that caused the current pause, or nil if there is no pause.
func (a *Allowance) paused(now time.Time) *LimitError {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over == nil || !now.Before(a.until) {
		return nil
	}
	return a.over
}

// trip starts a pause. It is twice the previous one, unless watches stayed within the limits for a long time. During
// a pause, another watch that exceeds a limit does not change it.
func (a *Allowance) trip(over *LimitError, now time.Time, l Limits) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.over != nil && now.Before(a.until):
		return
	case now.Sub(a.until) > 2*l.MaxPause:
		a.pauses.Reset()
	}
	a.over, a.until = over, now.Add(a.pauses.Failed(now, l.FirstPause, l.MaxPause))
}
