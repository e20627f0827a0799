package controller

import (
	"context"
	"slices"
	"sync"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/model"
)

// guestWork is the work in the guest that runs in parallel with the management side.
type guestWork struct {
	// crds are the CRDs and what protects them, needed is what istiod needs when it starts. rest is what istiod reads
	// as it comes: the defaults of the classes, of which there may be many.
	crds, needed, rest apply.Report
	// crdsBlocked reports whether nothing but the CRDs was tried, because they could not be written.
	crdsBlocked bool
	// accounts is closed once the service accounts are there, or it is known why not. ready is closed once needed and
	// crdsBlocked are known, done once everything is.
	accounts, ready, done chan struct{}
}

// guestStart is what the work in the guest depends on, besides the plan.
type guestStart struct {
	// istiodCurrent: see memory. holdsIstiod reports whether nothing may change that makes istiod deploy gateways.
	istiodCurrent, holdsIstiod bool
}

// beginInGuest begins to write to the guest.
func beginInGuest(ctx context.Context, g *guest.Cluster, plan desired.Plan, start guestStart) *guestWork {
	w := &guestWork{accounts: make(chan struct{}), ready: make(chan struct{}), done: make(chan struct{})}
	go w.run(ctx, g, plan, start)
	return w
}

// run writes. The API server takes longest over one large CRD, so the CRDs begin at once, and what istiod's token needs
// goes beside them: the token, its Secret and the Deployment then follow while the CRDs are written. istiod itself
// waits for each CRD. But istiod and RBAC of this version must not run with CRDs of another version, unless they
// already do.
func (w *guestWork) run(ctx context.Context, g *guest.Cluster, plan desired.Plan, start guestStart) {
	defer close(w.done)
	crdsFirst := plan.CRDsBeforeIstiod() || plan.CRDsNotReadYet()
	if crdsFirst {
		w.crds = applyCRDs(ctx, g, plan)
		if w.crdsBlocked = (plan.CRDsNotReadYet() || unfinished(w.crds)) && !start.istiodCurrent; w.crdsBlocked {
			close(w.accounts)
			close(w.ready)
			return
		}
	}
	var needed, rest []model.GuestObject
	for _, o := range plan.Guest {
		if model.NeededInGuest(o.GVK()) {
			needed = append(needed, o)
		} else {
			rest = append(rest, o)
		}
	}
	var crds sync.WaitGroup
	defer crds.Wait()
	if !crdsFirst {
		crds.Go(func() { w.crds = applyCRDs(ctx, g, plan) })
	}
	w.applyNeeded(ctx, g, needed)
	close(w.ready)
	if !start.holdsIstiod {
		w.rest = g.Apply(ctx, rest)
	}
}

// applyNeeded writes what istiod needs when it starts. Bindings wait for their roles, and a token needs neither. So the
// service accounts are written beside both.
func (w *guestWork) applyNeeded(ctx context.Context, g *guest.Cluster, needed []model.GuestObject) {
	var namespace, accounts, access []model.GuestObject
	for _, o := range needed {
		switch o.GVK().Kind {
		case "Namespace":
			namespace = append(namespace, o)
		case "ServiceAccount":
			accounts = append(accounts, o)
		default:
			access = append(access, o)
		}
	}
	w.needed = g.Apply(ctx, namespace)
	var account apply.Report
	var writing sync.WaitGroup
	writing.Go(func() {
		account = g.Apply(ctx, accounts)
		close(w.accounts)
	})
	granted := g.Apply(ctx, access)
	writing.Wait()
	w.needed = w.needed.And(account).And(granted)
}

// unfinished reports whether something was not written that soon may be. What needs an action first is reported, and
// blocks nothing: a guest that refuses one CRD would otherwise stop the whole installation.
func unfinished(report apply.Report) bool {
	return slices.ContainsFunc(report.Outcomes(), func(o apply.Outcome) bool {
		switch o.Verdict() {
		case apply.VerdictFailed:
			return o.Cause().Class().IsTransient()
		case apply.VerdictWaiting, apply.VerdictRateLimited, apply.VerdictSkipped:
			return true
		default:
			return false
		}
	})
}

// applyCRDs writes the CRDs, and then what protects them: nothing of ours protects CRDs before they are adopted.
func applyCRDs(ctx context.Context, g *guest.Cluster, plan desired.Plan) apply.Report {
	report := g.WriteCRDs(ctx, slices.Concat(plan.CRDs, plan.Adopted))
	return report.And(g.Apply(ctx, plan.Protection))
}
