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

// What is told must have stood for a moment, so that a status does not come and go with each request that fails once; but what goes on changing is
// told, too, in time for an error to be there within five seconds.
const (
	steadyFor  = time.Second
	tellWithin = 3 * time.Second
	lookEvery  = 3 * time.Second
)

// planeReport is what was said, and is to be said, to the HostedControlPlane.
type planeReport struct {
	reporting Reporting
	says      Budget
	ailment   status.Ailment
	steady    Steady
	retry     Retry
}

func newPlaneReport(reporting Reporting) planeReport {
	return planeReport{reporting: reporting, says: NewBudget()}
}

// Steady is since when there is something to tell, and since when it is the same. The zero value: there is nothing.
type Steady struct {
	gist           string
	differs, since time.Time
}

// Wait is how long to wait before it is told; zero means now. An empty text means that there is nothing to tell.
func (s *Steady) Wait(gist string, now time.Time) time.Duration {
	if gist == "" {
		*s = Steady{}
		return 0
	}
	if s.differs.IsZero() {
		s.differs = now
	}
	if gist != s.gist {
		s.gist, s.since = gist, now
	}
	return max(0, min(s.since.Add(steadyFor).Sub(now), s.differs.Add(tellWithin).Sub(now)))
}

// reportOf is what a HostedControlPlane is told of a pass that ended with a report. refused is why there is no plan.
func (r *Reconciler) reportOf(p *pass, refused error) status.Result {
	out := p.result
	out.GuestTrouble, out.Kubeconfig, out.Rotation = r.guest.WatchTrouble(), kubeconfigProblem(r.guest.KubeconfigProblem()), string(p.hosted.Rotation.Phase)
	if len(p.result.Classes) > 0 {
		out.Token, out.Proof = r.mintErr, r.proof.err
	}
	if !r.guarded {
		out.Unseen = refused
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

// reportUnseen tells that a side is not known. A watch will tell when it is; what lasts is no event.
func (r *Reconciler) reportUnseen(ctx context.Context, p *pass, err error) {
	side := desired.SideGuest
	if _, is := errors.AsType[mgmt.NotSyncedError](err); is {
		side = desired.SideMgmt
	}
	r.tellControlPlanes(ctx, p, status.Result{Version: r.version, Unseen: err, UnseenSide: side, Kubeconfig: kubeconfigProblem(r.guest.KubeconfigProblem())})
}

// tellControlPlanes writes what a HostedControlPlane should say and does not. What fails is tried again, and nothing else depends on it. Its own write
// is an event, upon which there is nothing to tell.
func (r *Reconciler) tellControlPlanes(ctx context.Context, p *pass, report status.Result) {
	h, now := &r.planeReport, r.clock.Now()
	all := r.mgmt.Addressees()
	if h.reporting == ReportNothing || len(all) == 0 {
		return
	}
	if report.Blind() {
		p.again(lookEvery)
	}
	var again time.Duration
	report.APIServer = all[0].APIServer
	h.ailment, again = h.ailment.Ailing(report, now)
	p.again(again)

	var letters []letter
	gist := strings.Builder{}
	for _, to := range all {
		if l := h.letter(report, to, now); !status.Told(to.Conditions, l.conditions) {
			letters = append(letters, l)
			fmt.Fprintln(&gist, l.gist())
		}
	}
	wait := h.steady.Wait(gist.String(), now)
	if _, paused := report.Life.(desired.Paused); wait > 0 && !paused {
		p.again(wait)
		return
	}
	for _, l := range letters {
		if wait := max(h.retry.Wait(now), h.says.Wait(now)); wait > 0 {
			p.again(wait)
			return
		}
		if err := r.mgmt.Report(ctx, l.to, l.conditions); err != nil {
			p.again(h.retry.Failed(ctx, err, now))
			return
		}
		h.retry = Retry{}
		h.says.Spend(now)
	}
	h.steady = Steady{}
}

// letter is what one HostedControlPlane is to be told.
type letter struct {
	to         mgmt.Addressee
	conditions []metav1.Condition
}

func (h *planeReport) letter(report status.Result, to mgmt.Addressee, now time.Time) letter {
	report.APIServer = to.APIServer
	if report.Life == nil {
		report.Life = to.Phase(now)
	}
	if to.Deleting {
		report.Life = desired.Deleting{}
	}
	return letter{to, status.ControlPlane(report, h.ailment, to.Conditions, now)}
}

// gist is what it says, without times.
func (l letter) gist() string {
	out := strings.Builder{}
	for _, c := range l.conditions {
		fmt.Fprintln(&out, l.to.UID, c.Type, c.Status, c.Reason, c.Message)
	}
	return out.String()
}
