package migration_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

// TestAClockThatWasAhead plays hypergate with a clock that was ahead by an hour, and is correct now: what it has noted
// is an hour ahead. Each limit of time is reached as if it had been noted now.
func TestAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	ahead := start.Add(time.Hour)
	a := only("a")[0]
	for name, of := range map[string]struct {
		in   situation
		want migration.Step
		// after is when the step follows.
		after time.Duration
	}{
		"an origin without pods starts": {
			moving(-time.Hour, migration.LockFree).with(func(s *situation) { s.memo.Since = ahead }),
			migration.Act{Phase: migration.Lead, Action: migration.ScaleOrigin{Replicas: 2}},
			45 * time.Second,
		},
		"it does in a guest with too many Gateways": {
			moving(-time.Hour, migration.LockFree).with(func(s *situation) { s.memo.Since, s.e.Findings = ahead, tooMany() }),
			migration.Act{Phase: migration.Lead, Action: migration.ScaleOrigin{Replicas: 2}},
			45 * time.Second,
		},
		"the hosted istiod is not ready": {
			held(migration.HostedServing, migration.LockOrigin).with(func(s *situation) {
				s.e.Hosted.Ready, s.memo = false, migration.Memo{Phase: migration.StandBy, Since: ahead}
			}), migration.Stop{Phase: migration.StandBy, Why: migration.HostedNotReady}, 10 * time.Minute,
		},
		"a Gateway does not arrive": {
			onItsWay().with(func(s *situation) { s.memo.Since, s.memo.ReleasedAt = ahead, ahead }),
			migration.Act{Phase: migration.Roll, Action: migration.RestoreTemplate{Gateway: a}},
			10 * time.Minute,
		},
		"its template cannot be restored": {
			onItsWay().with(func(s *situation) {
				s.memo.ReleasedAt, s.memo.Failed, s.memo.FailedAt = ago(time.Hour), "uid-a", ahead
			}), migration.Stop{Phase: migration.Roll, Why: migration.GatewayFailed, Gateway: a}, time.Minute,
		},
		"an origin that returns is parked": {
			parked().with(func(s *situation) {
				s.e.Origin.Replicas, s.memo = 1, migration.Memo{Phase: migration.Park, Since: ahead, ScaledAt: ahead}
			}), migration.Act{Phase: migration.Park, Action: migration.ScaleOrigin{}}, time.Minute,
		},
		"a Gateway that another client holds again is released": {
			parked().with(func(s *situation) {
				s.e.Gateways[1].Hold, s.memo = model.Held, migration.Memo{Phase: migration.Park, Since: ahead}
				s.memo.Freed = migration.Undone{Times: 10, At: ahead}
			}), migration.Act{Phase: migration.Park, Action: migration.ReleaseGateways{Gateways: only("b")}}, time.Minute,
		},
		"a Gateway does not come back": {
			atOrigin().with(func(s *situation) { s.memo.ReleasedAt = ahead }),
			migration.Act{Phase: migration.Roll, Action: migration.ReleaseGateways{Gateways: only("b")}},
			10 * time.Minute,
		},
	} {
		memo, now := of.in.memo, start
		var step migration.Step
		for ; !cmp.Equal(step, of.want) && now.Before(start.Add(20*time.Minute)); now = now.Add(time.Second) {
			step, memo = migration.Decide(of.in.e, of.in.i, memo, now)
		}
		if took := now.Add(-time.Second).Sub(start); took != of.after {
			t.Errorf("%s after %s, want %s: %#v", name, took, of.after, step)
		}
	}
}

// TestRescueAfterAClockThatWasAhead checks that an origin without pods starts at once if the rest of the guest is not
// read: nothing is noted then, so the time would not begin again.
func TestRescueAfterAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	for _, since := range []time.Duration{0, -time.Hour} {
		of := moving(-time.Hour, migration.LockFree).with(func(s *situation) { s.memo.Since, s.e.Gateways = ago(since), nil })
		want := migration.Step(migration.Act{Phase: migration.Lead, Action: migration.ScaleOrigin{Replicas: 2}})
		if got, _ := migration.Rescue(of.e, of.i, of.memo, start); !cmp.Equal(want, got) {
			t.Errorf("%s: %#v", since, got)
		}
	}
}
