package rollout_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/rollout"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// gateway returns a Gateway in a hold and a state. Its Deployment has one pod.
func gateway(name string, hold model.GatewayHold, state model.DeploymentState) model.Gateway {
	g := model.Gateway{
		ForeignObject: model.ForeignObject{
			Key: types.NamespacedName{Namespace: "shop", Name: name}, UID: types.UID("uid-" + name), ResourceVersion: "1",
		},
		Hold: hold,
	}
	if state != model.DeploymentMissing {
		g.Deployment = model.GatewayDeployment{State: state, Generation: 1, Wanted: 1}
	}
	return g
}

func free(name string) model.Gateway { return gateway(name, model.Free, model.DeploymentComplete) }
func held(name string) model.Gateway { return gateway(name, model.Held, model.DeploymentComplete) }

func known(list ...model.Gateway) model.ObservedGateways {
	return model.ObservedGateways{View: model.GatewaysKnown, List: list}
}

// with returns g with another number of pods, or another generation.
func with(g model.Gateway, edit func(*model.GatewayDeployment)) model.Gateway {
	edit(&g.Deployment)
	return g
}

// changing returns the evidence before istiod is changed from one configuration to another.
func changing(gateways model.ObservedGateways) rollout.Evidence {
	return rollout.Evidence{
		Now: start, Mode: model.OneByOne, Wanted: "new", Has: "old", Installed: true,
		Istiod: model.Available, Rollout: model.RolledOut, Gateways: gateways,
	}
}

// changed returns the evidence after istiod was changed.
func changed(gateways model.ObservedGateways) rollout.Evidence {
	e := changing(gateways)
	e.Has = e.Wanted
	return e
}

// afterOutage returns the evidence some time after an outage of the guest's API server.
func afterOutage(e rollout.Evidence, ago time.Duration) rollout.Evidence {
	e.Outage.EndedAt = e.Now.Add(-ago)
	return e
}

func edited(e rollout.Evidence, edit func(*rollout.Evidence)) rollout.Evidence {
	edit(&e)
	return e
}

// settled is the memo of a process that has known the Gateways for a minute.
func settled() rollout.Memo { return rollout.Memo{KnownSince: start.Add(-time.Minute)} }

// releasedFor returns the memo of a process that released a Gateway some time ago.
func releasedFor(name string, ago time.Duration) rollout.Memo {
	g := free(name)
	m := settled().AfterRelease(g, start.Add(-ago))
	m.WaitsFor, m.WaitsSince = g.UID, start.Add(-ago)
	return m
}

type row struct {
	evidence rollout.Evidence
	memo     rollout.Memo
	want     rollout.Step
}

