package controller

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/status"
)

// writeConditions writes the conditions of the classes that differ from the plan. It returns when the next ones
// are due, zero if there are none, and what failed.
func (r *Reconciler) writeConditions(ctx context.Context, res status.Result) (time.Duration, error) {
	due, requeue := r.dueStatuses(ctx, res)
	again, err := r.writeStatuses(ctx, due)
	return soonest(requeue, again), err
}

// writeStatuses writes statuses side by side, until one gets no answer: then the others would get none either. again is
// when to continue if the time of this pass is over, or if a class has changed meanwhile. Zero: all are written, or the
// error has the rest.
func (r *Reconciler) writeStatuses(ctx context.Context, due []dueStatus) (again time.Duration, err error) {
	begun := time.Now()
	errs := make([]error, len(due))
	var writing errgroup.Group
	writing.SetLimit(statusesAtOnce)
	var stopped, changed atomic.Bool
	for i, d := range due {
		if stopped.Load() || ctx.Err() != nil {
			break
		}
		if time.Since(begun) > statusTime {
			again = passSpacing
			break
		}
		r.reports.classes.try(d.class, r.clock.Now())
		writing.Go(func() error {
			errs[i] = r.guest.ApplyConditions(ctx, d.write)
			if d.class.noteAnswer(errs[i], d.beyond) {
				changed.Store(true)
				errs[i] = nil
				return nil
			}
			if errs[i] != nil && apply.Classify(errs[i], "patch", schema.GroupResource{}).Class().IsTransient() {
				stopped.Store(true)
			}
			return nil
		})
	}
	_ = writing.Wait() // errs holds the errors
	if changed.Load() {
		again = soonest(again, statusEvery) // if the event of the change is late; it causes a pass
	}
	return again, errors.Join(errs...)
}

// reportToControlPlanes writes what a HostedControlPlane should say and does not, and returns when to look again. What
// fails is tried again, and nothing else depends on it. Its own write is an event, upon which there is nothing to
// write.
func (r *Reconciler) reportToControlPlanes(ctx context.Context, said statement, all []mgmt.StatusTarget) time.Duration {
	h, now := &r.reports.hcp, said.now
	if h.reporting == ReportNothing || len(all) == 0 {
		h.unwritten = apply.Cause{}
		return 0
	}
	patches, text := pendingPatches(said, all)
	if len(patches) == 0 {
		h.unwritten = apply.Cause{}
	}
	if wait := h.wait(text, said.given.Lifecycle, now); wait > 0 {
		return wait
	}
	writes := h.limiter(said.given)
	for _, p := range patches {
		if wait := max(h.failures.Wait(now), writes.Wait(now)); wait > 0 {
			return wait
		}
		if err := r.mgmt.ReportConditions(ctx, p.to, p.conditions); err != nil {
			if ctx.Err() != nil {
				return 0 // the pass has ended
			}
			return h.failed(ctx, err, now)
		}
		h.failures.Reset()
		h.logged, h.unwritten = lastLogged{}, apply.Cause{}
		writes.Take(now)
	}
	h.debounce.Reset()
	return 0
}

// failed logs why a HostedControlPlane could not be written to, once, and returns when to try again.
func (h *hcpReporter) failed(ctx context.Context, err error, now time.Time) time.Duration {
	cause := apply.Classify(err, "patch", schema.GroupResource{Group: "hypershift.openshift.io", Resource: "hostedcontrolplanes/status"})
	if h.logged.isNew(cause.String()) {
		logr.FromContextOrDiscard(ctx).Error(err, "Writing conditions to the HostedControlPlane failed, retrying with backoff")
		h.failures.Reset()
	}
	switch cause.Class() {
	case apply.Forbidden, apply.Denied, apply.Invalid:
		h.unwritten = cause
		return h.failures.Failed(now, firstPermanentRetry, maxForbiddenReport)
	default: // it may be transient
		h.unwritten = apply.Cause{}
		return h.failures.Failed(now, firstPermanentRetry, maxPermanentRetry)
	}
}
