package controller

import (
	"testing"
	"time"
)

// TestWhatStandsForAMomentIsTold, and what goes on changing is told in time.
func TestWhatStandsForAMomentIsTold(t *testing.T) {
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var s steady
	for i, step := range []struct {
		at   time.Duration
		gist string
		want time.Duration
	}{
		{0, "", 0},
		{0, "a", time.Second},
		{900 * time.Millisecond, "a", 100 * time.Millisecond},
		{950 * time.Millisecond, "", 0}, // it has passed
		{time.Second, "a", time.Second},
		{2 * time.Second, "a", 0},
		{2100 * time.Millisecond, "", 0}, // it was told
		{3 * time.Second, "b", time.Second},
		{3900 * time.Millisecond, "c", time.Second},
		{4800 * time.Millisecond, "b", time.Second},
		{5700 * time.Millisecond, "c", 300 * time.Millisecond},
		{6 * time.Second, "b", 0},
	} {
		if got := s.wait(step.gist, start.Add(step.at)); got != step.want {
			t.Errorf("step %d: waits for %s, want %s", i, got, step.want)
		}
	}
}
