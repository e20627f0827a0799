package controller

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/metrics"
	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/publish"
	"github.com/hypergate/hypergate/pkg/rollout"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/summary"
)

// TestTheSummaryHasTheRolloutOfGateways checks the progress in the summary after each step of a rollout of gateways. It
// stays while the guest is not known.
func TestTheSummaryHasTheRolloutOfGateways(t *testing.T) {
	t.Parallel()
	web := model.Gateway{ForeignObject: model.ForeignObject{Key: types.NamespacedName{Namespace: "shop", Name: "web"}}}
	progress := rollout.Progress{Rolled: 3, Total: 12}
	for name, c := range map[string]struct {
		step rollout.Step
		want summary.Gateways
	}{
		"no step":     {nil, summary.Gateways{}},
		"done":        {rollout.Done{}, summary.Gateways{}},
		"look":        {rollout.Look{Before: true}, summary.Gateways{}},
		"change":      {rollout.Change{}, summary.Gateways{}},
		"release all": {rollout.ReleaseAll{Gateways: []model.Gateway{web}}, summary.Gateways{}},
		"hold": {
			rollout.Hold{Gateways: make([]model.Gateway, 7), Progress: rollout.Progress{Total: 12}},
			summary.Gateways{State: summary.GatewaysHolding, Done: 5, Total: 12},
		},
		"release": {
			rollout.Release{Gateway: web, Progress: progress},
			summary.Gateways{State: summary.GatewaysRolling, Done: 3, Total: 12, Gateway: "shop/web"},
		},
		"wait": {
			rollout.Wait{Gateway: web, Progress: progress},
			summary.Gateways{State: summary.GatewaysRolling, Done: 3, Total: 12, Gateway: "shop/web"},
		},
		"wait for none": {
			rollout.Wait{Progress: progress}, summary.Gateways{State: summary.GatewaysRolling, Done: 3, Total: 12},
		},
		"stop": {
			rollout.Stop{Gateway: web, Progress: progress},
			summary.Gateways{State: summary.GatewaysStopped, Done: 3, Total: 12, Gateway: "shop/web"},
		},
	} {
		s := summarizer{board: &board{leaseless: true}}
		res := status.Result{GatewayRollout: rollout.Report{Step: c.step}}
		if s.addPass(statement{res: res, now: start}); s.last.Gateways != c.want {
			t.Errorf("%s: %+v, want %+v", name, s.last.Gateways, c.want)
		}
		unseen := status.Result{ObservationProblem: errors.New("the guest has not been observed completely yet")}
		if s.addPass(statement{res: unseen, now: start}); s.last.Gateways != c.want {
			t.Errorf("%s: %+v while the guest is not known, want %+v", name, s.last.Gateways, c.want)
		}
		if s.addPass(statement{now: start}); s.last.Gateways != (summary.Gateways{}) {
			t.Errorf("%s: %+v after the rollout", name, s.last.Gateways)
		}
	}
}

// TestTheSummaryHasTheGuest checks what the summary says of the guest: its classes, who owns it, and how its API server
// answers.
func TestTheSummaryHasTheGuest(t *testing.T) {
	t.Parallel()
	var s summarizer
	classes := []model.GatewayClass{{Name: "a", Created: start.Add(time.Second)}, {Name: "b", Created: start}}
	for _, c := range []struct {
		state ownership.State
		want  string
	}{
		{ownership.Owned{}, summary.OwnerOurs},
		{nil, summary.OwnerOurs},
		{ownership.OwnedByOther{}, summary.OwnerAnother},
		{ownership.Unowned{}, summary.OwnerNone},
		{ownership.Unknown{}, ""},
	} {
		s.noteGuest(observation{ownership: c.state, guest: model.GuestObservation{Classes: classes}})
		if s.last.Owner != c.want || s.last.Class != "b" || s.last.Classes != 2 {
			t.Errorf("%T: %+v, want claim %q", c.state, s.last, c.want)
		}
	}
	if s.noteGuest(observation{}); s.last.Class != "" || s.last.Classes != 0 {
		t.Errorf("without a class: %+v", s.last)
	}
	for last, want := range map[metrics.LastAnswer]summary.GuestAPI{
		{}:                         {},
		{Ending: metrics.Answered}: {State: summary.APIAnswers},
		{Ending: metrics.Answered, Took: time.Microsecond}:        {State: summary.APIAnswers, Millis: 1},
		{Ending: metrics.Answered, Took: 12 * time.Millisecond}:   {State: summary.APIAnswers, Millis: 12},
		{Ending: metrics.Failed, Took: 12 * time.Millisecond}:     {State: summary.APIFails},
		{Ending: metrics.Unanswered, Took: 12 * time.Millisecond}: {State: summary.APISilent},
	} {
		if s.noteAnswer(last); s.last.GuestAPI != want {
			t.Errorf("%+v: %+v, want %+v", last, s.last.GuestAPI, want)
		}
	}
}

