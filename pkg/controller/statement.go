package controller

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/summary"
)

// statement is what a pass says to the management side: in the summary of the Lease, in the metrics, and in the
// conditions of a HostedControlPlane. Its conditions are computed once. Only their transition times differ, because
// each place has its own earlier conditions.
type statement struct {
	// given is the result of the pass, res the same with what is known of the HostedControlPlane.
	given, res status.Result
	conditions []metav1.Condition
	since      status.DegradedSince
	now        time.Time
}

// state returns the statement of a pass, and when a problem becomes Degraded without an event. Zero: never. targets are
// the HostedControlPlanes of the namespace.
func (r *reports) state(given status.Result, targets []mgmt.StatusTarget, now time.Time) (statement, time.Duration) {
	s, previous := statement{given: given, res: given, now: now}, conditionsOf(r.summary.board.shown())
	if len(targets) > 0 {
		s.res.APIServer = targets[0].APIServer
		if len(previous) == 0 {
			previous = targets[0].Conditions
		}
	}
	if len(targets) == 1 {
		s.res = resultFor(given, targets[0], now)
	}
	if s.res.Lifecycle == nil {
		s.res.Lifecycle = r.summary.lifecycle
	}
	var requeue time.Duration
	if r.degraded, requeue = r.degraded.Observe(s.res, now); s.res.GuestUnseen() {
		requeue = soonest(requeue, lookEvery)
	}
	s.since, s.conditions = r.degraded, status.ControlPlane(s.res, r.degraded, previous, now)
	return s, requeue
}

// noteShown adds to the summary what the watches show of the HostedControlPlane, or of the Cluster. A pass that does
// not know the guest does not observe the management side. Its report still needs the lifecycle: an API server that is
// not up yet needs no action.
func (r *Reconciler) noteShown(now time.Time) {
	shown := r.mgmt.CurrentControlPlane(r.reports.summary.plane).ControlPlane
	if !shown.Owns() {
		return
	}
	shown.NotEnabled, shown.RemovalID = r.config.NotEnabled, r.config.RemovalID
	r.reports.summary.noteControlPlane(shown, now)
}

// conditionsFor returns the conditions for a HostedControlPlane. Where there is one, they are those of the statement. A
// second one can have another lifecycle.
func (s statement) conditionsFor(to mgmt.StatusTarget) []metav1.Condition {
	res := resultFor(s.given, to, s.now)
	if res.Lifecycle == s.res.Lifecycle && res.APIServer == s.res.APIServer {
		return status.Dated(s.conditions, to.Conditions, s.now)
	}
	return status.ControlPlane(res, s.since, to.Conditions, s.now)
}

// forLease returns the statement for the summary. It also has why conditions could not be written to the
// HostedControlPlane, which that one cannot show.
func (s statement) forLease(unwritten apply.Cause, shown summary.Summary) statement {
	if unwritten.Class() != apply.NoCause {
		s.res.UnwrittenReport = unwritten
		s.conditions = status.ControlPlane(s.res, s.since, conditionsOf(shown), s.now)
	}
	return s
}

// resultFor returns a result with what is known of one HostedControlPlane.
func resultFor(res status.Result, to mgmt.StatusTarget, now time.Time) status.Result {
	res.APIServer = to.APIServer
	if res.Lifecycle == nil {
		res.Lifecycle = to.Lifecycle(now)
	}
	if to.Deleting {
		res.Lifecycle = model.Deleting{}
	}
	return res
}
