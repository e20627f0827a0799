package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/throttle"
)

// newTestDecider returns a decider with the embedded charts and a CA that is made once.
func newTestDecider(t *testing.T) decider {
	t.Helper()
	source, err := charts.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	cfg := model.Config{
		Topology: model.TopologyHosted, MgmtNamespace: "clusters-guest1", GuestNamespace: "openshift-ingress",
		ControllerName: "example.com/c", Revision: "r",
		PilotImage: "registry.example.com/pilot:1", ProxyImage: "registry.example.com/proxyv2:1",
		XDS: model.HostPort{Host: "istiod.example.com", Port: 443}, WebhookHost: "gw-webhook-r.clusters-guest1.svc",
		NetworkPolicies: model.NoPolicies{}, IstioResources: model.LayeredProductResources(),
	}
	cfg.Publish.Strategy = model.PublishAddress
	ca, err := pki.New(start)
	if err != nil {
		t.Fatal(err)
	}
	return decider{
		config: cfg, plans: &planCache{planner: desired.NewPlanner(cfg, source)},
		newCA: func(time.Time) (pki.CA, error) { return ca, nil },
	}
}

// observed returns an observation of a guest with one class that this hypergate owns, changed by edit.
func (d decider) observed(edit func(*observation)) observation {
	o := observation{now: start, ownership: ownership.Owned{}}
	o.mgmt = model.ManagementObservation{
		NamespaceUID: "6a9e", Istiod: model.Available, API: model.MgmtAPI{Server: "https://management.example.com:6443"},
	}
	o.guest = model.GuestObservation{
		API: model.GuestAPI{Server: "https://guest.example.com:6443"}, Namespace: model.Present,
		Classes: []model.GatewayClass{{Name: "a"}}, CRDs: map[string]crds.Fact{},
	}
	o.credential, o.reached = model.Credential{Token: "t"}, true
	if edit != nil {
		edit(&o)
	}
	return o
}

// decisionText describes a decision in one line.
func decisionText(d decision) string {
	switch d := d.(type) {
	case onHold:
		return "hold: " + d.cause.why
	case waitForSync:
		return fmt.Sprintf("wait, renew %t", d.renew)
	case noPlan:
		after := failureOf(status.Result{PlanProblem: d.problem}, nil).after
		return fmt.Sprintf("no plan, renew %t, again %s", d.renew, after)
	case pruneManagement:
		return fmt.Sprintf("prune the management side, installed %t", d.plan.Installed)
	case converge:
		return fmt.Sprintf("converge, installed %t, acquire %d", d.plan.Installed, len(d.acquire))
	default:
		return fmt.Sprintf("unknown %T", d)
	}
}

// decisionCase is a row of a test: edits of an observation, and the decision that follows.
type decisionCase struct {
	name    string
	edit    []func(*observation)
	decider func(*decider)
	want    string
	problem string
}

// TestDecide has a row for each decision, and for each condition of the renewal of istiod's credential.
func TestDecide(t *testing.T) {
	unmanaged := func(o *observation) { o.guest.Mode = crds.Unmanaged }
	checkDecisions(t, []decisionCase{
		{name: "installed and owned", want: "converge, installed true, acquire 0"},
		{
			name: "no class", want: "converge, installed false, acquire 0",
			edit: []func(*observation){func(o *observation) { o.guest.Classes = nil }},
		},
		{name: "unmanaged", edit: []func(*observation){unmanaged}, want: "converge, installed false, acquire 0"},
		{
			name: "without ingress", want: "converge, installed false, acquire 0",
			edit: []func(*observation){func(o *observation) {
				o.mgmt.ControlPlane = model.ControlPlane{UID: "7f3a", DisabledCapabilities: []string{"Ingress"}}
			}},
		},
		{
			name: "not enabled", want: "converge, installed false, acquire 0",
			edit: []func(*observation){func(o *observation) { o.mgmt.ControlPlane.NotEnabled = true }},
		},
		{
			name: "two HostedControlPlanes", want: "no plan, renew true, again 0s", problem: "there are two",
			edit: []func(*observation){func(o *observation) { o.mgmt.ControlPlaneProblem = errors.New("there are two") }},
		},
	})
}

