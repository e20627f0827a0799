package controller

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/hypergate/hypergate/pkg/throttle"
)

// pacer decides when a pass begins that events ask for. It is the one place for that: the watches of both sides call notify, and the
// reconciler reports when a pass begins and ends. Passes that the reconciler asks for by itself (RequeueAfter) are not paced.
type pacer struct {
	clock clock.PassiveClock
	// ask asks for a pass after some time; zero: now.
	ask func(after time.Duration)

	mu    sync.Mutex
	turns throttle.Limiter
	// began is when the last pass began, running whether it is under way.
	began   time.Time
	running bool
	// asked is whether a pass was asked for that has not begun, missed whether there was an event during the one under way.
	asked, missed bool
}

func newPacer(c clock.PassiveClock) *pacer {
	return &pacer{clock: c, ask: func(time.Duration) {}, turns: throttle.NewLimiter(throttle.Rate{Burst: passBurst, Every: passEvery})}
}

// notify takes an event. It returns at once, and is called from any goroutine.
func (p *pacer) notify() {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.asked:
	case p.running:
		p.missed = true
	default:
		p.next()
	}
}

// next asks for the next pass.
func (p *pacer) next() {
	now := p.clock.Now()
	p.asked = true
	p.ask(max(0, p.began.Add(passSpacing).Sub(now), p.turns.Wait(now)))
}

// begin notes that a pass begins. It answers every event so far.
func (p *pacer) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began, p.running = p.clock.Now(), true
	if p.asked {
		p.turns.Take(p.began)
	}
	p.asked, p.missed = false, false
}

// end notes that the pass has ended, and asks for another if there was an event since it began.
func (p *pacer) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running = false; p.missed {
		p.missed = false
		p.next()
	}
}
