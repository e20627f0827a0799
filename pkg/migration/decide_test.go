package migration_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

// situation is what a decision is made from. at is the evidence of a guest in the middle of a migration.
type situation struct {
	e    migration.Evidence
	i    migration.Intent
	memo migration.Memo
}

// before is a guest with two Gateways, before a migration that was requested.
func before() situation {
	return situation{
		e: migration.Evidence{
			Origin:   migration.Origin{Exists: true, Replicas: 1, Pods: 1, Ready: 1, Webhook: migration.WebhookBlocks},
			Hosted:   migration.Hosted{Mode: migration.HostedAbsent},
			Lock:     migration.LockOrigin,
			Gateways: []migration.Gateway{gateway("a", model.Free, migration.OfOrigin), gateway("b", model.Free, migration.OfOrigin)},
		},
		i: migration.Intent{Goal: migration.Forward},
	}
}

// held is the same with all Gateways held, and a hosted istiod in a mode.
func held(mode migration.HostedMode, lock migration.Lock) situation {
	s := before()
	s.e.Hosted, s.e.Lock = migration.Hosted{Mode: mode, Ready: true, Trusted: true}, lock
	for i := range s.e.Gateways {
		s.e.Gateways[i].Hold = model.Held
	}
	return s
}

// moved is the same with all Gateways at the hosted istiod.
func moved() situation {
	s := held(migration.HostedLeading, migration.LockHosted)
	for i := range s.e.Gateways {
		s.e.Gateways[i].Of, s.e.Gateways[i].Connected = migration.OfHosted, true
	}
	return s
}

// parked is the same after the origin was parked.
func parked() situation {
	s := moved()
	s.e.Origin = migration.Origin{Exists: true}
	for i := range s.e.Gateways {
		s.e.Gateways[i].Hold = model.Free
	}
	return s
}

// freed is a situation without holds.
func freed(s *situation) {
	for i := range s.e.Gateways {
		s.e.Gateways[i].Hold = model.Free
	}
}

// onItsWay is the phase Roll, with the first Gateway deployed by the hosted istiod.
func onItsWay() situation {
	return held(migration.HostedLeading, migration.LockHosted).with(func(s *situation) {
		s.memo = migration.Memo{Phase: migration.Roll, Since: ago(time.Minute), Released: "uid-a", ReleasedAt: ago(time.Minute), Routes: 2}
		s.e.Gateways[0].Of = migration.OfHosted
	})
}

func (s situation) with(edit func(*situation)) situation {
	s.e.Gateways = slices.Clone(s.e.Gateways)
	edit(&s)
	return s
}

func back(s *situation) { s.i.Goal = migration.Backward }

func only(name string) []model.ForeignObject {
	return []model.ForeignObject{gateway(name, model.Free, migration.OfNone).ForeignObject}
}

func blocking() []migration.Finding {
	return []migration.Finding{{Severity: migration.Blocker, Code: migration.OriginNewer}}
}

// tooMany are findings that say that the evidence is not complete.
func tooMany() []migration.Finding {
	return []migration.Finding{{Severity: migration.Blocker, Code: migration.TooManyGateways}}
}

// ago returns a time before the decision.
func ago(d time.Duration) time.Time { return start.Add(-d) }

type decisionCase struct {
	name string
	of   situation
	want migration.Step
}

func checkDecisions(t *testing.T, cases []decisionCase) {
	t.Helper()
	for _, c := range cases {
		got, _ := migration.Decide(c.of.e, c.of.i, c.of.memo, start)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		again, _ := migration.Decide(c.of.e, c.of.i, c.of.memo, start)
		if diff := cmp.Diff(got, again); diff != "" {
			t.Errorf("%s: a second decision differs:\n%s", c.name, diff)
		}
	}
}