// TestDecideWithoutTheGuest has the rows for a guest that does not answer, or answers only in part.
func TestDecideWithoutTheGuest(t *testing.T) {
	failed := errors.New("no")
	unmanaged := func(o *observation) { o.guest.Mode = crds.Unmanaged }
	partly := func(o *observation) {
		o.guestProblem, o.missing, o.ownership = guest.NotSyncedError{Answers: true}, "leases", nil
	}
	elsewhere := func(o *observation) { o.reached = false }
	checkDecisions(t, []decisionCase{
		{
			name: "the guest does not answer", want: "wait, renew false",
			edit: []func(*observation){func(o *observation) { o.guestProblem = guest.NotSyncedError{} }},
		},
		{
			name: "the guest does not answer, and a pause", want: "wait, renew false",
			edit: []func(*observation){func(o *observation) {
				o.guestProblem, o.hold = guest.NotSyncedError{}, onHoldError{why: "paused"}
			}},
		},
		{
			name: "the guest lists a part", want: "wait, renew false",
			edit: []func(*observation){partly, func(o *observation) { o.missingFor = time.Second }},
		},
		{name: "the guest lists a part for long", edit: []func(*observation){partly}, want: "wait, renew true"},
		{name: "a part for long, another server", edit: []func(*observation){partly, elsewhere}, want: "wait, renew false"},
		{
			name: "a part for long, another server, and the Leases are ours", want: "wait, renew true",
			edit: []func(*observation){partly, elsewhere, func(o *observation) { o.claim = ownership.Owned{} }},
		},
		{
			name: "a part for long, and the Leases are of another", want: "wait, renew false",
			edit: []func(*observation){partly, func(o *observation) { o.claim = ownership.OwnedByOther{} }},
		},
		{name: "a part, unmanaged", edit: []func(*observation){partly, unmanaged}, want: "wait, renew false"},
		{
			name: "a part, without istiod", want: "wait, renew false",
			edit: []func(*observation){partly, func(o *observation) { o.mgmt.Istiod = model.Absent }},
		},
		{
			name: "a part, without a token", want: "wait, renew false",
			edit: []func(*observation){partly, func(o *observation) { o.credential = model.Credential{} }},
		},
		{
			name: "a part, the management side fails", want: "wait, renew false",
			edit: []func(*observation){partly, func(o *observation) { o.mgmtProblem = failed }},
		},

		{name: "on hold", edit: []func(*observation){func(o *observation) { o.hold = onHoldError{why: "paused"} }}, want: "hold: paused"},
		{
			name: "on hold, a part", want: "hold: paused",
			edit: []func(*observation){partly, func(o *observation) { o.hold = onHoldError{why: "paused"} }},
		},
	})
}

// TestDecideWhenReadsFail has the rows for reads that fail on either side.
func TestDecideWhenReadsFail(t *testing.T) {
	base := newTestDecider(t)
	unowned := ownership.Unowned{Missing: ownership.Leases(base.config)}
	failed := errors.New("no")
	unmanaged := func(o *observation) { o.guest.Mode = crds.Unmanaged }
	checkDecisions(t, []decisionCase{
		{
			name: "one cluster", want: "no plan, renew false, again 0s", problem: "management cluster itself",
			edit: []func(*observation){func(o *observation) { o.identityProblem, o.ownership = ErrSameCluster, nil }},
		},
		{
			name: "namespaces cannot be listed", want: "no plan, renew true, again 0s", problem: "no",
			edit: []func(*observation){func(o *observation) { o.identityProblem = failed }},
		},
		{
			name: "they cannot, on hold", want: "no plan, renew false, again 0s",
			edit: []func(*observation){func(o *observation) { o.identityProblem, o.hold = failed, onHoldError{} }},
		},
		{
			name: "they cannot, not owned", want: "no plan, renew false, again 0s",
			edit: []func(*observation){func(o *observation) { o.identityProblem, o.ownership = failed, unowned }},
		},
		{
			name: "they cannot, another server", want: "no plan, renew false, again 0s",
			edit: []func(*observation){func(o *observation) { o.identityProblem, o.reached = failed, false }},
		},
		{
			name: "they cannot, no token", want: "no plan, renew false, again 0s",
			edit: []func(*observation){func(o *observation) { o.identityProblem, o.credential = failed, model.Credential{} }},
		},

		{
			name: "the management side is not known", want: "wait, renew false",
			edit: []func(*observation){func(o *observation) { o.mgmtProblem = mgmt.NotSyncedError{} }},
		},
		{
			name: "it cannot be read", want: "no plan, renew true, again 0s", problem: "no",
			edit: []func(*observation){func(o *observation) { o.mgmtProblem = failed }},
		},
		{
			name: "it cannot be read, another server", want: "no plan, renew false, again 0s",
			edit: []func(*observation){func(o *observation) { o.mgmtProblem, o.ownership, o.reached = failed, nil, false }},
		},
		{
			name: "it cannot be read, another server, and the Leases are ours", want: "no plan, renew true, again 0s",
			edit: []func(*observation){func(o *observation) {
				o.mgmtProblem, o.ownership, o.claim, o.reached = failed, nil, ownership.Owned{}, false
			}},
		},
		{
			name: "it cannot be read, no token", want: "no plan, renew false, again 0s",
			edit: []func(*observation){func(o *observation) { o.mgmtProblem, o.credential = failed, model.Credential{} }},
		},
		{
			name: "it cannot be read, unmanaged", want: "no plan, renew false, again 0s",
			edit: []func(*observation){unmanaged, func(o *observation) { o.mgmtProblem = failed }},
		},
	})
}

