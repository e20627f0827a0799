package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/status"
)

// onHoldError says that the HostedControlPlane, or the Cluster, lets nothing be written now. It ends a pass before anything was.
type onHoldError struct {
	// kind is of the object that says so.
	kind  string
	phase desired.Lifecycle
	// why is for the log.
	why string
}

// Error says why.
func (e onHoldError) Error() string { return e.why }

// lifecycle is what was said of the HostedControlPlane, so that it is said once.
type lifecycle struct{ held, warned lastLogged }

// checkHold looks at the life of the hosted control plane, and is an error while nothing may be written. What is not followed in the HostedControlPlane is
// told, when it changes. observing is what went wrong with looking.
func (r *Reconciler) checkHold(ctx context.Context, hosted desired.ManagementObservation, observing error) error {
	if unknown(observing) {
		return nil // nothing is done
	}
	held := onHoldBecause(hosted, r.clock.Now())
	if hosted.ControlPlaneProblem != nil {
		return held
	}
	c := hosted.ControlPlane
	log := logr.FromContextOrDiscard(ctx)
	if warnings := strings.Join(c.Warnings(), "; "); r.lifecycle.warned.isNew(warnings) && warnings != "" {
		log.Info("Not all that the HostedControlPlane says is followed", "why", warnings)
	}
	if held == nil && r.lifecycle.held.said {
		log.Info("The " + c.Kind() + " lets things be written again")
		r.lifecycle.held = lastLogged{}
	}
	return held
}

// onHoldNow is why nothing may be written any more, as the watches show the control plane now; nil while it may be. before is what was observed.
func (r *Reconciler) onHoldNow(before desired.ControlPlane) error {
	return onHoldBecause(r.mgmt.CurrentControlPlane(before), r.clock.Now())
}

// lostNow is why this guest is no longer ours, or nothing may be written any more.
func (r *Reconciler) lostNow(before desired.ManagementObservation) error {
	if held := r.onHoldNow(before.ControlPlane); held != nil {
		return held
	}
	if taken, is := desired.OwnershipOf(r.config, before, r.guest.Leases()).(desired.OwnedByOther); is {
		return desired.OwnedByOtherError{OwnedByOther: taken, Namespace: r.config.GuestNamespace}
	}
	return nil
}

// onHoldBecause is the one decision whether a control plane, at a time, lets anything be written: an error says why it does not.
func onHoldBecause(hosted desired.ManagementObservation, now time.Time) error {
	if hosted.ControlPlaneProblem != nil {
		return onHoldInDoubt(hosted, now)
	}
	c := hosted.ControlPlane
	switch phase := c.Lifecycle(now).(type) {
	case desired.Paused:
		return onHoldError{c.Kind(), phase, "it is paused" + untilWhen(phase.Until)}
	case desired.Starting:
		return onHoldError{c.Kind(), phase, "its control plane is not initialized yet"}
	case desired.Deleting:
		return onHoldError{c.Kind(), phase, "it is being deleted: what is on the management side goes with it, what is in the guest with the guest"}
	case desired.Active, desired.Disabled:
	}
	return nil
}

// onHoldInDoubt is an error while any of several HostedControlPlanes, or one that cannot be read as a whole, is paused, or the one that was followed is being
// deleted: which of them counts is not to be guessed. Otherwise nothing is planned, and that is told.
func onHoldInDoubt(hosted desired.ManagementObservation, now time.Time) error {
	for _, c := range append(slices.Clone(hosted.CandidateControlPlanes), hosted.ControlPlane) {
		switch phase := c.Lifecycle(now).(type) {
		case desired.Paused:
			return onHoldError{c.Kind(), phase, fmt.Sprintf("%s is paused%s (%s)", c.Name, untilWhen(phase.Until), hosted.ControlPlaneProblem)}
		case desired.Deleting:
			if c.UID == hosted.ControlPlane.UID || len(hosted.CandidateControlPlanes) == 1 {
				return onHoldError{c.Kind(), phase, c.Name + " is being deleted"}
			}
		default:
		}
	}
	return nil
}

func untilWhen(until time.Time) string {
	if until.IsZero() {
		return ", until it no longer says so"
	}
	return " until " + until.UTC().Format(time.RFC3339)
}

// requeueHeld ends a pass in which nothing may be written. The guest is not told either: its status would be a write. The HostedControlPlane is told of a
// pause; it is no part of what that protects. A pause that ends by time is no event; all else is.
func (r *Reconciler) requeueHeld(ctx context.Context, held onHoldError) reconcile.Result {
	if r.lifecycle.held.isNew(held.why) {
		told := []any{"why", held.why}
		if expires := r.mgmt.Credential().Expires; !expires.IsZero() {
			told = append(told, "istiod's token is good until", expires.UTC().Format(time.RFC3339))
		}
		logr.FromContextOrDiscard(ctx).Info("The "+held.kind+" lets nothing be written", told...)
	}
	p := &pass{}
	if paused, is := held.phase.(desired.Paused); is && !paused.Until.IsZero() {
		p.requeueAfter(max(paused.Until.Sub(r.clock.Now()), time.Second))
	}
	r.reportToControlPlanes(ctx, p, status.Result{Lifecycle: held.phase})
	return reconcile.Result{RequeueAfter: p.next}
}
