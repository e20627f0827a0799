package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/rollout"
	"github.com/hypergate/hypergate/pkg/status"
)

// The files execute*.go are the only ones of the package that write to a cluster, but for those of hypergate's own
// Lease (TestOnlyExecuteWrites).

// errGuestTime is why something is left for the next pass.
var errGuestTime = errors.New("the guest answers slowly: the rest is left for the next pass")

// outcome is what became of a decision. One file sets each field (TestOneFileSetsEachFieldOfTheOutcome): this one, but
// for tokens, which execute_token.go sets.
type outcome struct {
	// mgmt and guest are what was done to the two sides.
	mgmt, guest apply.Report
	// problem is why the plan was not carried out. Nil: it was, or there is none.
	problem error
	// crdsBlocked reports whether most of the plan was not applied, because CRDs could not be.
	crdsBlocked bool
	// tokens are what became of the tokens of istiod's pod.
	tokens [model.Bearers]tokenOutcome
	// rollout is the step of a rollout of gateways that this pass carried out.
	rollout rollout.Report
	// migration is what became of a migration.
	migration migrationOutcome
	// requeue is when the next pass is due without an event. Zero: never.
	requeue time.Duration
}

// migrationOutcome is what conditions say about a migration.
type migrationOutcome struct {
	report migration.Report
	active bool
	mode   model.IstiodMode
	// problem is why the migration does not continue. side is that of the request that failed, if it is about one.
	problem error
	side    model.Side
}

// status returns what conditions say about the migration.
func (m migrationOutcome) status() status.Migration {
	if m.report.Intent.Goal == migration.NoGoal && m.problem == nil {
		return status.Migration{}
	}
	return status.Migration{Report: m.report, Active: m.active, Beside: m.mode.IsBeside(), Problem: m.problem, Side: m.side}
}

// execution carries out one decision.
type execution struct {
	*Reconciler
	observed observation
	// guestUntil is the end of the time for requests to the guest.
	guestUntil time.Time
	// ca is the mesh CA that issues certificates: the observed one, or the one of the plan.
	ca pki.CA
	// credentials are the Secrets of istiod's pod as this pass has applied them.
	credentials []model.MgmtObject
	tokenChecks tokenChecks
	outcome     outcome
}

func newExecution(r *Reconciler, o observation) *execution {
	return &execution{Reconciler: r, observed: o, guestUntil: o.deadline, ca: o.mgmt.CA}
}

// execute carries out a decision.
func (r *Reconciler) execute(ctx context.Context, o observation, d decision) outcome {
	e := newExecution(r, o)
	switch d := d.(type) {
	case onHold:
	case waitForSync:
		e.renewAlone(ctx, d.renew)
	case noPlan:
		if d.rereadCA {
			r.memory.secrets.RereadCA()
		}
		if d.migration.step != nil {
			e.endOnLoss()
		}
		e.outcome.migration, _ = e.migrate(ctx, d.migration)
		e.renewAlone(ctx, d.renew)
	case pruneManagement:
		e.endOnLoss()
		e.pruneManagement(ctx, d.plan)
	case converge:
		e.endOnLoss()
		e.converge(ctx, d)
	}
	if r.memory.twoClusters && o.mgmtSeen && o.hold == nil {
		e.endOnLoss()
		e.renewOwn(ctx) // last, because nothing waits for it
	}
	return e.outcome
}

// renewAlone renews istiod's credential if due, where nothing else is written.
func (e *execution) renewAlone(ctx context.Context, renew bool) {
	if renew {
		e.endOnLoss()
		e.renew(ctx, true)
	}
}

// endOnLoss ends the pass once a watch shows that nothing may be written any more: the control plane is paused or
// deleted, or another hypergate now owns a guest that it did not own before.
func (e *execution) endOnLoss() {
	before := e.observed.mgmt
	switch e.observed.ownership.(type) {
	case ownership.Owned, ownership.Unowned:
		e.passContext.endWhen(func() error { return e.lostNow(before) })
	default:
		e.passContext.endWhen(func() error { return e.onHoldNow(before.ControlPlane) })
	}
}

