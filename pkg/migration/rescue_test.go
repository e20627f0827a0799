package migration_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

// moving is the phase Lead, with an origin that has had no pods for some time.
func moving(since time.Duration, lock migration.Lock) situation {
	return held(migration.HostedLeading, lock).with(func(s *situation) {
		s.e.Origin = migration.Origin{Exists: true}
		s.memo = migration.Memo{Phase: migration.Lead, Since: ago(5 * time.Minute), ScaledAt: ago(since), Replicas: 2}
	})
}

// TestRescue checks when an origin without pods starts again although the rest of the guest cannot be read.
func TestRescue(t *testing.T) {
	t.Parallel()
	lead := func(d time.Duration) situation { return moving(d, migration.LockFree) }
	late, starts := lead(45*time.Second), migration.Act{Phase: migration.Lead, Action: migration.ScaleOrigin{Replicas: 2}}
	leads := moving(time.Second, migration.LockHosted)
	for _, c := range []decisionCase{
		{"the lock has time", lead(44 * time.Second), nil},
		{"the lock is late", late, starts},
		{"the hosted istiod leads", leads, starts},
		{"it leads, and is not reachable", leads.with(func(s *situation) { s.e.Hosted.Ready = false }), starts},
		{"it leads, and its roots are missing", leads.with(func(s *situation) { s.e.Hosted.Trusted = false }), nil},
		{"a rollback", lead(time.Second).with(back), starts},
		{"a pause", lead(time.Second).with(func(s *situation) { s.i.Paused = true }), starts},
		{"no request", late.with(func(s *situation) { s.i.Goal = migration.NoGoal }), nil},
		{"the origin has pods", late.with(func(s *situation) { s.e.Origin.Replicas = 1 }), nil},
		{"the origin is gone", late.with(func(s *situation) { s.e.Origin = migration.Origin{} }), nil},
		{"the origin is not deployed", late.with(func(s *situation) { s.e.Origin.Undeployed = true }), nil},
		{"the origin is not readable", late.with(func(s *situation) { s.e.Origin.NotReadable = true }), nil},
		{"it is parked", late.with(func(s *situation) { s.memo.Phase = migration.Park }), nil},
		{"no elections", late.with(func(s *situation) { s.e.Hosted.Mode = migration.HostedAlone }), nil},
		{"the hosted istiod serves", late.with(func(s *situation) { s.e.Hosted.Mode = migration.HostedServing }), starts},
		{"hypergate has not scaled it", late.with(func(s *situation) { s.memo.ScaledAt = time.Time{} }), nil},
		{"another request gives the lock time", late.with(func(s *situation) { s.i.At = ago(44 * time.Second) }), nil},
		{"the same time, and not more", lead(time.Hour).with(func(s *situation) { s.i.At = ago(45 * time.Second) }), starts},
		{"both would write status", late.with(func(s *situation) { s.e.Origin.Lead = migration.WritesStatus }), nil},
		{"both would write status, and the hosted istiod leads", leads.with(func(s *situation) {
			s.e.Origin.Lead = migration.WritesStatus
		}), nil},
		{"it would write status, in a pause", late.with(func(s *situation) {
			s.e.Origin.Lead, s.i.Paused = migration.WritesStatus, true
		}), nil},
		{"only it writes status, in a rollback", late.with(back).with(func(s *situation) {
			s.e.Origin.Lead, s.e.Hosted.Mode = migration.WritesStatus, migration.HostedServing
		}), starts},
		{"no Gateway needed it", late.with(func(s *situation) { s.memo.Unneeded = true }), nil},
	} {
		checkRescue(t, c)
	}
}

