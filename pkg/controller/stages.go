package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/status"
)

// applyAll applies the stages of the plan in their order.
func (r *Reconciler) applyAll(ctx context.Context, p *pass) {
	o := &p.result
	// The API server takes longest over CRDs, and where there are none yet, nothing waits for them but the webhooks: istiod waits for each by
	// itself. One that is there and another one must not be met by istiod and RBAC of this version.
	var crds apply.Report
	var crdsDone, sides sync.WaitGroup
	crdsDone.Go(func() { crds = r.applyCRDs(ctx, o.Plan) })
	if o.Plan.CRDsFirst() || o.Plan.CRDsUnread() {
		crdsDone.Wait()
		if o.Guest = crds; (o.Plan.CRDsUnread() || unfinished(crds)) && !r.met {
			// What has no versions to meet is kept as it should be: the fence, the CA, the Service.
			p.stopped = true
			o.Mgmt = r.mgmt.Apply(ctx, o.Plan.Mgmt)
			r.keepCredential(ctx, p)
			return
		}
	}
	sides.Go(func() { o.Mgmt = r.mgmt.Apply(ctx, o.Plan.Mgmt) })
	sides.Go(func() { o.Guest = r.guest.Apply(ctx, o.Plan.Guest) })
	sides.Wait()
	if o.Plan.Installed {
		r.publish(ctx, p)
		r.applyWorkload(ctx, p)
	}
	crdsDone.Wait()
	o.Guest = crds.And(o.Guest)
	// Not before the Service is there and ours: HyperShift deletes a webhook whose host is a Service without its label.
	if o.Plan.Installed && (p.hosted.Istiod == desired.Available && o.Mgmt.Complete() || r.guest.HasWebhook()) {
		admission := r.guest.Apply(ctx, o.Plan.Admission)
		if o.Guest = o.Guest.And(admission); admission.Count(apply.VerdictApplied) > 0 {
			p.again(r.proof.applied())
		}
	}
}

