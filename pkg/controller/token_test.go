package controller

import (
	"testing"
	"time"
)

// TestServingSinceAfterAReplacedAccount checks the times at which the status changes after istiod's account was
// replaced: at most two. istiod retries after a change what it has given up on.
func TestServingSinceAfterAReplacedAccount(t *testing.T) {
	for name, tc := range map[string]struct {
		replaced, now, want time.Time
		again               time.Duration
	}{
		"never replaced": {now: start, want: start},
		"just now":       {replaced: start.Add(time.Hour), now: start.Add(time.Hour), want: start, again: 65 * time.Second},
		"just before": {
			replaced: start.Add(time.Hour), now: start.Add(time.Hour + 64*time.Second), want: start, again: time.Second,
		},
		"usually there": {
			replaced: start.Add(time.Hour), now: start.Add(time.Hour + 65*time.Second),
			want: start.Add(time.Hour + 65*time.Second), again: time.Minute,
		},
		"surely there": {
			replaced: start.Add(time.Hour), now: start.Add(2 * time.Hour), want: start.Add(time.Hour + 125*time.Second),
		},
		"and then it restarted": {replaced: start.Add(-time.Hour), now: start.Add(2 * time.Hour), want: start},
	} {
		got, again := tokens{replaced: tc.replaced}.since(start, tc.now)
		if !got.Equal(tc.want) || again != tc.again {
			t.Errorf("%s: since %s, again in %s; want %s, %s", name, got, again, tc.want, tc.again)
		}
	}
}
