package controller

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
	"github.com/hypergate/hypergate/pkg/proxies"
	"github.com/hypergate/hypergate/pkg/rollout"
	"github.com/hypergate/hypergate/pkg/status"
)

// besideOrigin changes an observation to that of a guest with an istiod of its own, and a request on the Lease.
func besideOrigin(goal migration.Goal) func(*observation) {
	return func(o *observation) {
		o.mgmt.Istiod = model.Absent
		o.guest.Foreign.Istiods = []model.ForeignDeployment{{Name: "istiod-r"}}
		o.migration.record.Intent.Goal = goal
		o.migration.lease = model.MigrationLease{Name: "hypergate-migration-r", UID: "l-1", ResourceVersion: "7"}
	}
}

// deployed changes an observation to one with an istiod in a mode, ready where it is published.
func deployed(mode model.IstiodMode) func(*observation) {
	return func(o *observation) {
		o.mgmt.Istiod, o.mgmt.IstiodMode, o.migration.ready = model.Available, mode, true
	}
}

// originFacts returns what a guest shows of an istiod by the sail library, and of one Gateway that it has deployed.
func originFacts(edit func(*guest.MigrationFacts)) guest.MigrationFacts {
	gateway := migration.InventoryGateway{
		Class: "a", Address: "istiod-r.openshift-ingress.svc:15012", Root: "openshift-gw-ca-root-cert",
		Gateway: migration.Gateway{
			ForeignObject: model.ForeignObject{
				Key: types.NamespacedName{Namespace: "shop", Name: "web"}, UID: "g-1", ResourceVersion: "3",
			},
			Of: migration.OfOrigin, Programmed: true, Routes: 2,
			Deployment: model.GatewayDeployment{State: model.DeploymentComplete, Generation: 1, Wanted: 1, Ready: 1},
		},
	}
	out := guest.MigrationFacts{
		Checked: true, Trusted: true, Leader: "istiod-r-1", Pods: []string{"istiod-r-1"}, Blocking: []int{0},
		Origin: model.ForeignObject{
			Key: types.NamespacedName{Namespace: "openshift-ingress", Name: "istiod-r"}, UID: "d", ResourceVersion: "5",
		},
		Inventory: migration.Inventory{
			Revision: "r", Namespace: "openshift-ingress", Ours: migration.Version{Major: 1, Minor: 29, Patch: 2},
			Origin: migration.OriginFacts{Finalized: []string{"a"}, Deployment: &migration.OriginDeployment{
				Labels:  map[string]string{migration.ManagedByLabel: "sail-library", migration.HelmLabel: "Helm"},
				Version: migration.Version{Major: 1, Minor: 28, Patch: 5}, Wanted: 1, Ready: 1, Existing: 1,
			}},
			Gateways: []migration.InventoryGateway{gateway},
		},
	}
	if edit != nil {
		edit(&out)
	}
	return out
}

// readFacts adds a reading of the guest to an observation.
func readFacts(edit func(*guest.MigrationFacts)) func(*observation) {
	return func(o *observation) {
		facts := originFacts(edit)
		o.migration.reading = &migrationReading{facts: facts, checked: facts.Inventory, connected: map[types.UID]int64{}}
	}
}