// requeueAfter requests a further pass after a delay. Zero requests none.
func (e *execution) requeueAfter(after time.Duration) {
	e.outcome.requeue = soonest(e.outcome.requeue, after)
}

// inGuest returns the context for the work in the guest.
func (e *execution) inGuest(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadlineCause(ctx, e.guestUntil, errGuestTime)
}

// converge makes both sides agree with a plan.
func (e *execution) converge(ctx context.Context, d converge) {
	plan, m := d.plan, &e.memory
	if err := e.acquire(ctx, plan, d.acquire); err != nil {
		e.outcome.problem = err
		e.renew(ctx, renewsIstiod(e.observed))
		return
	}
	if d.ca.changed {
		m.secrets.SetCA(d.ca.ca, d.ca.rotation)
		if !e.observed.mgmt.CA.Exists() {
			m.ca.next = pki.CA{}
		}
	}
	var goOn bool
	if e.outcome.migration, goOn = e.migrate(ctx, d.migration); !goOn {
		e.renew(ctx, hasIstiod(e.observed))
		return
	}
	e.ca = d.ca.ca
	e.requeueAfter(d.ca.requeue)
	e.requeueAfter(m.rotation.log(ctx, d.ca, m.ca.overlap, e.observed.now))
	e.outcome.rollout = e.rollGateways(ctx, d.rollout)
	holdsIstiod := rollout.HoldsIstiod(d.rollout.step)
	e.applyAll(ctx, e.withoutDefaults(plan, d.rollout.withheld()), holdsIstiod)
	e.noteDefaults(d.rollout)
	e.outcome.guest = e.outcome.guest.And(e.tryDefaults(ctx, plan, d.rollout))
	if holdsIstiod {
		// istiod of the version before needs what the plan does not have.
		m.ca.trusted = false
		return
	}
	e.prune(ctx, plan)
	e.release(ctx, plan)
	e.refuseListenerSets(ctx, plan)
	out := e.outcome
	m.ca.trusted = !out.crdsBlocked && out.mgmt.Complete() && out.guest.Holds(model.HoldsRoots)
}

// applyAll applies the stages of the plan in their order. Here, the management side does not wait for the guest: what
// its own objects, and a token that is due, need of the guest is known, or requested at the same time. Only istiod
// itself waits for what it needs in the guest. Before, the pass can have used up its time in the guest (guestTime): for
// ownership Leases, a step of a migration, or holds and releases.
//
// While Gateways are not held yet, neither istiod is changed, nor what istiod reads in the guest: both would make it
// deploy all gateways.
func (e *execution) applyAll(ctx context.Context, plan desired.Plan, holdsIstiod bool) {
	out := &e.outcome
	inGuest, over := e.inGuest(ctx)
	defer over()
	work := beginInGuest(inGuest, e.guest, plan, guestStart{istiodCurrent: e.memory.istiodCurrent, holdsIstiod: holdsIstiod})
	out.mgmt = e.mgmt.Apply(ctx, plan.Mgmt)
	if plan.Installed {
		e.publish(ctx, plan)
		e.renew(ctx, hasIstiod(e.observed))
	}
	<-work.accounts
	// Objects that do not depend on the versions of the CRDs were applied: the NetworkPolicy, the CA, the Service.
	if out.crdsBlocked = work.crdsBlocked; !out.crdsBlocked && plan.Installed && !holdsIstiod {
		e.applyWorkload(ctx, plan, work)
	}
	<-work.done
	out.guest = work.crds.And(work.needed).And(work.rest)
	// Not before the Service is there and ours: HyperShift deletes a webhook whose host is a Service without its label.
	if !out.crdsBlocked && plan.Installed &&
		(e.observed.mgmt.Istiod == model.Available && out.mgmt.Complete() || e.guest.HasWebhook()) {
		admission := e.guest.Apply(inGuest, plan.Admission)
		if out.guest = out.guest.And(admission); admission.Count(apply.VerdictApplied) > 0 {
			e.requeueAfter(e.memory.webhookProbe.applied())
		}
	}
}

// publish makes the routes to istiod's Service, once that is there.
func (e *execution) publish(ctx context.Context, plan desired.Plan) {
	if e.outcome.mgmt.Holds(func(gvk schema.GroupVersionKind) bool { return gvk.Kind == "Service" }) {
		e.outcome.mgmt = e.outcome.mgmt.And(e.mgmt.Publish(ctx, plan.Routes))
	}
}

