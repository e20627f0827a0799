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

// planes is what was said, and is to be said, to the HostedControlPlanes.
type planes struct {
	reporting  Reporting
	says       budget
	ailment    status.Ailment
	steady     steady
	unreported unreported
}

// reportOf is what a HostedControlPlane is told of a pass that ended with a report.
func (r *Reconciler) reportOf(p *pass) status.Result {
	out := p.result
	out.GuestTrouble, out.Kubeconfig, out.Rotation = r.guest.WatchTrouble(), kubeconfigProblem(r.guest.KubeconfigProblem()), string(p.hosted.Rotation.Phase)
	if len(p.result.Classes) > 0 {
		out.Token, out.Proof = r.tokens.err, r.proof.err
	}
	if !r.guarded {
		out.Unseen = out.Refused
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

// tellControlPlanes writes what a HostedControlPlane should say and does not. What fails is tried again, and nothing else depends on it. Its own write
// is an event, upon which there is nothing to tell.
func (r *Reconciler) tellControlPlanes(ctx context.Context, p *pass, res status.Result) {
	h, now := &r.planes, r.clock.Now()
	all := r.mgmt.Addressees()
	if h.reporting == ReportNothing || len(all) == 0 {
		return
	}
	if res.Blind() {
		p.again(lookEvery)
	}
	var again time.Duration
	res.APIServer = all[0].APIServer
	h.ailment, again = h.ailment.Ailing(res, now)
	p.again(again)

	letters, gist := h.letters(res, all, now)
	wait := h.steady.wait(gist, now)
	if _, paused := res.Life.(desired.Paused); wait > 0 && !paused {
		p.again(wait)
		return
	}
	for _, l := range letters {
		if wait := max(h.unreported.wait(now), h.says.wait(now)); wait > 0 {
			p.again(wait)
			return
		}
		if err := r.mgmt.Report(ctx, l.to, l.conditions); err != nil {
			if ctx.Err() != nil {
				return // the pass has ended
			}
			p.again(h.unreported.log(ctx, err, now))
			return
		}
		h.unreported = unreported{}
		h.says.spend(now)
	}
	h.steady = steady{}
}

// letters are those to the HostedControlPlanes that do not say what they should, and what they say, without times.
func (h *planes) letters(res status.Result, all []mgmt.Addressee, now time.Time) ([]letter, string) {
	var letters []letter
	var gist strings.Builder
	for _, to := range all {
		l := h.letter(res, to, now)
		if status.Told(to.Conditions, l.conditions) {
			continue
		}
		letters = append(letters, l)
		for _, c := range l.conditions {
			fmt.Fprintln(&gist, to.UID, c.Type, c.Status, c.Reason, c.Message)
		}
	}
	return letters, gist.String()
}

// letter is what one HostedControlPlane is to be told.
type letter struct {
	to         mgmt.Addressee
	conditions []metav1.Condition
}

func (h *planes) letter(res status.Result, to mgmt.Addressee, now time.Time) letter {
	res.APIServer = to.APIServer
	if res.Life == nil {
		res.Life = to.Phase(now)
	}
	if to.Deleting {
		res.Life = desired.Deleting{}
	}
	return letter{to, status.ControlPlane(res, h.ailment, to.Conditions, now)}
}