// TestDecideBesideAnOrigin has a row for each mode of istiod beside an istiod of the guest, with and without a reading.
func TestDecideBesideAnOrigin(t *testing.T) {
	start, back := besideOrigin(migration.Forward), besideOrigin(migration.Backward)
	checkDecisions(t, []decisionCase{
		{
			name: "nothing requested", edit: []func(*observation){besideOrigin(migration.NoGoal)},
			want: "no plan, renew false, again 0s", problem: "istiod of the revision r",
		},
		{
			name: "not read yet", edit: []func(*observation){start},
			want: "no plan, renew false, again 0s", problem: "istiod of the revision r",
		},
		{
			name: "cannot be read", want: "no plan, renew false, again 0s", problem: "the guest cannot be checked: no answer",
			edit: []func(*observation){start, func(o *observation) { o.migration.unread = errors.New("no answer") }},
		},
		{name: "may begin", edit: []func(*observation){start, readFacts(nil)}, want: "converge, installed true, acquire 0"},
		{
			name: "blocked", want: "no plan, renew false, again 0s", problem: "SidecarsInUse: Namespace mesh",
			edit: []func(*observation){start, readFacts(func(f *guest.MigrationFacts) {
				f.Inventory.Sidecars = []migration.Object{{Kind: "Namespace", Name: "mesh"}}
			})},
		},
		{
			name: "what is there is not an origin", want: "no plan, renew false, again 0s", problem: "OriginMissing: Deployment",
			edit: []func(*observation){start, func(o *observation) {
				o.guest.Foreign = model.ForeignInstallations{Istios: []string{"openshift-gateway"}}
			}, readFacts(func(f *guest.MigrationFacts) { f.Inventory.Origin = migration.OriginFacts{} })},
			decider: func(d *decider) { d.config.ControllerName = "openshift.io/gateway-controller/v1" },
		},
		{
			name: "serves, without a reading", edit: []func(*observation){start, deployed(model.IstiodServing)},
			want: "converge, installed true, acquire 0",
		},
		{
			name: "the request was removed", want: "converge, installed true, acquire 0",
			edit: []func(*observation){besideOrigin(migration.NoGoal), deployed(model.IstiodLeading)},
		},
		{
			name: "alone, and an origin came", want: "no plan, renew true, again 0s", problem: "istiod of the revision r",
			edit: []func(*observation){start, deployed(model.IstiodAlone)},
		},
		{
			name: "alone, and an origin was read", edit: []func(*observation){start, deployed(model.IstiodAlone), readFacts(nil)},
			want: "converge, installed true, acquire 0",
		},
		{
			name: "rolled back", edit: []func(*observation){back, func(o *observation) { o.ownership = ownership.Unowned{} }},
			want: "no plan, renew false, again 0s", problem: "istiod of the revision r",
		},
		{
			name: "rolled back, and not everything is removed", edit: []func(*observation){back},
			want: "converge, installed false, acquire 0",
		},
		{
			name: "removed at the end of a rollback", want: "converge, installed false, acquire 0",
			edit: []func(*observation){back, deployed(model.IstiodServing), readFacts(nil)},
		},
	})
}

// TestAGuestWithoutAnOriginNeedsNoMigration checks that a request that stays on the Lease does not stop an
// installation.
func TestAGuestWithoutAnOriginNeedsNoMigration(t *testing.T) {
	d := newTestDecider(t)
	for _, goal := range []migration.Goal{migration.Forward, migration.Backward, migration.Retired} {
		step := d.decideMigration(d.observed(func(o *observation) {
			besideOrigin(goal)(o)
			o.guest.Foreign = model.ForeignInstallations{}
		}))
		if step.mode != model.IstiodAlone || step.step != nil {
			t.Errorf("%s: mode %q, step %v; want alone", goal, step.mode, step.step)
		}
	}
}

// TestClassDefaultsWaitBehindOthers checks that an istiod that leads has defaults of classes in the guest if the other
// istiod has some, and keeps them when those are gone. Changed ones are not written: the end of a migration would roll
// all Gateways at once.
func TestClassDefaultsWaitBehindOthers(t *testing.T) {
	d := newTestDecider(t)
	others := func(o *observation) {
		o.guest.OtherDefaults = []model.OtherDefaults{{Class: "a", ConfigMap: "openshift-ingress/o"}}
	}
	own := func(o *observation) { o.guest.AppliedTemplates = map[string]string{"a": ""} }
	for name, c := range map[string]struct {
		mode  model.IstiodMode
		edit  func(*observation)
		wants bool
	}{
		"leads, without others":  {model.IstiodLeading, func(*observation) {}, false},
		"leads, with others":     {model.IstiodLeading, others, true},
		"leads, others are gone": {model.IstiodLeading, own, true},
		"serves, with others":    {model.IstiodServing, others, false},
		"serves, with its own":   {model.IstiodServing, own, false},
	} {
		decided, is := d.decide(d.observed(func(o *observation) {
			besideOrigin(migration.Forward)(o)
			deployed(c.mode)(o)
			c.edit(o)
		})).(converge)
		if !is || (len(decided.plan.ClassTemplates) > 0) != c.wants {
			t.Errorf("%s: converges %t, class defaults %t", name, is, len(decided.plan.ClassTemplates) > 0)
		}
		e := &execution{Reconciler: &Reconciler{config: d.config}}
		var written []model.GuestObject
		for _, o := range e.withoutDefaults(decided.plan, decided.rollout.withheld()).Guest {
			if e.isDefaultsOf(o, "a") {
				written = append(written, o)
			}
		}
		if changed := name == "leads, others are gone"; (len(written) > 0) != (c.wants && !changed) {
			t.Errorf("%s: %d class defaults are written", name, len(written))
		}
	}
}

