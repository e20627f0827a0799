package migration_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

// TestManyGatewaysHaveTimeToBeHeld plays a guest with 500 Gateways that is slow: 16 of them are held in half a minute.
// If another client removes the holds, the migration stops all the same.
func TestManyGatewaysHaveTimeToBeHeld(t *testing.T) {
	t.Parallel()
	s := held(migration.HostedServing, migration.LockOrigin)
	s.e.Gateways = nil
	for i := range model.MaxGateways {
		s.e.Gateways = append(s.e.Gateways, gateway(fmt.Sprint("g", i), model.Free, migration.OfOrigin))
	}
	pass := func(now time.Time) (step migration.Step) {
		step, s.memo = migration.Decide(s.e, s.i, s.memo, now)
		return step
	}
	now := start
	for i := 0; i < len(s.e.Gateways); now = now.Add(30 * time.Second) {
		if step := pass(now); step.In() != migration.Hold {
			t.Fatalf("%#v", step)
		} else if stop, stops := step.(migration.Stop); stops {
			t.Fatalf("%s after %s, with %d held", stop.Why, now.Sub(start), i)
		}
		for range min(16, len(s.e.Gateways)-i) {
			s.e.Gateways[i].Hold = model.Held
			i++
		}
	}
	if _, leads := pass(now).(migration.Act); !leads || s.memo.Phase != migration.Lead {
		t.Errorf("all are held, and the phase is %s", s.memo.Phase)
	}
	s.e.Gateways[0].Hold = model.Free
	s.memo = migration.Memo{Phase: migration.Hold, Since: start}
	want := migration.Stop{Phase: migration.Hold, Why: migration.NotHeld, Gateway: s.e.Gateways[0].ForeignObject}
	if step, _ := migration.Decide(s.e, s.i, s.memo, start.Add(20*time.Minute)); fmt.Sprint(step) != fmt.Sprint(want) {
		t.Errorf("holds are removed again and again: %#v", step)
	}
}