// TestDecideOwnership has the rows for ownership Leases and conflicting controllers.
func TestDecideOwnership(t *testing.T) {
	base := newTestDecider(t)
	other := ownership.OwnedByOther{By: []ownership.LeaseOfOther{{
		Lease: ownership.Leases(base.config)[0], HeldLease: model.HeldLease{Holder: "x"},
	}}}
	unowned := ownership.Unowned{Missing: ownership.Leases(base.config)}
	failed := errors.New("no")
	unmanaged := func(o *observation) { o.guest.Mode = crds.Unmanaged }
	checkDecisions(t, []decisionCase{
		{
			name: "Leases cannot be listed", want: "no plan, renew true, again 0s",
			edit: []func(*observation){func(o *observation) { o.ownership = ownership.Unknown{Err: failed} }},
		},
		{
			name: "Leases cannot be listed, unmanaged", want: "prune the management side, installed false",
			edit: []func(*observation){unmanaged, func(o *observation) { o.ownership = ownership.Unknown{Err: failed} }},
		},
		{
			name: "owned by another", want: "no plan, renew false, again 0s", problem: "another hypergate",
			edit: []func(*observation){func(o *observation) { o.ownership = other }},
		},
		{
			name: "owned by another, no class", want: "prune the management side, installed false",
			edit: []func(*observation){func(o *observation) { o.ownership = other; o.guest.Classes = nil }},
		},
		{
			name: "a conflicting controller", want: "no plan, renew true, again 0s", problem: "istiod of the revision r",
			edit: []func(*observation){func(o *observation) { o.guest.Foreign.Istios = []string{"r"} }},
		},
		{
			name: "a conflicting controller, no class", want: "converge, installed false, acquire 0",
			edit: []func(*observation){func(o *observation) { o.guest.Foreign.Istios, o.guest.Classes = []string{"r"}, nil }},
		},
		{
			name: "unowned", want: "converge, installed true, acquire 2",
			edit: []func(*observation){func(o *observation) { o.ownership = unowned }},
		},
		{
			name: "unowned, no class", want: "converge, installed false, acquire 0",
			edit: []func(*observation){func(o *observation) { o.ownership, o.guest.Classes = unowned, nil }},
		},
		{
			name: "the other has just gone", want: "no plan, renew false, again 3s", problem: "another hypergate",
			edit: []func(*observation){func(o *observation) { o.ownership = unowned }},
			decider: func(d *decider) {
				d.standby = standby{}.after(d.config, other, start).after(d.config, unowned, start.Add(-2*time.Second))
			},
		},
		{
			name: "the other has gone", want: "converge, installed true, acquire 2",
			edit: []func(*observation){func(o *observation) { o.ownership = unowned }},
			decider: func(d *decider) {
				d.standby = standby{}.after(d.config, other, start).after(d.config, unowned, start.Add(-standbyTime))
			},
		},
		{
			name: "Leases are deleted again and again", want: "no plan, renew true, again 10s", problem: "deleted or released",
			edit: []func(*observation){func(o *observation) { o.ownership = unowned }},
			decider: func(d *decider) {
				d.acquiring = throttle.NewLimiter(throttle.Rate{Burst: 1, Every: acquireEvery})
				d.acquiring.Take(start)
			},
		},
		{
			name: "a CA that cannot be read", want: "no plan, renew true, again 0s", problem: "broken",
			edit: []func(*observation){func(o *observation) { o.mgmt.InvalidCA = errors.New("broken") }},
		},
	})
}