// TestARequestThatWasRemoved checks that the next step is one that the commands accept: without a request, a rollback
// is refused, and a start is not.
func TestARequestThatWasRemoved(t *testing.T) {
	d := newTestDecider(t)
	problem := d.decideMigration(d.observed(func(o *observation) {
		besideOrigin(migration.NoGoal)(o)
		deployed(model.IstiodLeading)(o)
	})).problem
	step, is := errors.AsType[status.SolvableError](problem)
	if !is || !strings.HasPrefix(step.Step, "start it again with hypergate migrate start") {
		t.Errorf("problem %v", problem)
	}
	if _, _, err := (migration.Record{}).After(migration.RequestStart, start); err != nil {
		t.Errorf("a start: %v", err)
	}
}

// TestAMigrationSuspendsRollouts checks that no rollout releases what a migration holds, and that one looks for holds
// after it.
func TestAMigrationSuspendsRollouts(t *testing.T) {
	d := newTestDecider(t)
	decided, is := d.decide(d.observed(func(o *observation) {
		besideOrigin(migration.Forward)(o)
		deployed(model.IstiodLeading)(o)
	})).(converge)
	if !is {
		t.Fatal("nothing is converged")
	}
	if _, changes := decided.rollout.step.(rollout.Change); !changes || !decided.rollout.memo.Holds {
		t.Errorf("step %#v, memo %#v: want a change, and a memo that expects holds", decided.rollout.step, decided.rollout.memo)
	}
}

// TestHoldsOfARollout checks that a migration that has nothing left to do does not release what a rollout holds, and
// that without an installation, a rollout releases what a migration holds.
func TestHoldsOfARollout(t *testing.T) {
	d := newTestDecider(t)
	d.rollout = rollout.Memo{Holds: true}
	parked := func(progress migration.Progress, why migration.Reason) func(*observation) {
		return func(o *observation) {
			besideOrigin(migration.Forward)(o)
			deployed(model.IstiodLeading)(o)
			readFacts(nil)(o)
			o.migration.record.Report = migration.Report{Intent: o.migration.record.Intent, Progress: progress, Why: why}
		}
	}
	for name, edit := range map[string]func(*observation){
		"parked":              parked(migration.Ended, migration.Parked),
		"waits for the owner": parked(migration.Waiting, migration.OriginExists),
		"waits for another":   parked(migration.Waiting, migration.ConflictExists),
		"in progress, without a class": func(o *observation) {
			parked(migration.Waiting, migration.GatewayRolling)(o)
			o.guest.Classes = nil
		},
	} {
		if step := d.decideMigration(d.observed(edit)); step.step != nil || step.active {
			t.Errorf("%s: step %#v, active %t", name, step.step, step.active)
		}
	}
	if step := d.decideMigration(d.observed(parked(migration.Waiting, migration.GatewayRolling))); step.step == nil || !step.active {
		t.Errorf("in progress: step %#v, active %t", step.step, step.active)
	}
}

