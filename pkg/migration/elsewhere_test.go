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
	if moving.e.Gateways[0].Hold != model.Held {
		t.Error("a Gateway of another class is only known while it is held")
	}
}
