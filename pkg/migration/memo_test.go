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