// TestTheSummaryHasTheOwnerOfTheCA checks that the summary says which CA hypergate does not rotate.
func TestTheSummaryHasTheOwnerOfTheCA(t *testing.T) {
	t.Parallel()
	ca, err := pki.New(start)
	if err != nil {
		t.Fatal(err)
	}
	for owner, byOther := range map[model.Owner]bool{model.Ours: false, model.Theirs: true} {
		var s summarizer
		s.board = &board{leaseless: true}
		s.note(model.Config{}, observation{mgmtSeen: true, mgmt: model.ManagementObservation{CA: ca, CAOwner: owner}}, noPlan{}, outcome{},
			model.Credential{})
		if s.last.CA.ByOther != byOther || s.last.CA.Phase != summary.PhaseSteady {
			t.Errorf("%v: %+v", owner, s.last.CA)
		}
	}
}

// TestTheSummaryHasTheBeginningOfAPause checks since when the summary says that the control plane is paused: since the
// first pass that saw it, also after a restart.
func TestTheSummaryHasTheBeginningOfAPause(t *testing.T) {
	t.Parallel()
	b := &board{} // nothing is written to the Lease between the passes
	pass := func(s *summarizer, lifecycle model.Lifecycle, at time.Time) time.Time {
		s.addPass(statement{res: status.Result{Lifecycle: lifecycle}, now: at})
		return s.last.PausedSince
	}
	first := summarizer{board: b}
	for i, step := range []struct {
		lifecycle model.Lifecycle
		want      time.Time
	}{
		{model.Active{}, time.Time{}},
		{model.Paused{}, start.Add(time.Minute)},
		{model.Paused{Until: start.Add(time.Hour)}, start.Add(time.Minute)},
		{model.Active{}, time.Time{}},
		{model.Paused{}, start.Add(4 * time.Minute)},
	} {
		if got := pass(&first, step.lifecycle, start.Add(time.Duration(i)*time.Minute)); !got.Equal(step.want) {
			t.Errorf("pass %d: %s, want %s", i, got, step.want)
		}
	}
	b.onLease = b.posted
	if got := pass(&summarizer{board: b}, model.Paused{}, start.Add(time.Hour)); !got.Equal(start.Add(4 * time.Minute)) {
		t.Errorf("after a restart: %s", got)
	}
	b.onLease = &summary.Summary{Lifecycle: summary.Paused, Time: start}
	if got := pass(&summarizer{board: b}, model.Paused{}, start.Add(time.Hour)); !got.Equal(start) {
		t.Errorf("after a version that does not write it: %s", got)
	}
	b.onLease = &summary.Summary{Lifecycle: summary.Active, Time: start}
	if got := pass(&summarizer{board: b}, model.Paused{}, start.Add(time.Hour)); !got.Equal(start.Add(time.Hour)) {
		t.Errorf("after a process that saw no pause: %s", got)
	}
}

// TestAPauseKeepsWhatAnEarlierProcessWrote checks the summary of a process that starts during a pause: what only a pass
// outside of the pause finds out is that of the process before. What the pause shows is current.
func TestAPauseKeepsWhatAnEarlierProcessWrote(t *testing.T) {
	t.Parallel()
	earlier := summary.Summary{
		Time: start, Lifecycle: summary.Active, Classes: 1, Class: "demo", Owner: summary.OwnerOurs,
		Conditions: []summary.Condition{{Type: summary.Available, Status: summary.True, Reason: status.ReasonAsExpected}},
		Istiod:     summary.Istiod{State: summary.IstiodServing, Since: start, Version: "1.28.3", Ready: 2, Wanted: 2},
		Published:  summary.Published{Strategy: "route", Address: "a:1", State: summary.PublishedReached},
		Webhook:    summary.Webhook{Policy: summary.WebhookFail, Since: start},
		CRDs:       summary.CRDs{Ours: 9, Blocked: 1},
		Gateways:   summary.Gateways{State: summary.GatewaysStopped, Done: 3, Total: 12, Gateway: "shop/web"},
	}
	unsynced := status.Result{ObservationProblem: errors.New("the guest has not been observed yet"), ObservationSide: model.SideGuest}
	for name, observed := range map[string]bool{"the guest is away": false, "the guest answers": true} {
		s := summarizer{board: &board{onLease: &earlier}}
		s.addPass(statement{res: unsynced, conditions: status.ControlPlane(unsynced, status.DegradedSince{}, nil, start), now: start})
		if got := s.last; !got.GuestUnobserved || got.CRDs != (summary.CRDs{}) {
			t.Errorf("%s: before the pause is known: %+v", name, got)
		}
		want := earlier
		if want.Istiod = (summary.Istiod{Version: "1.28.3"}); observed {
			s.noteGuest(observation{ownership: ownership.Unowned{}})
			s.last.Istiod = summary.Istiod{State: summary.IstiodUnavailable, Wanted: 2}
			want.Classes, want.Class, want.Owner = 0, "", summary.OwnerNone
			want.Istiod = summary.Istiod{State: summary.IstiodUnavailable, Since: start, Version: "1.28.3", Wanted: 2}
		}
		for range 2 {
			s.addPass(statement{res: status.Result{Lifecycle: model.Paused{}}, now: start.Add(time.Minute)})
			want.Time, want.Lifecycle, want.PausedSince = start.Add(time.Minute), summary.Paused, start.Add(time.Minute)
			if diff := cmp.Diff(want, s.last); diff != "" {
				t.Errorf("%s: -want +got:\n%s", name, diff)
			}
		}
		s.addPass(statement{now: start.Add(time.Hour)})
		s.last.CRDs = summary.CRDs{Ours: 8}
		s.addPass(statement{res: status.Result{Lifecycle: model.Paused{}}, now: start.Add(2 * time.Hour)})
		if got := s.last; got.CRDs.Ours != 8 || got.Gateways != (summary.Gateways{}) {
			t.Errorf("%s: after another pause: %+v", name, got)
		}
	}
}

