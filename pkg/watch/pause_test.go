package watch

import (
	"testing"
	"time"
)

// TestPausesGrow while bounds are broken, up to the longest, and are short again after a time within the bounds.
func TestPausesGrow(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	b := NewBudget(DefaultLimits())
	b.now = func() time.Time { return now }
	m := b.Meter("things")
	breaks := func() time.Duration {
		_, c, err := m.begin(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		m.mu.Lock()
		m.trip(c, "enough")
		m.mu.Unlock()
		_ = c.end(nil)
		pause := m.until.Sub(now)
		if now = m.until.Add(-time.Nanosecond); m.Over() == nil {
			t.Error("it is not a problem")
		}
		if _, _, err := m.begin(t.Context(), true); err == nil {
			t.Error("an attempt before the pause is over")
		}
		now = m.until
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
