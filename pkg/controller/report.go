package controller

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/status"
)

// report logs what was done, writes the conditions that changed, and says when to try again what failed. refused is why there is no plan.
func (r *Reconciler) report(ctx context.Context, p *pass, refused error) reconcile.Result {
	res := &p.result
	if res.PlanProblem = refused; refused != nil {
		res.Endpoint = r.endpointProbe.last(p.mgmt)
	}
	var again time.Duration
	res.Since, again = r.tokens.since(p.mgmt.IstiodSince, r.clock.Now())
	p.requeueAfter(again)
	r.metrics.keep(*res)
	logApplied(ctx, *res)
	if res.Mgmt.Writes()+res.Guest.Writes() > 0 {
		// What rendering and applying needed goes back to the system: at rest this process is small.
		defer debug.FreeOSMemory()
	}
	// The guest may take long over its statuses: the HostedControlPlane is told before.
	r.reportToControlPlanes(ctx, p, r.reportOf(p))
	if errors.Is(res.Guest.Err(), errGuestTime) {
		logr.FromContextOrDiscard(ctx).Info("The guest answers slowly, and what is left of it is done in the next pass", "limit", guestTime.String())
		p.requeueAfter(passSpacing)
	}
	var untold error
	if wait := r.transient.wait(*res, r.clock.Now()); wait > 0 {
		p.requeueAfter(wait)
	} else {
		untold = r.writeConditions(ctx, p)
	}
	p.requeueAfter(res.Mgmt.And(res.Guest).RetryAfter())
	p.requeueAfter(r.failures.report(ctx, failureOf(*res, untold), r.clock.Now()))
	return reconcile.Result{RequeueAfter: p.next}
}

// logApplied logs what was changed.
func logApplied(ctx context.Context, res status.Result) {
	if changes(res.Mgmt)+changes(res.Guest) > 0 {
		logr.FromContextOrDiscard(ctx).Info("Applied", "management", describeChanges(res.Mgmt), "guest", describeChanges(res.Guest))
	}
}

// fewObjects is how many objects a log line names. An installation is told as a number, a repair by name.
const fewObjects = 4

// changes is how many objects were changed. A write that was refused is none: it is tried again and again.
func changes(report apply.Report) int {
	return report.Count(apply.VerdictApplied) + report.Count(apply.VerdictDeleted)
}

// describeChanges is what was done to a side, in words.
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

// transientSince is since when what mostly ends by itself in a moment is under way: objects that are deleted, to be made anew, a rollout of istiod, and
// CRDs that settle, and the proof that istiod answers where it is published. Zero: it is not.
type transientSince struct{ deleting, rolling, settling, proving time.Time }

// transientTime is how long that may take before the status tells of it: otherwise a status would come and go with each object that is deleted
// and made anew.
const transientTime = 10 * time.Second

// readingTime is the same for CRDs while istiod is on its way: all are read within it, and each would change the status.
const readingTime = 3 * time.Second

// wait is how long to wait before the status is written; zero means that it should be written now. Each of them has its own time: a rollout
// that lasts does not make the next deletion news.
func (s *transientSince) wait(res status.Result, now time.Time) time.Duration {
	deleting := res.Plan.Waiting()+res.Mgmt.Count(apply.VerdictWaiting)+res.Guest.Count(apply.VerdictWaiting) > 0
	rolling := res.Istiod == desired.Available && res.Rollout == desired.Rolling
	// While istiod is on its way, too, the status is waited for.
	settlingTime := transientTime
	if res.Istiod != desired.Available {
		settlingTime = readingTime
	}
	return max(waitFor(&s.deleting, deleting, transientTime, now), waitFor(&s.rolling, rolling, transientTime, now),
		waitFor(&s.settling, res.Settling(), settlingTime, now), waitFor(&s.proving, res.Endpoint.IsProbing(), transientTime, now))
}

// waitFor keeps since when a state is under way, and says for how long it need not be told yet.
func waitFor(since *time.Time, underWay bool, most time.Duration, now time.Time) time.Duration {
	switch {
	case !underWay:
		*since = time.Time{}
		return 0
	case since.IsZero():
		*since = now
	}
	return max(0, since.Add(most).Sub(now))
}
