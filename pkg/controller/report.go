package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
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
func (r *Reconciler) report(ctx context.Context, p *pass, refused error) reconcile.Result {
	if p.result.Refused = refused; refused != nil {
		p.result.Reach = r.reach.last(p.hosted)
	}
	p.result.Since = r.since(p)
	o := p.result
	r.metrics.keep(o)
	if changes(o.Mgmt)+changes(o.Guest) > 0 {
		logr.FromContextOrDiscard(ctx).Info("Applied", "management", told(o.Mgmt), "guest", told(o.Guest))
	}
	if o.Mgmt.Writes()+o.Guest.Writes() > 0 {
		// What rendering and applying needed goes back to the system: at rest this process is small.
		defer debug.FreeOSMemory()
	}
	var untold error
	if wait := r.passing.wait(o, r.clock.Now()); wait > 0 {
		p.again(wait)
	} else {
		untold = r.writeConditions(ctx, p)
	}
	r.tellControlPlanes(ctx, p, r.reportOf(p, refused))
	p.again(o.Mgmt.And(o.Guest).RetryAfter())
	p.again(r.trouble.tell(ctx, failureOf(o, untold)))
	return reconcile.Result{RequeueAfter: p.next}
}

// writeConditions writes the conditions of each class that are not as they should be.
func (r *Reconciler) writeConditions(ctx context.Context, p *pass) error {
	o, now := p.result, r.clock.Now()
	if !r.guarded {
		return nil
	}
	asking := make(map[string]bool, len(o.Classes))
	for _, class := range o.Classes {
		asking[class.Name] = true
	}
	maps.DeleteFunc(r.says, func(name string, _ *rate.Limiter) bool { return !asking[name] })
	maps.DeleteFunc(r.contested, func(name, _ string) bool { return !asking[name] })
	var errs []error
	for _, class := range o.Classes {
		previous := r.guest.Conditions(class.Name)
		writers := r.guest.Writers(class.Name)
		previous, conditions := status.Yield(previous, status.Conditions(class, o, previous, now), o.Refused, writers)
		if status.Same(previous, conditions) {
			continue
		}
		if r.says[class.Name] == nil {
			r.says[class.Name] = rate.NewLimiter(rate.Every(sayEvery), sayBurst)
		}
		if !r.says[class.Name].AllowN(now, 1) {
			r.contested.tell(ctx, class.Name, writers)
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

// contested is who was told to write the status of a class again and again, by the class's name.
type contested map[string]string

// tell tells of it once. Those who change it as we do, by a patch of their own, are named; hypergate's own name is none of them.
func (c contested) tell(ctx context.Context, class string, writers map[string]string) {
	who := strings.Join(status.OtherWriters(writers), ", ")
	if told, is := c[class]; is && told == who {
		return
	}
	c[class] = who
	logr.FromContextOrDiscard(ctx).Info("Somebody else changes the conditions of a GatewayClass again and again; they are put right once in a while only",
		"class", class, "fieldManagers", who, "every", sayEvery.String())
}

// fewObjects is how many objects a log line names. An installation is told as a number, a repair by name.
const fewObjects = 4

// changes is how many objects were changed. A write that was refused is none: it is tried again and again.
func changes(report apply.Report) int {
	return report.Count(apply.VerdictApplied) + report.Count(apply.VerdictDeleted)
}

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

// passing is since when what mostly ends by itself in a moment is under way: objects that are deleted, to be made anew, a rollout of istiod, and
// CRDs that settle, and the proof that istiod answers where it is published. Zero: it is not.
type passing struct{ deleting, rolling, settling, proving time.Time }

// passingTime is how long that may take before the status tells of it: otherwise a status would come and go with each object that is deleted
// and made anew.
const passingTime = 10 * time.Second

// readingTime is the same for CRDs while istiod is on its way: all are read within it, and each would change the status.
const readingTime = 3 * time.Second

// wait is how long to wait before the status is written; zero means that it should be written now. Each of them has its own time: a rollout
// that lasts does not make the next deletion news.
func (s *passing) wait(o status.Result, now time.Time) time.Duration {
	deleting := o.Plan.Waiting()+o.Mgmt.Count(apply.VerdictWaiting)+o.Guest.Count(apply.VerdictWaiting) > 0
	rolling := o.Istiod == desired.Available && o.Rollout == desired.Rolling
	// While istiod is on its way, too, the status is waited for.
	settlingTime := passingTime
	if o.Istiod != desired.Available {
		settlingTime = readingTime
	}
	return max(waitFor(&s.deleting, deleting, passingTime, now), waitFor(&s.rolling, rolling, passingTime, now),
		waitFor(&s.settling, o.Settling(), settlingTime, now), waitFor(&s.proving, o.Reach.Settles(), passingTime, now))
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

// lastingError says that an error does not pass by itself; none does not stand in the way.
func lastingError(err error) bool {
	return err == nil || !apply.Classify(err, "", schema.GroupResource{}).Class().Passes()
}

// failure is what kept a pass from making both sides as they should be; the zero value is none.
type failure struct {
	err error
	// gist is what it is known by from one try to the next. Its text tells ports and times besides, and which objects were tried until time ran out.
	gist string
	// lasts says that everything that failed did so for a cause that somebody must mend, so that trying again at once is of no use.
	lasts bool
}

// failureOf finds what failed: of the plan, of the objects of both sides, and of the status.
func failureOf(o status.Result, untold error) failure {
	f := failure{err: errors.Join(o.Refused, o.Mgmt.Err(), o.Guest.Err(), untold), lasts: true}
	gists := map[string]bool{}
	add := func(cause apply.Cause, whole string) {
		switch {
		case cause.Class() == apply.Cancelled:
			f.lasts = false // what ended it is another failure, or the end of this process
		case cause.Class().Passes():
			f.lasts, gists[cause.Class().String()] = false, true
		default:
			gists[whole] = true
		}
	}
	for _, err := range []error{o.Refused, untold} {
		if err != nil {
			add(apply.Classify(err, "", schema.GroupResource{}), gistOf(err))
		}
	}
	for side, report := range map[desired.Side]apply.Report{desired.SideMgmt: o.Mgmt, desired.SideGuest: o.Guest} {
		for _, failed := range report.Failures() {
			add(failed.Cause(), fmt.Sprint(side, failed.ID(), failed.Cause()))
		}
	}
	f.gist = strings.Join(slices.Sorted(maps.Keys(gists)), "; ")
	return f
}

// gistOf is what an error is known by. Who has the guest is not part of it: the guest may say another one with each try.
func gistOf(err error) string {
	if taken, is := errors.AsType[desired.TakenError](err); is {
		return taken.Gist()
	}
	if rival, is := errors.AsType[desired.RivalError](err); is {
		return rival.Gist()
	}
	return err.Error()
}

// pace is how the waits between tries grow.
type pace struct{ first, longest time.Duration }

// Of what passes by itself the end is noticed soon; what somebody must mend takes longer.
func (f failure) pace() pace {
	if f.lasts {
		return pace{time.Second, 30 * time.Second}
	}
	return pace{100 * time.Millisecond, 10 * time.Second}
}

// trouble is what was said of a failure, and how long the last wait was.
type trouble struct {
	gist  string
	delay time.Duration
}

// tell logs a failure unless it is the one that was told last, and says when to try again; zero means that nothing failed.
func (t *trouble) tell(ctx context.Context, f failure) time.Duration {
	if f.err == nil {
		*t = trouble{}
		return 0
	}
	if f.gist != t.gist && f.gist != "" {
		logr.FromContextOrDiscard(ctx).Error(f.err, "Cannot make both sides as they should be; trying again from time to time")
		t.gist = f.gist
	}
	p := f.pace()
	t.delay = min(max(2*t.delay, p.first), p.longest)
	return t.delay
}