// TestDecideWithoutAClaim has the rows for a guest at another server than istiod's credential. Its token is renewed
// only where this hypergate holds the Leases: the guest can be one of another hypergate.
func TestDecideWithoutAClaim(t *testing.T) {
	base := newTestDecider(t)
	unowned := ownership.Unowned{Missing: ownership.Leases(base.config)}
	elsewhere := func(o *observation) { o.reached = false }
	free := func(o *observation) { o.ownership = unowned }
	conflict := func(o *observation) { o.guest.Foreign.Istios = []string{"r"} }
	broken := func(o *observation) { o.mgmt.InvalidCA = errors.New("broken") }
	const renewed, not = "no plan, renew true, again 0s", "no plan, renew false, again 0s"
	checkDecisions(t, []decisionCase{
		{
			name: "Leases cannot be listed", want: not,
			edit: []func(*observation){elsewhere, func(o *observation) { o.ownership = ownership.Unknown{Err: errors.New("no")} }},
		},
		{name: "a conflicting controller", edit: []func(*observation){elsewhere, free, conflict}, want: not},
		{name: "a conflicting controller, the same server", edit: []func(*observation){free, conflict}, want: renewed},
		{name: "a conflicting controller, owned", edit: []func(*observation){elsewhere, conflict}, want: renewed},
		{name: "a CA that cannot be read", edit: []func(*observation){elsewhere, free, broken}, want: not},
		{name: "a CA that cannot be read, owned", edit: []func(*observation){elsewhere, broken}, want: renewed},
		{
			name: "Leases are deleted again and again", want: "no plan, renew false, again 10s",
			edit: []func(*observation){elsewhere, free},
			decider: func(d *decider) {
				d.acquiring = throttle.NewLimiter(throttle.Rate{Burst: 1, Every: acquireEvery})
				d.acquiring.Take(start)
			},
		},
		{name: "unowned", edit: []func(*observation){elsewhere, free}, want: "converge, installed true, acquire 2"},
	})
}

func checkDecisions(t *testing.T, cases []decisionCase) {
	t.Helper()
	base := newTestDecider(t)
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			d := base
			if tc.decider != nil {
				tc.decider(&d)
			}
			got := d.decide(d.observed(func(o *observation) {
				for _, edit := range tc.edit {
					edit(o)
				}
			}))
			if text := decisionText(got); text != tc.want {
				t.Errorf("decided %q, want %q (%v)", text, tc.want, known{decision: got}.problem())
			}
			problem := (known{decision: got}).problem()
			if tc.problem != "" && (problem == nil || !strings.Contains(problem.Error(), tc.problem)) {
				t.Errorf("the problem is %v, want %q", problem, tc.problem)
			}
		})
	}
}

// TestStandbyEnds once the guest is ours: a Lease that is deleted later is acquired at once.
func TestStandbyEnds(t *testing.T) {
	d := newTestDecider(t)
	other := ownership.OwnedByOther{By: []ownership.LeaseOfOther{{Lease: ownership.Leases(d.config)[0]}}}
	unowned := ownership.Unowned{Missing: ownership.Leases(d.config)}
	for name, tc := range map[string]struct {
		seen []ownership.State
		want time.Duration
	}{
		"never owned by another":     {[]ownership.State{ownership.Owned{}, unowned}, 0},
		"owned by another":           {[]ownership.State{other, unowned}, standbyTime},
		"and not known in between":   {[]ownership.State{other, nil, unowned}, standbyTime},
		"and then by this one":       {[]ownership.State{other, ownership.Owned{}, unowned}, 0},
		"unowned before and after":   {[]ownership.State{unowned, other, unowned}, standbyTime},
		"unowned, acquired, deleted": {[]ownership.State{other, unowned, ownership.Owned{}, unowned}, 0},
	} {
		var s standby
		for _, o := range tc.seen {
			s = s.after(d.config, o, start)
		}
		if got := s.wait(start); got != tc.want {
			t.Errorf("%s: it waits for %s, want %s", name, got, tc.want)
		}
	}
}

