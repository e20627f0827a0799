package controller

import (
	"errors"
	"fmt"
	"time"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/rollout"
	"github.com/hypergate/hypergate/pkg/throttle"
)

// decision is what a pass does, and why. It is one of onHold, waitForSync, noPlan, pruneManagement and converge.
//
//sumtype:decl
type decision interface{ isDecision() }

// onHold: the HostedControlPlane, or the Cluster, allows no writes.
type onHold struct{ cause onHoldError }

// waitForSync: a side is not known yet. A watch wakes the next pass.
type waitForSync struct {
	problem error
	// renew: istiod's credential is still renewed.
	renew bool
}

// noPlan: there is no plan, or the plan must not be carried out.
type noPlan struct {
	problem error
	// renew: istiod's credential is still renewed, so that a running istiod continues to work.
	renew bool
	// rereadCA: the CA cannot be used, and is read again once its Secret changes.
	rereadCA bool
	// migration is the step of a migration that needs no plan.
	migration migrationStep
}

// pruneManagement: nothing is to be installed, and the guest belongs to another hypergate or its owner is not known.
// The management side is pruned. The guest is not, because its objects may belong to the other hypergate.
type pruneManagement struct {
	problem error
	plan    desired.Plan
}

// converge: the plan is carried out.
type converge struct {
	plan desired.Plan
	// computed reports whether the plan was computed in this pass, and not cached.
	computed bool
	// acquire are the ownership Leases that are still missing. Without them nothing of the plan is applied.
	acquire []ownership.Lease
	ca      caStep
	rollout rolloutStep
	// migration is the step of a migration. The plan has the mode of istiod that it requires.
	migration migrationStep
}

func (onHold) isDecision()          {}
func (waitForSync) isDecision()     {}
func (noPlan) isDecision()          {}
func (pruneManagement) isDecision() {}
func (converge) isDecision()        {}

// decider decides what a pass does. It sends no requests and reads no clock. It changes two fields of the memory: the
// cache of plans, and the CA of the next first installation, whose keys are random. The same observation has the same
// decision, because that CA is kept until it is used.
type decider struct {
	config model.Config
	plans  *planCache
	// The memory of earlier passes, see type memory.
	ca      meshCA
	standby standby
	rollout rollout.Memo
	// migrating is the mode of istiod that the last step of a migration has decided.
	migrating decidedMode
	// acquiring limits how often Leases are acquired.
	acquiring throttle.Limiter
	// newCA returns a CA for a first installation, always the same one until it is used. The first call makes it from
	// random keys, and keeps it in meshCA.next.
	newCA func(time.Time) (pki.CA, error)
}

// decide is the one decision of a pass.
func (d decider) decide(o observation) decision {
	hold, held := errors.AsType[onHoldError](o.hold)
	switch {
	case o.guestProblem != nil && o.missing == "":
		return waitForSync{problem: o.guestProblem}
	case o.identityProblem != nil:
		return noPlan{problem: o.identityProblem, renew: d.renewsUnverified(o)}
	case held:
		return onHold{hold}
	case o.guestProblem != nil:
		return waitForSync{problem: o.guestProblem, renew: d.renewsUnsynced(o)}
	case unknown(o.mgmtProblem):
		return waitForSync{problem: o.mgmtProblem}
	case o.mgmtProblem != nil:
		// Reading the credential has found one: an istiod that cannot be seen may live on it.
		renew := o.isManaged(d.config) && len(o.guest.Classes) > 0 && o.credential.Token != "" && o.isClaimed()
		return noPlan{problem: o.mgmtProblem, renew: renew}
	default:
		return d.decideOwnership(o)
	}
}

