package controller

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
)

// applyAll applies the stages of the plan in their order.
func (r *Reconciler) applyAll(ctx context.Context, p *pass) {
	res := &p.result
	// The API server takes longest over CRDs, and where there are none yet, nothing waits for them but the webhooks: istiod waits for each by
	// itself. One that is there and another one must not be met by istiod and RBAC of this version.
	var crds apply.Report
	var crdsDone, sides sync.WaitGroup
	crdsDone.Go(func() { crds = r.applyCRDs(ctx, res.Plan) })
	if res.Plan.CRDsFirst() || res.Plan.CRDsUnread() {
		crdsDone.Wait()
		if res.Guest = crds; (res.Plan.CRDsUnread() || unfinished(crds)) && !r.met {
			// What has no versions to meet is kept as it should be: the fence, the CA, the Service.
			p.stopped = true
			res.Mgmt = r.mgmt.Apply(ctx, res.Plan.Mgmt)
			r.keepCredential(ctx, p)
			return
		}
	}
	sides.Go(func() { res.Mgmt = r.mgmt.Apply(ctx, res.Plan.Mgmt) })
	sides.Go(func() { res.Guest = r.guest.Apply(ctx, res.Plan.Guest) })
	sides.Wait()
	if res.Plan.Installed {
		r.publish(ctx, p)
		r.applyWorkload(ctx, p)
	}
	crdsDone.Wait()
	res.Guest = crds.And(res.Guest)
	// Not before the Service is there and ours: HyperShift deletes a webhook whose host is a Service without its label.
	if res.Plan.Installed && (p.hosted.Istiod == desired.Available && res.Mgmt.Complete() || r.guest.HasWebhook()) {
		admission := r.guest.Apply(ctx, res.Plan.Admission)
		if res.Guest = res.Guest.And(admission); admission.Count(apply.VerdictApplied) > 0 {
			p.again(r.proof.applied())
		}
	}
}

// publish makes the route to istiod's Service, once that is there, and says what is missing before istiod can be published.
func (r *Reconciler) publish(ctx context.Context, p *pass) {
	res := &p.result
	if res.Mgmt.Holds(func(gvk schema.GroupVersionKind) bool { return gvk.Kind == "Service" }) {
		res.Mgmt = res.Mgmt.And(r.mgmt.Publish(ctx, res.Plan.Exposure))
	}
	if awaited, is := res.Plan.Publication.(desired.Awaited); is {
		res.Waiting = awaited.Why
	}
}

// unfinished says that something was not written that soon may be. What somebody must mend first is told, and holds up nothing: whoever refuses
// us a CRD would otherwise stop the whole installation, and one that is blocked does not either.
func unfinished(report apply.Report) bool {
	return slices.ContainsFunc(report.Outcomes(), func(o apply.Outcome) bool {
		switch o.Verdict() {
		case apply.VerdictFailed:
			return o.Cause().Class().Passes()
		case apply.VerdictWaiting, apply.VerdictDamped, apply.VerdictSkipped:
			return true
		default:
			return false
		}
	})
}

// applyCRDs writes the CRDs, and then what protects them: those that are adopted are protected by nothing of ours before.
func (r *Reconciler) applyCRDs(ctx context.Context, plan desired.State) apply.Report {
	report := r.guest.WriteCRDs(ctx, slices.Concat(plan.CRDs, plan.Adopted))
	return report.And(r.guest.Apply(ctx, plan.Protection))
}

// applyWorkload applies istiod with its credential. Without a credential its pod could not start; without what it needs in its namespace and in
// the guest it would start and not be able to work, and one that serves would be replaced by one that does not.
func (r *Reconciler) applyWorkload(ctx context.Context, p *pass) {
	res := &p.result
	if !res.Plan.Whole() {
		r.keepCredential(ctx, p)
		return
	}
	secret := r.credential(ctx, p)
	switch {
	case secret == nil:
	case !res.Mgmt.Holds(desired.NeededOnMgmt), !res.Guest.Holds(desired.NeededInGuest), !r.guest.Reaches(r.mgmt.Credential()):
		// Rolled now, for another way to the guest, its pod would take the way of before once more.
		res.Mgmt = res.Mgmt.And(r.mgmt.Apply(ctx, secret))
	case p.hosted.Istiod == desired.Absent:
		r.applyIstiod(ctx, p, append(secret, res.Plan.Workload...))
	default:
		// The Secret first: a pod that rolls because the guest's API server moved must find the new address.
		if res.Mgmt = res.Mgmt.And(r.mgmt.Apply(ctx, secret)); res.Mgmt.Holds(desired.NeededOnMgmt) {
			r.applyIstiod(ctx, p, res.Plan.Workload)
		}
	}
}

// applyIstiod applies istiod, with what goes with it, and notes when it is there as it should be.
func (r *Reconciler) applyIstiod(ctx context.Context, p *pass, objects []desired.MgmtObject) {
	report := r.mgmt.Apply(ctx, objects)
	p.result.Mgmt, r.met = p.result.Mgmt.And(report), r.met || report.Complete()
}

// prune clears both sides of what is not planned, in the reverse order of installing: the webhooks, which nobody would answer; then istiod,
// until its pods are gone, so that they give back their leases in the guest while they still may; then the rest of the guest.
func (r *Reconciler) prune(ctx context.Context, p *pass) {
	res := &p.result
	plan := res.Plan
	if plan.Installed && (!plan.Whole() || !res.Complete()) {
		return
	}
	keep := slices.Concat(plan.CRDs, plan.Adopted, plan.Protection, plan.Guest, plan.Admission)
	// When nobody asks for us any more, nothing that the guest does or refuses keeps istiod running.
	if res.Guest = res.Guest.And(r.guest.PruneWebhooks(ctx, keep)); plan.Installed && !res.Guest.Complete() {
		return
	}
	if r.pruneMgmt(ctx, p, plan) {
		res.Guest = res.Guest.And(r.guest.Prune(ctx, keep))
	}
}

// pruneMgmt clears the management side of what is not planned, and says whether it is all gone.
func (r *Reconciler) pruneMgmt(ctx context.Context, p *pass, plan desired.State) bool {
	res := &p.result
	if res.Mgmt = res.Mgmt.And(r.mgmt.Prune(ctx, slices.Concat(plan.Mgmt, plan.Exposure, plan.Workload))); !res.Mgmt.Complete() {
		return false
	}
	if !plan.Installed {
		if len(plan.Mgmt) == 0 {
			r.mgmt.ForgetSecrets()
		}
		r.proof = proof{}
	}
	return true
}
