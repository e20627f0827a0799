package rollout

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/model"
)

// limitOf returns the limit of the change to the wanted configuration.
func (m Memo) limitOf(e Evidence) Limit {
	if m.LimitOf == e.Wanted {
		return m.Limit
	}
	return NoLimit
}

// Refusal is why the guest refused a patch that it would refuse again. The zero value: it did not.
type Refusal struct {
	// NotAllowed reports whether hypergate has no permission. Otherwise, a webhook, a policy or a schema denies this
	// patch.
	NotAllowed bool
	// Gateway is the one that should be patched.
	Gateway types.UID
	// Cause is a sentence without a full stop, as apply.Cause returns it.
	Cause string
}

// isRefused reports whether a patch was refused so recently that another one would be, too. A patch that was denied
// counts only while its Gateway is among the held ones.
func (m Memo) isRefused(now time.Time, held []model.Gateway) bool {
	if m.RefusedAt.IsZero() || now.Sub(m.RefusedAt) >= refusedTime {
		return false
	}
	return m.Refusal.NotAllowed || slices.ContainsFunc(held, func(g model.Gateway) bool { return g.UID == m.Refusal.Gateway })
}

// settlesFrom returns since when istiod can have deployed the Gateway that was released last. A process that released
// none uses the time since when it knows the Gateways.
func (m Memo) settlesFrom() time.Time {
	if m.Released != "" {
		return m.ReleasedAt
	}
	return m.KnownSince
}

// waitsFrom returns since when a Gateway is waited for.
func (m Memo) waitsFrom(gateway types.UID, now time.Time) time.Time {
	if m.WaitsFor != gateway {
		return now
	}
	return m.WaitsSince
}

// Before returns the memo for a decision with this evidence.
func (m Memo) Before(e Evidence) Memo {
	if e.Gateways.View != model.GatewaysKnown {
		m.KnownSince = time.Time{}
		return m
	}
	if m.KnownSince.IsZero() {
		m.KnownSince = e.Now
	}
	m.Holds = len(e.held()) > 0
	return m
}

// After returns the memo after a step was decided.
func (m Memo) After(e Evidence, s Step) Memo {
	if HoldsIstiod(s) {
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
			m.Limit, m.LimitOf = s.Limit, e.Wanted
		}
		if !m.KnownSince.IsZero() && len(e.free()) > 0 {
			m.KnownSince = e.Now // istiod deploys these a moment after its own rollout, without a release
		}
	case Wait:
		waitsFor = s.Gateway.UID
	case Stop:
		waitsFor = s.Gateway.UID
	}
	if waitsFor != m.WaitsFor {
		m.WaitsFor, m.WaitsSince = waitsFor, e.Now
	}
	return m
}

// AfterRelease returns the memo after a Gateway was released.
func (m Memo) AfterRelease(g model.Gateway, now time.Time) Memo {
	m.Released, m.ReleasedAt, m.Generation = g.UID, now, g.Deployment.Generation
	m.RefusedAt, m.Refusal = time.Time{}, Refusal{}
	return m
}

// AfterRefusal returns the memo after the guest refused a patch. If istiod waits for holds, a missing permission ends
// that. A patch that is denied does not: it concerns one Gateway, and is tried again until the time for holds is over.
func (m Memo) AfterRefusal(e Evidence, s Step, why Refusal) Memo {
	if _, holding := s.(Hold); holding {
		if !why.NotAllowed {
			return m
		}
		m.Limit, m.LimitOf = NotAllowed, e.Wanted
	}
	m.RefusedAt, m.Refusal = e.Now, why
	return m
}

// Report returns what conditions are computed from, after a step.
func (m Memo) Report(e Evidence, s Step) Report { return Report{Step: s, Limit: m.limitOf(e)} }
