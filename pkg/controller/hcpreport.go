package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/status"
)

// Reporting is whether the HostedControlPlane is told how things stand.
type Reporting int

const (
	// ReportToControlPlane: it is, where there is one.
	ReportToControlPlane Reporting = iota
	// ReportNothing: it is never written to.
	ReportNothing
)

// lookEvery is how often it is looked at what the watches of a guest say that does not answer.
const lookEvery = 3 * time.Second

// hcpReporter is what was said, and is to be said, to the HostedControlPlanes.
type hcpReporter struct {
	reporting Reporting
	writes    budget
	degraded  status.DegradedSince
	debounce  debounce
	failure   unreported
}

// reportOf is what a HostedControlPlane is told of a pass that ended with a report.
func (r *Reconciler) reportOf(p *pass) status.Result {
	out := p.result
	out.GuestWatchProblem, out.KubeconfigProblem, out.Rotation = r.guest.WatchTrouble(), kubeconfigProblem(r.guest.KubeconfigProblem()), string(p.mgmt.Rotation.Phase)
	if len(p.result.Classes) > 0 {
		out.TokenProblem, out.WebhookProbe = r.tokens.err, r.webhookProbe.err
	}
	if !r.twoClusters {
		out.ObservationProblem = out.PlanProblem
	}
	return out
}

// kubeconfigProblem marks what of a guest kubeconfig that is not in use mostly ends by itself: its Secret is yet to be made, or HyperShift renews what is in it.
func kubeconfigProblem(err error) error {
	_, first := errors.AsType[guestconn.AwaitedError](err)
	_, none := errors.AsType[mgmt.NoKubeconfigError](err)
	if first && none || errors.Is(err, guestconn.ErrRefused) {
		return status.AwaitedError{Err: err}
	}
	return err
}

// reportToControlPlanes writes what a HostedControlPlane should say and does not. What fails is tried again, and nothing else depends on it. Its own write
// is an event, upon which there is nothing to tell.
func (r *Reconciler) reportToControlPlanes(ctx context.Context, p *pass, res status.Result) {
	h, now := &r.hcpReporter, r.clock.Now()
	all := r.mgmt.StatusTargets()
	if h.reporting == ReportNothing || len(all) == 0 {
		return
	}
	if res.GuestUnseen() {
		p.requeueAfter(lookEvery)
	}
	var again time.Duration
	res.APIServer = all[0].APIServer
	h.degraded, again = h.degraded.Observe(res, now)
	p.requeueAfter(again)

	letters, gist := h.pendingPatches(res, all, now)
	wait := h.debounce.wait(gist, now)
	if _, paused := res.Lifecycle.(desired.Paused); wait > 0 && !paused {
		p.requeueAfter(wait)
		return
	}
	for _, l := range letters {
		if wait := max(h.failure.wait(now), h.writes.wait(now)); wait > 0 {
			p.requeueAfter(wait)
			return
		}
		if err := r.mgmt.ReportConditions(ctx, l.to, l.conditions); err != nil {
			if ctx.Err() != nil {
				return // the pass has ended
			}
			p.requeueAfter(h.failure.log(ctx, err, now))
			return
		}
		h.failure = unreported{}
		h.writes.spend(now)
	}
	h.debounce = debounce{}
}

// pendingPatches are those to the HostedControlPlanes that do not say what they should, and what they say, without times.
func (h *hcpReporter) pendingPatches(res status.Result, all []mgmt.StatusTarget, now time.Time) ([]pendingPatch, string) {
	var letters []pendingPatch
	var gist strings.Builder
	for _, to := range all {
		l := h.patchFor(res, to, now)
		if status.Undated(to.Conditions, l.conditions) {
			continue
		}
		letters = append(letters, l)
		for _, c := range l.conditions {
			fmt.Fprintln(&gist, to.UID, c.Type, c.Status, c.Reason, c.Message)
		}
	}
	return letters, gist.String()
}

// pendingPatch is what one HostedControlPlane is to be told.
type pendingPatch struct {
	to         mgmt.StatusTarget
	conditions []metav1.Condition
}

func (h *hcpReporter) patchFor(res status.Result, to mgmt.StatusTarget, now time.Time) pendingPatch {
	res.APIServer = to.APIServer
	if res.Lifecycle == nil {
		res.Lifecycle = to.Lifecycle(now)
	}
	if to.Deleting {
		res.Lifecycle = desired.Deleting{}
	}
	return pendingPatch{to, status.ControlPlane(res, h.degraded, to.Conditions, now)}
}