// publish makes the route to istiod's Service, once that is there, and says what is missing before istiod can be published.
func (r *Reconciler) publish(ctx context.Context, p *pass) {
	o := &p.result
	if o.Mgmt.Holds(func(gvk schema.GroupVersionKind) bool { return gvk.Kind == "Service" }) {
		o.Mgmt = o.Mgmt.And(r.mgmt.Publish(ctx, o.Plan.Exposure))
	}
	if awaited, is := o.Plan.Publication.(desired.Awaited); is {
		o.Waiting = awaited.Why
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
	o := &p.result
	if !o.Plan.Whole() {
		r.keepCredential(ctx, p)
		return
	}
	secret := r.credential(ctx, p)
	switch {
	case secret == nil:
	case !o.Mgmt.Holds(desired.NeededOnMgmt), !o.Guest.Holds(desired.NeededInGuest), !r.guest.Reaches(r.mgmt.Credential()):
		// Rolled now, for another way to the guest, its pod would take the way of before once more.
		o.Mgmt = o.Mgmt.And(r.mgmt.Apply(ctx, secret))
	case p.hosted.Istiod == desired.Absent:
		r.applyIstiod(ctx, o, append(secret, o.Plan.Workload...))
	default:
		// The Secret first: a pod that rolls because the guest's API server moved must find the new address.
		if o.Mgmt = o.Mgmt.And(r.mgmt.Apply(ctx, secret)); o.Mgmt.Holds(desired.NeededOnMgmt) {
			r.applyIstiod(ctx, o, o.Plan.Workload)
		}
	}
}

// applyIstiod applies istiod, with what goes with it, and notes when it is there as it should be.
func (r *Reconciler) applyIstiod(ctx context.Context, o *status.Result, objects []desired.MgmtObject) {
	report := r.mgmt.Apply(ctx, objects)
	o.Mgmt, r.met = o.Mgmt.And(report), r.met || report.Complete()
}

// keepCredential renews the credential of an istiod that is there, when there is no plan.
func (r *Reconciler) keepCredential(ctx context.Context, p *pass) {
	if len(p.seen.Classes) > 0 && p.hosted.Istiod != desired.Absent {
		p.result.Mgmt = p.result.Mgmt.And(r.mgmt.Apply(ctx, r.credential(ctx, p)))
	}
}

// A new token is due after 80 % of the old one's life, and when the guest's admin has replaced istiod's account. That is limited: a burst for
// who tidies up, then one in a while for who does it in a loop.
const (
	mintBurst = 5
	mintEvery = 30 * time.Second
	// shortestLife is the shortest that Kubernetes grants, and what istiod, which reads the file again once a minute, can live with.
	shortestLife = 10 * time.Minute
	// mintRetry is how soon a token is asked for again after that failed.
	mintRetry = 5 * time.Second
)

func newMintLimiter() *rate.Limiter { return rate.NewLimiter(rate.Every(mintEvery), mintBurst) }

// credential is the Secret by which istiod reaches the guest, with a new token when that is due; nothing while there never was one.
func (r *Reconciler) credential(ctx context.Context, p *pass) []desired.MgmtObject {
	now := r.clock.Now()
	if r.mintDue(r.mgmt.Credential(), now) {
		r.mint(ctx, p, now)
	} else {
		r.mintErr = nil
	}
	credential := r.mgmt.Credential()
	var secret desired.MgmtObject
	if credential.Token != "" {
		p.again(max(credential.RenewAt().Sub(now), mintRetry))
		if credential.Life() < shortestLife {
			p.result.Waiting = fmt.Sprintf("a token of istiod's service account that lives longer than %s (guest side: it does not grant what was asked for)",
				credential.Life().Round(time.Second))
		}
		var err error
		if secret, err = desired.CredentialSecret(r.config, p.hosted.ControlPlane, credential); err != nil {
			r.mintErr = err
		}
	}
	if r.mintErr != nil {
		// Whatever is there stays as it is: a pod that runs with a token that is about to expire is better than none.
		p.result.Waiting = "a token of istiod's service account in the guest (guest side: " + tokenCause(r.mintErr) + ")"
	}
	if secret.Key().Name == "" {
		return nil
	}
	return []desired.MgmtObject{secret}
}

// tokenCause is why a token could not be had, in words that the guest may read and that stay the same from try to try.
func tokenCause(err error) string {
	return apply.Classify(err, "create", schema.GroupResource{Resource: "serviceaccounts/token"}).String()
}

// mint asks for a token, if it was not asked for too often.
func (r *Reconciler) mint(ctx context.Context, p *pass, now time.Time) {
	ask := r.mints.ReserveN(now, 1)
	if wait := ask.DelayFrom(now); wait > 0 {
		ask.CancelAt(now)
		p.again(wait)
		return
	}
	before, was := r.mgmt.Credential(), r.mintErr
	fresh, err := r.guest.MintCredential(ctx, r.tokenLifetime, now)
	r.mintErr = err
	if err != nil {
		p.again(mintRetry)
		if apply.Classify(err, "create", schema.GroupResource{}).Class() == apply.Unreachable {
			ask.CancelAt(now) // the guest did not hear of it
		}
		if was == nil || tokenCause(was) != tokenCause(err) {
			logr.FromContextOrDiscard(ctx).Info("istiod has no fresh guest token yet", "err", err.Error())
		}
		return
	}
	if before.Token != "" && before.Account() != fresh.Account() {
		r.replaced = now
	}
	fresh.CABundle = desired.OverlapCAs(before.CABundle, fresh.CABundle, now)
	r.mgmt.KeepCredential(fresh)
}

// takeUps are the times after which an istiod whose account was replaced has its new token, mostly and surely: a kubelet takes up to a minute to bring it, and
// client-go reads the file again after fifty seconds (client-go transport/token_source.go). Until then each of istiod's writes is refused, and it gives up on
// what it was to write. It looks at everything again when the class changes; see status.Result.Since.
func takeUps() []time.Duration { return []time.Duration{65 * time.Second, 125 * time.Second} }

// since is since when istiod serves: since it started, or since it works again because its account was replaced.
func (r *Reconciler) since(p *pass) time.Time {
	since, now := p.hosted.IstiodSince, r.clock.Now()
	if r.replaced.IsZero() {
		return since
	}
	for _, after := range takeUps() {
		at := r.replaced.Add(after)
		if now.Before(at) {
			p.again(at.Sub(now))
			break
		}
		if at.After(since) {
			since = at
		}
	}
	return since
}

// mintDue says whether istiod needs another credential than it has.
func (r *Reconciler) mintDue(credential desired.Credential, now time.Time) bool {
	account := r.guest.IstiodAccount()
	replaced := account != "" && account != credential.Account()
	return credential.Token == "" || replaced || !r.guest.Reaches(credential) || !now.Before(credential.RenewAt())
}

// prune clears both sides of what is not planned, in the reverse order of installing: the webhooks, which nobody would answer; then istiod,
// until its pods are gone, so that they give back their leases in the guest while they still may; then the rest of the guest.
func (r *Reconciler) prune(ctx context.Context, p *pass) {
	o := &p.result
	if o.Plan.Installed && (!o.Plan.Whole() || !o.Mgmt.Complete() || !o.Guest.Complete()) {
		return
	}
	keepGuest := slices.Concat(o.Plan.CRDs, o.Plan.Adopted, o.Plan.Protection, o.Plan.Guest, o.Plan.Admission)
	keepMgmt := slices.Concat(o.Plan.Mgmt, o.Plan.Exposure, o.Plan.Workload)
	// When nobody asks for us any more, nothing that the guest does or refuses keeps istiod running.
	if o.Guest = o.Guest.And(r.guest.PruneWebhooks(ctx, keepGuest)); o.Plan.Installed && !o.Guest.Complete() {
		return
	}
	if o.Mgmt = o.Mgmt.And(r.mgmt.Prune(ctx, keepMgmt)); !o.Mgmt.Complete() {
		return
	}
	if !o.Plan.Installed {
		if len(o.Plan.Mgmt) == 0 {
			r.mgmt.ForgetSecrets()
		}
		r.proof = proof{}
	}
	o.Guest = o.Guest.And(r.guest.Prune(ctx, keepGuest))
}