// TestForwardUntilTheLockMoves checks the phases Check, StandBy, Hold and Lead.
func TestForwardUntilTheLockMoves(t *testing.T) {
	t.Parallel()
	b := before().e.Gateways
	serving := held(migration.HostedServing, migration.LockOrigin)
	leading := held(migration.HostedLeading, migration.LockOrigin)
	since := func(p migration.Phase, d time.Duration) migration.Memo {
		return migration.Memo{Phase: p, Since: ago(d)}
	}
	checkDecisions(t, []decisionCase{
		{"nothing is requested", situation{e: before().e}, migration.Rest{Phase: migration.Check, Why: migration.NotRequested}},
		{
			"paused", leading.with(func(s *situation) { s.i.Paused, s.memo.Phase = true, migration.Lead }),
			migration.Rest{Phase: migration.Lead, Why: migration.Paused},
		},
		{"paused while the lock moves: the origin starts again", leading.with(func(s *situation) {
			s.i.Paused, s.memo, s.e.Origin.Replicas = true, migration.Memo{Phase: migration.Lead, Replicas: 2}, 0
		}), migration.Act{Phase: migration.Lead, Action: migration.ScaleOrigin{Replicas: 2}}},
		{"the hosted istiod cannot be installed", before().with(func(s *situation) {
			s.memo = since(migration.StandBy, 11*time.Minute)
		}), migration.Stop{Phase: migration.StandBy, Why: migration.HostedNotReady}},
		{
			"blocked", before().with(func(s *situation) { s.e.Findings = blocking() }),
			migration.Stop{Phase: migration.Check, Why: migration.Blocked, Findings: blocking()},
		},
		{"a warning does not block", before().with(func(s *situation) {
			s.e.Findings = []migration.Finding{{Severity: migration.Warning}}
		}), migration.Act{Phase: migration.StandBy, Action: migration.SetHosted{Mode: migration.HostedServing}}},
		{
			"the hosted istiod starts", serving.with(func(s *situation) { s.e.Hosted.Ready = false }),
			migration.Wait{Phase: migration.StandBy, Why: migration.HostedNotReady, Again: 10 * time.Minute},
		},
		{"it does not become ready", serving.with(func(s *situation) {
			s.e.Hosted.Ready, s.memo = false, since(migration.StandBy, 11*time.Minute)
		}), migration.Stop{Phase: migration.StandBy, Why: migration.HostedNotReady}},
		{
			"blocked after it has started", serving.with(func(s *situation) { s.e.Findings = blocking() }),
			migration.Stop{Phase: migration.StandBy, Why: migration.Blocked, Findings: blocking()},
		},
		{
			"Gateways are held", serving.with(func(s *situation) { s.e.Gateways = b }),
			migration.Act{Phase: migration.Hold, Action: migration.HoldGateways{Gateways: append(only("a"), only("b")...)}},
		},
		{
			"holds are reverted", serving.with(func(s *situation) { s.e.Gateways, s.memo = b, since(migration.Hold, 3*time.Minute) }),
			migration.Stop{Phase: migration.Hold, Why: migration.NotHeld, Gateway: only("a")[0]},
		},
		{"all are held", serving, migration.Act{Phase: migration.Lead, Action: migration.SetHosted{Mode: migration.HostedLeading}}},
		{"the origin gives up the lock", leading, migration.Act{Phase: migration.Lead, Action: migration.ScaleOrigin{}}},
		{
			"not before the hosted istiod is ready", leading.with(func(s *situation) { s.e.Hosted.Ready = false }),
			migration.Wait{Phase: migration.Lead, Why: migration.HostedNotReady, Again: 10 * time.Minute},
		},
		{
			"not while a Gateway is free", leading.with(func(s *situation) { s.e.Gateways[0].Hold = model.Free }),
			migration.Act{Phase: migration.Hold, Action: migration.HoldGateways{Gateways: only("a")}},
		},
		{"without its roots, gateways cannot connect", leading.with(func(s *situation) {
			s.e.Lock, s.e.Hosted.Trusted = migration.LockHosted, false
		}), migration.Wait{Phase: migration.Lead, Why: migration.LockPending, Again: 25 * time.Second}},
		{"the origin has the lock for roots", leading.with(func(s *situation) {
			s.e.Lock, s.e.Hosted.Trusted, s.memo = migration.LockHosted, false, since(migration.Lead, time.Minute)
		}), migration.Act{Phase: migration.Lead, Action: migration.ScaleOrigin{}}},
		{
			"the lock is free", leading.with(func(s *situation) { s.e.Origin.Replicas, s.e.Lock = 0, migration.LockFree }),
			migration.Wait{Phase: migration.Lead, Why: migration.LockPending, Again: 45 * time.Second},
		},
		{"the lock does not come", leading.with(func(s *situation) {
			s.e.Origin.Replicas, s.e.Lock = 0, migration.LockFree
			s.memo = migration.Memo{Phase: migration.Lead, Since: ago(5 * time.Minute), ScaledAt: ago(2 * time.Minute), Replicas: 2}
		}), migration.Act{Phase: migration.Lead, Action: migration.ScaleOrigin{Replicas: 2}}},
		{
			"that stops the migration", leading.with(func(s *situation) { s.memo.LeadFailedAt = ago(time.Hour) }),
			migration.Stop{Phase: migration.Lead, Why: migration.LockPending},
		},
		{
			"until another request", leading.with(func(s *situation) { s.memo.LeadFailedAt, s.i.At = ago(time.Hour), ago(time.Minute) }),
			migration.Act{Phase: migration.Lead, Action: migration.ScaleOrigin{}},
		},
	})
}

// TestAWrongTimeOfARequest checks that the time of a request that is far ahead disables no limit.
func TestAWrongTimeOfARequest(t *testing.T) {
	t.Parallel()
	leading := held(migration.HostedLeading, migration.LockOrigin)
	checkDecisions(t, []decisionCase{
		{"a request of next year limits no time", leading.with(func(s *situation) {
			s.e.Origin.Replicas, s.e.Lock, s.i.At = 0, migration.LockFree, start.AddDate(1, 0, 0)
			s.memo = migration.Memo{Phase: migration.Lead, Since: ago(5 * time.Minute), ScaledAt: ago(2 * time.Minute), Replicas: 2}
		}), migration.Act{Phase: migration.Lead, Action: migration.ScaleOrigin{Replicas: 2}}},
		{"and tries nothing again", leading.with(func(s *situation) {
			s.memo.LeadFailedAt, s.i.At = ago(time.Hour), start.AddDate(1, 0, 0)
		}), migration.Stop{Phase: migration.Lead, Why: migration.LockPending}},
		{"one of a clock that is ahead does", leading.with(func(s *situation) {
			s.memo.LeadFailedAt, s.i.At = ago(time.Hour), start.Add(time.Minute)
		}), migration.Act{Phase: migration.Lead, Action: migration.ScaleOrigin{}}},
	})
}

