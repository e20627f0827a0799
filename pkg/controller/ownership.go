package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"

	"github.com/hypergate/hypergate/pkg/desired"
)

// ownership is what is remembered of whose the guest is.
type ownership struct {
	standby standby
	// acquiring and giving limit how often it is claimed, and given back.
	acquiring, releasing limit
}

func newOwnership() ownership {
	return ownership{acquiring: newLimit(claimBurst, claimEvery), releasing: newLimit(claimBurst, claimEvery)}
}

// standby is what was found of another hypergate that has the guest: the refusal, and since when it has it no longer. The zero value is none.
type standby struct {
	refused desired.OwnedByOtherError
	vacant  time.Time
}

// standbyTime is for how long whoever stood by lets go before him the one who had the guest, when a claim is gone: that one has an installation, and whoever
// deletes a claim by mistake shall not move it.
const standbyTime = 5 * time.Second

// ownedPlan is the plan, if this guest is ours to carry it out in. What is planned to be installed is claimed before anything of it is
// applied; without anything to install there is only to clear away, which whoever has the guest does by himself.
func (r *Reconciler) ownedPlan(ctx context.Context, p *pass) (desired.Plan, error) {
	wanted, tenure := r.wanted(p), desired.OwnershipOf(r.config, p.mgmt, p.guest.Leases)
	if refused := r.ownershipProblem(tenure); refused != nil {
		if !wanted {
			refused = errors.Join(refused, r.clearMgmt(ctx, p))
		}
		return desired.Plan{}, refused
	}
	if rivals := desired.ConflictsOf(r.config, p.guest.Foreign); wanted && len(rivals) > 0 {
		return desired.Plan{}, desired.ConflictError{Config: r.config, Controllers: rivals}
	}
	plan, err := r.plan(ctx, p)
	if vacant, is := tenure.(desired.Unclaimed); err == nil && plan.Installed && is {
		err = r.acquire(ctx, p, plan, vacant.Missing)
	}
	if err != nil {
		return desired.Plan{}, err
	}
	r.ownership.standby = standby{}
	return plan, nil
}

// ownershipProblem is why nothing may be done in a guest, or nil; whose it is is remembered.
func (r *Reconciler) ownershipProblem(tenure desired.Ownership) error {
	switch t := tenure.(type) {
	case desired.OwnershipUnknown:
		return desired.OwnershipError{Verb: "list", Err: t.Err}
	case desired.OwnedByOther:
		r.ownership.standby = standby{refused: desired.OwnedByOtherError{OwnedByOther: t, Namespace: r.config.GuestNamespace}}
		return r.ownership.standby.refused
	case desired.Unclaimed, desired.Owned:
	}
	return nil
}

// clearMgmt clears the management side of what nobody wants any more, though the guest is not ours, or may not be: what is there is, and a Lease in the
// guest is no reason to keep it. What is in the guest stays: it may be the other's.
func (r *Reconciler) clearMgmt(ctx context.Context, p *pass) error {
	plan, err := r.plan(ctx, p)
	if err != nil || plan.Installed {
		return err
	}
	r.pruneMgmt(ctx, p, plan)
	return nil
}

// keepsCredential says whether the istiod that is there is given its token though there is no plan. Not where another hypergate has the guest: two istiods that
// elect nobody would write the same, and ours ends with its token. Not where nobody wants it, either.
func (r *Reconciler) keepsCredential(p *pass, refused error) bool {
	_, taken := errors.AsType[desired.OwnedByOtherError](refused)
	_, unclear := errors.AsType[desired.OwnershipError](refused)
	return !taken && (!unclear || r.wanted(p))
}

// A guest is claimed, and given back, ten times in a row, and then once in a while: the guest may delete a Lease, or make one in our name, in a loop.
const (
	claimBurst = 10
	claimEvery = 10 * time.Second
)

// acquire takes what is missing of the guest for us.
func (r *Reconciler) acquire(ctx context.Context, p *pass, plan desired.Plan, missing []desired.OwnershipLease) error {
	now := r.clock.Now()
	if r.ownership.standby.refused.Namespace != "" {
		if r.ownership.standby.vacant.IsZero() {
			r.ownership.standby.vacant = now
		}
		if wait := r.ownership.standby.vacant.Add(standbyTime).Sub(now); wait > 0 {
			p.requeueAfter(wait)
			return r.ownership.standby.refused
		}
	}
	if wait := r.ownership.acquiring.wait(now); wait > 0 {
		p.requeueAfter(wait)
		return desired.ContestedError{Missing: missing, Namespace: r.config.GuestNamespace, Every: claimEvery}
	}
	if err := r.acquireAll(ctx, p, plan, missing); err != nil {
		return err // nothing that could be taken away
	}
	r.ownership.acquiring.take(now)
	return nil
}

func (r *Reconciler) acquireAll(ctx context.Context, p *pass, plan desired.Plan, missing []desired.OwnershipLease) error {
	ctx, over := p.inGuest(ctx)
	defer over()
	// The Leases are in istiod's namespace.
	if report := r.guest.Apply(ctx, plan.Namespace()); !report.Complete() {
		p.result.Guest = report
		return desired.OwnershipError{Verb: "create", Err: fmt.Errorf("making the namespace for them: %w", report.Err())}
	}
	holders := p.mgmt.Holders(r.config)
	if len(holders) == 0 {
		return desired.OwnershipError{Verb: "create", Err: fmt.Errorf("the identity of the management namespace is not known yet")}
	}
	for _, claim := range missing {
		if err := r.guest.Acquire(ctx, claim, holders[0]); err != nil {
			return desired.OwnershipError{Verb: "patch", Err: err}
		}
		logr.FromContextOrDiscard(ctx).Info("Claimed this guest", "what", claim.Purpose, "lease", r.config.GuestNamespace+"/"+claim.Name, "holder", holders[0])
	}
	return nil
}

// release gives the guest back once nothing is installed and everything is cleared away, so that another hypergate may have it.
func (r *Reconciler) release(ctx context.Context, p *pass) {
	if p.result.Plan.Installed || !p.result.Complete() || p.mgmt.Istiod != desired.Absent {
		return
	}
	own := desired.OwnLeases(r.config, p.mgmt, p.guest.Leases)
	if len(own) == 0 {
		return
	}
	now := r.clock.Now()
	if wait := r.ownership.releasing.wait(now); wait > 0 {
		p.requeueAfter(wait)
		return
	}
	r.ownership.releasing.take(now)
	for _, held := range slices.Backward(own) {
		log := logr.FromContextOrDiscard(ctx).WithValues("lease", r.config.GuestNamespace+"/"+held.Name)
		if err := r.guest.Release(ctx, held); err != nil {
			log.Info("This guest cannot be given back yet", "err", err.Error())
			p.requeueAfter(disclaimRetry)
			return
		}
		log.Info("Gave this guest back")
	}
}

// disclaimRetry is how soon a claim that could not be given back is tried again: nobody waits but another hypergate, and its admin can delete the Lease.
const disclaimRetry = 5 * time.Minute
