package throttle

import (
	"time"

	"golang.org/x/time/rate"
)

// Limiter allows a burst of actions in a row, and then one per interval. A Limiter of several rates allows an action
// only if each of them does.
type Limiter struct{ rates []*rate.Limiter }

// Rate is a burst of actions, and the interval between two actions after it.
type Rate struct {
	Burst int
	Every time.Duration
}

// NewLimiter returns a full Limiter.
func NewLimiter(rates ...Rate) Limiter {
	var l Limiter
	for _, r := range rates {
		l.rates = append(l.rates, rate.NewLimiter(rate.Every(r.Every), r.Burst))
	}
	return l
}

// Wait returns the time until the next action is allowed. Zero means now. Asking takes nothing, so a caller that asks
// often does not wait longer.
func (l Limiter) Wait(now time.Time) time.Duration {
	var wait time.Duration
	for _, limiter := range l.rates {
		next := limiter.ReserveN(now, 1)
		wait = max(wait, next.DelayFrom(now))
		next.CancelAt(now)
	}
	return wait
}

// Take counts an action at now. The caller has asked Wait.
func (l Limiter) Take(now time.Time) {
	for _, limiter := range l.rates {
		limiter.AllowN(now, 1)
	}
}

// Allow counts an action if it is allowed at now, and reports whether it is. Goroutines that share a Limiter use it in
// place of Wait and Take.
func (l Limiter) Allow(now time.Time) bool {
	_, allowed := l.Reserve(now, 0)
	return allowed
}

// Reserve counts the next action, and returns how long the caller waits before it. If that is longer than longest, it
// counts nothing and returns false.
func (l Limiter) Reserve(now time.Time, longest time.Duration) (wait time.Duration, reserved bool) {
	taken := make([]*rate.Reservation, 0, len(l.rates))
	for _, limiter := range l.rates {
		next := limiter.ReserveN(now, 1)
		taken = append(taken, next)
		wait = max(wait, next.DelayFrom(now))
	}
	if wait <= longest {
		return wait, true
	}
	for _, one := range taken {
		one.CancelAt(now)
	}
	return 0, false
}
