package controller

import (
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

// paced is a pacer with a queue, driven by a clock that advances in steps.
type paced struct {
	*pacer
	clock *testingclock.FakePassiveClock
	// due is when the requested pass begins, or zero. passes is when each began, asks the number of requests.
	due    time.Time
	passes []time.Time
	asks   int
	// ends is when the running pass ends.
	ends time.Time
}

func newPaced() *paced {
	clock := testingclock.NewFakePassiveClock(start)
	p := &paced{pacer: newPacer(clock), clock: clock}
	p.ask = func(after time.Duration) {
		p.asks++
		// As a work queue does: an earlier request counts.
		if at := clock.Now().Add(after); p.due.IsZero() || at.Before(p.due) {
			p.due = at
		}
	}
	return p
}

// run advances the clock by lasts in steps of a millisecond, with an event each every, and passes that take takes.
func (p *paced) run(lasts, every, takes time.Duration) {
	for ran := time.Duration(0); ran < lasts; ran += time.Millisecond {
		now := p.clock.Now()
		if p.running && !now.Before(p.ends) {
			p.end()
		}
		if every > 0 && ran%every == 0 {
			p.notify()
		}
		if !p.running && !p.due.IsZero() && !now.Before(p.due) {
			p.due, p.ends = time.Time{}, now.Add(takes)
			p.passes = append(p.passes, now)
			p.begin()
		}
		p.clock.SetTime(now.Add(time.Millisecond))
	}
}

// TestTheFirstEventStartsAPassAtOnce checks that each event after a quiet interval begins a pass at once.
func TestTheFirstEventStartsAPassAtOnce(t *testing.T) {
	p := newPaced()
	for range 10 {
		before := p.clock.Now()
		p.run(passSpacing, passSpacing, 10*time.Millisecond) // one event
		if at := p.passes[len(p.passes)-1]; !at.Equal(before) {
			t.Errorf("the pass began %s after its event", at.Sub(before))
		}
	}
	if len(p.passes) != 10 {
		t.Errorf("%d passes for 10 events", len(p.passes))
	}
}

// TestSimultaneousEventsShareAPass checks that events within passSpacing share a pass. Events during that pass share a
// second one, which begins at once if the first pass took long. So a chain of events within an installation is not
// delayed.
func TestSimultaneousEventsShareAPass(t *testing.T) {
	p := newPaced()
	p.run(50*time.Millisecond, time.Millisecond, 300*time.Millisecond)
	p.run(time.Second, 0, 300*time.Millisecond)
	if len(p.passes) != 2 || p.passes[1].Sub(p.passes[0]) != 300*time.Millisecond {
		t.Errorf("passes at %v", p.passes)
	}
}

// TestManyEventsCauseALimitedRateOfPasses checks that many events cause a bounded rate of passes, and of requests for
// passes: one per passEvery after the burst.
func TestManyEventsCauseALimitedRateOfPasses(t *testing.T) {
	p := newPaced()
	const lasts = time.Minute
	p.run(lasts, 2*time.Millisecond, 50*time.Millisecond) // 30,000 events
	if most := passBurst + int(lasts/passEvery) + 1; len(p.passes) > most || p.asks > most+1 {
		t.Errorf("%d passes, asked for %d times, want at most %d", len(p.passes), p.asks, most)
	}
	for i := range p.passes[1:] {
		if gap := p.passes[i+1].Sub(p.passes[i]); gap < passSpacing || gap > passEvery+passSpacing {
			t.Errorf("%s between two passes", gap)
		}
	}
	// After the storm and a quiet time, an event begins a pass at once again, though another pass waits for its time.
	if p.due.IsZero() {
		t.Fatal("no pass waits")
	}
	p.run(passSpacing, 0, 0)
	before := p.clock.Now()
	p.run(time.Millisecond, time.Millisecond, 0)
	if at := p.passes[len(p.passes)-1]; !at.Equal(before) {
		t.Errorf("after the storm, a pass began %s after its event", at.Sub(before))
	}
}

// TestEventsAfterQuietTimesCauseALimitedRateOfPasses checks the limit for a guest that leaves a quiet time between its
// events: each event begins a pass at once until longBurst is used up, and then there is one pass per longEvery.
func TestEventsAfterQuietTimesCauseALimitedRateOfPasses(t *testing.T) {
	p := newPaced()
	const lasts = 5 * time.Minute
	p.run(lasts, passSpacing, 10*time.Millisecond) // 3,000 events
	if least, most := longBurst, longBurst+int(lasts/longEvery)+1; len(p.passes) < least || len(p.passes) > most {
		t.Errorf("%d passes, want %d to %d", len(p.passes), least, most)
	}
	for i, at := range p.passes[:longBurst] {
		if want := start.Add(time.Duration(i) * passSpacing); !at.Equal(want) {
			t.Fatalf("pass %d began %s after its event", i, at.Sub(want))
		}
	}
}

// TestARequestedPassCoversWaitingEvents checks that a pass that the reconciler requests is not counted by the limit,
// and covers waiting events.
func TestARequestedPassCoversWaitingEvents(t *testing.T) {
	p := newPaced()
	for range 10 * passBurst {
		p.begin()
		p.end()
	}
	p.clock.SetTime(start.Add(passSpacing))
	p.notify()
	if !p.due.Equal(p.clock.Now()) {
		t.Errorf("asked for at %v, want now", p.due)
	}
	p.begin()
	p.end()
	if p.asks != 1 {
		t.Errorf("asked for %d passes for one event", p.asks)
	}
}
