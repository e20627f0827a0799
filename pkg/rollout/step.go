package rollout

import (
	"time"

	"github.com/hypergate/hypergate/pkg/model"
)

// Step is what to do next. It is one of Done, Look, Hold, Change, Release, ReleaseAll, Wait and Stop.
type Step interface{ isStep() }

type (
	// Done means that no Gateway is held. Gateways need not be watched.
	Done struct{}
	// Look means that the Gateways must be known first. If Before is set, before istiod is changed. Again is when to
	// decide again without an event.
	Look struct {
		Before bool
		Again  time.Duration
	}
	// Hold means that these Gateways must be held before istiod is changed. If the guest denies that for one, Denied is
	// that Gateway, and Cause is the cause.
	Hold struct {
		Gateways []model.Gateway
		Progress Progress
		Denied   model.Gateway
		Cause    string
	}
	// Change means that istiod may be changed, or is rolling. If Limit is set, Gateways roll with it.
	Change struct{ Limit Limit }
	// Release means that this Gateway is the next one.
	Release struct {
		Gateway  model.Gateway
		Progress Progress
	}
	// ReleaseAll means that these Gateways are released at once.
	ReleaseAll struct{ Gateways []model.Gateway }
	// Wait means that the new pods of a Gateway are not ready yet, or may still be made. With AfterOutage, it means
	// that clients in the guest can lag behind after an outage of its API server. Again is when to decide again without
	// an event.
	Wait struct {
		Gateway     model.Gateway
		AfterOutage bool
		Progress    Progress
		Again       time.Duration
	}
	// Stop means that no further Gateway is released. Again is when to decide again without an event; zero is never.
	Stop struct {
		Why     StopReason
		Gateway model.Gateway
		// Cause is why the guest denied a patch: a sentence without a full stop. It is empty for other reasons.
		Cause    string
		Progress Progress
		Again    time.Duration
	}
)

func (Done) isStep()       {}
func (Look) isStep()       {}
func (Hold) isStep()       {}
func (Change) isStep()     {}
func (Release) isStep()    {}
func (ReleaseAll) isStep() {}
func (Wait) isStep()       {}
func (Stop) isStep()       {}

// StopReason is why a rollout stopped.
type StopReason string

const (
	// PodsNotReady: the new pods of the Gateway do not become ready.
	PodsNotReady StopReason = "PodsNotReady"
	// MayNotRelease: Gateways are held, and hypergate is not allowed to patch or list them.
	MayNotRelease StopReason = "MayNotRelease"
	// ReleaseDenied: the guest denies the patch that releases the Gateway, for example by a webhook.
	ReleaseDenied StopReason = "ReleaseDenied"
	// HeldAgain: another client holds the Gateway again after each release.
	HeldAgain StopReason = "HeldAgain"
)

// HoldsIstiod reports whether istiod must not be changed before the step is done.
func HoldsIstiod(s Step) bool {
	switch s := s.(type) {
	case Look:
		return s.Before
	case Hold:
		return true
	default:
		return false
	}
}

// Watching is whether Gateways must be watched.
type Watching int

const (
	// WatchUnchanged: they are watched or not, as before.
	WatchUnchanged Watching = iota
	// WatchOn: the next decision follows from them.
	WatchOn
	// WatchOff: no decision follows from them.
	WatchOff
)

// WatchingFor returns whether Gateways must be watched after a step.
func WatchingFor(s Step) Watching {
	switch s.(type) {
	case Done:
		return WatchOff
	case Change, nil:
		return WatchUnchanged
	default:
		return WatchOn
	}
}

// patchTime is when to decide again after patches: one can fail without an event.
const patchTime = time.Second

// Again returns when to decide again without an event. Zero: not before an event.
func Again(s Step) time.Duration {
	switch s := s.(type) {
	case Look:
		return s.Again
	case Wait:
		return s.Again
	case Stop:
		return s.Again
	case Hold, Release, ReleaseAll:
		return patchTime
	default:
		return 0
	}
}
