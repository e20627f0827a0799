package migration_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/migration"
)

// TestARollbackForgetsFailures checks that nothing that failed before a rollback has ended counts in the next
// migration: its request can have no time of its own, as that of GitOps.
func TestARollbackForgetsFailures(t *testing.T) {
	t.Parallel()
	failed := migration.Memo{
		Phase: migration.Roll, Since: ago(time.Hour), Replicas: 2, Released: "uid-a", ReleasedAt: ago(time.Minute), Routes: 2,
		Failed: "uid-a", FailedAt: ago(time.Minute), Stranded: []uint32{1}, StrandedAt: ago(time.Minute),
		Holds: 50, HoldsSince: ago(time.Minute), LastHold: 1, ScaledAt: ago(time.Hour), LeadFailedAt: ago(time.Hour),
	}
	rolledBack := before().with(back)
	step, memo := migration.Decide(rolledBack.e, rolledBack.i, failed, start)
	want := migration.Memo{Phase: migration.Check, Since: start, Replicas: 2}
	if diff := cmp.Diff(want, memo); diff != "" || step != (migration.Rest{Phase: migration.Check, Why: migration.RolledBack}) {
		t.Fatalf("%#v, memo (-want +got):\n%s", step, diff)
	}
	rolling := held(migration.HostedLeading, migration.LockHosted).with(func(s *situation) { s.memo = memo })
	locked := held(migration.HostedLeading, migration.LockOrigin).with(func(s *situation) { s.memo = memo })
	checkDecisions(t, []decisionCase{
		{"a Gateway that failed is tried again", rolling, migration.Act{
			Phase: migration.Roll, Action: migration.ReleaseGateways{Gateways: only("a")},
		}},
		{"the lock is tried again", locked, migration.Act{Phase: migration.Lead, Action: migration.ScaleOrigin{}}},
	})
}

// TestALateLockIsNoFailureLater checks that a hosted istiod that got the lock late, and loses it while Gateways move,
// has its full time again. Until Gateways move, it has not.
func TestALateLockIsNoFailureLater(t *testing.T) {
	t.Parallel()
	late := held(migration.HostedLeading, migration.LockHosted).with(func(s *situation) {
		s.memo = migration.Memo{Phase: migration.Lead, Since: ago(time.Hour), ScaledAt: ago(time.Hour), LeadFailedAt: ago(59 * time.Minute)}
	})
	lost := func(s *situation) {
		_, s.memo = migration.Decide(s.e, s.i, s.memo, start)
		s.e.Lock = migration.LockOrigin
	}
	starting := late.with(func(s *situation) { s.e.Hosted.Ready = false })
	checkDecisions(t, []decisionCase{
		{"lost in Roll", late.with(lost), migration.Act{Phase: migration.Lead, Action: migration.ScaleOrigin{}}},
		{"lost in Lead", starting.with(lost), migration.Stop{Phase: migration.Lead, Why: migration.LockPending}},
	})
}
