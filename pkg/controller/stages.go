package controller

import (
	"bytes"
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/guest"
)

// applyAll applies the stages of the plan in their order. The management side does not wait for the guest: what its own objects, and a token
// that is due, need of the guest is known or asked for beside what is written there. Only istiod itself waits for what it needs in the guest.
func (r *Reconciler) applyAll(ctx context.Context, p *pass) {
	res := &p.result
	inGuest, over := p.inGuest(ctx)
	defer over()
	work := r.beginInGuest(inGuest, res.Plan)
	res.Mgmt = r.mgmt.Apply(ctx, res.Plan.Mgmt)
	if res.Plan.Installed {
		r.publish(ctx, p)
		r.keepCredential(ctx, p)
	}
	<-work.ready
	// What has no versions to meet was kept as it should be all the same: the fence, the CA, the Service.
	if p.crdsBlocked = work.stopped; !p.crdsBlocked && res.Plan.Installed {
		r.applyWorkload(ctx, p, work.needed)
	}
	<-work.done
	res.Guest = work.crds.And(work.needed).And(work.rest)
	// Not before the Service is there and ours: HyperShift deletes a webhook whose host is a Service without its label.
	if !p.crdsBlocked && res.Plan.Installed && (p.mgmt.Istiod == desired.Available && res.Mgmt.Complete() || r.guest.HasWebhook()) {
		admission := r.guest.Apply(inGuest, res.Plan.Admission)
		if res.Guest = res.Guest.And(admission); admission.Count(apply.VerdictApplied) > 0 {
			p.requeueAfter(r.webhookProbe.applied())
		}
	}
}

// guestWork is what is done in the guest beside the management side.
type guestWork struct {
	// crds are the CRDs and what protects them, needed is what istiod needs when it starts, rest what it reads as it comes: the defaults of
	// the classes, of which there may be many.
	crds, needed, rest apply.Report
	// stopped is whether nothing was done but for the CRDs, because they could not be written.
	stopped bool
	// ready is closed once needed and stopped are known, done once all is.
	ready, done chan struct{}
}

// beginInGuest begins to write to the guest.
func (r *Reconciler) beginInGuest(ctx context.Context, plan desired.Plan) *guestWork {
	w := &guestWork{ready: make(chan struct{}), done: make(chan struct{})}
	go w.run(ctx, r.guest, plan, r.istiodCurrent)
	return w
}

// run writes. The API server takes longest over CRDs, and where there are none yet, nothing waits for them but the webhooks: istiod waits for
// each by itself. One that is there and another one must not be met by istiod and RBAC of this version, unless they were met before.
func (w *guestWork) run(ctx context.Context, g *guest.Cluster, plan desired.Plan, met bool) {
	defer close(w.done)
	var crds sync.WaitGroup
	defer crds.Wait()
	crds.Go(func() { w.crds = applyCRDs(ctx, g, plan) })
	if plan.CRDsBeforeIstiod() || plan.CRDsNotReadYet() {
		crds.Wait()
		if w.stopped = (plan.CRDsNotReadYet() || unfinished(w.crds)) && !met; w.stopped {
			close(w.ready)
			return
		}
	}
	var needed, rest []desired.GuestObject
	for _, o := range plan.Guest {
		if desired.NeededInGuest(o.GVK()) {
			needed = append(needed, o)
		} else {
			rest = append(rest, o)
		}
	}
	w.needed = g.Apply(ctx, needed)
	close(w.ready)
	w.rest = g.Apply(ctx, rest)
}

// publish makes the route to istiod's Service, once that is there, and says what is missing before istiod can be published.
func (r *Reconciler) publish(ctx context.Context, p *pass) {
	res := &p.result
	if res.Mgmt.Holds(func(gvk schema.GroupVersionKind) bool { return gvk.Kind == "Service" }) {
		res.Mgmt = res.Mgmt.And(r.mgmt.Publish(ctx, res.Plan.Routes))
	}
	if awaited, is := res.Plan.Endpoint.(desired.EndpointPending); is {
		res.Waiting = awaited.Why
	}
}

// unfinished says that something was not written that soon may be. What somebody must mend first is told, and holds up nothing: whoever refuses
// us a CRD would otherwise stop the whole installation, and one that is blocked does not either.
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