// TestForwardWhileGatewaysMove checks the phases Lead and Roll.
func TestForwardWhileGatewaysMove(t *testing.T) {
	t.Parallel()
	leads, onItsWay := held(migration.HostedLeading, migration.LockHosted), onItsWay()
	a := only("a")[0]
	away := func(since time.Duration) func(*situation) {
		return func(s *situation) {
			s.e.Origin.Replicas = 0
			s.memo = migration.Memo{Phase: migration.Lead, Since: ago(time.Minute), ScaledAt: ago(since), Replicas: 2}
		}
	}
	checkDecisions(t, []decisionCase{
		{
			"the origin returns to serve", leads.with(func(s *situation) { s.e.Origin.Replicas, s.memo.Replicas = 0, 3 }),
			migration.Act{Phase: migration.Lead, Action: migration.ScaleOrigin{Replicas: 3}},
		},
		{
			"not before the hosted istiod publishes its roots", leads.with(away(8 * time.Second)),
			migration.Wait{Phase: migration.Lead, Why: migration.LockPending, Again: 17 * time.Second},
		},
		{"it publishes them", leads.with(away(8 * time.Second)).with(func(s *situation) {
			s.e.Publisher = migration.LockHosted
		}), migration.Act{Phase: migration.Lead, Action: migration.ScaleOrigin{Replicas: 2}}},
		{"it is not ready", leads.with(away(8 * time.Second)).with(func(s *situation) {
			s.e.Hosted.Ready = false
		}), migration.Act{Phase: migration.Lead, Action: migration.ScaleOrigin{Replicas: 2}}},
		{
			"it does not get that lock", leads.with(away(25 * time.Second)),
			migration.Act{Phase: migration.Lead, Action: migration.ScaleOrigin{Replicas: 2}},
		},
		{"an origin that writes status does not", leads.with(func(s *situation) {
			s.e.Origin.Replicas, s.e.Origin.Lead = 0, migration.WritesStatus
		}), migration.Act{Phase: migration.Roll, Action: migration.ReleaseGateways{Gateways: only("a")}}},
		{
			"it starts", leads.with(func(s *situation) { s.e.Origin.Ready = 0 }),
			migration.Wait{Phase: migration.Lead, Why: migration.OriginNotReady, Again: 90 * time.Second},
		},
		{
			"the smallest Gateway is first", leads.with(func(s *situation) { s.e.Gateways[0].Deployment.Wanted = 5 }),
			migration.Act{Phase: migration.Roll, Action: migration.ReleaseGateways{Gateways: only("b")}},
		},
		{
			"an annotation decides the order", leads.with(func(s *situation) { s.e.Gateways[0].Order = 1 }),
			migration.Act{Phase: migration.Roll, Action: migration.ReleaseGateways{Gateways: only("b")}},
		},
		{
			"blocked meanwhile", leads.with(func(s *situation) { s.e.Findings = blocking() }),
			migration.Stop{Phase: migration.Roll, Why: migration.Blocked, Findings: blocking()},
		},
		{"a released Gateway is waited for", onItsWay.with(func(s *situation) {
			s.e.Gateways[0].Of, s.e.Gateways[0].Hold = migration.OfOrigin, model.Free
		}), migration.Wait{Phase: migration.Roll, Why: migration.GatewayRolling, Gateway: a, Again: 9 * time.Minute}},
		{
			"it is held once it has the addresses", onItsWay.with(func(s *situation) { s.e.Gateways[0].Hold = model.Free }),
			migration.Act{Phase: migration.Roll, Action: migration.HoldGateways{Gateways: only("a")}},
		},
		{
			"its proxies are not connected", onItsWay,
			migration.Wait{Phase: migration.Roll, Why: migration.GatewayRolling, Gateway: a, Again: 9 * time.Minute},
		},
		{"holds are reverted again and again", onItsWay.with(func(s *situation) {
			s.e.Gateways[1].Hold, s.memo.Holds, s.memo.HoldsSince = model.Free, 10, ago(time.Hour)
		}), migration.Stop{Phase: migration.Roll, Why: migration.NotHeld, Gateway: only("b")[0]}},
		{"they count from the last request", onItsWay.with(func(s *situation) {
			s.e.Gateways[1].Hold, s.memo.Holds, s.memo.HoldsSince, s.i.At = model.Free, 10, ago(time.Hour), ago(time.Minute)
		}), migration.Act{Phase: migration.Roll, Action: migration.HoldGateways{Gateways: only("b")}}},
		{"not all Gateways are seen", moved().with(func(s *situation) {
			s.memo.Phase, s.e.Findings = migration.Roll, tooMany()
		}), migration.Stop{Phase: migration.Roll, Why: migration.Blocked, Findings: tooMany()}},
		{
			"the next one", onItsWay.with(func(s *situation) { s.e.Gateways[0].Connected = true }),
			migration.Act{Phase: migration.Roll, Action: migration.ReleaseGateways{Gateways: only("b")}},
		},
	})
}

// TestAfterAnOutage checks what waits after an outage of the guest's API server, and what gets its full time again.
func TestAfterAnOutage(t *testing.T) {
	t.Parallel()
	after := func(s situation, ended time.Duration) situation {
		return s.with(func(s *situation) { s.e.Outage.EndedAt = ago(ended) })
	}
	in := func(p migration.Phase) func(*situation) {
		return func(s *situation) { s.memo.Phase, s.memo.Since = p, ago(time.Minute) }
	}
	leads := held(migration.HostedLeading, migration.LockHosted).with(in(migration.Roll))
	leading := held(migration.HostedLeading, migration.LockOrigin).with(in(migration.Lead))
	settling := func(p migration.Phase, left time.Duration) migration.Step {
		return migration.Wait{Phase: p, Why: migration.GuestSettling, Again: left}
	}
	checkDecisions(t, []decisionCase{
		{"no Gateway is released", after(leads, 30*time.Second), settling(migration.Roll, 90*time.Second)},
		{
			"two minutes later, it is", after(leads, 2*time.Minute),
			migration.Act{Phase: migration.Roll, Action: migration.ReleaseGateways{Gateways: only("a")}},
		},
		{
			"none is released to go back",
			after(held(migration.HostedServing, migration.LockOrigin).with(back).with(in(migration.Lead)), time.Minute),
			settling(migration.Lead, time.Minute),
		},
		{"the origin keeps the lock", after(leading, time.Minute), settling(migration.Lead, time.Minute)},
		{"one on its way has ten minutes again", after(onItsWay().with(func(s *situation) {
			s.memo.ReleasedAt = ago(11 * time.Minute)
		}), 3*time.Minute), migration.Wait{
			Phase: migration.Roll, Why: migration.GatewayRolling, Gateway: only("a")[0], Again: 7 * time.Minute,
		}},
		{"holding has two minutes again", after(held(migration.HostedServing, migration.LockOrigin).with(func(s *situation) {
			s.e.Gateways, s.memo = before().e.Gateways, migration.Memo{Phase: migration.Hold, Since: ago(3 * time.Minute)}
		}), time.Minute), migration.Act{
			Phase: migration.Hold, Action: migration.HoldGateways{Gateways: append(only("a"), only("b")...)},
		}},
		{"but not for ever", after(onItsWay().with(func(s *situation) {
			s.memo.ReleasedAt = ago(30 * time.Minute)
		}), 3*time.Minute), migration.Act{Phase: migration.Roll, Action: migration.RestoreTemplate{Gateway: only("a")[0]}}},
		{"the pod template can still come back", after(onItsWay().with(func(s *situation) {
			s.memo.ReleasedAt, s.memo.Failed, s.memo.FailedAt = ago(30*time.Minute), "uid-a", ago(2*time.Minute)
		}), 30*time.Second), migration.Act{Phase: migration.Roll, Action: migration.RestoreTemplate{Gateway: only("a")[0]}}},
		{"the lock has no more time: proxies have no istiod", after(leading.with(func(s *situation) {
			s.e.Origin.Replicas, s.e.Lock = 0, migration.LockFree
			s.memo = migration.Memo{Phase: migration.Lead, Since: ago(5 * time.Minute), ScaledAt: ago(2 * time.Minute), Replicas: 2}
		}), time.Minute), migration.Act{Phase: migration.Lead, Action: migration.ScaleOrigin{Replicas: 2}}},
	})
}