// TestARefusedInstallationKeepsItsCA: a first installation that is refused again and again does not make a CA, or a
// plan, each time.
func TestARefusedInstallationKeepsItsCA(t *testing.T) {
	r := &Reconciler{}
	first, err := r.newCA(start)
	if err != nil {
		t.Fatal(err)
	}
	second, err := r.newCA(start)
	if err != nil || string(second.Cert) != string(first.Cert) {
		t.Errorf("another CA was made: %v", err)
	}
}

// TestDecideIsDeterministic checks that the same observation gives the same decision, and that the plan is not computed
// again.
func TestDecideIsDeterministic(t *testing.T) {
	d := newTestDecider(t)
	o := d.observed(nil)
	first, is := d.decide(o).(converge)
	if !is || !first.computed || !first.ca.changed {
		t.Fatalf("decided %+v", first)
	}
	second, is := d.decide(o).(converge)
	if !is || second.computed || len(second.plan.Guest) != len(first.plan.Guest) {
		t.Errorf("decided %+v", second)
	}
}

// TestAnUnusableCAIsReadAgain checks that an unusable CA is read again and not replaced.
func TestAnUnusableCAIsReadAgain(t *testing.T) {
	d := newTestDecider(t)
	got, is := d.decide(d.observed(func(o *observation) {
		o.mgmt.CA = pki.CA{Cert: []byte("x"), Key: []byte("x"), Chain: []byte("x"), Root: []byte("x")}
	})).(noPlan)
	if !is || !got.rereadCA || !got.renew {
		t.Errorf("decided %+v", got)
	}
}

// TestAFirstCAIsNotRotated checks that a request on the Lease that is older than the mesh CA is not for it.
func TestAFirstCAIsNotRotated(t *testing.T) {
	d := newTestDecider(t)
	d.ca.trusted = true
	o := d.observed(func(o *observation) {
		o.mgmt.CA, o.mgmt.Rotation, o.mgmt.LeaseRotationRequest = pki.CA{}, pki.Rotation{}, "an older one"
	})
	step, err := d.decideCA(o)
	if err != nil || !step.changed || step.rotation.Phase != pki.Steady || step.rotation.LeaseRequest != "an older one" {
		t.Errorf("%v: %+v", err, step.rotation)
	}
}

// TestRotationWaits checks that a rotation waits for istiod, for the objects that define the trusted roots, and for the
// guest's gateways.
func TestRotationWaits(t *testing.T) {
	d := newTestDecider(t)
	ca, err := pki.New(start)
	if err != nil {
		t.Fatal(err)
	}
	d.ca.overlap = time.Hour
	ca, spreading, err := pki.Rotation{}.Step(ca, start, pki.RotationOptions{Overlap: time.Hour, Request: "now"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name    string
		trusted bool
		edit    func(*observation)
		waits   string
		phase   pki.RotationPhase
		requeue time.Duration
	}{
		{
			name: "nothing requested", trusted: true, phase: pki.Steady, requeue: -1,
			edit: func(o *observation) { o.mgmt.Rotation = pki.Rotation{} },
		},
		{
			name: "requested", trusted: true, phase: pki.Spreading, requeue: firstRotationDelay,
			edit: func(o *observation) { o.mgmt.Rotation, o.mgmt.RotationRequest = pki.Rotation{}, "again" },
		},
		{
			name: "requested on the Lease", trusted: true, phase: pki.Spreading, requeue: firstRotationDelay,
			edit: func(o *observation) { o.mgmt.Rotation, o.mgmt.LeaseRotationRequest = pki.Rotation{}, "lease" },
		},
		{
			name: "requested, istiod rolls", trusted: true, phase: pki.Steady, waits: "rolled out",
			edit: func(o *observation) {
				o.mgmt.Rotation, o.mgmt.RotationRequest, o.mgmt.Rollout = pki.Rotation{}, "again", model.Rolling
			},
		},
		{name: "spreading, not applied", phase: pki.Spreading, waits: "to be applied"},
		{
			name: "spreading, not published", trusted: true, phase: pki.Spreading, waits: "istiod to publish",
			edit: func(o *observation) { o.roots = "istiod to publish the roots in the guest" },
		},
		{name: "spread now", trusted: true, phase: pki.Spreading, requeue: time.Hour},
		{
			name: "spread an hour ago", trusted: true, phase: pki.Settling, requeue: firstRotationDelay,
			edit: func(o *observation) { o.mgmt.Rotation.Effective = start.Add(-time.Hour) },
		},
		{name: "a CA of the user", trusted: true, phase: pki.Spreading, edit: func(o *observation) { o.mgmt.CAOwner = model.Theirs }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := d
			d.ca.trusted = tc.trusted
			o := d.observed(func(o *observation) {
				o.mgmt.CA, o.mgmt.Rotation, o.mgmt.RotationRequest = ca, spreading, "now"
				if tc.edit != nil {
					tc.edit(o)
				}
			})
			if o.mgmt.Rotation.Phase == pki.Steady && o.mgmt.RotationRequest == "now" {
				o.mgmt.RotationRequest = ""
			}
			step, err := d.decideCA(o)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(step.waitsFor, tc.waits) || (step.waitsFor == "") != (tc.waits == "") || step.rotation.Phase != tc.phase {
				t.Errorf("waits for %q in phase %q, want %q in %q", step.waitsFor, step.rotation.Phase, tc.waits, tc.phase)
			}
			if tc.requeue >= 0 && step.requeue != tc.requeue {
				t.Errorf("again after %s, want %s", step.requeue, tc.requeue)
			}
			if step.changed != (tc.waits == "" && tc.requeue > 0) {
				t.Errorf("changed is %t", step.changed)
			}
		})
	}
}

