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

// claims is what is remembered of whose the guest is.
type claims struct {
	standby standby
	// taking and giving limit how often it is claimed, and given back.
	taking, giving limit
}

func newClaims() claims {
	return claims{taking: newLimit(claimBurst, claimEvery), giving: newLimit(claimBurst, claimEvery)}
}

// standby is what was found of another hypergate that has the guest: the refusal, and since when it has it no longer. The zero value is none.
type standby struct {
	refused desired.TakenError
	vacant  time.Time
}

// standbyTime is for how long whoever stood by lets go before him the one who had the guest, when a claim is gone: that one has an installation, and whoever
// deletes a claim by mistake shall not move it.
const standbyTime = 5 * time.Second

// claimedPlan is the plan, if this guest is ours to carry it out in. What is planned to be installed is claimed before anything of it is
// applied; without anything to install there is only to clear away, which whoever has the guest does by himself.
func (r *Reconciler) claimedPlan(ctx context.Context, p *pass) (desired.State, error) {
	wanted, tenure := r.wanted(p), desired.TenureOf(r.config, p.hosted, p.seen.Claims)
	if refused := r.refusal(tenure); refused != nil {
		if !wanted {
			refused = errors.Join(refused, r.clearMgmt(ctx, p))
		}
		return desired.State{}, refused
	}
	if rivals := desired.RivalsOf(r.config, p.seen.Others); wanted && len(rivals) > 0 {
		return desired.State{}, desired.RivalError{Config: r.config, Rivals: rivals}
	}
	plan, err := r.plan(ctx, p)
	if vacant, is := tenure.(desired.Vacant); err == nil && plan.Installed && is {
		err = r.claim(ctx, p, plan, vacant.Missing)
	}
	if err != nil {
		return desired.State{}, err
	}
	r.claims.standby = standby{}
	return plan, nil
}

// refusal is why nothing may be done in a guest, or nil; whose it is is remembered.
func (r *Reconciler) refusal(tenure desired.Tenure) error {
	switch t := tenure.(type) {
	case desired.Unclear:
		return desired.ClaimError{Verb: "list", Err: t.Err}
	case desired.Taken:
		r.claims.standby = standby{refused: desired.TakenError{Taken: t, Namespace: r.config.GuestNamespace}}
		return r.claims.standby.refused
	case desired.Vacant, desired.Held:
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

// livesOn says whether the istiod that is there is given its token though there is no plan. Not where another hypergate has the guest: two istiods that
// elect nobody would write the same, and ours ends with its token. Not where nobody wants it, either.
func (r *Reconciler) livesOn(p *pass, refused error) bool {
	_, taken := errors.AsType[desired.TakenError](refused)
	_, unclear := errors.AsType[desired.ClaimError](refused)
	return !taken && (!unclear || r.wanted(p))
}

// A guest is claimed, and given back, ten times in a row, and then once in a while: the guest may delete a Lease, or make one in our name, in a loop.
const (
	claimBurst = 10
	claimEvery = 10 * time.Second
)

// claim takes what is missing of the guest for us.
func (r *Reconciler) claim(ctx context.Context, p *pass, plan desired.State, missing []desired.Claim) error {
	now := r.clock.Now()
	if r.claims.standby.refused.Namespace != "" {
		if r.claims.standby.vacant.IsZero() {
			r.claims.standby.vacant = now
		}
		if wait := r.claims.standby.vacant.Add(standbyTime).Sub(now); wait > 0 {
			p.again(wait)
			return r.claims.standby.refused
		}
	}
	if wait := r.claims.taking.wait(now); wait > 0 {
		p.again(wait)
		return desired.ContestedError{Missing: missing, Namespace: r.config.GuestNamespace, Every: claimEvery}
	}
	if err := r.claimAll(ctx, p, plan, missing); err != nil {
		return err // nothing that could be taken away
	}
	r.claims.taking.take(now)
	return nil
}

func (r *Reconciler) claimAll(ctx context.Context, p *pass, plan desired.State, missing []desired.Claim) error {
	ctx, over := p.inGuest(ctx)
	defer over()
	// The Leases are in istiod's namespace.
	if report := r.guest.Apply(ctx, plan.Namespace()); !report.Complete() {
		p.result.Guest = report
		return desired.ClaimError{Verb: "create", Err: fmt.Errorf("making the namespace for them: %w", report.Err())}
	}
	holders := p.hosted.Holders(r.config)
	if len(holders) == 0 {
		return desired.ClaimError{Verb: "create", Err: fmt.Errorf("the identity of the management namespace is not known yet")}
	}
	for _, claim := range missing {
		if err := r.guest.Claim(ctx, claim, holders[0]); err != nil {
			return desired.ClaimError{Verb: "patch", Err: err}
		}
		logr.FromContextOrDiscard(ctx).Info("Claimed this guest", "what", claim.What, "lease", r.config.GuestNamespace+"/"+claim.Lease, "holder", holders[0])
	}
	return nil
}

// disclaim gives the guest back once nothing is installed and everything is cleared away, so that another hypergate may have it.
func (r *Reconciler) disclaim(ctx context.Context, p *pass) {
	if p.result.Plan.Installed || !p.result.Complete() || p.hosted.Istiod != desired.Absent {
		return
	}
	own := desired.OwnClaims(r.config, p.hosted, p.seen.Claims)
	if len(own) == 0 {
		return
	}
	now := r.clock.Now()
	if wait := r.claims.giving.wait(now); wait > 0 {
		p.again(wait)
		return
	}
	r.claims.giving.take(now)
	for _, held := range slices.Backward(own) {
		log := logr.FromContextOrDiscard(ctx).WithValues("lease", r.config.GuestNamespace+"/"+held.Lease)
		if err := r.guest.Disclaim(ctx, held); err != nil {
			log.Info("This guest cannot be given back yet", "err", err.Error())
			p.again(disclaimRetry)
			return
		}
		log.Info("Gave this guest back")
	}
}

// disclaimRetry is how soon a claim that could not be given back is tried again: nobody waits but another hypergate, and its admin can delete the Lease.
const disclaimRetry = 5 * time.Minute
