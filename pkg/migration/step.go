package migration

import (
	"time"

	"github.com/hypergate/hypergate/pkg/model"
)

// Step is what to do next. It is one of Act, Wait, Stop and Rest.
//
//sumtype:decl
type Step interface {
	// In returns the phase of the step.
	In() Phase
	isStep()
}

type (
	// Act is one action. The Memo must be written first.
	Act struct {
		Phase  Phase
		Action Action
	}
	// Wait means that something is in progress. Again is when to decide again without an event.
	Wait struct {
		Phase   Phase
		Why     Reason
		Gateway model.ForeignObject
		Again   time.Duration
	}
	// Stop means that a person is needed. Gateway is set if the reason is about one, and Findings with Blocked.
	Stop struct {
		Phase    Phase
		Why      Reason
		Gateway  model.ForeignObject
		Findings []Finding
	}
	// Rest means that there is nothing to do for this intent.
	Rest struct {
		Phase Phase
		Why   Reason
	}
)

// In returns the phase.
func (s Act) In() Phase { return s.Phase }

// In returns the phase.
func (s Wait) In() Phase { return s.Phase }

// In returns the phase.
func (s Stop) In() Phase { return s.Phase }

// In returns the phase.
func (s Rest) In() Phase { return s.Phase }

func (Act) isStep()  {}
func (Wait) isStep() {}
func (Stop) isStep() {}
func (Rest) isStep() {}

// Action is a change of the world. It is one of SetHosted, HoldGateways, ReleaseGateways, ScaleOrigin, RelaxWebhook and
// RestoreTemplate.
//
//sumtype:decl
type Action interface {
	// Writes returns the kind of the action's writes.
	Writes() Write
	isAction()
}

type (
	// SetHosted installs the hosted istiod in a mode, or removes it.
	SetHosted struct{ Mode HostedMode }
	// HoldGateways holds Gateways.
	HoldGateways struct{ Gateways []model.ForeignObject }
	// ReleaseGateways releases Gateways.
	ReleaseGateways struct{ Gateways []model.ForeignObject }
	// ScaleOrigin sets the replicas of the origin's Deployment.
	ScaleOrigin struct{ Replicas int32 }
	// RelaxWebhook sets the failure policy of the origin's validating webhook to Ignore.
	RelaxWebhook struct{}
	// RestoreTemplate gives a held Gateway's Deployment the pod template of its previous ReplicaSet.
	RestoreTemplate struct{ Gateway model.ForeignObject }
)

func (SetHosted) isAction()       {}
func (HoldGateways) isAction()    {}
func (ReleaseGateways) isAction() {}
func (ScaleOrigin) isAction()     {}
func (RelaxWebhook) isAction()    {}
func (RestoreTemplate) isAction() {}

// Writes returns the kind of the action's writes.
func (SetHosted) Writes() Write { return WriteHosted }

// Writes returns the kind of the action's writes.
func (HoldGateways) Writes() Write { return WriteHold }

// Writes returns the kind of the action's writes.
func (ReleaseGateways) Writes() Write { return WriteRelease }

// Writes returns the kind of the action's writes.
func (ScaleOrigin) Writes() Write { return WriteReplicas }

// Writes returns the kind of the action's writes.
func (RelaxWebhook) Writes() Write { return WriteWebhook }

// Writes returns the kind of the action's writes.
func (RestoreTemplate) Writes() Write { return WriteTemplate }

// Reason is why a step is not an action.
type Reason string

// The reasons.
const (
	// NotRequested: no migration was requested. Paused: a person paused the migration.
	NotRequested Reason = "NotRequested"
	Paused       Reason = "Paused"
	// Blocked: a finding of the check blocks.
	Blocked Reason = "Blocked"
	// HostedNotReady: the hosted istiod is not available, or does not answer at its published address.
	HostedNotReady Reason = "HostedNotReady"
	// OriginNotReady: the origin has no ready pod.
	OriginNotReady Reason = "OriginNotReady"
	// OriginEnding: pods of the origin still exist.
	OriginEnding Reason = "OriginEnding"
	// OriginReturns: another client has started the origin again, and it was parked a short time ago.
	OriginReturns Reason = "OriginReturns"
	// WebhookReturns: another client sets the failure policy of the origin's webhook to Fail again and again.
	WebhookReturns Reason = "WebhookReturns"
	// OriginGone: the origin was removed, so a rollback is not possible.
	OriginGone Reason = "OriginGone"
	// OriginExists: the origin is parked, and another party must remove it.
	OriginExists Reason = "OriginExists"
	// ConflictExists: the origin is removed, and another party must also remove what conflicts with the hosted istiod.
	ConflictExists Reason = "ConflictExists"
	// LockPending: the istiod that should lead does not have the lock yet.
	LockPending Reason = "LockPending"
	// NotHeld: Gateways could not be held in time, or did not stay held.
	NotHeld Reason = "NotHeld"
	// WriteDenied: the guest denies or reverts a write. Only reports have this reason, in place of that of the step.
	WriteDenied Reason = "WriteDenied"
	// HeldByOther: another client holds the Gateway, so it cannot move.
	HeldByOther Reason = "HeldByOther"
	// HoldReturns: another client holds the Gateway again after each release.
	HoldReturns Reason = "HoldReturns"
	// GuestSettling: the guest's API server did not answer, and clients in the guest can lag behind.
	GuestSettling Reason = "GuestSettling"
	// GatewayRolling: the Gateway is on its way to the other istiod. GatewayFailed: it did not arrive in time.
	GatewayRolling Reason = "GatewayRolling"
	GatewayFailed  Reason = "GatewayFailed"
	// FewerRoutes: the Gateway has arrived, with fewer attached routes than before.
	FewerRoutes Reason = "FewerRoutes"
	// Skipped: only Gateways with SkipAnnotation are left at the origin, so it cannot be parked.
	Skipped Reason = "Skipped"
	// Parked, Finished and RolledBack are the ends of the three goals.
	Parked     Reason = "Parked"
	Finished   Reason = "Finished"
	RolledBack Reason = "RolledBack"
)

// Retires reports whether nothing is left to do for hypergate in the phase Retire: another party has to remove
// something of the guest.
func (r Reason) Retires() bool { return r == OriginExists || r == ConflictExists }