// decideOwnership decides with both sides known. What is to be installed is owned before anything of it is applied.
// Without anything to install there is only to prune, which the owner of the guest does alone.
func (d decider) decideOwnership(o observation) decision {
	wanted := o.wantsInstallation(d.config)
	if problem := ownershipProblem(d.config, o.ownership); problem != nil {
		if !wanted {
			return d.decidePruning(o, problem)
		}
		return noPlan{problem: problem, renew: renewsIstiod(o)}
	}
	step := d.decideMigration(o)
	if problem := d.besideProblem(o, step); wanted && problem != nil {
		return noPlan{problem: problem, renew: renewsIstiod(o), migration: step}
	}
	planned, err := d.plan(o, step)
	if err != nil {
		_, unusable := errors.AsType[unusableCAError](err)
		step.step = nil // no step without its plan
		return noPlan{problem: err, renew: renewsIstiod(o), rereadCA: unusable, migration: step}
	}
	if unowned, is := o.ownership.(ownership.Unowned); is && planned.plan.Installed {
		return d.decideAcquiring(o, planned, unowned)
	}
	return planned
}

// decideAcquiring decides when the missing ownership Leases are acquired.
func (d decider) decideAcquiring(o observation, planned converge, unowned ownership.Unowned) decision {
	if wait := d.standby.wait(o.now); wait > 0 {
		refused := d.standby.refused
		refused.Wait = wait
		return noPlan{problem: refused}
	}
	if wait := d.acquiring.Wait(o.now); wait > 0 {
		return noPlan{renew: renewsIstiod(o), problem: ownership.ContestedError{
			Missing: unowned.Missing, Namespace: d.config.GuestNamespace, Every: acquireEvery, Wait: wait,
		}}
	}
	planned.acquire = unowned.Missing
	return planned
}

// mustRemove reports whether istiod is to be removed although a GatewayClass requests it, and that is not complete: it
// exists, or this hypergate still owns the guest.
func (d decider) mustRemove(o observation) bool {
	_, owned := o.ownership.(ownership.Owned)
	return o.mgmt.Istiod != model.Absent || owned && (d.migrating.removes || o.migration.goal() == migration.Backward)
}

// besideProblem returns why nothing is installed beside the istiod of the guest. Nil: there is none, or a migration
// replaces it.
func (d decider) besideProblem(o observation, step migrationStep) error {
	conflicts := ownership.Conflicts(d.config, o.guest.Foreign)
	switch step.mode {
	case model.IstiodServing, model.IstiodLeading:
		return nil
	case model.IstiodNone:
		if d.mustRemove(o) {
			return nil
		}
	default:
		if len(conflicts) == 0 {
			return nil
		}
	}
	if blocked := o.migration.blocked(step); blocked != nil {
		return blocked
	}
	return ownership.ConflictError{Config: d.config, Controllers: conflicts}
}

// decidePruning decides whether the management side is pruned. Nothing is to be installed, and problem forbids changes
// in the guest. A Lease in the guest does not keep objects on the management side that are no longer needed.
func (d decider) decidePruning(o observation, problem error) decision {
	planned, err := d.plan(o, migrationStep{})
	if err != nil || planned.plan.Installed {
		return noPlan{problem: errors.Join(problem, err)}
	}
	return pruneManagement{problem: problem, plan: planned.plan}
}

// plan computes the plan, and the step of the mesh CA that it is computed with.
func (d decider) plan(o observation, step migrationStep) (converge, error) {
	if err := o.mgmt.ControlPlaneProblem; err != nil {
		return converge{}, rejectedPlanError{err}
	}
	if o.isDisabled() {
		return d.withRollout(o, converge{ca: caStep{ca: o.mgmt.CA, rotation: o.mgmt.Rotation}, migration: step}), nil
	}
	ca, err := d.decideCA(o)
	if err != nil {
		return converge{}, err
	}
	o.mgmt.CA, o.mgmt.Rotation, o.mgmt.IstiodMode = ca.ca, ca.rotation, step.mode
	// Only then, so that a plan of another mode is not computed again.
	o.guest.DefaultsExist = step.mode == model.IstiodLeading && len(o.guest.OtherDefaults)+len(o.guest.AppliedTemplates) > 0
	plan, computed, err := d.plans.planFor(o.mgmt, o.guest)
	if err != nil {
		return converge{}, err
	}
	return d.withRollout(o, converge{plan: plan, computed: computed, ca: ca, migration: step}), nil
}

