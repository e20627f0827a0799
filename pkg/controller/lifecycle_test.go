package controller

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/model"
)

// holdStep is what the management side shows, and whether reconciliation is on hold.
type holdStep struct {
	name  string
	plane model.ControlPlane
	err   error
	doubt error
	held  bool
	again time.Duration
	logs  string // empty: nothing
}

// holdSteps returns the states of the HostedControlPlane, or of the Cluster, one after the other.
func holdSteps() []holdStep {
	plane := model.ControlPlane{Name: "guest1", UID: "7f3a", Availability: model.SingleReplica}
	with := func(edit func(*model.ControlPlane)) model.ControlPlane {
		out := plane
		edit(&out)
		return out
	}
	return []holdStep{
		{name: "there is none", plane: model.ControlPlane{}},
		{name: "an ordinary one", plane: plane},
		{
			name: "paused", held: true, logs: "it is paused, without an end",
			plane: with(func(c *model.ControlPlane) { c.PausedUntil = "true" }),
		},
		{name: "still paused", plane: with(func(c *model.ControlPlane) { c.PausedUntil = "true" }), held: true},
		{name: "not known", plane: model.ControlPlane{}, err: mgmt.NotSyncedError{}},
		{
			name: "in doubt", doubt: errors.New("there are two"), held: true, logs: "guest1 is paused, without an end (there are two)",
			plane: with(func(c *model.ControlPlane) { c.PausedUntil = "true" }),
		},
		{
			name: "paused for a time", held: true, again: 30 * time.Minute, logs: "until 2026-11-21T12:30:00Z",
			plane: with(func(c *model.ControlPlane) { c.PausedUntil = "2026-11-21T12:30:00Z" }),
		},
		{name: "no more", plane: plane, logs: "Reconciliation resumes"},
		{
			name: "an invalid time", logs: `neither true nor false`,
			plane: with(func(c *model.ControlPlane) { c.PausedUntil = "tomorrow" }),
		},
		{name: "still", plane: with(func(c *model.ControlPlane) { c.PausedUntil = "tomorrow" })},
		{
			name: "being deleted", err: errors.New("no Secret may be read"), held: true, logs: "it is being deleted",
			plane: with(func(c *model.ControlPlane) { c.Deleting = true }),
		},
		{
			name: "a Cluster that is not up yet", held: true,
			plane: model.ControlPlane{ReportedBy: model.ClusterAPI, UID: "7f3b", Stage: model.Uninitialized},
			logs:  "kind=Cluster",
		},
		{name: "it is up", plane: model.ControlPlane{ReportedBy: model.ClusterAPI, UID: "7f3b"}, logs: "Reconciliation resumes"},
		{
			name: "a Cluster that is paused", held: true, logs: "it is paused",
			plane: model.ControlPlane{ReportedBy: model.ClusterAPI, UID: "7f3b", PausedUntil: model.PausedForNow},
		},
		{
			name: "without ingress", logs: "Reconciliation resumes",
			plane: with(func(c *model.ControlPlane) { c.DisabledCapabilities = []string{"Ingress"} }),
		},
	}
}

// TestHostedControlPlanePutsReconciliationOnHold checks which states of the HostedControlPlane put reconciliation on
// hold, when the next pass is due, and that the reason is logged once.
func TestHostedControlPlanePutsReconciliationOnHold(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(start)
	cfg := model.Config{Topology: model.TopologyHosted, MgmtNamespace: "clusters-guest1", Revision: "openshift-gateway"}
	cluster, err := mgmt.New(&rest.Config{Host: "https://127.0.0.1:1"}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{config: cfg, mgmt: cluster, clock: clock}
	r.reports.summary.board, r.reports.metrics = &board{leaseless: true}, *newTestExporter()
	var log bytes.Buffer
	ctx := logr.NewContext(t.Context(), logr.FromSlogHandler(slog.NewTextHandler(&log, nil)))
	for _, step := range holdSteps() {
		log.Reset()
		o := observation{now: clock.Now(), mgmtProblem: step.err}
		o.mgmt = model.ManagementObservation{ControlPlane: step.plane, ControlPlaneProblem: step.doubt}
		if !unknown(step.err) {
			o.hold = onHoldBecause(o.mgmt, o.now)
		}
		r.reports.lifecycle.log(ctx, o, time.Time{})
		hold, held := newTestDecider(t).decide(o).(onHold)
		if held != step.held {
			t.Errorf("%s: on hold is %t: %v", step.name, held, o.hold)
		}
		if held {
			if got := r.reportHold(ctx, hold.cause); got.requeue != step.again {
				t.Errorf("%s: again after %s, want %s", step.name, got.requeue, step.again)
			}
		}
		if got := log.String(); step.logs == "" && got != "" || !strings.Contains(got, step.logs) {
			t.Errorf("%s: it logs %q, want %q", step.name, got, step.logs)
		}
	}
}

// TestOnHoldWithAmbiguousControlPlanes checks the case that there are several HostedControlPlanes, or one that cannot
// be read in full. Any of them may be paused.
func TestOnHoldWithAmbiguousControlPlanes(t *testing.T) {
	active := model.ControlPlane{Name: "a", UID: "a", ReportedBy: model.HyperShift}
	paused := model.ControlPlane{Name: "b", UID: "b", PausedUntil: "true"}
	past := model.ControlPlane{Name: "c", UID: "c", PausedUntil: start.Add(-time.Hour).Format(time.RFC3339)}
	going := model.ControlPlane{Name: "d", UID: "d", Deleting: true}
	for name, tc := range map[string]struct {
		followed model.ControlPlane
		doubted  []model.ControlPlane
		held     bool
	}{
		"two that work":                      {active, []model.ControlPlane{active, past}, false},
		"one of two is paused":               {active, []model.ControlPlane{active, paused}, true},
		"one that cannot be read is paused":  {model.ControlPlane{}, []model.ControlPlane{paused}, true},
		"one that cannot be read is going":   {model.ControlPlane{}, []model.ControlPlane{going}, true},
		"the one that was followed is going": {going, []model.ControlPlane{active, going}, true},
		"another is going":                   {active, []model.ControlPlane{active, going}, false},
	} {
		err := onHoldBecause(model.ManagementObservation{
			ControlPlane: tc.followed, CandidateControlPlanes: tc.doubted, ControlPlaneProblem: errors.New("there are two"),
		}, start)
		if (err != nil) != tc.held {
			t.Errorf("%s: %v", name, err)
		}
	}
}