// TestRelaysNeedTheRoots checks that a tunnel, whose relays cannot start without the roots, is not needed before the
// guest has the roots.
func TestRelaysNeedTheRoots(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		of            observedMigration
		trusted, want bool
	}{
		"it answers":                        {observedMigration{ready: true}, true, true},
		"it answers, without roots":         {observedMigration{ready: true}, false, true},
		"the guest has no roots":            {observedMigration{needsRoots: true}, false, true},
		"the guest has the roots":           {observedMigration{needsRoots: true}, true, false},
		"no tunnel, or it is not available": {observedMigration{}, false, false},
	} {
		if got := tc.of.isReady(tc.trusted); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestMigrationEvidence checks what a step follows from.
func TestMigrationEvidence(t *testing.T) {
	d, webhook := newTestDecider(t), model.ForeignObject{UID: "w", ResourceVersion: "7"}
	observed := d.observed(func(o *observation) {
		besideOrigin(migration.Forward)(o)
		deployed(model.IstiodLeading)(o)
		readFacts(func(f *guest.MigrationFacts) { f.Leader, f.Webhook = model.HostedIdentity+"istiod-r-9", webhook })(o)
	})
	observed.migration.reading.connected = map[types.UID]int64{"g-1": 1}
	got := migrationEvidence(observed, observed.migration.reading, migration.Waivers{})
	want := migration.Evidence{
		Origin: migration.Origin{Exists: true, Replicas: 1, Pods: 1, Ready: 1, Webhook: migration.WebhookBlocks, Validator: webhook},
		Hosted: migration.Hosted{Mode: migration.HostedLeading, Ready: true, Trusted: true}, Lock: migration.LockHosted,
	}
	gateways, findings, leftovers := got.Gateways, got.Findings, got.Leftovers
	got.Gateways, got.Findings, got.Leftovers = nil, nil, nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(leftovers) == 0 {
		t.Error("no leftovers")
	}
	if len(gateways) != 1 || !gateways[0].Connected || gateways[0].Of != migration.OfOrigin {
		t.Errorf("Gateways: %+v", gateways)
	}
	if len(findings) != 1 || findings[0].Code != migration.SinglePod {
		t.Errorf("findings: %+v", findings)
	}
	observed.migration.notAsked = true
	findings = migrationEvidence(observed, observed.migration.reading, migration.Waivers{Downgrade: true, Untested: true}).Findings
	if len(findings) != 2 || findings[0].Code != migration.AddressNotAsked || findings[0].Severity != migration.Blocker {
		t.Errorf("istiod is not asked: %+v", findings)
	}
}

// TestEvidenceOfAnOriginWithoutADeployment checks that an origin whose operator has not created it yet is not one that
// was scaled down.
func TestEvidenceOfAnOriginWithoutADeployment(t *testing.T) {
	d := newTestDecider(t)
	for name, of := range map[string]struct {
		edit func(*guest.MigrationFacts)
		want migration.Origin
	}{
		"deleted": {
			func(f *guest.MigrationFacts) { f.Inventory.Origin.Deployment = nil }, migration.Origin{Exists: true, Undeployed: true},
		},
		"not readable": {
			func(f *guest.MigrationFacts) {
				f.Inventory.Origin.Deployment, f.Inventory.Origin.NotReadable = nil, true
			},
			migration.Origin{Exists: true, NotReadable: true},
		},
		"gone": {func(f *guest.MigrationFacts) { f.Inventory.Origin = migration.OriginFacts{} }, migration.Origin{}},
	} {
		observed := d.observed(func(o *observation) {
			besideOrigin(migration.Backward)(o)
			deployed(model.IstiodServing)(o)
			readFacts(func(f *guest.MigrationFacts) { f.Blocking = nil; of.edit(f) })(o)
		})
		if got := migrationEvidence(observed, observed.migration.reading, migration.Waivers{}).Origin; got != of.want {
			t.Errorf("%s: %+v, want %+v", name, got, of.want)
		}
	}
}

// TestHolderOf checks that only the name of an existing pod of the origin counts as the origin's.
func TestHolderOf(t *testing.T) {
	t.Parallel()
	for leader, want := range map[string]migration.Lock{
		"": migration.LockFree, "istiod-r-1": migration.LockOrigin, "istiod-r-0": migration.LockFree,
		model.HostedIdentity + "istiod-r-1": migration.LockHosted,
	} {
		if got := holderOf(guest.MigrationFacts{Pods: []string{"istiod-r-1", "istiod-r-2"}}, leader); got != want {
			t.Errorf("%q: got %d, want %d", leader, got, want)
		}
	}
}

// TestConnectedGateways checks that each pod counts, with everything acknowledged.
func TestConnectedGateways(t *testing.T) {
	t.Parallel()
	facts := originFacts(func(f *guest.MigrationFacts) {
		f.Inventory.Gateways[0].Deployment.Wanted, f.Inventory.Gateways[0].Deployment.Generation = 2, 4
		f.GatewayPods = map[types.UID][]string{"g-1": {"web-1.shop", "web-2.shop"}}
	})
	state := func(states ...proxies.State) bool {
		p := proxies.Proxy{}
		for i, s := range states {
			p.Types = append(p.Types, proxies.Type{Name: []string{"Cluster", "Listener", "Secret"}[i], State: s})
		}
		return isSynced(p)
	}
	second := func(synced bool) map[string]bool { return map[string]bool{"web-1.shop": true, "web-2.shop": synced} }
	for name, of := range map[string]struct {
		synced map[string]bool
		want   map[types.UID]int64
	}{
		"both": {map[string]bool{"web-1.shop": true, "web-2.shop": true}, map[types.UID]int64{"g-1": 4}},
		"one":  {map[string]bool{"web-1.shop": true}, map[types.UID]int64{}},
		"stale": {
			map[string]bool{"web-1.shop": true, "web-2.shop": state(proxies.Synced, proxies.Stale)}, map[types.UID]int64{},
		},
		"nothing":          {map[string]bool{"web-1.shop": true, "web-2.shop": state()}, map[types.UID]int64{}},
		"nothing sent":     {second(state(proxies.NotSent, proxies.NotSent, proxies.NotSent)), map[types.UID]int64{}},
		"no listeners yet": {second(state(proxies.Synced, proxies.NotSent)), map[types.UID]int64{}},
		"only clusters":    {second(state(proxies.Synced)), map[types.UID]int64{}},
		"rejected":         {second(state(proxies.Synced, proxies.Synced, proxies.Rejected)), map[types.UID]int64{}},
		"not all types": {
			second(state(proxies.Synced, proxies.Synced, proxies.NotSent)), map[types.UID]int64{"g-1": 4},
		},
	} {
		if diff := cmp.Diff(of.want, connectedGateways(facts, of.synced)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestAReadingIsUsedOnce checks that a decision uses a reading once, and that the next one begins after the step.
func TestAReadingIsUsedOnce(t *testing.T) {
	d := newTestDecider(t)
	observed := d.observed(besideOrigin(migration.Forward))
	observed.mgmt.Migration.Annotations = map[string]string{migration.GoalAnnotation: string(migration.Forward)}
	m := migrationMemory{result: make(chan migrationReading, 1)}
	m.result <- migrationReading{facts: originFacts(nil), intent: migration.Intent{Goal: migration.Forward}}
	observed.migration = m.observe(observed, 0, false)
	if observed.migration.reading == nil || m.result != nil {
		t.Fatal("the reading was not taken")
	}
	step := d.decideMigration(observed)
	m.decide(step, observed.now)
	if act, is := step.step.(migration.Act); !is || act.Phase != migration.StandBy || step.mode != model.IstiodServing {
		t.Errorf("step %#v, mode %q: want the hosted istiod to serve", step.step, step.mode)
	}
	if wait := m.next.Sub(observed.now); wait != migrationAfterAct {
		t.Errorf("the next reading begins after %s", wait)
	}
	if observed.migration = m.observe(observed, 0, false); observed.migration.reading != nil {
		t.Error("the reading is used twice")
	}
	d.migrating = m.decided
	if step = d.decideMigration(observed); step.step != nil || step.mode != model.IstiodServing {
		t.Errorf("without a reading: step %#v, mode %q; want the mode of before", step.step, step.mode)
	}
}

// TestAReadingThatDoesNotCountIsDiscarded checks that nothing is kept of a reading that was ended early, or that began
// in an earlier session of the guest, and that another session begins without what was read before.
func TestAReadingThatDoesNotCountIsDiscarded(t *testing.T) {
	d := newTestDecider(t)
	observed := d.observed(besideOrigin(migration.Forward))
	observed.mgmt.Migration.Annotations = map[string]string{migration.GoalAnnotation: string(migration.Forward)}
	gateway, forward := map[types.UID]int64{"g-1": 1}, migration.Intent{Goal: migration.Forward}
	hosted := func(f *guest.MigrationFacts) { f.Inventory.Gateways[0].Of = migration.OfHosted }
	for name, of := range map[string]struct {
		reading migrationReading
		session uint64
		used    bool
		kept    int
		unread  error
	}{
		"counts": {migrationReading{facts: originFacts(hosted), connected: gateway, session: 2}, 2, true, 1, nil},
		"failed": {migrationReading{err: errors.New("no answer"), session: 2}, 2, false, 0, errors.New("no answer")},
		"ended early": {
			migrationReading{facts: originFacts(hosted), connected: gateway, session: 2, ended: errUnwanted}, 2, false, 0, nil,
		},
		"failed early":    {migrationReading{err: context.Canceled, session: 2, ended: errUnwanted}, 2, false, 0, nil},
		"earlier session": {migrationReading{facts: originFacts(hosted), connected: gateway, session: 2}, 3, false, 0, nil},
		"failed in it":    {migrationReading{err: errors.New("no answer"), session: 2}, 3, false, 0, nil},
	} {
		m := migrationMemory{result: make(chan migrationReading, 1), session: 2}
		of.reading.intent = forward
		m.result <- of.reading
		got := m.observe(observed, of.session, false)
		if (got.reading != nil) != of.used || len(m.connected) != of.kept || m.checkedAt.IsZero() == of.used || m.result != nil {
			t.Errorf("%s: reading %v, connected %v, checked at %s", name, got.reading, m.connected, m.checkedAt)
		}
		if fmt.Sprint(got.unread) != fmt.Sprint(of.unread) {
			t.Errorf("%s: unread because of %v, want %v", name, got.unread, of.unread)
		}
	}
	later := observed.now.Add(time.Hour)
	m := migrationMemory{
		session: 2, next: later, checkedAt: later, connected: gateway, unread: errors.New("no answer"), unreadSince: later,
		checked: originFacts(nil).Inventory, unasked: errors.New("no answer"),
		decided: decidedMode{decided: true, mode: model.IstiodLeading},
	}
	m.observe(observed, 3, false)
	want := migrationMemory{session: 3, decided: decidedMode{decided: true, mode: model.IstiodLeading}}
	if diff := cmp.Diff(fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", m)); diff != "" {
		t.Errorf("after another session began (-want +got):\n%s", diff)
	}
}

// TestUntilReading checks that a guest is read seldom while nothing is in progress.
func TestUntilReading(t *testing.T) {
	t.Parallel()
	for want, steps := range map[time.Duration][]migration.Step{
		migrationAfterAct: {migration.Act{Phase: migration.Hold}},
		migrationWaiting:  {migration.Wait{Why: migration.GatewayRolling}, migration.Wait{Why: migration.LockPending}},
		migrationStopped:  {migration.Stop{Why: migration.Blocked}, migration.Stop{Why: migration.GatewayFailed}},
		migrationAtRest: {
			migration.Rest{Why: migration.Parked},
			migration.Rest{Why: migration.Paused},
			migration.Wait{Why: migration.OriginExists},
			migration.Wait{Why: migration.ConflictExists},
		},
	} {
		for _, step := range steps {
			if got := untilReading(step); got != want {
				t.Errorf("%#v: %s, want %s", step, got, want)
			}
		}
	}
}

// TestAReadingThatIsNotComplete checks that only an origin without pods is started, and that the report keeps the
// Gateways.
func TestAReadingThatIsNotComplete(t *testing.T) {
	d := newTestDecider(t)
	same := func(*guest.MigrationFacts) {}
	for name, c := range map[string]struct {
		phase migration.Phase
		since time.Duration
		facts func(*guest.MigrationFacts)
		acts  bool
	}{
		"in time":  {migration.Lead, time.Second, same, false},
		"too late": {migration.Lead, 45 * time.Second, same, true},
		"the hosted istiod leads": {migration.Lead, time.Second, func(f *guest.MigrationFacts) {
			f.Leader = model.HostedIdentity + "istiod-r-9"
		}, true},
		"in Roll": {migration.Roll, time.Minute, same, false},
		"the origin has pods": {migration.Lead, time.Minute, func(f *guest.MigrationFacts) {
			f.Inventory.Origin.Deployment.Wanted = 1
		}, false},
		"nothing is known": {migration.Lead, time.Minute, func(f *guest.MigrationFacts) { f.Essential = false }, false},
	} {
		seen, step := decidedFromUnread(t, d, migration.Forward, c.phase, c.since, c.facts)
		want := migration.Step(nil)
		if c.acts {
			want = migration.Act{Phase: migration.Lead, Action: migration.ScaleOrigin{Replicas: 2}}
		}
		if diff := cmp.Diff(want, step.step); diff != "" || seen.unread == nil || step.mode != model.IstiodLeading {
			t.Errorf("%s: mode %s, unread: %v (-want +got):\n%s", name, step.mode, seen.unread, diff)
		}
		if c.acts && (step.facts.Origin.UID != "d" || step.report.Moving != 1 || len(step.report.Gateways) != 1) {
			t.Errorf("%s: %+v", name, step)
		}
		if c.acts && !cmp.Equal(step.memo, seen.record.Memo) {
			t.Errorf("%s: the Memo has changed: %+v", name, step.memo)
		}
	}
}

// TestAnotherGoalDoesNotDelayTheOrigin checks that an origin that has no pods for too long starts also if another goal
// was requested since, and the guest cannot be read completely. The times of the request begin with that step.
func TestAnotherGoalDoesNotDelayTheOrigin(t *testing.T) {
	d := newTestDecider(t)
	seen, step := decidedFromUnread(t, d, migration.Retired, migration.Lead, time.Minute, func(*guest.MigrationFacts) {})
	want := migration.Step(migration.Act{Phase: migration.Lead, Action: migration.ScaleOrigin{Replicas: 2}})
	if diff := cmp.Diff(want, step.step); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if step.memo.Since.IsZero() || step.report.Intent.Goal != migration.Retired || seen.record.Report.Intent.Goal != migration.Forward {
		t.Errorf("%+v, %+v", step.memo, step.report.Intent)
	}
}

// decidedFromUnread returns what is decided from a reading that has failed after those of the origin, which was scaled
// down some time ago. The report is about the goal Forward.
func decidedFromUnread(
	t *testing.T, d decider, goal migration.Goal, phase migration.Phase, since time.Duration, edit func(*guest.MigrationFacts),
) (observedMigration, migrationStep) {
	t.Helper()
	observed := d.observed(func(o *observation) {
		besideOrigin(migration.Forward)(o)
		deployed(model.IstiodLeading)(o)
	})
	memo, err := migration.Memo{Phase: phase, Replicas: 2, ScaledAt: observed.now.Add(-since)}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	report, err := migration.Report{
		Intent: migration.Intent{Goal: migration.Forward}, Phase: phase, Progress: migration.Waiting, Moving: 1,
		Gateways: []migration.ReportedGateway{{Namespace: "shop", Name: "web", State: migration.StateHeld}},
	}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	observed.mgmt.Migration.Annotations = map[string]string{
		migration.GoalAnnotation: string(goal), migration.MemoAnnotation: memo, migration.ReportAnnotation: report,
	}
	m := migrationMemory{result: make(chan migrationReading, 1)}
	facts := originFacts(func(f *guest.MigrationFacts) {
		f.Essential, f.Checked, f.Inventory.Gateways, f.Leader = true, false, nil, ""
		f.Inventory.Origin.Deployment.Wanted, f.Inventory.Origin.Deployment.Existing = 0, 0
		edit(f)
	})
	m.result <- migrationReading{facts: facts, err: errors.New("no answer")}
	observed.migration = m.observe(observed, 0, true)
	return observed.migration, d.decideMigration(observed)
}

// TestWhatOnlyThisProcessRemembers checks that the part of a Memo that is not on the Lease is that of the last step,
// until another session of the guest begins.
func TestWhatOnlyThisProcessRemembers(t *testing.T) {
	o := newTestDecider(t).observed(besideOrigin(migration.Forward))
	m, want := migrationMemory{}, migration.Unstored{Unneeded: true, Stayed: true}
	m.observe(o, 1, true)
	m.decide(migrationStep{step: migration.Rest{}, memo: migration.Memo{Unstored: want}}, o.now)
	if got := m.observe(o, 1, true).record.Memo.Unstored; got != want {
		t.Errorf("in the same session: %+v", got)
	}
	if got := m.observe(o, 2, true).record.Memo.Unstored; got != (migration.Unstored{}) {
		t.Errorf("in another session: %+v", got)
	}
}

// TestAStopDoesNotDelayTheOrigin checks that a guest is read often while proxies wait for their istiod, also if what
// blocks the migration is not removed.
func TestAStopDoesNotDelayTheOrigin(t *testing.T) {
	t.Parallel()
	away := func(f *guest.MigrationFacts) { f.Inventory.Origin.Deployment.Wanted = 0 }
	lead, unneeded := migration.Memo{Phase: migration.Lead}, migration.Memo{Phase: migration.Lead}
	unneeded.Unneeded = true
	for name, c := range map[string]struct {
		facts guest.MigrationFacts
		memo  migration.Memo
		want  time.Duration
	}{
		"it has no pods":   {originFacts(away), lead, migrationWaiting},
		"it serves":        {originFacts(nil), lead, migrationStopped},
		"it is not needed": {originFacts(away), unneeded, migrationStopped},
		"it is parked":     {originFacts(away), migration.Memo{Phase: migration.Park}, migrationStopped},
	} {
		m, now := migrationMemory{}, time.Now()
		m.decide(migrationStep{step: migration.Stop{Phase: c.memo.Phase}, memo: c.memo, facts: c.facts}, now)
		if got := m.next.Sub(now); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestAStepWhoseStateIsNotWritten checks what follows from it in the passes until it is decided again: istiod is not
// installed for it, and one that is installed is repaired as before.
func TestAStepWhoseStateIsNotWritten(t *testing.T) {
	t.Parallel()
	forbidden := errors.New("forbidden")
	last := unwrittenStep{err: forbidden, mode: model.IstiodLeading, active: true}
	for name, c := range map[string]struct {
		mode model.IstiodMode
		last unwrittenStep
		want migrationStep
	}{
		"it was written": {model.IstiodNone, unwrittenStep{}, migrationStep{mode: model.IstiodNone}},
		"istiod is absent": {
			model.IstiodNone, last,
			migrationStep{mode: model.IstiodLeading, active: true, unwritten: forbidden, withheld: true},
		},
		"istiod is there":       {model.IstiodServing, last, migrationStep{mode: model.IstiodServing, active: true, unwritten: forbidden}},
		"written, istiod there": {model.IstiodServing, unwrittenStep{}, migrationStep{mode: model.IstiodServing}},
	} {
		if got := (migrationStep{mode: c.mode}).continueWith(c.last); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestAnotherGoalForgetsFailures checks that another goal without a time of its own is another request: nothing that
// failed before it counts. It also holds for a step that follows from a reading that is not complete.
func TestAnotherGoalForgetsFailures(t *testing.T) {
	d := newTestDecider(t)
	for _, c := range []struct {
		name    string
		before  migration.Goal
		edit    func(*observation)
		forgets bool
	}{
		{"another goal", migration.Forward, func(*observation) {}, true},
		{"the same goal", migration.Backward, func(*observation) {}, false},
		{"not complete", migration.Forward, func(o *observation) {
			o.migration.reading.err = errors.New("no answer")
			o.migration.reading.facts.Inventory.Origin.Deployment.Wanted = 0
		}, true},
	} {
		step := d.decideMigration(d.observed(func(o *observation) {
			besideOrigin(migration.Backward)(o)
			deployed(model.IstiodServing)(o)
			readFacts(nil)(o)
			o.migration.record.Memo = migration.Memo{Phase: migration.Lead, Since: o.now, Failed: "g-1", FailedAt: o.now}
			o.migration.record.Report.Intent.Goal = c.before
			c.edit(o)
		}))
		if step.step == nil || (step.memo.Failed == "") != c.forgets {
			t.Errorf("%s: %#v, failed: %q", c.name, step.step, step.memo.Failed)
		}
	}
}

// TestAnotherRequestIsChecked checks that a request is never answered with what a check has found before it. A
// reading that began for another request is not used.
func TestAnotherRequestIsChecked(t *testing.T) {
	d := newTestDecider(t)
	observed := d.observed(besideOrigin(migration.Backward))
	deployed(model.IstiodServing)(&observed)
	observed.mgmt.Migration.Annotations = map[string]string{migration.GoalAnnotation: string(migration.Backward)}
	forward, backward := migration.Intent{Goal: migration.Forward}, migration.Intent{Goal: migration.Backward}
	blocked := originFacts(nil).Inventory
	blocked.Unread = []string{"list replicasets.apps"}
	m := migrationMemory{checked: blocked, checkedAt: observed.now, intent: forward, next: observed.now.Add(time.Minute)}
	read := func(i migration.Intent, checked bool) migrationStep {
		m.result = make(chan migrationReading, 1)
		m.result <- migrationReading{intent: i, facts: originFacts(func(f *guest.MigrationFacts) { f.Checked = checked })}
		seen := observed
		seen.migration = m.observe(observed, 0, true)
		return d.decideMigration(seen)
	}
	if step := read(forward, false); step.step != nil {
		t.Errorf("a reading of before the request: %#v", step.step)
	}
	m.answer(backward, observed.now)
	if question := m.question(observed, observed.now); !question.Check || m.next != observed.now {
		t.Errorf("after the request: %+v, at %s", question, m.next)
	}
	step := read(backward, true).step
	if _, stops := step.(migration.Stop); step == nil || stops {
		t.Errorf("after the check: %#v", step)
	}
	m.answer(backward, observed.now.Add(time.Second))
	if question := m.question(observed, observed.now.Add(time.Second)); question.Check {
		t.Error("the same request is checked again at once")
	}
}

// TestAReadingBeginsWithTheReleasedGateway checks that a reading is asked for the Gateway that was released last.
func TestAReadingBeginsWithTheReleasedGateway(t *testing.T) {
	d := newTestDecider(t)
	observed := d.observed(besideOrigin(migration.Forward))
	observed.migration.record.Memo.Released = "g-1"
	m := migrationMemory{published: model.HostPort{Host: "hosted", Port: 15012}}
	if got := m.question(observed, observed.now); got.Released != "g-1" || got.Published != "hosted:15012" || !got.Check {
		t.Errorf("%+v", got)
	}
}