// applyWorkload applies istiod with its credential. Without a credential its pod could not start. Without what it needs
// in its namespace and in the guest it would start and not work, and one that serves would be replaced by it.
//
// The first token is requested while the roles and bindings are written. Later, the choice of istiod's account depends
// on them: see AccountFor.
func (e *execution) applyWorkload(ctx context.Context, plan desired.Plan, inGuest *guestWork) {
	var secrets []model.MgmtObject
	isFirst := plan.IsWhole() && e.memory.secrets.Credential(model.IstiodBearer).Token == ""
	if isFirst {
		secrets = e.currentCredentials(ctx)
	}
	<-inGuest.ready
	switch {
	case !plan.IsWhole():
		e.renew(ctx, hasIstiod(e.observed)) // its account may be another by now
		return
	case !isFirst:
		secrets = e.currentCredentials(ctx)
	}
	switch {
	case secrets == nil:
	case !e.outcome.mgmt.Holds(model.NeededOnMgmt), !inGuest.needed.Holds(model.NeededInGuest),
		!e.guest.Reaches(e.memory.secrets.Credential(model.IstiodBearer)):
		// If istiod rolled now, for another address of the guest, its pod would use the old address once more.
		e.applyCredentials(ctx, secrets)
	case e.observed.mgmt.Istiod == model.Absent:
		e.applyIstiod(ctx, append(secrets, plan.Workload...))
	default:
		// The Secrets first: a pod that rolls because the guest's API server moved must find the new address.
		if e.applyCredentials(ctx, secrets); e.outcome.mgmt.Holds(model.NeededOnMgmt) {
			e.applyIstiod(ctx, plan.Workload)
		}
	}
}

// applyIstiod applies istiod, with what belongs to it, and notes when it is as planned.
func (e *execution) applyIstiod(ctx context.Context, objects []model.MgmtObject) {
	report := e.applyPod(ctx, objects)
	e.memory.istiodCurrent = e.memory.istiodCurrent || report.Complete()
}

// applyPod applies objects of istiod's pod, and notes the Secrets that it mounts.
func (e *execution) applyPod(ctx context.Context, objects []model.MgmtObject) apply.Report {
	report := e.mgmt.Apply(ctx, objects)
	e.memory.secrets.Applied(report)
	e.outcome.mgmt = e.outcome.mgmt.And(report)
	return report
}

// prune deletes from both sides what is not planned, in the reverse order of installing: the webhooks, which nothing
// would answer. Then istiod, until its pods are gone, so that they release their leases in the guest while they still
// can. Then the rest of the guest. While istiod is installed, all that is planned must exist first: what is deleted
// can have the former name of an object.
func (e *execution) prune(ctx context.Context, plan desired.Plan) {
	out := &e.outcome
	if plan.Installed && (!plan.IsWhole() || out.crdsBlocked || !out.complete()) {
		return
	}
	keep := slices.Concat(plan.CRDs, plan.Adopted, plan.Protection, plan.Guest, plan.Admission)
	// Without an installation, nothing that the guest does or refuses keeps istiod running.
	inGuest, over := e.inGuest(ctx)
	defer over()
	if out.guest = out.guest.And(e.guest.PruneWebhooks(inGuest, keep)); plan.Installed && !out.guest.Complete() {
		return
	}
	if e.pruneManagement(ctx, plan) {
		out.guest = out.guest.And(e.pruneGuest(inGuest, keep, plan.Installed))
	}
}

// pruneGuest deletes from the guest what is not in keep. While istiod is installed, its former service account, with
// roles and bindings, exists until istiod surely uses its present one: no event shows which token istiod uses.
func (e *execution) pruneGuest(ctx context.Context, keep []model.GuestObject, installed bool) apply.Report {
	now, t := e.clock.Now(), &e.memory.tokens[model.IstiodBearer]
	if !installed {
		return e.guest.Prune(ctx, keep)
	}
	t.inUse = t.inUse.after(e.memory.secrets.Credential(model.IstiodBearer), now)
	if !e.guest.HasFormerAccess(keep) {
		return e.guest.Prune(ctx, keep)
	}
	wait := t.inUse.pickedUp(now)
	if t.inUse.account == e.guest.IstiodAccount() && wait == 0 {
		return e.guest.Prune(ctx, keep)
	}
	e.requeueAfter(wait)
	return e.guest.PruneExceptAccess(ctx, keep)
}

