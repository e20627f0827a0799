package watch

import (
	"testing"
	"time"
)

// TestWatchesShareAnAllowance checks that a watch that replaces another one continues its burst and its pause.
func TestWatchesShareAnAllowance(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	limits := DefaultLimits()
	limits.Burst, limits.Rate = 1000, 1
	b := NewBudget(limits)
	b.now = func() time.Time { return now }
	shared := b.Allowance()
	first, second, other := b.MeterOf("a", shared), b.MeterOf("b", shared), b.Meter("c")
	begin := func(m *Meter) *charge {
		_, c, err := m.begin(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	one, two := begin(first), begin(second)
	if err := first.read(one, 900); err != nil {
		t.Fatal(err)
	}
	if second.read(two, 101) == nil {
		t.Error("the second watch has a burst of its own")
	}
	first.mu.Lock()
	first.trip(one, "enough") // during the pause
	first.mu.Unlock()
	for _, m := range []*Meter{first, second} {
		if _, _, err := m.begin(t.Context(), true); err == nil {
			t.Errorf("%s requests during the pause", m.name)
		}
	}
	if err := other.read(begin(other), 1000); err != nil {
		t.Errorf("a watch with an allowance of its own: %v", err)
	}
	now = now.Add(FirstPause)
	begin(first)
}
