package rollout

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/model"
)

// limitOf returns the limit of the change to the wanted configuration.
func (m Memo) limitOf(e Evidence) Limit {
	if m.LimitOf == e.target() {
		return m.Limit
	}
	return NoLimit
}

// isForbidden reports whether a patch was forbidden so recently that another one would be, too.
func (m Memo) isForbidden(now time.Time) bool {
	return !m.ForbiddenAt.IsZero() && now.Sub(m.ForbiddenAt) < refusedTime
}

// waitsFrom returns since when a Gateway is waited for. Those that this process did not release count together: clients
// can create one after another, and a rollout that waits for ever would not be reported.
func (m Memo) waitsFrom(gateway types.UID, now time.Time) time.Time {
	isOther := func(uid types.UID) bool { return uid != "" && uid != m.Released }
	if m.WaitsFor == gateway || isOther(m.WaitsFor) && isOther(gateway) {
		return m.WaitsSince
	}
	return now
}

// Before returns the memo for a decision with this evidence.
func (m Memo) Before(e Evidence) Memo {
	var newly bool
	m.Applied, newly = m.appliedIn(e)
	m.Tries = m.triesOf(e)
	changed := m.Changing && e.istiodRuns() && e.hasTarget(m)
	if changed {
		m.Changing = false
	}
	m = m.withIstiod(e)
	if e.Gateways.View != model.GatewaysKnown {
		m.KnownSince = time.Time{}
		return m
	}
	if m.KnownSince.IsZero() || changed || newly {
		m.KnownSince = e.Now
	}
	m.Holds = len(e.held()) > 0
	return m
}

// withIstiod returns the memo with since when istiod runs as wanted, and whether it deploys Gateways.
func (m Memo) withIstiod(e Evidence) Memo {
	switch {
	case !e.istiodRuns():
		m.ChangedSince, m.Deploys = time.Time{}, false
	case m.ChangedSince.IsZero():
		m.ChangedSince = e.Now
	}
	if last, known := e.released(m); known && last.Deployment.Generation != m.Generation && m.ReleasedAt.After(m.ChangedSince) {
		m.Deploys = true
	}
	return m
}

// After returns the memo after a step was decided.
func (m Memo) After(e Evidence, s Step) Memo {
	if HoldsIstiod(s) && !e.defaultsWait(m) {
		if m.HoldingSince.IsZero() {
			m.HoldingSince = e.Now
		}
	} else {
		m.HoldingSince = time.Time{}
	}
	var waitsFor types.UID
	switch s := s.(type) {
	case Done:
		// Without istiod, this process did not look at the Gateways: an earlier one can have held them.
		m.Checked = e.Installed
		m.Released, m.ReleasedAt, m.Generation = "", time.Time{}, 0
	case Hold:
		m.Released, m.ReleasedAt, m.Generation = "", time.Time{}, 0
	case Change:
		if s.Limit != NoLimit {
			m.Limit, m.LimitOf = s.Limit, e.target()
		}
		m.Changing = e.Gateways.View == model.GatewaysKnown && len(e.free()) > 0
	case Wait:
		waitsFor = s.Gateway.UID
	case Stop:
		waitsFor = s.Gateway.UID
	}
	m.WaitsFor, m.WaitsSince = waitsFor, m.waitsFrom(waitsFor, e.Now)
	return m
}

// AfterRelease returns the memo after a Gateway was released.
func (m Memo) AfterRelease(g model.Gateway, now time.Time) Memo {
	m.Released, m.ReleasedAt, m.Generation = g.UID, now, g.Deployment.Generation
	m.ForbiddenAt = time.Time{}
	return m
}

// AfterForbidden returns the memo after the API server forbade a patch. If istiod waits for holds, it waits no longer.
func (m Memo) AfterForbidden(e Evidence, s Step) Memo {
	m.ForbiddenAt = e.Now
	if _, holding := s.(Hold); holding {
		m.Limit, m.LimitOf = NotAllowed, e.target()
	}
	return m
}

// Report returns what conditions are computed from, after a step.
func (m Memo) Report(e Evidence, s Step) Report {
	return Report{Step: s, Limit: m.limitOf(e), Defaults: e.Has == e.Wanted && e.awaitsDefaults(m), Refused: m.refused(e)}
}
