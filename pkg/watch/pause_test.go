package watch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestPausesGrowWhileLimitsAreExceeded checks that pauses grow up to the longest one while limits are exceeded. They
// are short again after a time within the limits.
func TestPausesGrowWhileLimitsAreExceeded(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	b := NewBudget(DefaultLimits())
	b.now = func() time.Time { return now }
	m := b.Meter("things")
	breaks := func() time.Duration {
		_ = broken(t, m).end(nil)
		pause := m.allowance.until.Sub(now)
		if now = m.allowance.until.Add(-time.Nanosecond); m.Over() == nil {
			t.Error("Over does not report the exceeded limit")
		}
		if _, _, err := m.begin(t.Context(), true); err == nil {
			t.Error("an attempt before the pause is over")
		}
		now = m.allowance.until
		return pause
	}
	for _, seconds := range []int{5, 10, 20, 40, 80, 160, 300, 300} {
		if got, want := breaks(), time.Duration(seconds)*time.Second; got != want {
			t.Errorf("a pause of %s, want %s", got, want)
		}
	}
	now = now.Add(2*MaxPause + time.Second)
	if got := breaks(); got != FirstPause {
		t.Errorf("after a time within the bounds a pause of %s, want %s", got, FirstPause)
	}
}

// broken returns a list that exceeded a limit and has not ended.
func broken(t *testing.T, m *Meter) *charge {
	t.Helper()
	_, c, err := m.begin(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trip(c, "enough")
	return c
}

// TestOneLargeMessageAtATime checks that the second request waits until the first one has ended.
func TestOneLargeMessageAtATime(t *testing.T) {
	t.Parallel()
	b := NewBudget(DefaultLimits())
	begin := func(name string) *charge {
		_, c, err := b.Meter(name).begin(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first, second := begin("a"), begin("b")
	if err := first.enlarge(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for range 20 { // a select with two ready cases would choose one at random
		if second.enlarge(ended) == nil {
			t.Fatal("two large messages are read at once")
		}
	}
	_ = first.end(nil)
	if err := second.enlarge(t.Context()); err != nil {
		t.Error(err)
	}
	_ = second.end(nil)
}

// TestALargeMessageHasADeadline checks that a large message has a deadline, in an event as in a list, because other
// requests wait for it. The time that a request waits for its turn does not count.
func TestALargeMessageHasADeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(DefaultLimits())
		events, list := b.Meter("events"), b.Meter("list")
		_, first, err := events.begin(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		_, second, err := list.begin(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		if err := first.enlarge(t.Context()); err != nil {
			t.Fatal(err)
		}
		list.answered(second)
		waited := make(chan error)
		go func() { waited <- second.enlarge(t.Context()) }()
		<-time.After(MaxListTime + time.Second)
		if events.Over() == nil {
			t.Error("a message without an end continues")
		}
		_ = first.end(nil)
		if err := <-waited; err != nil {
			t.Error(err)
		}
		if err := list.Over(); err != nil {
			t.Errorf("the waiting list exceeded a limit: %v", err)
		}
		<-time.After(MaxListTime + time.Second)
		if list.Over() == nil {
			t.Error("a list without an end continues")
		}
		_ = second.end(nil)
	})
}

// TestAListBeyondALimitIsRefused checks that such a list is refused, even if the request ended without an
// error.
func TestAListBeyondALimitIsRefused(t *testing.T) {
	t.Parallel()
	m := NewBudget(DefaultLimits()).Meter("things")
	broken(t, m)
	if m.Listed("") == nil || m.Over() == nil {
		t.Error("the list was accepted")
	}
}
