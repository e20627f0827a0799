package migration_test

import (
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

// TestAGatewayThatNeverMoved checks that a rollback does not wait for a Gateway that has only pods of the origin, and
// whose own rollout does not end.
func TestAGatewayThatNeverMoved(t *testing.T) {
	t.Parallel()
	// b is stuck. a is back, or was not there.
	stuck := held(migration.HostedServing, migration.LockOrigin).with(func(s *situation) {
		back(s)
		s.e.Gateways[0].Hold = model.Free
		b := &s.e.Gateways[1]
		b.Deployment.State, b.Deployment.Old, b.OldOfOrigin = model.DeploymentStuck, 1, true
		s.memo = migration.Memo{Phase: migration.Roll, Since: ago(time.Minute)}
	})
	release := migration.Act{Phase: migration.Roll, Action: migration.ReleaseGateways{Gateways: only("b")}}
	removed := migration.Act{Phase: migration.StandBy, Action: migration.SetHosted{Mode: migration.HostedAbsent}}
	wait := func(left time.Duration) migration.Step {
		return migration.Wait{Phase: migration.Roll, Why: migration.GatewayRolling, Gateway: only("b")[0], Again: left}
	}
	released := stuck.with(func(s *situation) {
		_, s.memo = migration.Decide(s.e, s.i, s.memo, start)
		s.e.Gateways[1].Hold = model.Free
	})
	if !released.memo.Stayed || released.memo.Released != "uid-b" {
		t.Errorf("memo: %+v", released.memo)
	}
	moved := released.with(func(s *situation) { s.e.Gateways[1].OldOfOrigin = false })
	checkDecisions(t, []decisionCase{
		{"it is released", stuck, release},
		{"it is not waited for", released, removed},
		{"also without pods of an earlier template", released.with(func(s *situation) { s.e.Gateways[1].Deployment.Old = 0 }), removed},
		{"after a restart, too", released.with(func(s *situation) { s.memo.Unstored = migration.Unstored{} }), removed},
		{"without memory, too", released.with(func(s *situation) { s.memo = migration.Memo{} }), removed},
		{"its release is repeated", released.with(func(s *situation) { s.e.Gateways[1].Hold = model.Held }), release},
		{"if that is not possible, it fails", released.with(func(s *situation) {
			s.e.Gateways[1].Hold, s.memo.ReleasedAt = model.Held, ago(11*time.Minute)
		}), migration.Stop{Phase: migration.Roll, Why: migration.GatewayFailed, Gateway: only("b")[0]}},
		{"its pods can be those of the hosted istiod", moved, wait(10 * time.Minute)},
		{"one that has moved is waited for", released.with(func(s *situation) {
			s.e.Gateways[1].Deployment.Old, s.memo.Stayed = 0, false
		}), wait(10 * time.Minute)},
	})
	memo := released.memo
	for _, line := range migration.NewReport(released.e, released.i, removed, memo, migration.Report{}, start).Gateways {
		if line.State != migration.StateAtOrigin {
			t.Errorf("%s: %s", line.Name, line.State)
		}
	}
	forward := held(migration.HostedLeading, migration.LockHosted)
	if _, memo := migration.Decide(forward.e, forward.i, migration.Memo{Phase: migration.Roll}, start); memo.Stayed {
		t.Errorf("after a release to the hosted istiod: %+v", memo)
	}
}

// TestAStuckGatewayDoesNotDelayARollback plays rollbacks before a Gateway moves whose own rollout does not end. They
// end before the time of one Gateway is over.
func TestAStuckGatewayDoesNotDelayARollback(t *testing.T) {
	t.Parallel()
	played := 0
	for seed := range uint64(300) {
		w := newSimulation(t, seed)
		w.origin.lead = migration.Follows
		for _, g := range w.gateways {
			*g = simulated{Gateway: gateway(g.Key.Name, model.Free, migration.OfOrigin), servedBy: migration.OfOrigin}
		}
		stuck := &simulated{Gateway: gateway("stuck", model.Free, migration.OfOrigin), servedBy: migration.OfOrigin}
		stuck.makeStuck()
		w.gateways = append(w.gateways, stuck)
		w.request(migration.RequestStart)
		for range w.random.IntN(200) {
			w.pass()
			w.advance(time.Second)
		}
		if stuck.Of != migration.OfOrigin || w.memo == "" {
			continue
		}
		played++
		began := w.now
		w.request(migration.RequestRollback)
		for range 4000 {
			if w.pass(); w.rests() {
				break
			}
			w.advance(time.Second)
		}
		rest, is := w.last.(migration.Rest)
		lasted := w.now.Sub(began) - 100*time.Second // rests waits for 100 passes
		if !is || rest.Why != migration.RolledBack || lasted > 10*time.Minute || stuck.Hold != model.Free {
			t.Fatalf("seed %d: after %s: %#v, %+v", seed, lasted, w.last, stuck)
		}
	}
	if played < 100 {
		t.Errorf("%d rollbacks were played", played)
	}
}

// TestAHeldGatewayThatHasLostItsDeployment checks that a Gateway whose Deployment was deleted while it is held gets
// another one before the others move: no istiod creates it for a held one.
func TestAHeldGatewayThatHasLostItsDeployment(t *testing.T) {
	t.Parallel()
	lost := func(s *situation) {
		s.e.Gateways[1].Of, s.e.Gateways[1].Deployment = migration.OfNone, model.GatewayDeployment{}
	}
	leads := held(migration.HostedLeading, migration.LockHosted).with(lost)
	release := migration.Act{Phase: migration.Roll, Action: migration.ReleaseGateways{Gateways: only("b")}}
	checkDecisions(t, []decisionCase{
		{"before the others", leads, release},
		{"while another one has failed", leads.with(func(s *situation) {
			s.memo = migration.Memo{Phase: migration.Roll, Failed: "uid-a", FailedAt: ago(time.Minute)}
		}), release},
		{"beside one that is left out", leads.with(func(s *situation) { s.e.Gateways[0].Skip = true }), release},
		{"not while another one rolls", onItsWay().with(lost), migration.Wait{
			Phase: migration.Roll, Why: migration.GatewayRolling, Gateway: only("a")[0], Again: 9 * time.Minute,
		}},
		{"not if the hosted istiod would ignore objects", leads.with(func(s *situation) { s.e.Findings = blocking() }), migration.Stop{
			Phase: migration.Roll, Why: migration.Blocked, Findings: blocking(),
		}},
		{"in a rollback", held(migration.HostedServing, migration.LockOrigin).with(lost).with(back), release},
		{"it is free again", leads.with(func(s *situation) { s.e.Gateways[1].Hold = model.Free }), migration.Act{
			Phase: migration.Roll, Action: migration.ReleaseGateways{Gateways: only("a")},
		}},
	})
}
