package controller

import (
	"time"

	"golang.org/x/time/rate"
)

// limit is how often something may be done that somebody else can make due again and again: some times in a row, and then once in a while.
type limit struct{ turns *rate.Limiter }

func newLimit(burst int, every time.Duration) limit {
	return limit{rate.NewLimiter(rate.Every(every), burst)}
}

// wait is how long it is until the next turn; zero means now. No turn is taken by asking, so that who asks too often does not wait the longer.
func (l limit) wait(now time.Time) time.Duration {
	turn := l.turns.ReserveN(now, 1)
	defer turn.CancelAt(now)
	return turn.DelayFrom(now)
}

// take takes a turn that need not be waited for.
func (l limit) take(now time.Time) { l.turns.AllowN(now, 1) }

// backoff is the last wait between two tries of what fails. The zero value: none has failed.
type backoff time.Duration

// next is the wait before the next try, which doubles from the first one to the longest.
func (b *backoff) next(first, longest time.Duration) time.Duration {
	*b = backoff(min(max(2*time.Duration(*b), first), longest))
	return time.Duration(*b)
}

// tries are the failed tries of something that is tried again when it is due. The zero value: there was none.
type tries struct {
	count int
	delay backoff
	next  time.Time
}

// failed notes a try that failed at a time, and says how long it is until the next one.
func (t *tries) failed(at time.Time, first, longest time.Duration) time.Duration {
	wait := t.delay.next(first, longest)
	t.count, t.next = t.count+1, at.Add(wait)
	return wait
}

// wait is how long it is until the next try; zero means now.
func (t *tries) wait(now time.Time) time.Duration { return max(0, t.next.Sub(now)) }

// lastLogged is what was said last, so that what lasts is said once. The zero value: nothing was said.
type lastLogged struct {
	said bool
	text string
}

// isNew says that a text is not what was said last, and takes it as said.
func (n *lastLogged) isNew(text string) bool {
	news := *n != lastLogged{true, text}
	*n = lastLogged{true, text}
	return news
}