// TestAWaitingRotationIsLoggedOnce checks that it is logged once, and that the intervals between the checks grow.
func TestAWaitingRotationIsLoggedOnce(t *testing.T) {
	ctx, lines := counting(t)
	var waiting rotationDelay
	var delays []time.Duration
	for range 7 {
		delays = append(delays, waiting.log(ctx, caStep{waitsFor: "istiod"}, time.Hour, start))
	}
	if diff := cmp.Diff([]time.Duration{1e9, 2e9, 4e9, 5e9, 5e9, 5e9, 5e9}, delays); diff != "" || *lines != 1 {
		t.Errorf("%d lines; delays, -want +got:\n%s", *lines, diff)
	}
	waiting.log(ctx, caStep{waitsFor: "the guest"}, time.Hour, start)
	if *lines != 2 {
		t.Errorf("another cause is not logged: %d lines", *lines)
	}
	if got := waiting.log(ctx, caStep{}, time.Hour, start); got != 0 || waiting != (rotationDelay{}) {
		t.Errorf("nothing to wait for: %s, %+v", got, waiting)
	}
}

// TestReleasesThatFailAreRepeated checks that a request that fails once does not delay the conditions for minutes. One
// that the guest refuses is repeated rarely.
func TestReleasesThatFailAreRepeated(t *testing.T) {
	for want, err := range map[time.Duration]error{
		acquireEvery: fmt.Errorf("releasing the ownership Lease: %w", context.DeadlineExceeded),
		releaseRetry: fmt.Errorf("releasing the ownership Lease: %w", apierrors.NewForbidden(schema.GroupResource{}, "x", nil)),
	} {
		if got := releaseAgain(err); got != want {
			t.Errorf("%v: again after %s, want %s", err, got, want)
		}
	}
}

// TestReleaseIsLimited checks that hypergate does not write in a loop if the guest creates Leases in its name in a
// loop.
func TestReleaseIsLimited(t *testing.T) {
	d := newTestDecider(t)
	r := &Reconciler{config: d.config, memory: memory{releasing: throttle.NewLimiter(throttle.Rate{Burst: 1, Every: acquireEvery})}}
	r.memory.releasing.Take(start)
	o := d.observed(func(o *observation) { o.mgmt.Istiod = model.Absent })
	o.guest.Leases.Held = []model.HeldLease{{Name: ownership.Leases(d.config)[0].Name, Holder: ownership.Holders(d.config, o.mgmt)[0]}}
	e := newExecution(r, o)
	if e.release(t.Context(), desired.Plan{}); e.outcome.requeue != acquireEvery {
		t.Errorf("again after %s", e.outcome.requeue)
	}
	o.guest.Leases.Held = nil
	e = newExecution(r, o)
	if e.release(t.Context(), desired.Plan{}); e.outcome.requeue != 0 {
		t.Errorf("there is nothing to release, and it comes again in %s", e.outcome.requeue)
	}
}