// TestForwardWithoutArrival checks what becomes of a Gateway that does not move.
func TestForwardWithoutArrival(t *testing.T) {
	t.Parallel()
	leads, onItsWay := held(migration.HostedLeading, migration.LockHosted), onItsWay()
	a := only("a")[0]
	late := func(s *situation) { s.memo.ReleasedAt = ago(11 * time.Minute) }
	checkDecisions(t, []decisionCase{
		{"one that has arrived is not judged again", onItsWay.with(func(s *situation) {
			late(s)
			s.memo.Arrived, s.e.Gateways[0].Routes = true, 0
		}), migration.Act{Phase: migration.Roll, Action: migration.ReleaseGateways{Gateways: only("b")}}},
		{"a release that has no effect", leads.with(func(s *situation) {
			s.memo = migration.Memo{Phase: migration.Roll, Released: "uid-a", ReleasedAt: ago(11 * time.Minute)}
		}), migration.Stop{Phase: migration.Roll, Why: migration.GatewayFailed, Gateway: a}},
		{"a pod template that does not come back", onItsWay.with(func(s *situation) {
			late(s)
			s.memo.Failed, s.memo.FailedAt = "uid-a", ago(2*time.Minute)
		}), migration.Stop{Phase: migration.Roll, Why: migration.GatewayFailed, Gateway: a}},
		{"it does not arrive", onItsWay.with(late), migration.Act{Phase: migration.Roll, Action: migration.RestoreTemplate{Gateway: a}}},
		{"no istiod deploys it", onItsWay.with(func(s *situation) {
			late(s)
			s.e.Gateways[0].Of, s.e.Gateways[0].Hold = migration.OfOrigin, model.Free
		}), migration.Act{Phase: migration.Roll, Action: migration.HoldGateways{Gateways: only("a")}}},
		{"it lost routes", onItsWay.with(func(s *situation) {
			late(s)
			s.e.Gateways[0].Connected, s.e.Gateways[0].Routes = true, 1
		}), migration.Stop{Phase: migration.Roll, Why: migration.FewerRoutes, Gateway: a}},
		{
			"it is not tried again", leads.with(func(s *situation) { s.memo.Failed, s.memo.FailedAt = "uid-a", ago(time.Hour) }),
			migration.Stop{Phase: migration.Roll, Why: migration.GatewayFailed, Gateway: a},
		},
		{"it is left out", leads.with(func(s *situation) {
			s.memo.Failed, s.memo.FailedAt, s.e.Gateways[0].Skip = "uid-a", ago(time.Hour), true
		}), migration.Act{Phase: migration.Roll, Action: migration.ReleaseGateways{Gateways: only("b")}}},
		{"another client holds it", moved().with(func(s *situation) {
			s.e.Gateways[0].Of, s.e.Gateways[0].Hold = migration.OfOrigin, model.HeldByOther
		}), migration.Stop{Phase: migration.Roll, Why: migration.HeldByOther, Gateway: a}},
		{"only skipped ones are left", moved().with(func(s *situation) {
			s.e.Gateways[0].Of, s.e.Gateways[0].Skip = migration.OfOrigin, true
		}), migration.Rest{Phase: migration.Roll, Why: migration.Skipped}},
	})
}