// checkRescue checks the step for a guest that cannot be read, and for evidence that says of itself that it is not
// complete. From neither is anything remembered.
func checkRescue(t *testing.T, c decisionCase) {
	t.Helper()
	unread := c.of.with(func(s *situation) { s.e.Gateways = nil })
	got, memo := migration.Rescue(unread.e, unread.i, unread.memo, start)
	if diff := cmp.Diff(c.want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", c.name, diff)
	}
	if !cmp.Equal(memo, unread.memo) {
		t.Errorf("%s: the Memo has changed: %+v", c.name, memo)
	}
	if _, acts := c.want.(migration.Act); !acts {
		return
	}
	unread.e.Findings = tooMany()
	if got, memo = migration.Decide(unread.e, unread.i, unread.memo, start); !cmp.Equal(c.want, got) || !cmp.Equal(memo, unread.memo) {
		t.Errorf("%s, with too many Gateways: %#v, memo %+v", c.name, got, memo)
	}
}

// TestTheLockMayComeLater checks that the origin starts again before the lock of one that was killed expires, and that
// the migration goes on by itself.
func TestTheLockMayComeLater(t *testing.T) {
	t.Parallel()
	starts := migration.Act{Phase: migration.Lead, Action: migration.ScaleOrigin{Replicas: 2}}
	started := func(since time.Duration) situation {
		return moving(since, migration.LockFree).with(func(s *situation) {
			s.e.Origin = migration.Origin{Exists: true, Replicas: 2, Pods: 1, Ready: 1}
			s.memo.LeadFailedAt = ago(since - 45*time.Second)
		})
	}
	fails := migration.Stop{Phase: migration.Lead, Why: migration.LockPending}
	writes := func(s *situation) { s.e.Origin.Lead = migration.WritesStatus }
	paused := moving(time.Second, migration.LockFree).with(func(s *situation) { s.i.Paused = true })
	checkDecisions(t, []decisionCase{
		{"it starts", moving(45*time.Second, migration.LockFree), starts},
		{
			"the lock has not expired", started(50 * time.Second),
			migration.Wait{Phase: migration.Lead, Why: migration.LockPending, Again: 40 * time.Second},
		},
		{
			"the hosted istiod gets it", started(63 * time.Second).with(func(s *situation) { s.e.Lock = migration.LockHosted }),
			migration.Act{Phase: migration.Roll, Action: migration.ReleaseGateways{Gateways: only("a")}},
		},
		{"it does not", started(90 * time.Second), fails},
		{"the origin has it", started(90 * time.Second).with(func(s *situation) { s.e.Lock = migration.LockOrigin }), fails},
		{
			"then it does", started(time.Hour).with(func(s *situation) { s.e.Lock = migration.LockHosted }),
			migration.Act{Phase: migration.Roll, Action: migration.ReleaseGateways{Gateways: only("a")}},
		},
		{
			"one that writes status would do so beside the hosted istiod", moving(89*time.Second, migration.LockFree).with(writes),
			migration.Wait{Phase: migration.Lead, Why: migration.LockPending, Again: 45 * time.Second},
		},
		{"it starts when that gets no lock any more", moving(90*time.Second, migration.LockFree).with(writes), starts},
		{"after a pause, the lock is tried again", paused.with(func(s *situation) {
			_, s.memo = migration.Decide(s.e, s.i, s.memo, start)
			s.i.Paused, s.e.Origin = false, migration.Origin{Exists: true, Replicas: 2, Ready: 1}
		}), migration.Act{Phase: migration.Lead, Action: migration.ScaleOrigin{}}},
	})
	asked := moving(time.Minute, migration.LockFree).with(func(s *situation) {
		s.e.Gateways[0].Hold, s.i.At = model.Free, ago(time.Second)
	})
	if _, memo := migration.Decide(asked.e, asked.i, asked.memo, start); !memo.ScaledAt.Equal(start) {
		t.Errorf("another request gives the lock time again, while holds are removed: %+v", memo)
	}
	late := moving(45*time.Second, migration.LockFree)
	if _, memo := migration.Decide(late.e, late.i, late.memo, start); !memo.LeadFailedAt.Equal(start) {
		t.Errorf("the lock did not come, and the memo does not have it: %+v", memo)
	}
}

