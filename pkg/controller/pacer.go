package controller

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/hypergate/hypergate/pkg/throttle"
)

// pacer decides when a pass that events request begins. It is the only place that does so: the watches of both clusters
// call notify, and the reconciler reports when a pass begins and ends. Passes that the reconciler requests itself
// (RequeueAfter) are not delayed.
type pacer struct {
	clock clock.PassiveClock
	// ask requests a pass after a delay. Zero: now.
	ask func(after time.Duration)

	mu sync.Mutex
	// turns limits all passes, and storm those since the last quiet time.
	turns, storm throttle.Limiter
	// heard is when the last event came, began when the last pass began, running whether it is still running.
	heard, began time.Time
	running      bool
	// asked is whether a pass was requested that has not begun. missed is whether there was an event during the
	// running pass.
	asked, missed bool
}

func newPacer(c clock.PassiveClock) *pacer {
	return &pacer{
		clock: c, ask: func(time.Duration) {},
		turns: throttle.NewLimiter(throttle.Rate{Burst: longBurst, Every: longEvery}), storm: newStorm(),
	}
}

// newStorm returns the limit of the passes that follow a quiet time.
func newStorm() throttle.Limiter {
	return throttle.NewLimiter(throttle.Rate{Burst: passBurst, Every: passEvery})
}

// notify handles an event. It does not block, and any goroutine may call it.
func (p *pacer) notify() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	quiet := now.Sub(p.heard) >= passSpacing
	p.heard = now
	if quiet {
		p.storm = newStorm()
	}
	switch {
	case p.running:
		p.missed = true
	case quiet, !p.asked: // after a quiet time, a pass that waits for the end of a storm begins earlier
		p.next()
	}
}

// next requests the next pass.
func (p *pacer) next() {
	now := p.clock.Now()
	p.asked = true
	p.ask(max(0, p.began.Add(passSpacing).Sub(now), p.turns.Wait(now), p.storm.Wait(now)))
}

// begin notes that a pass begins. The pass covers all earlier events.
func (p *pacer) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began, p.running = p.clock.Now(), true
	if p.asked {
		p.turns.Take(p.began)
		p.storm.Take(p.began)
	}
	p.asked, p.missed = false, false
}

// end notes that the pass has ended. It requests another pass if there was an event since the pass began.
func (p *pacer) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running = false; p.missed {
		p.missed = false
		p.next()
	}
}