// TestForwardToTheEnd checks the phases Park, Retire and Done.
func TestForwardToTheEnd(t *testing.T) {
	t.Parallel()
	retire := func(s *situation) { s.i.Goal = migration.Retired }
	gone := func(s *situation) { retire(s); s.e.Origin = migration.Origin{} }
	ending := func(s *situation) {
		s.e.Origin.Replicas, s.memo = 0, migration.Memo{Phase: migration.Park, ScaledAt: ago(time.Minute)}
	}
	checkDecisions(t, []decisionCase{
		{"the origin is parked", moved(), migration.Act{Phase: migration.Park, Action: migration.ScaleOrigin{}}},
		{
			"its pod ends, and follows meanwhile", moved().with(func(s *situation) { s.e.Origin.Replicas = 0 }),
			migration.Act{Phase: migration.Park, Action: migration.ReleaseGateways{Gateways: append(only("a"), only("b")...)}},
		},
		{
			"its pod ends", moved().with(freed).with(ending),
			migration.Wait{Phase: migration.Park, Why: migration.OriginEnding, Again: time.Minute},
		},
		{
			"its pod does not end", moved().with(freed).with(ending).with(func(s *situation) { s.memo.Ending = ago(10 * time.Minute) }),
			migration.Stop{Phase: migration.Park, Why: migration.OriginEnding},
		},
		{
			"its pod could write status", moved().with(ending).with(func(s *situation) { s.e.Origin.Lead = migration.WritesStatus }),
			migration.Wait{Phase: migration.Park, Why: migration.OriginEnding, Again: time.Minute},
		},
		{
			"its webhook blocks nothing", moved().with(func(s *situation) { s.e.Origin.Replicas, s.e.Origin.Pods = 0, 0 }),
			migration.Act{Phase: migration.Park, Action: migration.RelaxWebhook{}},
		},
		{
			"holds end", parked().with(func(s *situation) { s.e.Gateways[1].Hold = model.Held }),
			migration.Act{Phase: migration.Park, Action: migration.ReleaseGateways{Gateways: only("b")}},
		},
		{"parked", parked(), migration.Rest{Phase: migration.Park, Why: migration.Parked}},
		{"the hosted istiod restarts, and the memo is lost", parked().with(func(s *situation) {
			s.e.Lock, s.e.Hosted.Ready = migration.LockFree, false
		}), migration.Wait{Phase: migration.Lead, Why: migration.LockPending, Again: 10 * time.Minute}},
		{"the hosted istiod restarts", parked().with(func(s *situation) {
			s.memo.Phase, s.e.Lock, s.e.Hosted.Ready = migration.Park, migration.LockFree, false
		}), migration.Rest{Phase: migration.Park, Why: migration.Parked}},
		{
			"the origin comes back", parked().with(func(s *situation) { s.e.Origin.Replicas = 1 }),
			migration.Act{Phase: migration.Park, Action: migration.ScaleOrigin{}},
		},
		{"again and again", parked().with(func(s *situation) {
			s.e.Origin.Replicas, s.memo.Phase, s.memo.ScaledAt = 1, migration.Park, ago(10*time.Second)
		}), migration.Wait{Phase: migration.Park, Why: migration.OriginReturns, Again: 50 * time.Second}},
		{"another party removes it", parked().with(retire), migration.Wait{Phase: migration.Retire, Why: migration.OriginExists}},
		{
			"it is removed, and something else conflicts", parked().with(func(s *situation) { gone(s); s.e.Conflict = "mesh" }),
			migration.Wait{Phase: migration.Retire, Why: migration.ConflictExists},
		},
		{
			"without a request to retire, too", parked().with(func(s *situation) {
				gone(s)
				s.i.Goal, s.e.Conflict = migration.Forward, "mesh"
			}),
			migration.Wait{Phase: migration.Retire, Why: migration.ConflictExists},
		},
		{
			"elections end", parked().with(gone),
			migration.Act{Phase: migration.Done, Action: migration.SetHosted{Mode: migration.HostedAlone}},
		},
		{
			"finished", parked().with(func(s *situation) { gone(s); s.e.Hosted.Mode = migration.HostedAlone }),
			migration.Rest{Phase: migration.Done, Why: migration.Finished},
		},
		{"the hosted istiod restarts without elections", parked().with(func(s *situation) {
			gone(s)
			s.memo.Phase, s.e.Hosted.Mode = migration.Done, migration.HostedAlone
			s.e.Lock, s.e.Hosted.Ready = migration.LockFree, false
		}), migration.Rest{Phase: migration.Done, Why: migration.Finished}},
		{
			"the origin is installed again", parked().with(func(s *situation) { s.e.Hosted.Mode = migration.HostedAlone }),
			migration.Act{Phase: migration.Lead, Action: migration.SetHosted{Mode: migration.HostedLeading}},
		},
	})
}

// TestBackward checks a rollback from each phase.
func TestBackward(t *testing.T) {
	t.Parallel()
	returned := held(migration.HostedServing, migration.LockOrigin).with(back)
	checkDecisions(t, []decisionCase{
		{
			"from Park: all are held", parked().with(back),
			migration.Act{Phase: migration.Hold, Action: migration.HoldGateways{Gateways: append(only("a"), only("b")...)}},
		},
		{
			"from Park: the origin starts", moved().with(func(s *situation) { back(s); s.e.Origin = migration.Origin{Exists: true} }),
			migration.Act{Phase: migration.Lead, Action: migration.ScaleOrigin{Replicas: 1}},
		},
		{
			"it is waited for", moved().with(func(s *situation) { back(s); s.e.Origin.Ready = 0 }),
			migration.Wait{Phase: migration.Lead, Why: migration.OriginNotReady, Again: 10 * time.Minute},
		},
		{
			"from Roll: the hosted istiod gives up the lock", moved().with(back),
			migration.Act{Phase: migration.Lead, Action: migration.SetHosted{Mode: migration.HostedServing}},
		},
		{
			"the lock is free", returned.with(func(s *situation) { s.e.Lock = migration.LockFree }),
			migration.Wait{Phase: migration.Lead, Why: migration.LockPending, Again: 10 * time.Minute},
		},
		{"one after another", returned, migration.Act{Phase: migration.Roll, Action: migration.ReleaseGateways{Gateways: only("a")}}},
		{"each is waited for", returned.with(func(s *situation) {
			s.e.Gateways[0].Hold, s.e.Gateways[0].Of = model.Free, migration.OfHosted
			s.memo = migration.Memo{Released: "uid-a", ReleasedAt: ago(time.Minute)}
		}), migration.Wait{Phase: migration.Roll, Why: migration.GatewayRolling, Gateway: only("a")[0], Again: 9 * time.Minute}},
		{"the hosted istiod is removed", before().with(func(s *situation) {
			back(s)
			s.e.Hosted = migration.Hosted{Mode: migration.HostedServing, Ready: true}
		}), migration.Act{Phase: migration.StandBy, Action: migration.SetHosted{Mode: migration.HostedAbsent}}},
		{"one that was never programmed does not keep the others", returned.with(func(s *situation) {
			s.e.Gateways[0].Hold, s.e.Gateways[0].Programmed = model.Free, false
			s.memo = migration.Memo{Phase: migration.Roll, Released: "uid-a", ReleasedAt: ago(11 * time.Minute)}
		}), migration.Act{Phase: migration.Roll, Action: migration.ReleaseGateways{Gateways: only("b")}}},
		{"the hosted istiod is gone already", parked().with(func(s *situation) {
			back(s)
			s.e.Hosted, s.memo = migration.Hosted{Mode: migration.HostedAbsent}, migration.Memo{Phase: migration.Park, Replicas: 2}
		}), migration.Act{Phase: migration.Lead, Action: migration.ScaleOrigin{Replicas: 2}}},
		{"rolled back", before().with(back), migration.Rest{Phase: migration.Check, Why: migration.RolledBack}},
		{
			"a rollback is not possible", parked().with(func(s *situation) { back(s); s.e.Origin = migration.Origin{} }),
			migration.Stop{Phase: migration.Lead, Why: migration.OriginGone},
		},
	})
}

