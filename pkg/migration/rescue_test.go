package migration_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/migration"
)

// TestRescue checks when an origin without pods starts again although the rest of the guest cannot be read.
func TestRescue(t *testing.T) {
	t.Parallel()
	// lead is a guest whose origin has had no pods for a time. Nothing is known of its Gateways.
	lead := func(d time.Duration) situation {
		return situation{
			e: migration.Evidence{
				Origin: migration.Origin{Exists: true}, Lock: migration.LockFree,
				Hosted: migration.Hosted{Mode: migration.HostedLeading, Ready: true},
			},
			i:    migration.Intent{Goal: migration.Forward},
			memo: migration.Memo{Phase: migration.Lead, Since: ago(d), ScaledAt: ago(d), Replicas: 2},
		}
	}
	late, starts := lead(90*time.Second), migration.Act{Phase: migration.Lead, Action: migration.ScaleOrigin{Replicas: 2}}
	for _, c := range []decisionCase{
		{"the lock has time", lead(89 * time.Second), nil},
		{"the lock is late", late, starts},
		{"the hosted istiod leads", late.with(func(s *situation) { s.e.Lock = migration.LockHosted }), starts},
		{"a rollback", lead(time.Second).with(back), starts},
		{"a pause", lead(time.Second).with(func(s *situation) { s.i.Paused = true }), starts},
		{"no request", late.with(func(s *situation) { s.i.Goal = migration.NoGoal }), nil},
		{"the origin has pods", late.with(func(s *situation) { s.e.Origin.Replicas = 1 }), nil},
		{"the origin is gone", late.with(func(s *situation) { s.e.Origin = migration.Origin{} }), nil},
		{"the origin is not readable", late.with(func(s *situation) { s.e.Origin.NotReadable = true }), nil},
		{"it is parked", late.with(func(s *situation) { s.memo.Phase = migration.Park }), nil},
		{"no elections", late.with(func(s *situation) { s.e.Hosted.Mode = migration.HostedAlone }), nil},
		{"hypergate has not scaled it", late.with(func(s *situation) { s.memo.ScaledAt = time.Time{} }), nil},
		{"both would write status", late.with(func(s *situation) { s.e.Origin.Lead = migration.WritesStatus }), nil},
		{"it would write status, in a pause", late.with(func(s *situation) {
			s.e.Origin.Lead, s.i.Paused = migration.WritesStatus, true
		}), nil},
		{"only it writes status, in a rollback", late.with(back).with(func(s *situation) {
			s.e.Origin.Lead, s.e.Hosted.Mode = migration.WritesStatus, migration.HostedServing
		}), starts},
		{"no Gateway needed it", late.with(func(s *situation) { s.memo.Unneeded = true }), nil},
	} {
		got, memo := migration.Rescue(c.of.e, c.of.i, c.of.memo, start)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		if !cmp.Equal(memo, c.of.memo) {
			t.Errorf("%s: the Memo has changed: %+v", c.name, memo)
		}
		if _, acts := c.want.(migration.Act); !acts || c.of.i.Paused || c.of.i.Goal == migration.Backward {
			continue
		}
		// Evidence that says of itself that it is not complete leads to the same step.
		c.of.e.Findings = tooMany()
		if got, _ := migration.Decide(c.of.e, c.of.i, c.of.memo, start); !cmp.Equal(c.want, got) {
			t.Errorf("%s, with too many Gateways: %#v", c.name, got)
		}
	}
}
