package migration_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

// answering returns the situation with the Memo as it counts after hypergate has answered another goal. No request has
// a time of its own, as by GitOps.
func (s situation) answering(goal migration.Goal) situation {
	s.memo = migration.Record{Intent: s.i, Memo: s.memo, Report: migration.Report{Intent: migration.Intent{Goal: goal}}}.MemoAt(start)
	return s
}

// afterFailure is a Memo after the first Gateway did not arrive in time, and got its pods of before.
func afterFailure(s *situation) {
	s.memo = migration.Memo{
		Phase: migration.Roll, Since: ago(time.Hour), Replicas: 2, Released: "uid-a", ReleasedAt: ago(11 * time.Minute), Routes: 2,
		Failed: "uid-a", FailedAt: ago(time.Minute), Stranded: []uint32{1}, StrandedAt: ago(time.Minute),
		Holds: 50, HoldsSince: ago(time.Minute), LastHold: 1, ScaledAt: ago(time.Hour), LeadFailedAt: ago(time.Hour),
	}
}

// TestARollbackAfterAFailureEnds plays a rollback without a time of its own after a Gateway failed, and got its pods of
// before. It is released like the others, and the hosted istiod is removed.
func TestARollbackAfterAFailureEnds(t *testing.T) {
	t.Parallel()
	s := held(migration.HostedServing, migration.LockOrigin).with(back).with(afterFailure).answering(migration.Forward)
	for _, name := range []string{"a", "b"} {
		var step migration.Step
		step, s.memo = migration.Decide(s.e, s.i, s.memo, start)
		want := migration.Act{Phase: migration.Roll, Action: migration.ReleaseGateways{Gateways: only(name)}}
		if diff := cmp.Diff(migration.Step(want), step); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", name, diff)
		}
		for i := range s.e.Gateways {
			if s.e.Gateways[i].Key.Name == name {
				s.e.Gateways[i].Hold = model.Free
			}
		}
	}
	want := migration.Act{Phase: migration.StandBy, Action: migration.SetHosted{Mode: migration.HostedAbsent}}
	if step, _ := migration.Decide(s.e, s.i, s.memo, start); step != migration.Step(want) {
		t.Errorf("in the end: %#v", step)
	}
}

// TestAnotherGoalIsARequest checks what another goal forgets, and that the time of a Gateway that moves begins again
// when it is waited for.
func TestAnotherGoalIsARequest(t *testing.T) {
	t.Parallel()
	failed := held(migration.HostedLeading, migration.LockHosted).with(afterFailure)
	release := migration.Act{Phase: migration.Roll, Action: migration.ReleaseGateways{Gateways: only("a")}}
	moving := onItsWay().with(func(s *situation) {
		s.e.Gateways[0].Connected, s.e.Gateways = false, s.e.Gateways[:1]
		s.memo.ReleasedAt = ago(9 * time.Minute)
	})
	waits := func(again time.Duration) migration.Step {
		return migration.Wait{Phase: migration.Roll, Why: migration.GatewayRolling, Gateway: only("a")[0], Again: again}
	}
	notReady := moved().with(back).with(func(s *situation) {
		s.e.Origin.Ready = 0
		s.memo = migration.Memo{Phase: migration.Lead, Since: ago(time.Hour)}
	})
	checkDecisions(t, []decisionCase{
		{"start after a rollback", failed.answering(migration.Backward), release},
		{"retire after start", failed.with(func(s *situation) { s.i.Goal = migration.Retired }).answering(migration.Forward), release},
		{
			"the same goal", failed.answering(migration.Forward),
			migration.Stop{Phase: migration.Roll, Why: migration.GatewayFailed, Gateway: only("a")[0]},
		},
		{
			"the report was lost", failed.answering(migration.NoGoal),
			migration.Stop{Phase: migration.Roll, Why: migration.GatewayFailed, Gateway: only("a")[0]},
		},
		{"the last one moves", moving.answering(migration.Forward), waits(time.Minute)},
		{"it has its full time again", moving.answering(migration.Backward), waits(10 * time.Minute)},
		{"a phase has its full time again", notReady.answering(migration.Forward), migration.Wait{
			Phase: migration.Lead, Why: migration.OriginNotReady, Again: 10 * time.Minute,
		}},
	})
	again := moving.answering(migration.Backward)
	timed := moving.with(func(s *situation) { s.i.Goal, s.i.At = migration.Retired, ago(30*time.Minute) }).answering(migration.Forward)
	if step, memo := migration.Decide(timed.e, timed.i, timed.memo, start); step != waits(10*time.Minute) || !memo.ReleasedAt.Equal(start) {
		t.Errorf("the time of an earlier request counts: %#v, %+v", step, memo)
	}
	if _, memo := migration.Decide(again.e, again.i, again.memo, start); !memo.ReleasedAt.Equal(start) || memo.Released != "uid-a" {
		t.Errorf("the time of a Gateway that is waited for does not begin: %+v", memo)
	}
	want := migration.Memo{
		Phase: migration.Roll, Since: start, Replicas: 2, Released: "uid-a", Arrived: true, ScaledAt: ago(time.Hour),
		Unstored: migration.Unstored{Stayed: true},
	}
	kept := failed.with(func(s *situation) {
		s.memo.Arrived, s.memo.Stayed, s.memo.Freed = true, true, migration.Undone{Times: 10, At: start}
	}).answering(migration.Backward).memo
	if diff := cmp.Diff(want, kept); diff != "" {
		t.Errorf("what is kept (-want +got):\n%s", diff)
	}
}

// TestTheEndOfAPauseIsARequest checks that the time of a pause does not count as that of a phase, also if only the
// annotation was removed.
func TestTheEndOfAPauseIsARequest(t *testing.T) {
	t.Parallel()
	paused := migration.Intent{Goal: migration.Backward, Paused: true}
	record := migration.Record{
		Intent: migration.Intent{Goal: migration.Backward}, Report: migration.Report{Intent: paused},
		Memo: migration.Memo{Phase: migration.Lead, Since: ago(time.Hour), LeadFailedAt: ago(time.Hour), Replicas: 2},
	}
	if m := record.MemoAt(start); !m.Since.Equal(start) || !m.LeadFailedAt.IsZero() || m.Replicas != 2 || m.Phase != migration.Lead {
		t.Errorf("after a pause: %+v", m)
	}
	record.Intent = paused
	if m := record.MemoAt(start); !m.Since.Equal(ago(time.Hour)) {
		t.Errorf("while it is paused: %+v", m)
	}
}