// atOrigin is a rollback whose first Gateway does not become ready at the origin. Its pods of before still serve.
func atOrigin() situation {
	return held(migration.HostedServing, migration.LockOrigin).with(func(s *situation) {
		back(s)
		a := &s.e.Gateways[0]
		a.Hold, a.Deployment.State, a.Deployment.Old = model.Free, model.DeploymentStuck, 1
		s.memo = migration.Memo{Phase: migration.Roll, Since: ago(time.Hour), Released: "uid-a", ReleasedAt: ago(11 * time.Minute)}
	})
}

// TestAnArrivalIsNoted checks that a Gateway that arrives late has its whole time again when it rolls later.
func TestAnArrivalIsNoted(t *testing.T) {
	t.Parallel()
	s := atOrigin()
	_, noted := migration.Decide(s.e, s.i, s.memo, start)
	if len(noted.Stranded) != 1 {
		t.Fatalf("noted: %v", noted.Stranded)
	}
	s.e.Gateways[0].Deployment.State, s.e.Gateways[0].Deployment.Old = model.DeploymentComplete, 0
	if _, arrived := migration.Decide(s.e, s.i, noted, start); len(arrived.Stranded) != 0 {
		t.Errorf("after its arrival: %v", arrived.Stranded)
	}
}

// TestBackwardWithoutArrival checks what becomes of a Gateway that cannot go back, and of the others.
func TestBackwardWithoutArrival(t *testing.T) {
	t.Parallel()
	a, b := only("a")[0], only("b")[0]
	noted := atOrigin().with(func(s *situation) {
		_, s.memo = migration.Decide(s.e, s.i, s.memo, start)
		s.memo.Released, s.memo.ReleasedAt = "uid-b", ago(time.Minute)
		s.e.Gateways[1].Hold = model.Free
	})
	skip := func(s *situation) { s.e.Gateways[0].Skip = true }
	failed := migration.Stop{Phase: migration.Roll, Why: migration.GatewayFailed, Gateway: a}
	atHosted := func(s *situation) { s.e.Gateways[0].Of, s.e.Gateways[0].Deployment.Old = migration.OfHosted, 0 }
	checkDecisions(t, []decisionCase{
		{"the others follow", atOrigin(), migration.Act{Phase: migration.Roll, Action: migration.ReleaseGateways{Gateways: only("b")}}},
		{
			"also if the origin does not deploy it", atOrigin().with(atHosted),
			migration.Act{Phase: migration.Roll, Action: migration.ReleaseGateways{Gateways: only("b")}},
		},
		{
			"also if it is still held", atOrigin().with(func(s *situation) { atHosted(s); s.e.Gateways[0].Hold = model.Held }),
			migration.Act{Phase: migration.Roll, Action: migration.ReleaseGateways{Gateways: only("b")}},
		},
		{
			"each of the others is waited for", noted.with(func(s *situation) { s.e.Gateways[1].Of = migration.OfHosted }),
			migration.Wait{Phase: migration.Roll, Why: migration.GatewayRolling, Gateway: b, Again: 9 * time.Minute},
		},
		{
			"another one that rolls does not begin its time again",
			held(migration.HostedServing, migration.LockOrigin).with(func(s *situation) {
				back(s)
				s.e.Gateways[0].Hold, s.e.Gateways[0].Deployment.Old = model.Free, 1
				s.e.Gateways[1].Hold, s.e.Gateways[1].Of = model.Free, migration.OfHosted
				s.memo = migration.Memo{Phase: migration.Roll, Since: ago(time.Hour), Released: "uid-b", ReleasedAt: ago(9 * time.Minute)}
			}),
			migration.Wait{Phase: migration.Roll, Why: migration.GatewayRolling, Gateway: b, Again: time.Minute},
		},
		{
			"one that is left out and never moved is released", atOrigin().with(func(s *situation) {
				skip(s)
				s.e.Gateways[0].Hold, s.memo.Released, s.e.Gateways[1].Hold = model.Held, "", model.Free
			}),
			migration.Act{Phase: migration.Roll, Action: migration.ReleaseGateways{Gateways: only("a")}},
		},
		{"the rollback stops after them", noted, failed},
		{"it stays the same", noted.with(func(s *situation) { _, s.memo = migration.Decide(s.e, s.i, s.memo, start) }), failed},
		{
			"a request tries it again", noted.with(func(s *situation) { s.i.At = start.Add(time.Second) }),
			migration.Wait{Phase: migration.Roll, Why: migration.GatewayRolling, Gateway: a, Again: 10 * time.Minute},
		},
		{
			"it was repaired", noted.with(func(s *situation) {
				s.e.Gateways[0].Deployment.State, s.e.Gateways[0].Deployment.Old = model.DeploymentComplete, 0
			}), migration.Act{Phase: migration.StandBy, Action: migration.SetHosted{Mode: migration.HostedAbsent}},
		},
		{
			"without memory, its pods of before keep the hosted istiod", noted.with(func(s *situation) { s.memo = migration.Memo{} }),
			migration.Wait{Phase: migration.Roll, Why: migration.GatewayRolling, Gateway: a, Again: 10 * time.Minute},
		},
		{"it is left out", noted.with(skip), migration.Rest{Phase: migration.Roll, Why: migration.Skipped}},
		{
			"one that is left out is not released", held(migration.HostedServing, migration.LockOrigin).with(func(s *situation) {
				back(s)
				skip(s)
				s.e.Gateways[0].Of = migration.OfHosted
			}), migration.Act{Phase: migration.Roll, Action: migration.ReleaseGateways{Gateways: only("b")}},
		},
		{
			"one that has never left the origin is", held(migration.HostedServing, migration.LockOrigin).with(func(s *situation) {
				back(s)
				skip(s)
			}), migration.Act{Phase: migration.Roll, Action: migration.ReleaseGateways{Gateways: only("a")}},
		},
	})
	if _, memo := migration.Decide(noted.e, migration.Intent{Goal: migration.Forward}, noted.memo, start); len(memo.Stranded) > 0 {
		t.Errorf("after another goal: %+v", memo)
	}
}

