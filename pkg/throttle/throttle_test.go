package throttle

import (
	"testing"
	"time"
)

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time {
	return start.Add(time.Duration(seconds * float64(time.Second)))
}

// TestLimiter: a burst, then one action per interval. Asking does not postpone the next action.
func TestLimiter(t *testing.T) {
	l := NewLimiter(Rate{Burst: 3, Every: 10 * time.Second})
	for i := range 3 {
		if wait := l.Wait(start); wait != 0 {
			t.Fatalf("action %d of the burst waits %s", i, wait)
		}
		l.Take(start)
	}
	for range 100 {
		if wait := l.Wait(at(1)); wait != 9*time.Second {
			t.Fatalf("wait %s, want 9s", wait)
		}
	}
	if wait := l.Wait(at(10)); wait != 0 {
		t.Errorf("after the interval it waits %s", wait)
	}
}

// TestLimiterOfSeveralRates: the strictest rate decides.
func TestLimiterOfSeveralRates(t *testing.T) {
	l := NewLimiter(Rate{Burst: 1, Every: time.Second}, Rate{Burst: 3, Every: time.Minute})
	now, taken := start, 0
	for range 10 {
		if l.Wait(now) == 0 {
			l.Take(now)
			taken++
		}
		now = now.Add(time.Second)
	}
	if taken != 3 {
		t.Errorf("%d actions in 10 s, want 3", taken)
	}
	if wait := l.Wait(now); wait != 50*time.Second {
		t.Errorf("wait %s, want 50s", wait)
	}
}

// TestAllow: an action beyond the rate is not allowed, and is not counted.
func TestAllow(t *testing.T) {
	l := NewLimiter(Rate{Burst: 2, Every: 10 * time.Second}, Rate{Burst: 100, Every: time.Second})
	for _, step := range []struct {
		at   float64
		want bool
	}{{0, true}, {0, true}, {1, false}, {2, false}, {9, false}, {10, true}, {11, false}, {20, true}} {
		if got := l.Allow(at(step.at)); got != step.want {
			t.Errorf("at %v s allowed is %v", step.at, got)
		}
	}
}

// TestReserve: each caller waits for its own turn. A turn that comes too late is not reserved.
func TestReserve(t *testing.T) {
	l := NewLimiter(Rate{Burst: 1, Every: 10 * time.Second})
	for i, want := range []time.Duration{0, 10 * time.Second, 20 * time.Second} {
		if wait, reserved := l.Reserve(start, 20*time.Second); !reserved || wait != want {
			t.Errorf("caller %d: wait %s, reserved %v; want %s", i, wait, reserved, want)
		}
	}
	for range 3 {
		if wait, reserved := l.Reserve(start, 20*time.Second); reserved || wait != 0 {
			t.Errorf("beyond the longest wait: %s, reserved %v", wait, reserved)
		}
	}
	if wait, reserved := l.Reserve(at(10), 20*time.Second); !reserved || wait != 20*time.Second {
		t.Errorf("ten seconds later: wait %s, reserved %v", wait, reserved)
	}
}

// TestNoLimiter: without a rate nothing is limited.
func TestNoLimiter(t *testing.T) {
	if wait := (Limiter{}).Wait(start); wait != 0 {
		t.Errorf("wait %s", wait)
	}
}

// TestBackoff: the delay doubles up to the longest one.
func TestBackoff(t *testing.T) {
	var b Backoff
	if b.Wait(start) != 0 || b.Failures() != 0 {
		t.Fatal("the zero value waits")
	}
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
		if got := b.Failed(start, time.Second, 5*time.Second); got != want || b.Failures() != i+1 {
			t.Errorf("failure %d: %s, want %s", i+1, got, want)
		}
	}
	if wait := b.Wait(at(2)); wait != 3*time.Second {
		t.Errorf("wait %s, want 3s", wait)
	}
	if b.Hurry(); b.Wait(start) != 0 || b.Failures() != 5 {
		t.Errorf("Hurry: wait %s after %d failures", b.Wait(start), b.Failures())
	}
	if got := b.Failed(start, time.Second, 5*time.Second); got != time.Second {
		t.Errorf("the delay after Hurry is %s", got)
	}
	if b.Reset(); b != (Backoff{}) {
		t.Error("Reset keeps something")
	}
}

// TestDebounce checks that a state must last, and a state that keeps changing is still reported.
func TestDebounce(t *testing.T) {
	var d Debounce
	for _, step := range []struct {
		state string
		at    float64
		want  time.Duration
	}{
		{"", 0, 0},
		{"a", 1, time.Second},
		{"a", 1.5, time.Second / 2},
		{"a", 2, 0},
		{"", 3, 0},
		{"a", 4, time.Second},
		{"b", 4.9, time.Second},
		{"c", 5.8, time.Second},
		{"d", 6.7, 300 * time.Millisecond},
		{"e", 7, 0},
	} {
		if got := d.Wait(step.state, at(step.at), time.Second, 3*time.Second); got != step.want {
			t.Errorf("%q after %g s: %s, want %s", step.state, step.at, got, step.want)
		}
	}
}

// TestDebounceForever: without a maximum, a state that keeps changing is never reported.
func TestDebounceForever(t *testing.T) {
	var d Debounce
	for i := range 100 {
		if got := d.Wait(string(rune('a'+i%2)), at(float64(i)/2), time.Second, Forever); got != time.Second {
			t.Fatalf("change %d waits %s", i, got)
		}
	}
	if got := d.WaitFor(false, at(100), time.Second); got != 0 || d != (Debounce{}) {
		t.Errorf("the empty state waits %s", got)
	}
	if got := d.WaitFor(true, at(100), time.Second); got != time.Second {
		t.Errorf("wait %s", got)
	}
}
