package migration_test

import (
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

// TestOneHeldGatewayKeepsNoOthers plays a rollback after the Deployment of the hosted istiod was deleted. Another
// client holds the first Gateway again after each release. The second one is released all the same.
func TestOneHeldGatewayKeepsNoOthers(t *testing.T) {
	t.Parallel()
	s := moved().with(func(s *situation) {
		back(s)
		s.e.Hosted, s.e.Lock = migration.Hosted{Mode: migration.HostedAbsent}, migration.LockOrigin
		s.memo = migration.Memo{Phase: migration.Roll, Since: ago(time.Minute)}
	})
	for pass := range 3 {
		var step migration.Step
		step, s.memo = migration.Decide(s.e, s.i, s.memo, start.Add(time.Duration(pass)*time.Second))
		act, _ := step.(migration.Act)
		release, is := act.Action.(migration.ReleaseGateways)
		if !is {
			t.Fatalf("pass %d: %#v", pass, step)
		}
		for _, of := range release.Gateways {
			for i := range s.e.Gateways {
				g := &s.e.Gateways[i]
				if g.UID == of.UID && g.Key.Name == "a" {
					g.ResourceVersion += "1" // it is held again
				} else if g.UID == of.UID {
					g.Hold = model.Free
				}
			}
		}
	}
	if s.e.Gateways[1].Hold != model.Free {
		t.Error("one Gateway that cannot be released keeps another one held")
	}
}