// TestADeniedReleaseKeepsNoOther checks that a rollback gives up a held Gateway without a Deployment whose release the
// guest denies.
func TestADeniedReleaseKeepsNoOther(t *testing.T) {
	t.Parallel()
	release := func(name string) migration.Step {
		return migration.Act{Phase: migration.Roll, Action: migration.ReleaseGateways{Gateways: only(name)}}
	}
	late := held(migration.HostedServing, migration.LockOrigin).with(func(s *situation) {
		back(s)
		s.e.Gateways[0], s.e.Gateways[1].Of = gateway("a", model.Held, migration.OfNone), migration.OfHosted
		s.memo = migration.Memo{Phase: migration.Roll, Since: ago(time.Hour), Released: "uid-a", ReleasedAt: ago(11 * time.Minute)}
	})
	last := late.with(func(s *situation) {
		_, s.memo = migration.Decide(s.e, s.i, s.memo, start)
		s.e.Gateways[1] = gateway("b", model.Free, migration.OfOrigin)
	})
	checkDecisions(t, []decisionCase{
		{"in time", late.with(func(s *situation) { s.memo.ReleasedAt = ago(9 * time.Minute) }), release("a")},
		{"the others follow", late, release("b")},
		{
			"the rollback stops after them", last,
			migration.Stop{Phase: migration.Roll, Why: migration.GatewayFailed, Gateway: only("a")[0]},
		},
		{"a request tries it again", last.with(func(s *situation) { s.i.At = start.Add(time.Second) }), release("a")},
		{"it is released", last.with(func(s *situation) { s.e.Gateways[0].Hold = model.Free }), migration.Act{
			Phase: migration.StandBy, Action: migration.SetHosted{Mode: migration.HostedAbsent},
		}},
	})
}

// TestAnOriginWithoutADeployment checks that nothing is scaled that does not exist, in both directions.
func TestAnOriginWithoutADeployment(t *testing.T) {
	t.Parallel()
	undeployed := func(s *situation) { s.e.Origin = migration.Origin{Exists: true, Undeployed: true} }
	since := func(d time.Duration) func(*situation) {
		return func(s *situation) {
			s.memo = migration.Memo{Phase: migration.Lead, Since: ago(d), ScaledAt: ago(d), LeadFailedAt: s.memo.LeadFailedAt}
		}
	}
	unknown := []migration.Finding{{Severity: migration.Blocker, Code: migration.OriginUnknown}}
	wait := func(why migration.Reason, again time.Duration) migration.Step {
		return migration.Wait{Phase: migration.Lead, Why: why, Again: again}
	}
	leads := held(migration.HostedLeading, migration.LockHosted).with(undeployed)
	locked := held(migration.HostedLeading, migration.LockFree).with(undeployed)
	checkDecisions(t, []decisionCase{
		{"a rollback waits", moved().with(back).with(undeployed), wait(migration.OriginNotReady, 10*time.Minute)},
		{
			"a rollback stops", moved().with(back).with(undeployed).with(since(11 * time.Minute)),
			migration.Stop{Phase: migration.Lead, Why: migration.OriginNotReady},
		},
		{
			"a rollback waits while Gateways move",
			held(migration.HostedServing, migration.LockFree).with(back).with(undeployed),
			wait(migration.OriginNotReady, 10*time.Minute),
		},
		{
			"a rollback without a hosted istiod waits", before().with(back).with(undeployed).with(since(time.Minute)),
			wait(migration.OriginNotReady, 9*time.Minute),
		},
		{"forward, it has a time to come back", leads.with(since(time.Minute)), wait(migration.OriginNotReady, 30*time.Second)},
		{
			"forward, Gateways move without it", leads.with(since(2 * time.Minute)),
			migration.Act{Phase: migration.Roll, Action: migration.ReleaseGateways{Gateways: only("a")}},
		},
		{
			"forward, it does not block", leads.with(since(2 * time.Minute)).with(func(s *situation) { s.e.Findings = unknown }),
			migration.Act{Phase: migration.Roll, Action: migration.ReleaseGateways{Gateways: only("a")}},
		},
		{
			"forward, the lock is free", locked.with(since(30 * time.Second)), wait(migration.LockPending, 45*time.Second),
		},
		{
			"forward, the lock is late", locked.with(since(time.Minute)), wait(migration.LockPending, 30*time.Second),
		},
		{
			"forward, the lock does not come", locked.with(since(2 * time.Minute)),
			migration.Stop{Phase: migration.Lead, Why: migration.LockPending},
		},
		{
			"paused while the lock moves", locked.with(since(time.Minute)).with(func(s *situation) { s.i.Paused = true }),
			migration.Rest{Phase: migration.Lead, Why: migration.Paused},
		},
		{
			"before a migration, it blocks", before().with(undeployed).with(func(s *situation) { s.e.Findings = unknown }),
			migration.Stop{Phase: migration.Check, Why: migration.Blocked, Findings: unknown},
		},
	})
}

