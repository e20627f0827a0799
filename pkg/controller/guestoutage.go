package controller

import (
	"time"

	"github.com/hypergate/hypergate/pkg/model"
)

// guestOutage is what is remembered of outages of the guest's API server. A new process knows of none.
type guestOutage struct {
	// since is since when the API server does not answer. Zero: it answers.
	since time.Time
	last  model.Outage
}

// observe returns the last outage. away reports whether the API server does not answer now.
func (g *guestOutage) observe(away bool, now time.Time) model.Outage {
	now = now.Round(0) // it is compared with times that were read from objects
	switch {
	case away && g.since.IsZero():
		g.since = now
	case !g.since.IsZero() && now.Sub(g.since) >= outageAtLeast:
		g.last.EndedAt = now
	}
	if !away {
		g.since = time.Time{}
	}
	return g.last
}
