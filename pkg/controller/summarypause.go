package controller

import (
	"time"

	"github.com/hypergate/hypergate/pkg/summary"
)

// keepEarlier adds what an earlier process wrote before a pause, as far as only a pass outside of the pause finds it
// out. The next write of the Lease would replace it with zeros, which look like an observation. summary.Parse has
// cleaned and limited all of it.
func (s *summarizer) keepEarlier() {
	e, last := s.earlier, &s.last
	if e.Time.IsZero() {
		return // there was no earlier process
	}
	s.conditions = conditionsOf(e)
	last.Published, last.CRDs, last.Webhook, last.Gateways = e.Published, e.CRDs, e.Webhook, e.Gateways
	last.Istiod.Version = e.Istiod.Version
	if last.Istiod.State != "" { // the management side is observed during a pause, if the guest answers
		last.Istiod.Since = e.Istiod.Since
	}
	if !s.guestSeen {
		last.Classes, last.Class, last.Owner, last.GuestUnobserved = e.Classes, e.Class, e.Owner, e.GuestUnobserved
	}
}

// pausedSince returns when hypergate first saw the pause that last has. shown is the summary on the Lease, which an
// earlier process can have written: if its version did not write the time, the pause is at least as old as its last
// pass. pausedSince returns the zero time without a pause.
func pausedSince(last, shown summary.Summary, now time.Time) time.Time {
	switch {
	case last.Lifecycle != summary.Paused:
		return time.Time{}
	case !last.PausedSince.IsZero():
		return last.PausedSince
	case shown.Lifecycle == summary.Paused && !shown.PausedSince.IsZero():
		return shown.PausedSince
	case shown.Lifecycle == summary.Paused:
		return shown.Time
	default:
		return now
	}
}
