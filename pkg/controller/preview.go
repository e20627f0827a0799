package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"

	"github.com/hypergate/hypergate/pkg/dryrun"
	"github.com/hypergate/hypergate/pkg/metrics"
)

// Previewed is what Run would do now.
type Previewed struct {
	// Writes are the writes that Run would send, including those that would change nothing.
	Writes []dryrun.Write
	// Refusal is why Run would not carry out a plan. OnHold reports whether the lifecycle of the control plane allows
	// no plan: then Run writes no more than the status of the control plane.
	Refusal error
	OnHold  bool
	// Idle is why nothing is to be installed, for example the pause. Empty: an installation is wanted.
	Idle string
	// Pending is what an installation waits for before istiod itself is planned, as the object of "waiting for". Empty:
	// all of it is planned. Without an installation, it means nothing.
	Pending string
	// Unread is why the Lease could not be read. Then nothing is assumed about istiod. Nil: it was read, or does not
	// exist.
	Unread error
}

// PreviewInstallation is Preview as if a GatewayClass requested an installation. If there is none, it assumes one with
// the name that GatewayClasses usually have.
func PreviewInstallation(ctx context.Context, o Options) (Previewed, error) {
	o.assumedClass = usualClass
	return Preview(ctx, o)
}

// Preview returns the writes that Run would send now. It runs the same passes with clients that send each write as a
// dry run. It holds no Lease, so a controller can run at the same time. What depends on the effect of an earlier write
// is not shown: for example, the webhooks of a first installation, which wait for istiod.
//
// A preview does not connect to istiod, because it can run where istiod cannot be reached. It assumes what the summary
// of the Lease has: the version that istiod reported, and whether it was reached. Without it, the message of a
// condition can be shown as changed, and all else is the same. So a Lease that cannot be read ends no preview.
//
// It also leaves out the renewal of hypergate's own credential for the guest: it reaches the guest with the credential
// of its caller, which is not the one to renew. Such a renewal would fail, and Degraded would be shown as changed.
//
// It returns an error if a side cannot be observed before ctx ends, and ErrUnfinished if not all writes are known then.
func Preview(ctx context.Context, o Options) (Previewed, error) {
	o.LeaderElection, o.Probe.Off, o.dryRun = false, true, &dryrun.Recorder{}
	o.Config.RenewGuestKubeconfig = ""
	m, g, err := o.clusters()
	if err != nil {
		return Previewed{}, err
	}
	if err := checkTwoClusters(ctx, o.Config, m, g.HasNamespace); err != nil {
		return Previewed{}, err
	}
	last, unread := o.lastSummary(ctx)
	r := newReconciler(o, m, g)
	r.memory.endpointProbe.assume(last)
	wanted := make(chan struct{}, 1)
	want := func() {
		select {
		case wanted <- struct{}{}:
		default:
		}
	}
	r.pace = newPacer(clock.RealClock{})
	r.pace.ask = func(after time.Duration) { time.AfterFunc(after, want) }
	r.memory.endpointProbe.wake = r.notify
	if err := errors.Join(m.Start(ctx, r.notify), g.Start(ctx, r.notify)); err != nil {
		return Previewed{}, err
	}
	found, err := r.preview(ctx, o.dryRun, wanted)
	found.Unread = unread
	return found, err
}

// ErrUnfinished is the error of a preview that ended before all writes were known.
var ErrUnfinished = errors.New("the writes are not all known yet")

// preview runs passes until nothing more is written.
func (r *Reconciler) preview(ctx context.Context, recorder *dryrun.Recorder, wanted <-chan struct{}) (Previewed, error) {
	var so progress
	for {
		quiet := make(<-chan time.Time)
		if at, known := so.completeAt(); known {
			quiet = time.After(time.Until(at))
		}
		select {
		case <-wanted:
		case <-quiet:
			return previewed(recorder, so.end), nil
		case <-ctx.Done():
			return Previewed{}, so.timedOut(context.Cause(ctx))
		}
		end := r.previewPass(ctx)
		so.note(end, len(recorder.Writes()), time.Now())
	}
}

// progress is what the passes of a preview have found: how the last one ended, the number of writes, and when one of
// them last changed.
type progress struct {
	end     passed
	writes  int
	changed time.Time
}

// note notes how a pass ended, and how many writes there were after it.
func (p *progress) note(end passed, writes int, now time.Time) {
	if p.changed.IsZero() || writes != p.writes || end.outcome != p.end.outcome || end.unfinished != p.end.unfinished {
		p.changed = now
	}
	p.end, p.writes = end, writes
}

// completeAt returns when a preview is complete if nothing changes until then. It returns false if it is not known yet
// what is written.
func (p *progress) completeAt() (at time.Time, known bool) {
	return p.changed.Add(previewQuiet), p.isObserved() && p.end.unfinished == ""
}

// isObserved reports whether the last pass observed both sides.
func (p *progress) isObserved() bool {
	return p.end.outcome != "" && p.end.outcome != metrics.Unobserved
}

// timedOut returns the error of a preview that cause ended.
func (p *progress) timedOut(cause error) error {
	if !p.isObserved() {
		return fmt.Errorf("timed out observing both sides: %w", errors.Join(p.end.problem, cause))
	}
	return fmt.Errorf("%w: %s: %w", ErrUnfinished, cmp.Or(p.end.unfinished, "the API servers answer slowly"), cause)
}

// previewPass runs one pass, and requests the next one if it is due soon.
func (r *Reconciler) previewPass(ctx context.Context) passed {
	r.pace.begin()
	defer r.pace.end()
	inPass, over := r.passContext.begin(ctx)
	defer over()
	end := r.pass(inPass, ctx)
	if hold, ended := errors.AsType[onHoldError](context.Cause(inPass)); ended {
		end = r.reportHold(ctx, hold)
	}
	if end.requeue > 0 && end.requeue <= previewQuiet {
		r.pace.ask(end.requeue)
	}
	return end
}

func previewed(recorder *dryrun.Recorder, end passed) Previewed {
	out := Previewed{Writes: recorder.Writes(), OnHold: end.outcome == metrics.OnHold, Idle: end.idle, Pending: end.pending}
	if end.outcome == metrics.Refused {
		out.Refusal = refusal(end.problem)
	}
	return out
}

// refusal returns the cause of a rejected plan without the text that the plan is rejected: a preview always says so.
func refusal(problem error) error {
	if rejected, is := errors.AsType[rejectedPlanError](problem); is && problem.Error() == rejected.Error() {
		return rejected.cause
	}
	return problem // it has more than the rejected plan
}