// TestTheOriginReturnsWithoutAllEvidence checks that an origin without pods comes first: before a finding that makes
// the evidence incomplete, a hold that another client removes, and a hosted istiod that is not ready.
func TestTheOriginReturnsWithoutAllEvidence(t *testing.T) {
	t.Parallel()
	starts := migration.Act{Phase: migration.Lead, Action: migration.ScaleOrigin{Replicas: 2}}
	incomplete := func(s *situation) { s.e.Findings = tooMany() }
	free := func(s *situation) { s.e.Gateways[0].Hold = model.Free }
	early, late := moving(time.Second, migration.LockFree), moving(45*time.Second, migration.LockFree)
	checkDecisions(t, []decisionCase{
		{"evidence is missing, and the hosted istiod leads", moving(time.Second, migration.LockHosted).with(incomplete), starts},
		{"evidence is missing for too long", late.with(incomplete), starts},
		{
			"evidence is missing", early.with(incomplete),
			migration.Stop{Phase: migration.Lead, Why: migration.Blocked, Findings: tooMany()},
		},
		{"paused, and evidence is missing", early.with(incomplete).with(func(s *situation) { s.i.Paused = true }), starts},
		{
			"a hold is gone", early.with(free),
			migration.Act{Phase: migration.Lead, Action: migration.HoldGateways{Gateways: only("a")}},
		},
		{"a hold is gone for too long", late.with(free), starts},
		{
			"the hosted istiod leads, and is not ready",
			moving(time.Second, migration.LockHosted).with(func(s *situation) { s.e.Hosted.Ready = false }), starts,
		},
		{
			"the lock comes after all", held(migration.HostedLeading, migration.LockHosted).with(func(s *situation) {
				s.memo = migration.Memo{Phase: migration.Lead, Since: ago(time.Minute), ScaledAt: ago(time.Minute)}
				s.memo.LeadFailedAt = ago(time.Second)
			}), migration.Act{Phase: migration.Roll, Action: migration.ReleaseGateways{Gateways: only("a")}},
		},
	})
}

// TestTheOriginIsAwayForAShortTime plays migrations with readings that fail, holds that another client removes, and a
// hosted istiod that restarts, or never gets the lock. While Gateways need the origin, it has 0 replicas for leadTime,
// and until the next reading, at most.
func TestTheOriginIsAwayForAShortTime(t *testing.T) {
	t.Parallel()
	const limit, pass = 45 * time.Second, 2 * time.Second
	starts, longest := 0, time.Duration(0)
	for seed := range uint64(600) {
		w := newSimulation(t, seed)
		w.request(migration.RequestStart)
		w.origin.lead, w.blind = migration.Follows, 33*int(seed%4)
		never, reverts := seed%3 == 0, seed%5 == 0
		var since time.Time
		for range 300 {
			if w.pass(); reverts {
				w.revertHolds()
			}
			w.advance(pass)
			if never && w.lock == migration.LockHosted && w.origin.replicas == 0 {
				w.lock = migration.LockFree // the Lease of another client that has ended
			}
			if w.random.IntN(20) == 0 {
				w.hosted.runs, w.hosted.at = migration.HostedAbsent, w.later(20)
			}
			if w.origin.replicas > 0 || !w.needsOrigin() {
				since = time.Time{}
				continue
			}
			if since.IsZero() && w.last.In() != migration.Lead {
				continue // the last origin that was parked took a Gateway back as it ended
			}
			if since.IsZero() {
				since, starts = w.now.Add(-pass), starts+1
			}
			if longest = max(longest, w.now.Sub(since)); longest > limit+pass {
				t.Fatalf("seed %d: the origin has no pods for %s, after %#v, memo %s", seed, longest, w.last, w.memo)
			}
		}
	}
	if starts < 300 || longest < limit {
		t.Errorf("the origin had no pods %d times, for %s at most", starts, longest)
	}
}

// needsOrigin reports whether a Gateway has addresses of the origin.
func (w *simulation) needsOrigin() bool {
	for _, g := range w.gateways {
		if g.Of == migration.OfOrigin {
			return true
		}
	}
	return false
}

// revertHolds removes all holds while the origin has no pods.
func (w *simulation) revertHolds() {
	for _, g := range w.gateways {
		if g.Hold == model.Held && w.origin.replicas == 0 {
			g.Hold = model.Free
			g.changed()
		}
	}
}