// TestAnEmptyMemoRepeatsOnlyWaiting checks for each situation that the phase does not depend on the Memo.
func TestAnEmptyMemoRepeatsOnlyWaiting(t *testing.T) {
	t.Parallel()
	for _, s := range []situation{
		before(), held(migration.HostedServing, migration.LockOrigin), held(migration.HostedLeading, migration.LockOrigin),
		held(migration.HostedLeading, migration.LockHosted), moved(), parked(), parked().with(back), moved().with(back),
	} {
		want, _ := migration.Decide(s.e, s.i, migration.Memo{}, start)
		for _, phase := range migration.Phases() {
			for _, released := range []types.UID{"", "uid-gone"} {
				memo := migration.Memo{Phase: phase, Since: start, Released: released, ReleasedAt: start, Replicas: 1}
				got, _ := migration.Decide(s.e, s.i, memo, start)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("after the phase %s (-without memory +with it):\n%s", phase, diff)
				}
			}
		}
	}
}

// TestHoldsAreCounted checks which holds count against their limit: those of the last ten minutes in the phase Roll.
func TestHoldsAreCounted(t *testing.T) {
	t.Parallel()
	loose := onItsWay().with(func(s *situation) { s.e.Gateways[1].Hold = model.Free })
	count := func(s situation) int32 {
		_, memo := migration.Decide(s.e, s.i, s.memo, start)
		return memo.Holds
	}
	counted := loose.with(func(s *situation) { s.memo.Holds, s.memo.HoldsSince = 4, ago(time.Minute) })
	for name, tc := range map[string]struct {
		in   situation
		want int32
	}{
		"the first":              {loose, 1},
		"the next":               {counted, 5},
		"after ten minutes":      {counted.with(func(s *situation) { s.memo.HoldsSince = ago(10 * time.Minute) }), 1},
		"after another request":  {counted.with(func(s *situation) { s.i.At = ago(time.Second) }), 1},
		"nothing has to be held": {onItsWay(), 0},
		"in the phase before it": {held(migration.HostedServing, migration.LockOrigin).with(func(s *situation) {
			s.e.Gateways[0].Hold = model.Free
		}), 0},
	} {
		if got := count(tc.in); got != tc.want {
			t.Errorf("%s: %d holds, want %d", name, got, tc.want)
		}
	}
}

// neverScaled is the phase Lead after a crash, or an outage, between the Memo and the patch: the origin was not scaled.
func neverScaled() situation {
	return held(migration.HostedLeading, migration.LockOrigin).with(func(s *situation) {
		s.memo = migration.Memo{Phase: migration.Lead, Since: ago(5 * time.Minute), ScaledAt: ago(3 * time.Minute), Replicas: 1}
	})
}

// TestAnOriginThatWasNotScaled checks that a migration does not stop because of a lock that the hosted istiod was never
// offered.
func TestAnOriginThatWasNotScaled(t *testing.T) {
	t.Parallel()
	scale := func(replicas int32) migration.Step {
		return migration.Act{Phase: migration.Lead, Action: migration.ScaleOrigin{Replicas: replicas}}
	}
	again := neverScaled().with(func(s *situation) { _, s.memo = migration.Decide(s.e, s.i, s.memo, ago(30*time.Second)) })
	down := func(s *situation) {
		s.e.Origin.Replicas, s.e.Origin.Pods, s.e.Origin.Ready, s.e.Lock = 0, 0, 0, migration.LockFree
	}
	restart := func(s *situation) { s.memo.Unstored = migration.Unstored{} }
	checkDecisions(t, []decisionCase{
		{"it is scaled once more", neverScaled(), scale(0)},
		{"after the guest's clients have settled", neverScaled().with(func(s *situation) {
			s.e.Outage.EndedAt = ago(time.Minute)
		}), migration.Wait{Phase: migration.Lead, Why: migration.GuestSettling, Again: time.Minute}},
		{"while it is down, its whole time begins", again.with(down), migration.Wait{
			Phase: migration.Lead, Why: migration.LockPending, Again: 45 * time.Second,
		}},
		{"it is not repeated", again, migration.Wait{Phase: migration.Lead, Why: migration.LockPending, Again: time.Minute}},
		{
			"nor after a restart", again.with(restart),
			migration.Wait{Phase: migration.Lead, Why: migration.LockPending, Again: time.Minute},
		},
		{"without the lock, it starts again", again.with(down).with(func(s *situation) {
			s.memo.ScaledAt = ago(45 * time.Second)
		}), scale(1)},
		{"not if it was seen without pods", neverScaled().with(func(s *situation) {
			s.memo.Offered = true
		}), scale(1)},
		{"not before it serves its proxies", neverScaled().with(func(s *situation) { s.e.Origin.Ready = 0 }), scale(1)},
	})
}

// TestAnOperatorThatScalesTheOrigin checks how often an origin is scaled down beside an operator that reverts it at
// once: until leadTime, and once more after a restart of hypergate.
func TestAnOperatorThatScalesTheOrigin(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		memo    migration.Memo
		forgets bool
		most    int
	}{
		"from the beginning":      {migration.Memo{Phase: migration.Lead, Since: start}, false, 90},
		"after a restart":         {neverScaled().memo, false, 1},
		"with restarts each pass": {neverScaled().memo, true, 1},
	} {
		s, now, scaled := neverScaled(), start, 0
		var step migration.Step
		memo := c.memo
		for range 1000 {
			step, memo = migration.Decide(s.e, s.i, memo, now)
			if cmp.Equal(step, migration.Step(migration.Act{Phase: migration.Lead, Action: migration.ScaleOrigin{}})) {
				scaled++
			}
			if c.forgets {
				memo.Unstored = migration.Unstored{}
			}
			now = now.Add(500 * time.Millisecond)
		}
		want := migration.Step(migration.Stop{Phase: migration.Lead, Why: migration.LockPending})
		if diff := cmp.Diff(want, step); diff != "" || scaled > c.most {
			t.Errorf("%s: scaled %d times (-want +got):\n%s", name, scaled, diff)
		}
	}
}
