package migration_test

import (
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

// TestAGatewayOfAnotherClass checks that a held Gateway whose class is another controller's by now stops no migration:
// neither istiod deploys it, so it never arrives. In its turn, it is released. One that has moved is released in Park.
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
		{"before its turn", failed, release("a")},
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
	checkDecisions(t, []decisionCase{
		{"it failed, and has its pods of before", restored, release("a")},
		{"it was left out", failed.with(skip), release("a")},
		{"it was left out, and is the last one", failed.with(skip).with(alone), release("a")},
		{"it was left out of a rollback", going.with(skip).with(alone), release("a")},
		{"it was not back in time", going.with(alone).with(func(s *situation) {
			s.memo = migration.Memo{Phase: migration.Roll, Released: "uid-a", ReleasedAt: ago(11 * time.Minute)}
		}), release("a")},
	})
	if moving.e.Gateways[0].Hold != model.Held {
		t.Error("a Gateway of another class is only known while it is held")
	}
}
