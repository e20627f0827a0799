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

// heldError says that the HostedControlPlane, or the Cluster, lets nothing be written now. It ends a pass before anything was.
type heldError struct {
	// kind is of the object that says so.
	kind  string
	phase desired.Phase
	// why is for the log.
	why string
}

// Error says why.
func (e heldError) Error() string { return e.why }

// life is what was said of the HostedControlPlane, so that it is said once.
type life struct{ held, warned notice }

// hold looks at the life of the hosted control plane, and is an error while nothing may be written. What is not followed in the HostedControlPlane is
// told, when it changes. observing is what went wrong with looking.
func (r *Reconciler) hold(ctx context.Context, hosted desired.Hosted, observing error) error {
	if unknown(observing) {
		return nil // nothing is done
	}
	held := heldBy(hosted, r.clock.Now())
	if hosted.DoubtfulControlPlane != nil {
		return held
	}
	c := hosted.ControlPlane
	log := logr.FromContextOrDiscard(ctx)
	if warnings := strings.Join(c.Warnings(), "; "); r.life.warned.isNews(warnings) && warnings != "" {
		log.Info("Not all that the HostedControlPlane says is followed", "why", warnings)
	}
	if held == nil && r.life.held.said {
		log.Info("The " + c.Kind() + " lets things be written again")
		r.life.held = notice{}
	}
	return held
}

// heldNow is why nothing may be written any more, as the watches show the control plane now; nil while it may be. before is what was observed.
func (r *Reconciler) heldNow(before desired.ControlPlane) error {
	return heldBy(r.mgmt.Shows(before), r.clock.Now())
}

// lostNow is why this guest is no longer ours, or nothing may be written any more.
func (r *Reconciler) lostNow(before desired.Hosted) error {
	if held := r.heldNow(before.ControlPlane); held != nil {
		return held
	}
	if taken, is := desired.TenureOf(r.config, before, r.guest.Claims()).(desired.Taken); is {
		return desired.TakenError{Taken: taken, Namespace: r.config.GuestNamespace}
	}
	return nil
}

// heldBy is the one decision whether a control plane, at a time, lets anything be written: an error says why it does not.
func heldBy(hosted desired.Hosted, now time.Time) error {
	if hosted.DoubtfulControlPlane != nil {
		return heldInDoubt(hosted, now)
	}
	c := hosted.ControlPlane
	switch phase := c.Phase(now).(type) {
	case desired.Paused:
		return heldError{c.Kind(), phase, "it is paused" + untilWhen(phase.Until)}
	case desired.Starting:
		return heldError{c.Kind(), phase, "its control plane is not initialized yet"}
	case desired.Deleting:
		return heldError{c.Kind(), phase, "it is being deleted: what is on the management side goes with it, what is in the guest with the guest"}
	case desired.Active, desired.Disabled:
	}
	return nil
}

// heldInDoubt is an error while any of several HostedControlPlanes, or one that cannot be read as a whole, is paused, or the one that was followed is being
// deleted: which of them counts is not to be guessed. Otherwise nothing is planned, and that is told.
func heldInDoubt(hosted desired.Hosted, now time.Time) error {
	for _, c := range append(slices.Clone(hosted.Doubted), hosted.ControlPlane) {
		switch phase := c.Phase(now).(type) {
		case desired.Paused:
			return heldError{c.Kind(), phase, fmt.Sprintf("%s is paused%s (%s)", c.Name, untilWhen(phase.Until), hosted.DoubtfulControlPlane)}
		case desired.Deleting:
			if c.UID == hosted.ControlPlane.UID || len(hosted.Doubted) == 1 {
				return heldError{c.Kind(), phase, c.Name + " is being deleted"}
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

// rest ends a pass in which nothing may be written. The guest is not told either: its status would be a write. The HostedControlPlane is told of a
// pause; it is no part of what that protects. A pause that ends by time is no event; all else is.
func (r *Reconciler) rest(ctx context.Context, held heldError) reconcile.Result {
	if r.life.held.isNews(held.why) {
		told := []any{"why", held.why}
		if expires := r.mgmt.Credential().Expires; !expires.IsZero() {
			told = append(told, "istiod's token is good until", expires.UTC().Format(time.RFC3339))
		}
		logr.FromContextOrDiscard(ctx).Info("The "+held.kind+" lets nothing be written", told...)
	}
	p := &pass{}
	if paused, is := held.phase.(desired.Paused); is && !paused.Until.IsZero() {
		p.again(max(paused.Until.Sub(r.clock.Now()), time.Second))
	}
	r.tellControlPlanes(ctx, p, status.Result{Life: held.phase})
	return reconcile.Result{RequeueAfter: p.next}
}