// complete reports whether every object of both sides is as planned.
func (o outcome) complete() bool { return o.mgmt.Complete() && o.guest.Complete() }

// hasTokens reports whether each request for a token that was due succeeded.
func (o outcome) hasTokens() bool {
	return !slices.ContainsFunc(o.tokens[:], func(t tokenOutcome) bool { return t.problem != nil })
}

// pruneManagement deletes from the management side what is not planned, and reports whether all of it is gone.
func (e *execution) pruneManagement(ctx context.Context, plan desired.Plan) bool {
	out := &e.outcome
	if out.mgmt = out.mgmt.And(e.mgmt.Prune(ctx, slices.Concat(plan.Mgmt, plan.Routes, plan.Workload))); !out.mgmt.Complete() {
		return false
	}
	if !plan.Installed {
		if len(plan.Mgmt) == 0 {
			e.memory.secrets.Forget()
		}
		e.memory.webhookProbe = webhookProbe{}
	}
	return true
}

// acquire takes the ownership Leases that are missing, for this hypergate.
func (e *execution) acquire(ctx context.Context, plan desired.Plan, missing []ownership.Lease) error {
	if len(missing) == 0 {
		return nil
	}
	ctx, over := e.inGuest(ctx)
	defer over()
	// The Leases are in istiod's namespace.
	if report := e.guest.Apply(ctx, plan.Namespace()); !report.Complete() {
		e.outcome.guest = report
		return ownership.CheckError{Verb: "create", Err: fmt.Errorf("creating the namespace of the Leases: %w", report.Err())}
	}
	holders := ownership.Holders(e.config, e.observed.mgmt)
	if len(holders) == 0 {
		return ownership.CheckError{Verb: "create", Err: fmt.Errorf("the UID of the management namespace is not known yet")}
	}
	for i, lease := range missing {
		err := e.guest.Acquire(ctx, lease, holders[0])
		if i == 0 && (err == nil || apply.Classify(err, "patch", schema.GroupResource{}).Class() == apply.Enlarged) {
			e.memory.acquiring.Take(e.observed.now) // it was written, whatever becomes of the next one
		}
		if err != nil {
			return ownership.CheckError{Verb: "patch", Err: err} // there is nothing that could be taken away
		}
		logr.FromContextOrDiscard(ctx).Info("Acquired ownership of this guest",
			"what", lease.Purpose, "lease", e.config.GuestNamespace+"/"+lease.Name, "holder", holders[0])
	}
	return nil
}

// releaseAgain returns when a release that failed is tried again.
func releaseAgain(err error) time.Duration {
	if apply.Classify(err, "delete", schema.GroupResource{}).Class().IsTransient() {
		return acquireEvery
	}
	return releaseRetry
}

// release gives the guest back once nothing is installed and everything is pruned, so that another hypergate may have
// it.
func (e *execution) release(ctx context.Context, plan desired.Plan) {
	if plan.Installed || !e.outcome.complete() || e.observed.mgmt.Istiod != model.Absent {
		return
	}
	own := ownership.OwnLeases(e.config, e.observed.mgmt, e.observed.guest.Leases)
	if len(own) == 0 {
		return
	}
	if wait := e.memory.releasing.Wait(e.observed.now); wait > 0 {
		e.requeueAfter(wait)
		return
	}
	e.memory.releasing.Take(e.observed.now)
	for _, held := range slices.Backward(own) {
		log := logr.FromContextOrDiscard(ctx).WithValues("lease", e.config.GuestNamespace+"/"+held.Name)
		if err := e.guest.Release(ctx, held); err != nil {
			log.Info("Releasing ownership of this guest failed", "err", err.Error())
			e.requeueAfter(releaseAgain(err))
			return
		}
		log.Info("Released ownership of this guest")
	}
}
