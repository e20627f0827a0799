package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/hypergate/hypergate/pkg/model"
)

// onHoldError reports that the HostedControlPlane, or the Cluster, allows no writes now.
type onHoldError struct {
	// kind is the kind of the object that puts reconciliation on hold.
	kind      string
	lifecycle model.Lifecycle
	// why is for the log.
	why string
}

// Error returns the reason.
func (e onHoldError) Error() string { return e.why }

// onHoldBecause decides whether anything may be written for a control plane at a time. It is the only place that does.
// An onHoldError reports why nothing may be written.
func onHoldBecause(m model.ManagementObservation, now time.Time) error {
	if m.ControlPlaneProblem != nil {
		return onHoldInDoubt(m, now)
	}
	c := m.ControlPlane
	switch lifecycle := c.Lifecycle(now).(type) {
	case model.Paused:
		return onHoldError{c.Kind(), lifecycle, "it is paused" + untilWhen(lifecycle.Until)}
	case model.Starting:
		return onHoldError{c.Kind(), lifecycle, "its control plane is not initialized yet"}
	case model.Deleting:
		return onHoldError{
			c.Kind(), lifecycle,
			"it is being deleted: the management side is deleted with it, and the guest's objects with the guest",
		}
	case model.Active, model.Disabled:
	}
	return nil
}

// onHoldInDoubt returns an error while any of several HostedControlPlanes, or one that cannot be read in full, is
// paused, or while the one that was followed is being deleted. Which of them counts must not be guessed. Otherwise
// nothing is planned, and a condition reports it.
func onHoldInDoubt(m model.ManagementObservation, now time.Time) error {
	for _, c := range append(slices.Clone(m.CandidateControlPlanes), m.ControlPlane) {
		switch lifecycle := c.Lifecycle(now).(type) {
		case model.Paused:
			why := fmt.Sprintf("%s is paused%s (%s)", c.Name, untilWhen(lifecycle.Until), m.ControlPlaneProblem)
			return onHoldError{c.Kind(), lifecycle, why}
		case model.Deleting:
			if c.UID == m.ControlPlane.UID || len(m.CandidateControlPlanes) == 1 {
				return onHoldError{c.Kind(), lifecycle, c.Name + " is being deleted"}
			}
		default:
		}
	}
	return nil
}

func untilWhen(until time.Time) string {
	if until.IsZero() {
		return ", without an end"
	}
	return " until " + until.UTC().Format(time.RFC3339)
}

// lifecycle is what was logged of the HostedControlPlane, so that it is logged once.
type lifecycle struct{ held, warned lastLogged }

// log logs when reconciliation is put on hold or resumes, and what of the HostedControlPlane is ignored.
func (l *lifecycle) log(ctx context.Context, o observation, tokenExpires time.Time) {
	if unknown(o.mgmtProblem) {
		return
	}
	log := logr.FromContextOrDiscard(ctx)
	c := o.mgmt.ControlPlane
	if o.mgmt.ControlPlaneProblem == nil {
		if warnings := strings.Join(c.Warnings(), "; "); l.warned.isNew(warnings) && warnings != "" {
			log.Info("Some settings of the HostedControlPlane are ignored", "why", warnings)
		}
	}
	hold, held := o.hold.(onHoldError) //nolint:errorlint // set by onHoldBecause alone
	switch {
	case held:
		l.logHold(ctx, hold, tokenExpires)
	case l.held.logged && o.mgmt.ControlPlaneProblem == nil:
		log.Info("Reconciliation resumes", "kind", c.Kind())
		l.held = lastLogged{}
	}
}

// logHold logs why reconciliation is on hold, once.
func (l *lifecycle) logHold(ctx context.Context, hold onHoldError, tokenExpires time.Time) {
	if !l.held.isNew(hold.why) {
		return
	}
	details := []any{"kind", hold.kind, "why", hold.why}
	if !tokenExpires.IsZero() {
		details = append(details, "istiodTokenExpires", tokenExpires.UTC().Format(time.RFC3339))
	}
	logr.FromContextOrDiscard(ctx).Info("Reconciliation is on hold", details...)
}
