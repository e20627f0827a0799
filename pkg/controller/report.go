package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/metrics"
	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/publish"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/throttle"
)

// report logs what was done, writes the conditions that changed, and returns when to try again what failed. Zero: not
// before a watch shows something.
func (r *Reconciler) report(ctx context.Context, k known) passed {
	now, reports := r.clock.Now(), &r.reports
	res := k.result(r.blank)
	reports.metrics.noteGuest(res)
	logApplied(ctx, k.outcome)
	if res.Mgmt.Writes()+res.Guest.Writes() > 0 {
		// What rendering and applying needed goes back to the system: at rest this process is small.
		defer r.resting.giveBack()
	}
	// The guest may be slow with its statuses. The HostedControlPlane does not wait for them.
	forManagement := k.hcpResult(res)
	forManagement.UnwrittenClasses = reports.classes.unwritten()
	requeue := r.reportToManagement(ctx, forManagement)
	if errors.Is(res.Guest.Err(), errGuestTime) {
		logr.FromContextOrDiscard(ctx).Info("The guest answers slowly; the next pass continues with it", "limit", guestTime.String())
		requeue = soonest(requeue, passSpacing)
	}
	var statusProblem error
	if wait := reports.transient.wait(res, now); wait > 0 {
		requeue = soonest(requeue, wait)
	} else if k.twoClusters {
		var again time.Duration
		again, statusProblem = r.writeConditions(ctx, res)
		requeue = soonest(requeue, again)
		if unwritten := reports.classes.unwritten(); !slices.Equal(unwritten, forManagement.UnwrittenClasses) {
			forManagement.UnwrittenClasses = unwritten
			requeue = soonest(requeue, r.reportToManagement(ctx, forManagement))
		}
	}
	unfinished := ""
	switch {
	case errors.Is(res.Guest.Err(), errGuestTime):
		unfinished = errGuestTime.Error()
	case k.plan().CRDsNotReadYet():
		unfinished = "the guest's CRDs are still being read"
	}
	awaited, _ := k.plan().Endpoint.(publish.EndpointPending)
	failed, problem := failureOf(res, statusProblem), error(nil)
	if forManagement.GuestUnseen() {
		problem = k.findings.guestWatch
	}
	return passed{
		outcome: outcomeOf(k, forManagement, reports.summary.settled), problem: errors.Join(failed.err, problem),
		requeue:    soonest(requeue, res.Mgmt.And(res.Guest).RetryAfter(), reports.failures.report(ctx, failed, now)),
		unfinished: unfinished, idle: k.observed.idle(r.config), pending: awaited.Why,
	}
}

// reportUnsynced ends a pass that does not know both sides. A watch wakes the next one. What lasts is logged: there is
// no class to write a condition to.
func (r *Reconciler) reportUnsynced(ctx context.Context, k known) passed {
	log := logr.FromContextOrDiscard(ctx)
	log.V(1).Info("Waiting until both sides have been observed", "why", k.problem().Error())
	var requeue time.Duration
	if o := k.observed; o.missing != "" {
		requeue = o.missingFor
		if o.missingFor == 0 && r.reports.notSynced.isNew(o.missing) {
			log.Info("The guest answers, but some required lists are missing; until they arrive, hypergate only renews istiod's token",
				"missing", o.missing, "err", k.problem().Error())
		}
	}
	if k.outcome.mgmt.Err() != nil {
		requeue = soonest(requeue, r.reports.failures.report(ctx, failureOf(status.Result{Mgmt: k.outcome.mgmt}, nil), r.clock.Now()))
	}
	return passed{
		outcome: metrics.Unobserved, problem: errors.Join(unlessListing(k.problem()), k.outcome.mgmt.Err()),
		requeue: soonest(requeue, k.outcome.mgmt.RetryAfter(), r.reportToManagement(ctx, k.unsyncedResult(r.blank))),
	}
}

// unlessListing returns why a side is not known. It returns nil if the only reason is that the watches are still
// listing, as after each start.
func unlessListing(problem error) error {
	if e, is := errors.AsType[guest.NotSyncedError](problem); is && e.Unwrap() == nil {
		return nil
	}
	if e, is := errors.AsType[mgmt.NotSyncedError](problem); is && e.Unwrap() == nil {
		return nil
	}
	return problem
}

// reportHold ends a pass in which nothing may be written. The guest gets no status either: that would be a write. The
// HostedControlPlane gets a condition about a pause: it is not part of what a pause protects. A pause that ends by time
// causes no event. All other ends do.
func (r *Reconciler) reportHold(ctx context.Context, hold onHoldError) passed {
	var requeue time.Duration
	if paused, is := hold.lifecycle.(model.Paused); is && !paused.Until.IsZero() {
		requeue = max(paused.Until.Sub(r.clock.Now()), time.Second)
	}
	r.reports.lifecycle.logHold(ctx, hold, r.memory.secrets.Credential(model.IstiodBearer).Expires)
	return passed{
		outcome: metrics.OnHold, idle: "the " + hold.kind + " allows no writes: " + hold.why,
		requeue: soonest(requeue, r.reportToManagement(ctx, status.Result{Lifecycle: hold.lifecycle})),
	}
}

// logApplied logs what was changed.
func logApplied(ctx context.Context, out outcome) {
	if changes(out.mgmt)+changes(out.guest) > 0 {
		logr.FromContextOrDiscard(ctx).Info("Applied", "management", describeChanges(out.mgmt), "guest", describeChanges(out.guest))
	}
}

// fewObjects is how many objects a log line names. An installation is logged as a number, a repair by name.
const fewObjects = 4

// changes returns how many objects were changed. A write that was refused is none: it is tried again and again.
func changes(report apply.Report) int {
	return report.Count(apply.VerdictApplied) + report.Count(apply.VerdictDeleted)
}

// describeChanges returns what was done to a side, as text.
func describeChanges(report apply.Report) string {
	var done []string
	for _, o := range report.Outcomes() {
		if o.Verdict() == apply.VerdictApplied || o.Verdict() == apply.VerdictDeleted {
			done = append(done, fmt.Sprintf("%s %s", o.ID(), o.Verdict()))
		}
	}
	if len(done) == 0 || len(done) > fewObjects {
		return report.String()
	}
	return report.String() + ": " + strings.Join(done, ", ")
}

// transientSince debounces states that usually end soon: objects that are deleted, to be created again, a rollout of
// istiod, CRDs that settle, and the probe whether istiod answers where it is published, and with which version.
// Otherwise a status would come and go with each object that is deleted and created again.
type transientSince struct{ deleting, rolling, settling, probing throttle.Debounce }

// wait returns how long to wait before the status is written. Zero means that it is written now. Each state has its own
// time: a rollout that lasts does not make the next deletion worth reporting.
func (s *transientSince) wait(res status.Result, now time.Time) time.Duration {
	deleting := res.Plan.Waiting()+res.Mgmt.Count(apply.VerdictWaiting)+res.Guest.Count(apply.VerdictWaiting) > 0
	rolling := res.Istiod == model.Available && res.Rollout == model.Rolling
	// While istiod is on its way, the status is waited for as well.
	settlingTime := transientTime
	if res.Istiod != model.Available {
		settlingTime = readingTime
	}
	probing := res.Endpoint.IsProbing() || res.Running.IsAsking()
	return max(s.deleting.WaitFor(deleting, now, transientTime), s.rolling.WaitFor(rolling, now, transientTime),
		s.settling.WaitFor(res.Settling(), now, settlingTime), s.probing.WaitFor(probing, now, transientTime))
}
