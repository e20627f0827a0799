package controller

import (
	"testing"
	"time"
)

// TestOutagesOfTheGuestAreTimed checks which outages count, and when they ended.
func TestOutagesOfTheGuestAreTimed(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var g guestOutage
	for _, pass := range []struct {
		at    time.Duration
		away  bool
		ended time.Duration // after start; 0: no outage is known
	}{
		{at: 0},
		{at: 10 * time.Second, away: true},
		{at: 12 * time.Second}, // too short
		{at: 20 * time.Second, away: true},
		{at: 30 * time.Second, away: true, ended: 30 * time.Second}, // it lasts until now
		{at: 40 * time.Second, ended: 40 * time.Second},
		{at: 50 * time.Second, ended: 40 * time.Second},
		{at: 60 * time.Second, away: true, ended: 40 * time.Second},
		{at: 61 * time.Second, ended: 40 * time.Second},
		{at: 70 * time.Second, away: true, ended: 40 * time.Second},
		{at: 73 * time.Second, ended: 73 * time.Second},
	} {
		got := g.observe(pass.away, start.Add(pass.at)).EndedAt
		want := time.Time{}
		if pass.ended != 0 {
			want = start.Add(pass.ended)
		}
		if !got.Equal(want) {
			t.Errorf("after %s: the last outage ended at %s, want %s", pass.at, got, want)
		}
	}
}
