package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-logr/logr"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/pki"
)

// planCache computes them. It remembers the last one, and what it was computed from, so that a pass in which nothing changed computes nothing.
type planCache struct {
	planner *desired.Planner
	inputs  []byte
	state   desired.Plan
}

// planFor is the plan for what was observed, or the last one if nothing changed that it was made from.
func (c *planCache) planFor(ctx context.Context, hosted desired.ManagementObservation, seen desired.GuestObservation) (desired.Plan, error) {
	compared := seen
	// Nothing is computed from these.
	hosted.IstiodSince, hosted.Rollout, hosted.RotationRequest = time.Time{}, desired.RolledOut, ""
	compared.Unserved, compared.InUse, compared.InUseTotals, compared.SearchingInUse = nil, nil, nil, false
	compared.Leases, compared.Foreign = desired.ObservedLeases{}, desired.ForeignInstallations{}
	inputs, err := json.Marshal([]any{hosted, compared})
	if err != nil {
		return desired.Plan{}, fmt.Errorf("comparing observations: %w", err)
	}
	if c.inputs != nil && bytes.Equal(inputs, c.inputs) {
		return c.state, nil
	}
	start := time.Now()
	state, err := c.planner.Compute(hosted, seen)
	if err != nil {
		return desired.Plan{}, fmt.Errorf("refusing the plan, nothing was changed: %w", err)
	}
	c.inputs, c.state = inputs, state
	logr.FromContextOrDiscard(ctx).V(1).Info("Computed a plan", "classes", len(seen.Classes), "took", time.Since(start).Round(time.Millisecond).String())
	return state, nil
}

// plan is what should exist. An error is why nobody knows.
func (r *Reconciler) plan(ctx context.Context, p *pass) (desired.Plan, error) {
	if nothing, err := r.nothingToPlan(p); nothing || err != nil {
		return desired.Plan{}, err
	}
	if err := r.ensureCA(ctx, p); err != nil {
		return desired.Plan{}, err
	}
	return r.planCache.planFor(ctx, p.mgmt, p.guest)
}

// nothingToPlan says that nothing is to be installed, because the guest does without ingress, or cannot be, because the HostedControlPlane leaves it open
// what should be.
func (r *Reconciler) nothingToPlan(p *pass) (nothing bool, err error) {
	if err := p.mgmt.ControlPlaneProblem; err != nil {
		return false, fmt.Errorf("refusing the plan, nothing was changed: %w", err)
	}
	if _, disabled := p.mgmt.ControlPlane.Lifecycle(r.clock.Now()).(desired.Disabled); disabled {
		p.result.Waiting = "the capability " + desired.IngressCapability + ", which this cluster does without"
		return true, nil
	}
	return false, nil
}

// active says that the management side lets things be installed.
func (r *Reconciler) active(p *pass) bool {
	_, active := p.mgmt.ControlPlane.Lifecycle(r.clock.Now()).(desired.Active)
	return active
}

// managed says that the guest leaves its CRDs and its installation to us.
func (r *Reconciler) managed(p *pass) bool { return p.guest.ModeOr(r.config) == crds.Managed }

// wanted says whether anything is to be installed: the management side, a class and the mode ask for it.
func (r *Reconciler) wanted(p *pass) bool {
	return r.active(p) && len(p.guest.Classes) > 0 && r.managed(p)
}

// prepare computes the plan of an installation that nobody has asked for yet, under the name that GatewayClasses mostly have, so that the one
// that comes finds the work done (another name costs 5 ms). Nothing of it is applied, or kept but by the planner.
func (r *Reconciler) prepare(ctx context.Context, p *pass) {
	if r.ca.next.Exists() || !r.active(p) {
		return // done, or nobody will ask
	}
	seen := p.guest
	ca, err := pki.New(r.clock.Now())
	if err == nil {
		r.ca.next = ca
		seen.Classes, seen.Namespace = []desired.GatewayClass{{Name: usualClass}}, desired.Present
		_, err = r.planCache.planner.Compute(desired.ManagementObservation{CA: ca, ControlPlane: p.mgmt.ControlPlane, Endpoints: p.mgmt.Endpoints}, seen)
	}
	if err != nil {
		// Nobody has asked. Whoever does is told in the status.
		logr.FromContextOrDiscard(ctx).Info("An installation would be refused", "err", err.Error())
	}
}

// usualClass is the name of OpenShift's GatewayClass.
const usualClass = "openshift-default"
