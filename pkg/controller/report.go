package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/status"
)

// report logs what was done, writes the conditions that changed, and says when to try again what failed. refused is why there is no plan.
func (r *Reconciler) report(ctx context.Context, p *pass, refused error) (reconcile.Result, error) {
	p.outcome.Refused = refused
	o := p.outcome
	if o.Mgmt.Writes()+o.Guest.Writes() > 0 {
		logr.FromContextOrDiscard(ctx).Info("Applied", "management", told(o.Mgmt), "guest", told(o.Guest))
		// What rendering and applying needed goes back to the system: at rest this process is small.
		defer debug.FreeOSMemory()
	}
	var untold error
	if wait := r.passing.wait(o, r.clock.Now()); wait > 0 {
		p.again(wait)
	} else {
		untold = r.writeConditions(ctx, p)
	}
	p.again(o.Mgmt.And(o.Guest).RetryAfter())
	failed := errors.Join(refused, o.Mgmt.Err(), o.Guest.Err(), untold)
	if failed != nil && (!lasting(o) || !lastingError(untold)) {
		return reconcile.Result{}, failed
	}
	p.again(r.trouble.tell(ctx, failed))
	return reconcile.Result{RequeueAfter: p.next}, nil
}

// writeConditions writes the conditions of each class that are not as they should be.
func (r *Reconciler) writeConditions(ctx context.Context, p *pass) error {
	o, now := p.outcome, r.clock.Now()
	if !r.guarded {
		return nil
	}
	asking := make(map[string]bool, len(o.Classes))
	for _, class := range o.Classes {
		asking[class.Name] = true
	}
	maps.DeleteFunc(r.says, func(name string, _ *rate.Limiter) bool { return !asking[name] })
	var errs []error
	for _, class := range o.Classes {
		previous := r.guest.Conditions(class.Name)
		conditions := status.Conditions(class, o, r.version, previous, now)
		if status.Same(previous, conditions) {
			continue
		}
		if r.says[class.Name] == nil {
			r.says[class.Name] = rate.NewLimiter(rate.Every(sayEvery), sayBurst)
		}
		if !r.says[class.Name].AllowN(now, 1) {
			p.again(sayEvery)
			continue
		}
		err := r.guest.ApplyConditions(ctx, class.Name, conditions)
		errs = append(errs, err)
		if err != nil && !lastingError(err) {
			break // the others would get no answer either
		}
	}
	return errors.Join(errs...)
}

// The status of a class is written ten times in a row, and then once in a while: somebody else may rewrite it, and each write wakes istiod.
const (
	sayBurst = 10
	sayEvery = 10 * time.Second
)

// fewObjects is how many objects a log line names. An installation is told as a number, a repair by name.
const fewObjects = 4

// told is what was done to a side, in words.
func told(report apply.Report) string {
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

// passing is since when what mostly ends by itself in a moment is under way: objects that are deleted, to be made anew, and a rollout of istiod.
// Zero: it is not.
type passing struct{ deleting, rolling time.Time }

// passingTime is how long that may take before the status tells of it: otherwise a status would come and go with each object that is deleted
// and made anew.
const passingTime = 10 * time.Second

// wait is how long to wait before the status is written; zero means that it should be written now. Each of the two has its own time: a rollout
// that lasts does not make the next deletion news.
func (s *passing) wait(o status.Outcome, now time.Time) time.Duration {
	deleting := len(o.Plan.PendingCRDs)+o.Mgmt.Count(apply.VerdictWaiting)+o.Guest.Count(apply.VerdictWaiting) > 0
	rolling := o.Istiod == desired.Available && o.Rollout == desired.Rolling
	return max(waitFor(&s.deleting, deleting, now), waitFor(&s.rolling, rolling, now))
}

// waitFor keeps since when a state is under way, and says for how long it need not be told yet.
func waitFor(since *time.Time, underWay bool, now time.Time) time.Duration {
	switch {
	case !underWay:
		*since = time.Time{}
		return 0
	case since.IsZero():
		*since = now
	}
	return max(0, since.Add(passingTime).Sub(now))
}

// lasting says that everything that failed did so for a cause that somebody must mend, so that trying again at once is of no use.
func lasting(o status.Outcome) bool {
	if !lastingError(o.Refused) {
		return false
	}
	for _, f := range o.Mgmt.And(o.Guest).Failures() {
		if f.Cause().Class().Passes() {
			return false
		}
	}
	return true
}

// lastingError says that an error does not pass by itself; none does not stand in the way.
func lastingError(err error) bool {
	return err == nil || !apply.Classify(err, "", schema.GroupResource{}).Class().Passes()
}

// Waits between tries of what somebody must mend.
const (
	firstTroubleDelay = time.Second
	maxTroubleDelay   = 30 * time.Second
)

// trouble is what was said of failures that time alone does not mend.
type trouble struct {
	text  string
	delay time.Duration
}

// tell logs a failure unless it is the one that was told last, and says when to try again; zero means that there is none.
func (t *trouble) tell(ctx context.Context, failed error) time.Duration {
	if failed == nil {
		*t = trouble{}
		return 0
	}
	if text := failed.Error(); text != t.text {
		logr.FromContextOrDiscard(ctx).Error(failed, "Cannot make both sides as they should be; trying again from time to time")
		t.text = text
	}
	t.delay = min(max(2*t.delay, firstTroubleDelay), maxTroubleDelay)
	return t.delay
}
