package migration_test

import (
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

// TestAGatewayOfAnotherClass checks that a held Gateway whose class is another controller's by now stops no migration:
// neither istiod deploys it, so it never arrives. It is released after all others, or in Park if it has moved. If that
// has no effect, the migration stops only when the others have moved.
func TestAGatewayOfAnotherClass(t *testing.T) {
	t.Parallel()
	leaves := func(s *situation) {
		s.e.Gateways[0].Elsewhere, s.e.Gateways[0].Connected, s.e.Gateways[0].Programmed = true, false, false
	}
	moving, late := onItsWay().with(leaves), func(s *situation) { s.memo.ReleasedAt = ago(11 * time.Minute) }
	release := func(name string) migration.Step {
		return migration.Act{Phase: migration.Roll, Action: migration.ReleaseGateways{Gateways: only(name)}}
	}
	alone := func(s *situation) { s.e.Gateways = s.e.Gateways[:1] }
	failed := held(migration.HostedLeading, migration.LockHosted).with(func(s *situation) {
		leaves(s)
		s.memo = migration.Memo{Phase: migration.Roll, Since: ago(time.Hour), Failed: "uid-a", FailedAt: ago(time.Minute)}
	})
	checkDecisions(t, []decisionCase{
		{"before the others", failed, release("b")},
		{"before its turn", failed.with(alone), release("a")},
		{"on its way", moving, release("b")},
		{"too late", moving.with(late), release("b")},
		{"the memo was lost", moving.with(func(s *situation) { s.memo = migration.Memo{} }), release("b")},
		{"it is the last one", moving.with(alone), migration.Act{Phase: migration.Park, Action: migration.ScaleOrigin{}}},
		{"the origin is parked", moving.with(alone).with(func(s *situation) {
			s.e.Origin, s.memo = migration.Origin{Exists: true}, migration.Memo{Phase: migration.Park, Since: ago(time.Minute)}
		}), migration.Act{Phase: migration.Park, Action: migration.ReleaseGateways{Gateways: only("a")}}},
		{"its class may come back", onItsWay().with(leaves).with(func(s *situation) { s.e.Gateways[0].Elsewhere = false }), migration.Wait{
			Phase: migration.Roll, Why: migration.GatewayRolling, Gateway: only("a")[0], Again: 9 * time.Minute,
		}},
	})
	skip := func(s *situation) { s.e.Gateways[0].Skip = true }
	restored := failed.with(func(s *situation) { s.memo.Released, s.memo.ReleasedAt = "uid-a", ago(11*time.Minute) })
	going := held(migration.HostedServing, migration.LockOrigin).with(back).with(leaves).with(func(s *situation) {
		s.e.Gateways[0].Of, s.e.Gateways[1].Of = migration.OfHosted, migration.OfHosted
	})
	reverted := failed.with(func(s *situation) {
		s.memo = migration.Memo{Phase: migration.Roll, Since: ago(time.Hour), Released: "uid-a", ReleasedAt: ago(11 * time.Minute)}
	})
	gone := func(s *situation) { s.memo = reverted.memo }
	stopped := migration.Stop{Phase: migration.Roll, Why: migration.GatewayFailed, Gateway: only("a")[0]}
	checkDecisions(t, []decisionCase{
		{"its release is reverted", reverted, release("b")},
		{"its release is reverted, and it is the last one", reverted.with(alone), stopped},
		{"its release is reverted in a rollback", going.with(gone), release("b")},
		{"its release is reverted in a rollback, and it is the last one", going.with(gone).with(alone), stopped},
		{"it failed, and has its pods of before", restored.with(alone), release("a")},
		{"it was left out, and is the last one", failed.with(skip).with(alone), release("a")},
		{"it was left out of a rollback", going.with(skip).with(alone), release("a")},
	})
	again := restored.with(alone)
	if _, memo := migration.Decide(again.e, again.i, again.memo, start); !memo.ReleasedAt.Equal(start) || memo.Failed != "" {
		t.Errorf("one that failed has no time of its own: %+v", memo)
	}
	if moving.e.Gateways[0].Hold != model.Held {
		t.Error("a Gateway of another class is only known while it is held")
	}
}
