package model_test

import (
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/model"
)

// TestClientsSettleAfterAnOutage checks how long clients in the guest may lag behind.
func TestClientsSettleAfterAnOutage(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ended := func(before time.Duration) model.Outage { return model.Outage{EndedAt: now.Add(-before)} }
	for name, tc := range map[string]struct {
		outage model.Outage
		want   time.Duration
	}{
		"no outage is known":      {model.Outage{}, 0},
		"it has just ended":       {ended(0), 2 * time.Minute},
		"it ended a minute ago":   {ended(time.Minute), time.Minute},
		"it ended two before":     {ended(2 * time.Minute), 0},
		"it ended long ago":       {ended(time.Hour), 0},
		"the clock was set back":  {ended(-time.Hour), 2 * time.Minute},
		"the clock is a bit back": {ended(-time.Second), 2 * time.Minute},
	} {
		if got := tc.outage.Settling(now); got != tc.want {
			t.Errorf("%s: settling for %s, want %s", name, got, tc.want)
		}
	}
}

// TestTimesBeginAgainAfterAnOutage checks from when something is timed that an outage interrupted.
func TestTimesBeginAgainAfterAnOutage(t *testing.T) {
	t.Parallel()
	end := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	outage := model.Outage{EndedAt: end}
	for name, tc := range map[string]struct {
		outage     model.Outage
		from, want time.Time
	}{
		"no outage is known": {model.Outage{}, end, end},
		"begun before it":    {outage, end.Add(-time.Minute), end},
		"begun after it":     {outage, end.Add(time.Minute), end.Add(time.Minute)},
		"not begun":          {outage, time.Time{}, end},
	} {
		if got := tc.outage.After(tc.from); !got.Equal(tc.want) {
			t.Errorf("%s: timed from %s, want %s", name, got, tc.want)
		}
	}
}