// applyCRDs writes the CRDs, and then what protects them: those that are adopted are protected by nothing of ours before.
func applyCRDs(ctx context.Context, g *guest.Cluster, plan desired.Plan) apply.Report {
	report := g.WriteCRDs(ctx, slices.Concat(plan.CRDs, plan.Adopted))
	return report.And(g.Apply(ctx, plan.Protection))
}

// applyWorkload applies istiod with its credential. Without a credential its pod could not start; without what it needs in its namespace and in
// the guest it would start and not be able to work, and one that serves would be replaced by one that does not.
func (r *Reconciler) applyWorkload(ctx context.Context, p *pass, inGuest apply.Report) {
	res := &p.result
	if !res.Plan.IsWhole() {
		r.keepCredential(ctx, p) // its account may be another by now
		return
	}
	secret := r.credentialNow(ctx, p)
	switch {
	case secret == nil:
	case !res.Mgmt.Holds(desired.NeededOnMgmt), !inGuest.Holds(desired.NeededInGuest), !r.guest.Reaches(r.mgmt.Credential()):
		// Rolled now, for another way to the guest, its pod would take the way of before once more.
		r.applyCredential(ctx, p, secret)
	case p.mgmt.Istiod == desired.Absent:
		r.applyIstiod(ctx, p, append(secret, res.Plan.Workload...))
	default:
		// The Secret first: a pod that rolls because the guest's API server moved must find the new address.
		if r.applyCredential(ctx, p, secret); res.Mgmt.Holds(desired.NeededOnMgmt) {
			r.applyIstiod(ctx, p, res.Plan.Workload)
		}
	}
}

// credentialNow is istiod's credential, with a new token when that is due, in the time that this pass has for the guest.
func (r *Reconciler) credentialNow(ctx context.Context, p *pass) []desired.MgmtObject {
	inGuest, over := p.inGuest(ctx)
	defer over()
	return r.credential(inGuest, p)
}

// applyCredential applies the Secret with istiod's credential, unless this pass has applied it.
func (r *Reconciler) applyCredential(ctx context.Context, p *pass, secret []desired.MgmtObject) {
	same := func(a, b desired.MgmtObject) bool { return bytes.Equal(a.JSON(), b.JSON()) }
	if slices.EqualFunc(p.credential, secret, same) {
		return
	}
	p.result.Mgmt, p.credential = p.result.Mgmt.And(r.mgmt.Apply(ctx, secret)), secret
}

// applyIstiod applies istiod, with what goes with it, and notes when it is there as it should be.
func (r *Reconciler) applyIstiod(ctx context.Context, p *pass, objects []desired.MgmtObject) {
	report := r.mgmt.Apply(ctx, objects)
	p.result.Mgmt, r.istiodCurrent = p.result.Mgmt.And(report), r.istiodCurrent || report.Complete()
}

// prune clears both sides of what is not planned, in the reverse order of installing: the webhooks, which nobody would answer; then istiod,
// until its pods are gone, so that they give back their leases in the guest while they still may; then the rest of the guest.
func (r *Reconciler) prune(ctx context.Context, p *pass) {
	res := &p.result
	plan := res.Plan
	if plan.Installed && (!plan.IsWhole() || !res.Complete()) {
		return
	}
	keep := slices.Concat(plan.CRDs, plan.Adopted, plan.Protection, plan.Guest, plan.Admission)
	// When nobody asks for us any more, nothing that the guest does or refuses keeps istiod running.
	inGuest, over := p.inGuest(ctx)
	defer over()
	if res.Guest = res.Guest.And(r.guest.PruneWebhooks(inGuest, keep)); plan.Installed && !res.Guest.Complete() {
		return
	}
	if r.pruneMgmt(ctx, p, plan) {
		res.Guest = res.Guest.And(r.guest.Prune(inGuest, keep))
	}
}

// pruneMgmt clears the management side of what is not planned, and says whether it is all gone.
func (r *Reconciler) pruneMgmt(ctx context.Context, p *pass, plan desired.Plan) bool {
	res := &p.result
	if res.Mgmt = res.Mgmt.And(r.mgmt.Prune(ctx, slices.Concat(plan.Mgmt, plan.Routes, plan.Workload))); !res.Mgmt.Complete() {
		return false
	}
	if !plan.Installed {
		if len(plan.Mgmt) == 0 {
			r.mgmt.ForgetSecrets()
		}
		r.webhookProbe = webhookProbe{}
	}
	return true
}
