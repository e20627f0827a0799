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

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/mgmt"
)

// TestTheHostedControlPlaneHoldsUp: what ends a pass before anything is written, when the next one is due, and what is said of it, once.
func TestTheHostedControlPlaneHoldsUp(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(start)
	cfg := desired.Config{Topology: desired.TopologyHosted, MgmtNamespace: "clusters-guest1", Revision: "openshift-gateway"}
	cluster, err := mgmt.New(&rest.Config{Host: "https://127.0.0.1:1"}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{config: cfg, mgmt: cluster, clock: clock}
	var said bytes.Buffer
	ctx := logr.NewContext(t.Context(), logr.FromSlogHandler(slog.NewTextHandler(&said, nil)))

	plane := desired.ControlPlane{Name: "guest1", UID: "7f3a", Availability: desired.SingleReplica}
	with := func(edit func(*desired.ControlPlane)) desired.ControlPlane {
		out := plane
		edit(&out)
		return out
	}
	for _, step := range []struct {
		name  string
		plane desired.ControlPlane
		err   error
		doubt error
		held  bool
		again time.Duration
		says  string // in the log; empty: nothing new
	}{
		{name: "there is none", plane: desired.ControlPlane{}},
		{name: "an ordinary one", plane: plane},
		{name: "paused", plane: with(func(c *desired.ControlPlane) { c.PausedUntil = "true" }), held: true, says: "it is paused, without an end"},
		{name: "still paused", plane: with(func(c *desired.ControlPlane) { c.PausedUntil = "true" }), held: true},
		{name: "nobody knows", plane: desired.ControlPlane{}, err: mgmt.NotSyncedError{}},
		{name: "in doubt", plane: with(func(c *desired.ControlPlane) { c.PausedUntil = "true" }), doubt: errors.New("there are two"), held: true, says: "guest1 is paused, without an end (there are two)"},
		{name: "paused for a time", plane: with(func(c *desired.ControlPlane) { c.PausedUntil = "2026-11-21T12:30:00Z" }), held: true, again: 30 * time.Minute, says: "until 2026-11-21T12:30:00Z"},
		{name: "no more", plane: plane, says: "Reconciliation resumes"},
		{name: "what nobody can read", plane: with(func(c *desired.ControlPlane) { c.PausedUntil = "tomorrow" }), says: `neither true nor false`},
		{name: "still", plane: with(func(c *desired.ControlPlane) { c.PausedUntil = "tomorrow" })},
		{name: "being deleted", plane: with(func(c *desired.ControlPlane) { c.Deleting = true }), err: errors.New("no Secret may be read"), held: true, says: "it is being deleted"},
		{
			name: "a Cluster that is not up yet", plane: desired.ControlPlane{ReportedBy: desired.ClusterAPI, UID: "7f3b", Stage: desired.Uninitialized}, held: true,
			says: "kind=Cluster",
		},
		{name: "it is up", plane: desired.ControlPlane{ReportedBy: desired.ClusterAPI, UID: "7f3b"}, says: "Reconciliation resumes"},
		{name: "a Cluster that is paused", plane: desired.ControlPlane{ReportedBy: desired.ClusterAPI, UID: "7f3b", PausedUntil: desired.PausedForNow}, held: true, says: "it is paused"},
		{name: "without ingress", plane: with(func(c *desired.ControlPlane) { c.DisabledCapabilities = []string{"Ingress"} }), says: "Reconciliation resumes"},
	} {
		said.Reset()
		o := observation{now: clock.Now(), mgmtProblem: step.err}
		o.mgmt = desired.ManagementObservation{ControlPlane: step.plane, ControlPlaneProblem: step.doubt}
		if !unknown(step.err) {
			o.hold = onHoldBecause(o.mgmt, o.now)
		}
		r.reports.lifecycle.log(ctx, o, time.Time{})
		hold, held := newTestDecider(t).decide(o).(onHold)
		if held != step.held {
			t.Errorf("%s: on hold is %t: %v", step.name, held, o.hold)
		}
		if held {
			if got := r.reportHold(ctx, hold.cause); got != step.again {
				t.Errorf("%s: again after %s, want %s", step.name, got, step.again)
			}
		}
		if got := said.String(); step.says == "" && got != "" || !strings.Contains(got, step.says) {
			t.Errorf("%s: it says %q, want %q", step.name, got, step.says)
		}
	}
}

// TestHeldInDoubt: nobody knows which HostedControlPlane counts, or what one says, and any of them may be paused.
func TestHeldInDoubt(t *testing.T) {
	active := desired.ControlPlane{Name: "a", UID: "a", ReportedBy: desired.HyperShift}
	paused := desired.ControlPlane{Name: "b", UID: "b", PausedUntil: "true"}
	past := desired.ControlPlane{Name: "c", UID: "c", PausedUntil: start.Add(-time.Hour).Format(time.RFC3339)}
	going := desired.ControlPlane{Name: "d", UID: "d", Deleting: true}
	for name, tc := range map[string]struct {
		followed desired.ControlPlane
		doubted  []desired.ControlPlane
		held     bool
	}{
		"two that work":                      {active, []desired.ControlPlane{active, past}, false},
		"one of two is paused":               {active, []desired.ControlPlane{active, paused}, true},
		"one that cannot be read is paused":  {desired.ControlPlane{}, []desired.ControlPlane{paused}, true},
		"one that cannot be read is going":   {desired.ControlPlane{}, []desired.ControlPlane{going}, true},
		"the one that was followed is going": {going, []desired.ControlPlane{active, going}, true},
		"another is going":                   {active, []desired.ControlPlane{active, going}, false},
	} {
		err := onHoldBecause(desired.ManagementObservation{
			ControlPlane: tc.followed, CandidateControlPlanes: tc.doubted, ControlPlaneProblem: errors.New("there are two"),
		}, start)
		if (err != nil) != tc.held {
			t.Errorf("%s: %v", name, err)
		}
	}
}
