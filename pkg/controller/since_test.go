package controller

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/hypergate/hypergate/pkg/desired"
)

// TestSinceIstiodWorksAgain: its account was replaced, and what it gave up on meanwhile it looks at again when the status changes, twice at most.
func TestSinceIstiodWorksAgain(t *testing.T) {
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		replaced, now, want time.Time
		again               time.Duration
	}{
		"never replaced":        {now: start, want: start},
		"just now":              {replaced: start.Add(time.Hour), now: start.Add(time.Hour), want: start, again: 65 * time.Second},
		"a moment before":       {replaced: start.Add(time.Hour), now: start.Add(time.Hour + 64*time.Second), want: start, again: time.Second},
		"mostly there":          {replaced: start.Add(time.Hour), now: start.Add(time.Hour + 65*time.Second), want: start.Add(time.Hour + 65*time.Second), again: time.Minute},
		"surely there":          {replaced: start.Add(time.Hour), now: start.Add(2 * time.Hour), want: start.Add(time.Hour + 125*time.Second)},
		"and then it restarted": {replaced: start.Add(-time.Hour), now: start.Add(2 * time.Hour), want: start},
	} {
		r := &Reconciler{clock: clocktesting.NewFakePassiveClock(tc.now), replaced: tc.replaced}
		p := &pass{hosted: desired.Hosted{IstiodSince: start}}
		if got := r.since(p); !got.Equal(tc.want) || p.next != tc.again {
			t.Errorf("%s: since %s, again in %s; want %s, %s", name, got, p.next, tc.want, tc.again)
		}
	}
}
