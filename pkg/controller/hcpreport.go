package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
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
	steadyFor   = time.Second
	tellWithin  = 3 * time.Second
	lookEvery   = 3 * time.Second
	longestWait = 30 * time.Second
)

// planeReport is what was said, and is to be said, to the HostedControlPlane.
type planeReport struct {
	reporting Reporting
	says      *rate.Limiter
	ailment   status.Ailment
	steady    Steady
	failing   string
	delay     time.Duration
}

func newPlaneReport(reporting Reporting) planeReport {
	return planeReport{reporting: reporting, says: rate.NewLimiter(rate.Every(sayEvery), sayBurst)}
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
func (r *Reconciler) reportOf(p *pass, refused error) status.Report {
	out := status.Report{
		Outcome: p.outcome, Version: r.version, GuestTrouble: r.guest.WatchTrouble(), Kubeconfig: r.guest.KubeconfigProblem(),
		Rotation: string(p.hosted.Rotation.Phase),
	}
	if len(p.outcome.Classes) > 0 {
		out.Token, out.Proof = r.mintErr, r.proof.err
	}
	if !r.guarded {
		out.Unseen = refused
	}
	return out
}

// reportUnseen tells that a side is not known. A watch will tell when it is; what lasts is no event.
func (r *Reconciler) reportUnseen(ctx context.Context, p *pass, err error) {
	side := desired.SideGuest
	if _, is := errors.AsType[mgmt.NotSyncedError](err); is {
		side = desired.SideMgmt
	}
	r.tellControlPlanes(ctx, p, status.Report{Version: r.version, Unseen: err, UnseenSide: side, Kubeconfig: r.guest.KubeconfigProblem()})
}

// tellControlPlanes writes what a HostedControlPlane should say and does not. What fails is tried again, and nothing else depends on it. Its own write
// is an event, upon which there is nothing to tell.
func (r *Reconciler) tellControlPlanes(ctx context.Context, p *pass, report status.Report) {
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
		if !h.says.AllowN(now, 1) {
			p.again(sayEvery)
			return
		}
		if p.again(h.failed(ctx, r.mgmt.Report(ctx, l.to, l.conditions))); h.failing != "" {
			return
		}
	}
	h.steady = Steady{}
}

// letter is what one HostedControlPlane is to be told.
type letter struct {
	to         mgmt.Addressee
	conditions []metav1.Condition
}

func (h *planeReport) letter(report status.Report, to mgmt.Addressee, now time.Time) letter {
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

// failed logs why a report could not be made, once, and says when to try again; zero when it was made.
func (h *planeReport) failed(ctx context.Context, err error) time.Duration {
	if err == nil {
		h.failing, h.delay = "", 0
		return 0
	}
	resource := schema.GroupResource{Group: "hypershift.openshift.io", Resource: "hostedcontrolplanes/status"}
	if why := apply.Classify(err, "patch", resource).String(); why != h.failing {
		logr.FromContextOrDiscard(ctx).Error(err, "Cannot report to the HostedControlPlane; trying again from time to time")
		h.failing = why
	}
	h.delay = min(max(2*h.delay, time.Second), longestWait)
	return h.delay
}