func check(t *testing.T, rows map[string]row) {
	t.Helper()
	for name, r := range rows {
		if diff := cmp.Diff(r.want, rollout.Decide(r.evidence, r.memo.Before(r.evidence))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestBeforeIstiodChanges has a row for each state before istiod is changed.
func TestBeforeIstiodChanges(t *testing.T) {
	t.Parallel()
	view := func(v model.GatewayView) rollout.Evidence { return changing(model.ObservedGateways{View: v}) }
	late := rollout.Memo{HoldingSince: start.Add(-2 * time.Minute)}
	began := rollout.Memo{HoldingSince: start.Add(-time.Minute)}
	foreign := gateway("c", model.HeldByOther, model.DeploymentComplete)
	missing := gateway("d", model.Free, model.DeploymentMissing)
	check(t, map[string]row{
		"Gateways are not watched": {evidence: view(model.GatewaysUnwatched), want: rollout.Look{Before: true, Again: 2 * time.Minute}},
		"Gateways are being listed": {
			evidence: view(model.GatewaysListing), memo: began, want: rollout.Look{Before: true, Again: time.Minute},
		},
		"the list takes too long": {evidence: view(model.GatewaysListing), memo: late, want: rollout.Change{Limit: rollout.NotInTime}},
		"the list is forbidden":   {evidence: view(model.GatewaysForbidden), want: rollout.Change{Limit: rollout.NotAllowed}},
		"there are too many":      {evidence: view(model.GatewaysTooMany), want: rollout.Change{Limit: rollout.TooMany}},
		"no Gateway":              {evidence: changing(known()), want: rollout.Change{}},
		"nothing that could roll": {evidence: changing(known(foreign, missing)), want: rollout.Change{}},
		"some are held": {
			evidence: changing(known(held("a"), free("b"), foreign, missing)),
			want:     rollout.Hold{Gateways: []model.Gateway{free("b")}, Progress: rollout.Progress{Total: 2}},
		},
		"holding takes too long": {
			evidence: changing(known(held("a"), free("b"))), memo: late, want: rollout.Change{Limit: rollout.NotInTime},
		},
		"an outage interrupted holding": {
			evidence: afterOutage(changing(known(held("a"), free("b"))), time.Minute), memo: late,
			want: rollout.Hold{Gateways: []model.Gateway{free("b")}, Progress: rollout.Progress{Total: 2}},
		},
		"all are held": {evidence: changing(known(held("a"), held("b"))), want: rollout.Change{}},
		"a patch was forbidden": {
			evidence: changing(known(free("a"))), memo: rollout.Memo{Limit: rollout.NotAllowed, LimitOf: "new"},
			want: rollout.Change{Limit: rollout.NotAllowed},
		},
		"a patch was forbidden at an earlier change": {
			evidence: changing(known(free("a"))), memo: rollout.Memo{Limit: rollout.NotAllowed, LimitOf: "old"},
			want: rollout.Hold{Gateways: []model.Gateway{free("a")}, Progress: rollout.Progress{Total: 1}},
		},
		"all at once": {
			evidence: edited(changing(known(free("a"))), func(e *rollout.Evidence) { e.Mode = model.AllAtOnce }), want: rollout.Change{},
		},
		"the first installation": {
			evidence: edited(changing(known(free("a"))), func(e *rollout.Evidence) { e.Istiod, e.Has = model.Absent, "" }),
			want:     rollout.Change{},
		},
		"istiod of an earlier version": {
			evidence: edited(changing(known(free("a"))), func(e *rollout.Evidence) { e.Has = "" }),
			want:     rollout.Hold{Gateways: []model.Gateway{free("a")}, Progress: rollout.Progress{Total: 1}},
		},
		"istiod waits for its endpoint": {
			evidence: edited(changing(known(free("a"))), func(e *rollout.Evidence) { e.Wanted = "" }), want: rollout.Change{},
		},
	})
}

// TestAfterIstiodChanged has a row for each state after istiod was changed, except the wait for a Gateway.
func TestAfterIstiodChanged(t *testing.T) {
	t.Parallel()
	view := func(v model.GatewayView) rollout.Evidence { return changed(model.ObservedGateways{View: v}) }
	large := with(held("a"), func(d *model.GatewayDeployment) { d.Wanted = 3 })
	broken := gateway("b", model.Held, model.DeploymentStuck)
	rolling := func(e *rollout.Evidence) { e.Rollout = model.Rolling }
	unavailable := func(e *rollout.Evidence) { e.Istiod = model.Unavailable }
	refused := settled()
	refused.ForbiddenAt = start.Add(-20 * time.Second)
	check(t, map[string]row{
		"istiod rolls":          {evidence: edited(changed(known(held("a"))), rolling), want: rollout.Change{}},
		"istiod is unavailable": {evidence: edited(changed(known(held("a"))), unavailable), want: rollout.Change{}},
		"a process starts":      {evidence: view(model.GatewaysUnwatched), want: rollout.Look{}},
		"at rest":               {evidence: view(model.GatewaysUnwatched), memo: rollout.Memo{Checked: true}, want: rollout.Done{}},
		"listing is forbidden":  {evidence: view(model.GatewaysForbidden), want: rollout.Done{}},
		"it no longer may": {
			evidence: view(model.GatewaysForbidden), memo: rollout.Memo{Checked: true, Holds: true},
			want: rollout.Stop{Why: rollout.MayNotRelease, Again: time.Minute},
		},
		"too many Gateways since the hold": {
			evidence: changed(model.ObservedGateways{View: model.GatewaysTooMany, List: []model.Gateway{held("a")}}),
			want:     rollout.ReleaseAll{Gateways: []model.Gateway{held("a")}},
		},
		"no holds": {evidence: changed(known(free("a"))), want: rollout.Done{}},
		"the smallest that works comes first": {
			evidence: changed(known(large, broken, held("c"))), memo: settled(),
			want: rollout.Release{Gateway: held("c"), Progress: rollout.Progress{Total: 3}},
		},
		"one that did not work comes last": {
			evidence: changed(known(free("a"), broken)), memo: settled(),
			want: rollout.Release{Gateway: broken, Progress: rollout.Progress{Rolled: 1, Total: 2}},
		},
		"the release is forbidden": {
			evidence: changed(known(held("a"))), memo: refused,
			want: rollout.Stop{
				Why: rollout.MayNotRelease, Gateway: held("a"), Progress: rollout.Progress{Total: 1}, Again: 40 * time.Second,
			},
		},
		"all at once, with holds of an earlier process": {
			evidence: edited(changed(known(held("a"), held("b"))), func(e *rollout.Evidence) { e.Mode = model.AllAtOnce }),
			want:     rollout.ReleaseAll{Gateways: []model.Gateway{held("a"), held("b")}},
		},
		"uninstalled, istiod still runs": {
			evidence: edited(changed(known(held("a"))), func(e *rollout.Evidence) { e.Installed = false }), want: rollout.Change{},
		},
		"uninstalled": {
			evidence: edited(changed(known(held("a"))), func(e *rollout.Evidence) { e.Installed, e.Istiod = false, model.Absent }),
			want:     rollout.ReleaseAll{Gateways: []model.Gateway{held("a")}},
		},
		"uninstalled without holds": {
			evidence: edited(view(model.GatewaysUnwatched), func(e *rollout.Evidence) { e.Installed, e.Istiod = false, model.Absent }),
			want:     rollout.Done{},
		},
	})
}

// TestTheGuestDeniesARelease has a row for each state after the guest denied releases.
func TestTheGuestDeniesARelease(t *testing.T) {
	t.Parallel()
	denied := func(times int, names ...string) rollout.Memo {
		m := settled()
		m.Denied = map[types.UID]rollout.Denial{}
		for _, name := range names {
			m.Denied[held(name).UID] = rollout.Denial{Cause: "denied by a policy", At: start.Add(-20 * time.Second), Times: times}
		}
		return m
	}
	check(t, map[string]row{
		"the guest denies the release": {
			evidence: changed(known(held("a"), held("b"))), memo: denied(2, "a", "b"),
			want: rollout.Stop{
				Why: rollout.ReleaseDenied, Gateway: held("a"), Cause: "denied by a policy", Progress: rollout.Progress{Total: 2},
				Again: 40 * time.Second,
			},
		},
		"the guest denies the release of one": {
			evidence: changed(known(held("a"), held("b"))), memo: denied(2, "a"),
			want: rollout.Release{Gateway: held("b"), Progress: rollout.Progress{Total: 2}},
		},
		"a single denial can be an accident": {
			evidence: changed(known(held("a"))), memo: denied(1, "a"),
			want: rollout.Release{Gateway: held("a"), Progress: rollout.Progress{Total: 1}},
		},
		"it is not repeated at once": {
			evidence: edited(changed(known(held("a"))), func(e *rollout.Evidence) { e.Now = start.Add(-15 * time.Second) }),
			memo:     denied(1, "a"),
			want:     rollout.Wait{Progress: rollout.Progress{Total: 1}, Again: 10 * time.Second},
		},
		"the Gateway whose release was denied is gone": {
			evidence: changed(known(held("a"))), memo: denied(2, "b"),
			want: rollout.Release{Gateway: held("a"), Progress: rollout.Progress{Total: 1}},
		},
		"all at once, the guest denies the release of one": {
			evidence: edited(changed(known(held("a"), held("b"))), func(e *rollout.Evidence) { e.Mode = model.AllAtOnce }),
			memo:     denied(2, "a"), want: rollout.ReleaseAll{Gateways: []model.Gateway{held("b")}},
		},
		"all at once, the guest denies the release of all": {
			evidence: edited(changed(known(held("a"))), func(e *rollout.Evidence) { e.Mode = model.AllAtOnce }),
			memo:     denied(2, "a"),
			want: rollout.Stop{
				Why: rollout.ReleaseDenied, Gateway: held("a"), Cause: "denied by a policy", Again: 40 * time.Second,
			},
		},
	})
}

// TestATryThatTheGuestDeniesIsAStop checks what is reported after a release that the guest denies again: the conditions
// must not change at each try.
func TestATryThatTheGuestDeniesIsAStop(t *testing.T) {
	t.Parallel()
	evidence, denied := changed(known(held("a"))), map[types.UID]string{held("a").UID: "denied by a policy"}
	memo := settled()
	for i, want := range []bool{false, true, true} {
		step := rollout.Decide(evidence, memo)
		memo = memo.AfterPatches(evidence, step, nil, denied)
		if _, stops := memo.Tried(evidence, step).(rollout.Stop); stops != want {
			t.Errorf("try %d: %T is a stop: %t, want %t", i, memo.Tried(evidence, step), stops, want)
		}
		evidence.Now = evidence.Now.Add(time.Minute)
	}
	release := rollout.Release{Gateway: held("a")}
	memo = memo.AfterPatches(evidence, release, []types.UID{held("a").UID}, nil)
	if step := memo.Tried(evidence, release); step != release {
		t.Errorf("after a release that succeeds: %T, %v", step, memo.Denied)
	}
}

// TestAnotherClientHoldsAGatewayAgain plays a client that undoes each release. The third one counts: the other Gateways
// come first from then on, and a try follows once a minute. A hold by hypergate begins the count again.
func TestAnotherClientHoldsAGatewayAgain(t *testing.T) {
	t.Parallel()
	evidence, memo := changed(known(held("a"))), settled()
	release := rollout.Release{Gateway: held("a"), Progress: rollout.Progress{Total: 1}}
	stop := rollout.Stop{
		Why: rollout.HeldAgain, Gateway: held("a"), Progress: rollout.Progress{Total: 1}, Again: time.Minute,
	}
	released := func(step rollout.Step) rollout.Step {
		memo = memo.AfterPatches(evidence, step, []types.UID{held("a").UID}, nil)
		return memo.Tried(evidence, step)
	}
	for i, reported := range []rollout.Step{release, release, stop, stop} {
		if step := rollout.Decide(evidence, memo); !reflect.DeepEqual(step, release) {
			t.Fatalf("try %d: %+v", i, step)
		}
		if got := released(release); !reflect.DeepEqual(got, reported) {
			t.Errorf("try %d: reported %+v, want %+v", i, got, reported)
		}
		evidence.Now = evidence.Now.Add(time.Minute)
	}
	evidence.Now = evidence.Now.Add(-time.Second)
	stop.Again = time.Second
	if step := rollout.Decide(evidence, memo); !reflect.DeepEqual(step, stop) {
		t.Errorf("before the next try: %+v", step)
	}
	more := evidence
	more.Gateways = known(held("a"), held("b"))
	if step, releases := rollout.Decide(more, memo).(rollout.Release); !releases || step.Gateway.UID != held("b").UID {
		t.Errorf("with another held Gateway: %+v", step)
	}
	late := evidence
	late.Now = late.Now.Add(time.Hour)
	if after := memo.AfterPatches(late, release, []types.UID{held("a").UID}, nil); !reflect.DeepEqual(after.Tried(late, release), release) {
		t.Errorf("an hour later: %+v", after.Tried(late, release))
	}
	memo = memo.AfterPatches(evidence, rollout.Hold{}, []types.UID{held("a").UID}, nil)
	if got := released(release); !reflect.DeepEqual(got, release) {
		t.Errorf("after a hold: %+v", got)
	}
}

// TestGatewaysThatAreNotHeldSettle checks that five seconds pass between the end of istiod's rollout and the first
// release, if some Gateways were not held: istiod deploys these then. Nothing wakes hypergate while istiod rolls.
func TestGatewaysThatAreNotHeldSettle(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		gateways []model.Gateway
		waits    bool
	}{"all are held": {[]model.Gateway{held("a")}, false}, "one is not": {[]model.Gateway{free("b"), held("a")}, true}} {
		rolling := edited(changed(known(tc.gateways...)), func(e *rollout.Evidence) { e.Rollout = model.Rolling })
		memo := settled()
		memo = memo.After(rolling, rollout.Decide(rolling, memo))
		after := changed(known(tc.gateways...))
		after.Now = start.Add(30 * time.Second)
		memo = memo.Before(after)
		if _, waits := rollout.Decide(after, memo).(rollout.Wait); waits != tc.waits {
			t.Errorf("%s: %T", name, rollout.Decide(after, memo))
		}
		after.Now = after.Now.Add(5 * time.Second)
		if _, releases := rollout.Decide(after, memo.Before(after)).(rollout.Release); !releases {
			t.Errorf("%s, five seconds later: %T", name, rollout.Decide(after, memo.Before(after)))
		}
	}
}

// TestAProcessThatStartsWithoutIstiodLooksForHolds checks that a process which starts before istiod is installed looks
// for holds of an earlier process as soon as istiod runs.
func TestAProcessThatStartsWithoutIstiodLooksForHolds(t *testing.T) {
	t.Parallel()
	installed := changed(model.ObservedGateways{View: model.GatewaysUnwatched})
	without := edited(installed, func(e *rollout.Evidence) { e.Installed, e.Istiod = false, model.Absent })
	memo := rollout.Memo{}
	memo = memo.After(without, rollout.Decide(without, memo.Before(without)))
	if got := rollout.Decide(installed, memo.Before(installed)); got != (rollout.Look{}) {
		t.Errorf("the step after the installation is %#v, want %#v", got, rollout.Look{})
	}
}

// TestWaitForAReleasedGateway has a row for each state of the Gateway that was released last.
func TestWaitForAReleasedGateway(t *testing.T) {
	t.Parallel()
	one, none := rollout.Progress{Total: 2}, rollout.Progress{Rolled: 1, Total: 2}
	in := func(state model.DeploymentState) model.Gateway {
		return with(gateway("a", model.Free, state), func(d *model.GatewayDeployment) { d.Generation = 2 })
	}
	next := rollout.Release{Gateway: held("b"), Progress: none}
	check(t, map[string]row{
		"its Deployment has not changed yet": {
			evidence: changed(known(free("a"), held("b"))), memo: releasedFor("a", time.Second),
			want: rollout.Wait{Gateway: free("a"), Progress: one, Again: 4 * time.Second},
		},
		"its Deployment does not change": {
			evidence: changed(known(free("a"), held("b"))), memo: releasedFor("a", 5*time.Second), want: next,
		},
		"its pods are new": {
			evidence: changed(known(in(model.DeploymentComplete), held("b"))), memo: releasedFor("a", time.Second), want: next,
		},
		"its pods are not ready": {
			evidence: changed(known(in(model.DeploymentRolling), held("b"))), memo: releasedFor("a", time.Minute),
			want: rollout.Wait{Gateway: in(model.DeploymentRolling), Progress: one, Again: 14 * time.Minute},
		},
		"its pods are not ready for too long": {
			evidence: changed(known(in(model.DeploymentRolling), held("b"))), memo: releasedFor("a", 15*time.Minute),
			want: rollout.Stop{Why: rollout.PodsNotReady, Gateway: in(model.DeploymentRolling), Progress: one},
		},
		"its Deployment gave up": {
			evidence: changed(known(in(model.DeploymentStuck), held("b"))), memo: releasedFor("a", time.Minute),
			want: rollout.Stop{Why: rollout.PodsNotReady, Gateway: in(model.DeploymentStuck), Progress: one},
		},
		"it was stuck before, and has not changed yet": {
			evidence: changed(known(gateway("a", model.Free, model.DeploymentStuck), held("b"))), memo: releasedFor("a", time.Second),
			want: rollout.Wait{Gateway: gateway("a", model.Free, model.DeploymentStuck), Progress: one, Again: 4 * time.Second},
		},
		"it is the last one": {
			evidence: changed(known(in(model.DeploymentRolling))), memo: releasedFor("a", time.Minute),
			want: rollout.Wait{Gateway: in(model.DeploymentRolling), Progress: rollout.Progress{Total: 1}, Again: 14 * time.Minute},
		},
		"it is gone": {
			evidence: changed(known(held("b"))), memo: releasedFor("a", time.Second),
			want: rollout.Release{Gateway: held("b"), Progress: rollout.Progress{Total: 1}},
		},
		"its pods are new, and an outage ended half a minute ago": {
			evidence: afterOutage(changed(known(in(model.DeploymentComplete), held("b"))), 30*time.Second),
			memo:     releasedFor("a", time.Minute), want: rollout.Wait{AfterOutage: true, Progress: none, Again: 90 * time.Second},
		},
		"its pods are new, and an outage ended two minutes ago": {
			evidence: afterOutage(changed(known(in(model.DeploymentComplete), held("b"))), 2*time.Minute),
			memo:     releasedFor("a", 5*time.Minute), want: next,
		},
		"an outage kept its pods from becoming ready": {
			evidence: afterOutage(changed(known(in(model.DeploymentRolling), held("b"))), time.Minute),
			memo:     releasedFor("a", 15*time.Minute),
			want:     rollout.Wait{Gateway: in(model.DeploymentRolling), Progress: one, Again: 14 * time.Minute},
		},
		"a new process, and it rolls": {
			evidence: changed(known(in(model.DeploymentRolling), held("b"))), memo: settled(),
			want: rollout.Wait{Gateway: in(model.DeploymentRolling), Progress: one, Again: 15 * time.Minute},
		},
		"a new process, and it does not show yet": {
			evidence: changed(known(free("a"), held("b"))), want: rollout.Wait{Progress: none, Again: 5 * time.Second},
		},
		"a new process without holds, and another Gateway rolls": {
			evidence: changed(known(in(model.DeploymentRolling))), memo: settled(), want: rollout.Done{},
		},
	})
}

// TestAnAPIServerThatIsAwayAgainAndAgain checks that istiod is changed after ten minutes, although each outage gives
// holding its full time again.
func TestAnAPIServerThatIsAwayAgainAndAgain(t *testing.T) {
	t.Parallel()
	e, memo := changing(known(free("a"))), rollout.Memo{}
	for e.Now.Sub(start) < 10*time.Minute {
		memo = memo.Before(e)
		step := rollout.Decide(e, memo)
		if _, holds := step.(rollout.Hold); !holds {
			t.Fatalf("after %s: %T, want a hold", e.Now.Sub(start), step)
		}
		memo = memo.After(e, step)
		e.Now = e.Now.Add(time.Minute)
		e.Outage.EndedAt = e.Now
	}
	if diff := cmp.Diff(rollout.Step(rollout.Change{Limit: rollout.NotInTime}), rollout.Decide(e, memo.Before(e))); diff != "" {
		t.Errorf("after ten minutes (-want +got):\n%s", diff)
	}
}

// TestGatewaysThatClientsCreateOneAfterAnother checks that a tenant who replaces a Gateway that never becomes ready,
// under another identity each time, does not make the rollout wait without a report.
func TestGatewaysThatClientsCreateOneAfterAnother(t *testing.T) {
	t.Parallel()
	e, memo := changed(known(held("a"))), settled()
	for i := range 20 {
		created := free(fmt.Sprint("preview-", i))
		created.Deployment.State = model.DeploymentRolling
		e.Gateways = known(held("a"), created)
		memo = memo.Before(e)
		step := rollout.Decide(e, memo)
		if _, stops := step.(rollout.Stop); stops != (i >= 15) {
			t.Errorf("after %d minutes: %T", i, step)
		}
		memo = memo.After(e, step)
		e.Now = e.Now.Add(time.Minute)
	}
	e.Gateways = known(held("a"))
	if step, releases := rollout.Decide(e, memo.Before(e)).(rollout.Release); !releases {
		t.Errorf("without such a Gateway: %T", step)
	}
}
