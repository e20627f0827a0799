package model_test

import (
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/model"
)

// endedBefore returns an outage that ended some time before now.
func endedBefore(now time.Time, ago time.Duration) model.Outage {
	return model.Outage{EndedAt: now.Add(-ago)}
}

// TestClientsSettleAfterAnOutage checks how long clients in the guest may lag behind.
func TestClientsSettleAfterAnOutage(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tc := range map[string]struct {
		outage model.Outage
		want   time.Duration
	}{
		"no outage is known":      {model.Outage{}, 0},
		"it has just ended":       {endedBefore(now, 0), 2 * time.Minute},
		"it ended a minute ago":   {endedBefore(now, time.Minute), time.Minute},
		"it ended two before":     {endedBefore(now, 2*time.Minute), 0},
		"it ended long ago":       {endedBefore(now, time.Hour), 0},
		"the clock was set back":  {endedBefore(now, -time.Hour), 2 * time.Minute},
		"the clock is a bit back": {endedBefore(now, -time.Second), 2 * time.Minute},
	} {
		if got := tc.outage.Settling(now); got != tc.want {
			t.Errorf("%s: settling for %s, want %s", name, got, tc.want)
		}
	}
}

// TestTimesBeginAgainAfterAnOutage checks how long something has lasted that an outage has interrupted.
func TestTimesBeginAgainAfterAnOutage(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tc := range map[string]struct {
		outage      model.Outage
		began, want time.Duration
	}{
		"no outage is known":         {model.Outage{}, 5 * time.Minute, 5 * time.Minute},
		"begun before it":            {endedBefore(now, time.Minute), 5 * time.Minute, time.Minute},
		"begun after it":             {endedBefore(now, 5*time.Minute), time.Minute, time.Minute},
		"it lasts":                   {endedBefore(now, 0), 5 * time.Minute, 0},
		"it has lasted for too long": {endedBefore(now, time.Minute), 10 * time.Minute, 10 * time.Minute},
		"the clock was set back":     {endedBefore(now, -time.Hour), 5 * time.Minute, 0},
	} {
		if got := tc.outage.Lasted(now.Add(-tc.began), 10*time.Minute, now); got != tc.want {
			t.Errorf("%s: it has lasted for %s, want %s", name, got, tc.want)
		}
	}
}