// rejectedPlanError is why a plan cannot be computed.
type rejectedPlanError struct{ cause error }

func (e rejectedPlanError) Error() string {
	return fmt.Sprintf("the plan was rejected and nothing was changed: %v", e.cause)
}

func (e rejectedPlanError) Unwrap() error { return e.cause }

// isDisabled reports whether the guest does without ingress, or hypergate is not enabled. Nothing is installed then.
func (o observation) isDisabled() bool {
	_, disabled := o.mgmt.ControlPlane.Lifecycle(o.now).(model.Disabled)
	return disabled
}

// hasIstiod reports whether istiod exists, and a class needs it.
func hasIstiod(o observation) bool {
	return len(o.guest.Classes) > 0 && o.mgmt.Istiod != model.Absent
}

// renewsIstiod reports whether the credential of an istiod that a class needs may be renewed.
func renewsIstiod(o observation) bool { return hasIstiod(o) && o.isClaimed() }

// isClaimed reports whether istiod may get a token of this guest: it belongs to this hypergate, or istiod's credential
// leads to it already. Otherwise the kubeconfig can be the one of another guest by mistake, and istiod would serve it.
// Not where another hypergate owns the guest: two istiods without leader election would write the same objects.
func (o observation) isClaimed() bool {
	state := o.ownership
	if state == nil {
		state = o.claim
	}
	switch state.(type) {
	case ownership.Owned:
		return true
	case ownership.OwnedByOther:
		return false
	default:
		return o.reached
	}
}

// renewsUnsynced reports whether the credential is renewed while the guest answers and does not list everything. The
// classes, or the mode, cannot be read then, but a running istiod must continue to work.
func (d decider) renewsUnsynced(o observation) bool {
	return o.missingFor == 0 && o.mgmtProblem == nil && o.mgmt.Istiod != model.Absent &&
		o.isManaged(d.config) && o.isActive() && o.credential.Token != "" && o.isClaimed()
}

// renewsUnverified reports whether the credential is renewed while it cannot be found out whether the guest is the
// management cluster: it has more namespaces than are read, or does not list them in time. The process that wrote the
// credential had found it out, so the credential must lead to the server at which the guest is now.
func (d decider) renewsUnverified(o observation) bool {
	_, owned := o.ownership.(ownership.Owned)
	return owned && o.mgmtProblem == nil && o.isActive() && o.hold == nil && o.credential.Token != "" && o.reached && hasIstiod(o)
}

// ownershipProblem returns why nothing may be done in a guest. Nil: it is ours, or can be.
func ownershipProblem(cfg model.Config, o ownership.State) error {
	switch o := o.(type) {
	case ownership.Unknown:
		return ownership.CheckError{Verb: "list", Err: o.Err}
	case ownership.OwnedByOther:
		return ownership.OwnedByOtherError{OwnedByOther: o, Namespace: cfg.GuestNamespace}
	case ownership.Unowned, ownership.Owned:
	}
	return nil
}

// standby is the state while another hypergate owns the guest, and after that. refused is the problem to report. vacant
// is when the guest was first seen without that owner. The zero value: no other hypergate owned the guest.
type standby struct {
	refused ownership.OwnedByOtherError
	vacant  time.Time
}

// after returns the standby after an observation of the ownership.
func (s standby) after(cfg model.Config, o ownership.State, now time.Time) standby {
	switch o := o.(type) {
	case ownership.OwnedByOther:
		return standby{refused: ownership.OwnedByOtherError{OwnedByOther: o, Namespace: cfg.GuestNamespace}}
	case ownership.Owned:
		return standby{}
	case ownership.Unowned:
		if s.refused.Namespace != "" && s.vacant.IsZero() {
			s.vacant = now
		}
	case ownership.Unknown:
	}
	return s
}

// wait returns how long this hypergate still waits for the previous owner of the guest to take its Leases again. The
// previous owner has an installation, and a Lease that was deleted by mistake must not move it.
func (s standby) wait(now time.Time) time.Duration {
	if s.refused.Namespace == "" {
		return 0
	}
	return max(0, standbyTime-now.Sub(s.vacant))
}