// TestAFirstProcessInAPauseHasNothingToKeep checks the summary of a process that starts during a pause, on a Lease
// without a summary.
func TestAFirstProcessInAPauseHasNothingToKeep(t *testing.T) {
	t.Parallel()
	s := summarizer{board: &board{}}
	s.addPass(statement{res: status.Result{Lifecycle: model.Paused{}}, now: start})
	if got := s.last; !got.GuestUnobserved || got.Published != (summary.Published{}) {
		t.Errorf("%+v", got)
	}
	s.noteGuest(observation{})
	if s.addPass(statement{res: status.Result{Lifecycle: model.Paused{}}, now: start}); s.last.GuestUnobserved {
		t.Error("the guest was observed")
	}
}

// TestTheSummaryHasWhoRenewsTheCredential checks that a summary reports the renewal of hypergate's own credential.
func TestTheSummaryHasWhoRenewsTheCredential(t *testing.T) {
	t.Parallel()
	source, err := charts.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	for secret, want := range map[string]bool{"": false, "hypergate-service-account-kubeconfig": true} {
		s := newSummarizer(Options{Config: model.Config{RenewGuestKubeconfig: secret}, Source: source})
		if got := s.last.GuestCredentialRenewed; got != want {
			t.Errorf("%q: %v", secret, got)
		}
	}
}

// TestACredentialThatCannotBeRenewedIsNotRenewed checks that the summary on the Lease does not promise the renewal of a
// credential that hypergate cannot renew, such as a client certificate. The kubeconfig can be replaced at any time.
func TestACredentialThatCannotBeRenewedIsNotRenewed(t *testing.T) {
	t.Parallel()
	var problem error
	b := &board{
		posted:     &summary.Summary{Time: start, GuestCredentialRenewed: true},
		credential: func() (from, until time.Time) { return start, start.Add(time.Hour) },
		renewal:    func() error { return problem },
	}
	lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: new("hypergate-0")}}
	for _, problem = range []error{nil, errors.New("it is a client certificate"), nil} {
		b.addTo(lease)
		got, err := summary.Parse(lease.Annotations[summary.Annotation])
		if err != nil || got.GuestCredentialRenewed != (problem == nil) {
			t.Errorf("%v: renewed %v, %v", problem, got.GuestCredentialRenewed, err)
		}
	}
}

// TestASummaryIsNotBeforeTheLeaseWasAcquired checks the time of a summary of a process whose clock was ahead when it
// acquired the Lease. With an earlier time, it would count as that of a process before a restart.
func TestASummaryIsNotBeforeTheLeaseWasAcquired(t *testing.T) {
	t.Parallel()
	unlimited := func() (from, until time.Time) { return time.Time{}, time.Time{} }
	b := &board{posted: &summary.Summary{Time: start}, credential: unlimited}
	for _, ahead := range []time.Duration{-time.Hour, 0, time.Hour} {
		lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("hypergate-0"), AcquireTime: &metav1.MicroTime{Time: start.Add(ahead)},
		}}
		b.addTo(lease)
		got, err := summary.Parse(lease.Annotations[summary.Annotation])
		if want := start.Add(max(ahead, 0)); err != nil || !got.Time.Equal(want) {
			t.Errorf("acquired at %s: %s, want %s: %v", start.Add(ahead), got.Time, want, err)
		}
	}
}

// TestTheSummaryHasWhatWasProbed checks what the summary has of the published address: with a probe of this address, of
// another one, of the tunnel, and without one.
func TestTheSummaryHasWhatWasProbed(t *testing.T) {
	t.Parallel()
	at := model.HostPort{Host: "istiod.example.com", Port: 443}
	elsewhere := Probe{Via: "192.0.2.7:8443"}
	byAddress := model.Config{Topology: model.TopologyHosted, XDS: at}
	const given = "by --xds-address at istiod.example.com:443"
	byTunnel := model.Config{Topology: model.TopologyHosted, Publish: model.Publish{Strategy: model.PublishTunnel}}
	for name, c := range map[string]struct {
		cfg   model.Config
		probe Probe
		found status.EndpointProbe
		want  string
	}{
		"reached": {byAddress, Probe{}, status.EndpointReached(), given + ", reached"},
		"probing": {byAddress, elsewhere, status.EndpointProbing(), given + ", probing"},
		"reached elsewhere": {
			byAddress, elsewhere, status.EndpointReached(), given + ", reached at the probe's address",
		},
		"the same address":       {byAddress, Probe{Via: at.String()}, status.EndpointReached(), given + ", reached"},
		"reached by the tunnel":  {byTunnel, elsewhere, status.EndpointReached(), "by tunnel at istiod.example.com:443, reached"},
		"no probe":               {byAddress, Probe{Off: true}, status.EndpointReached(), given + ", not probed"},
		"no probe of the tunnel": {byTunnel, Probe{Off: true}, status.EndpointReached(), "by tunnel at istiod.example.com:443, not probed"},
		"unreached elsewhere": {
			byAddress, elsewhere, status.EndpointUnreached(model.SideMgmt, "no answer"),
			given + ", unreached at the probe's address",
		},
	} {
		s := summarizer{board: &board{leaseless: true}, probe: c.probe}
		plan := desired.Plan{Installed: true, Endpoint: publish.EndpointKnown{At: at}}
		s.last.Published = published(c.cfg, c.probe, model.ManagementObservation{}, converge{plan: plan})
		s.addPass(statement{res: status.Result{Endpoint: c.found, Istiod: model.Available}, now: start})
		if got := s.last.Published.Text(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if got := s.last.Published; got.ByOther != (got.Probe == elsewhere.Via) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestAnAddressIsNotReachedWithoutIstiod checks that the summary shows no result of the probe while istiod does not
// serve. hypergate does not probe then, so an address that never answered must not be shown as reached.
func TestAnAddressIsNotReachedWithoutIstiod(t *testing.T) {
	t.Parallel()
	at := model.HostPort{Host: "istiod.example.com", Port: 443}
	cfg := model.Config{Topology: model.TopologyHosted, XDS: at}
	plan := desired.Plan{Installed: true, Endpoint: publish.EndpointKnown{At: at}}
	for _, istiod := range []model.Availability{model.Absent, model.Unavailable} {
		s := summarizer{board: &board{leaseless: true}}
		s.last.Published = published(cfg, Probe{}, model.ManagementObservation{}, converge{plan: plan})
		s.addPass(statement{res: status.Result{Endpoint: status.EndpointReached(), Istiod: istiod}, now: start})
		if got := s.last.Published.State; got != summary.PublishedUnprobed {
			t.Errorf("%v: %q, want %q", istiod, got, summary.PublishedUnprobed)
		}
	}
}

// TestTheSummaryHasTheNameOfAGuestThatIsAway checks the name of the guest in the summary of a process that has not
// observed the management side yet. hypergate status selects by it.
func TestTheSummaryHasTheNameOfAGuestThatIsAway(t *testing.T) {
	t.Parallel()
	of := func(name string) mgmt.StatusTarget {
		return mgmt.StatusTarget{ControlPlane: model.ControlPlane{Name: name}}
	}
	earlier := &board{leaseless: true, onLease: &summary.Summary{Guest: "guest1"}}
	for name, c := range map[string]struct {
		board   *board
		targets []mgmt.StatusTarget
		want    string
	}{
		"nothing is known":              {&board{leaseless: true}, nil, ""},
		"a HostedControlPlane":          {&board{leaseless: true}, []mgmt.StatusTarget{of("guest2")}, "guest2"},
		"an earlier process":            {earlier, nil, "guest1"},
		"both":                          {earlier, []mgmt.StatusTarget{of("guest2")}, "guest2"},
		"more than one, and an earlier": {earlier, []mgmt.StatusTarget{of("guest2"), of("guest3")}, "guest1"},
	} {
		s := summarizer{board: c.board}
		if s.noteName(c.targets); s.last.Guest != c.want {
			t.Errorf("%s: %q, want %q", name, s.last.Guest, c.want)
		}
		s.noteControlPlane(model.ControlPlane{}, start) // it was removed meanwhile
		if s.noteName(c.targets); s.last.Guest != "" {
			t.Errorf("%s: %q after the management side was observed, want none", name, s.last.Guest)
		}
	}
}
