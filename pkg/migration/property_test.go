package migration_test

import (
	"slices"
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

// disturb does something that can happen at any time.
func (w *simulation) disturb() {
	one := func() *simulated {
		if len(w.gateways) == 0 {
			return &simulated{}
		}
		return w.gateways[w.random.IntN(len(w.gateways))]
	}
	switch w.random.IntN(26) {
	case 0:
		w.failing = 25 * w.random.IntN(3)
	case 1:
		if w.origin.replicas == 0 {
			w.scale(1) // a person, or the origin's operator
		}
	case 2:
		w.origin.runs, w.origin.at = false, w.later(20) // its pod restarts
	case 3:
		w.hosted.runs, w.hosted.at = migration.HostedAbsent, w.later(20)
		if w.lock == migration.LockHosted {
			w.lock = migration.LockFree
		}
	case 4:
		if g := one(); g.Hold == model.Held {
			g.Hold = model.Free // a person removes a hold
			g.changed()
		}
	case 5:
		if w.random.IntN(5) == 0 {
			w.memo, w.answered = "", migration.Intent{} // the Lease is deleted
		}
	case 6:
		w.request(migration.Requests()[w.random.IntN(len(migration.Requests()))])
		if w.random.IntN(4) == 0 {
			w.intent.At = w.now.AddDate(1, 0, 0).Truncate(time.Second) // a wrong year, by GitOps
		}
	case 7:
		g := &simulated{Gateway: gateway("new", model.Free, migration.OfNone)}
		g.UID += "-" + g.UID
		if len(w.gateways) < 6 && !slices.ContainsFunc(w.gateways, func(o *simulated) bool { return o.UID == g.UID }) {
			g.Deployment = model.GatewayDeployment{}
			w.gateways = append(w.gateways, g)
		}
	case 8:
		if len(w.gateways) > 0 && w.random.IntN(4) == 0 {
			i := w.random.IntN(len(w.gateways))
			w.gateways = slices.Delete(w.gateways, i, i+1)
		}
	case 9:
		w.remove()
	case 10:
		if g := one(); g.Of != migration.OfNone {
			routes := w.random.Int32N(4)
			g.isCut, g.Routes = g.isCut || routes < g.Routes, routes
		}
	case 11:
		if w.random.IntN(4) == 0 {
			w.advance(time.Duration(w.random.IntN(300)) * time.Second) // the guest's API server is away
			w.outage.EndedAt = w.now
		}
	case 12:
		w.undeploy()
	case 13:
		w.blind = 50 * w.random.IntN(3)
	case 14:
		if w.random.IntN(4) == 0 {
			one().loseDeployment()
		}
	case 15:
		if g := one(); w.random.IntN(4) == 0 {
			g.Elsewhere, g.Programmed = !g.Elsewhere, g.Elsewhere // its class is another controller's, or ours again
		}
	}
}

// undeploy deletes the Deployment of the origin, or lets its operator create it again.
func (w *simulation) undeploy() {
	switch {
	case w.origin.gone:
	case w.origin.undeployed:
		w.origin.undeployed, w.origin.replicas, w.origin.at = false, 1, w.later(20)
	case w.random.IntN(4) == 0:
		w.origin.undeployed, w.origin.replicas, w.origin.runs = true, 0, false
	}
}

// remove removes the origin, as the ingress operator does when another party serves Gateways.
func (w *simulation) remove() {
	if _, waits := w.last.(migration.Wait); waits && w.last.In() == migration.Retire {
		w.origin = simulatedOrigin{gone: true}
		if w.lock == migration.LockOrigin {
			w.lock = migration.LockFree
		}
	}
}

// request makes a request, if it is possible now. By GitOps, another goal can keep the time.
func (w *simulation) request(r migration.Request) {
	if next, err := w.intent.After(r, w.now.Truncate(time.Second)); err == nil {
		if next.Goal != w.intent.Goal && w.random.IntN(3) == 0 {
			next.At = w.intent.At
		}
		w.intent = next
	}
}

// TestAMigrationEnds plays migrations with crashes, lost memory, failing writes, restarts, and other clients that
// interfere. No Deployment has two writers. Once the simulation is calm, each migration, and each rollback, ends.
func TestAMigrationEnds(t *testing.T) {
	t.Parallel()
	ends := map[string]int{}
	for seed := range uint64(1500) {
		w := newSimulation(t, seed)
		w.request(migration.RequestStart)
		for range 20 + w.random.IntN(300) {
			w.disturb()
			w.pass()
			w.advance(time.Duration(w.random.IntN(4000)) * time.Millisecond)
		}
		w.failing, w.blind = 0, 0
		w.advance(time.Minute)
		w.calmAt = w.now
		goal := []migration.Request{migration.RequestStart, migration.RequestRollback, migration.RequestRetire}[seed%3]
		if goal == migration.RequestRetire {
			w.request(migration.RequestStart)
		}
		w.request(goal)
		for range 4000 { // longer than all Gateways take, one after another
			if w.pass(); w.rests() {
				break
			}
			w.advance(time.Second)
			w.remove()
		}
		ends[w.end(seed)]++
		if t.Failed() {
			t.Fatalf("seed %d, %s", seed, goal)
		}
	}
	t.Log(ends)
	for _, end := range []migration.Reason{
		migration.Parked, migration.Finished, migration.RolledBack, migration.OriginGone, migration.GatewayFailed,
		migration.HeldByOther, migration.Skipped, migration.OriginNotReady,
	} {
		if ends[string(end)] == 0 {
			t.Errorf("no migration ends with %s: %v", end, ends)
		}
	}
}

// rests counts passes without a step, and reports whether there were many.
func (w *simulation) rests() bool {
	if w.ended() {
		w.idle++
	} else {
		w.idle = 0
	}
	return w.idle > 100
}

// end checks how a migration ended, and returns it.
func (w *simulation) end(seed uint64) string {
	w.t.Helper()
	count := map[migration.Istiod]int{}
	var held, broken, others, skipped int
	for _, g := range w.gateways {
		if g.Elsewhere && g.Hold != model.Held {
			continue
		}
		switch g.Hold {
		case model.HeldByOther:
			others++
			continue
		case model.Held:
			held++
		case model.Free:
		}
		count[g.Of]++
		if (g.broken || g.stranded) && !g.Elsewhere {
			broken++
		}
		if g.Skip && !g.Elsewhere {
			skipped++
		}
	}
	good, why := false, migration.Reason("none")
	switch s := w.last.(type) {
	case migration.Rest:
		why = s.Why
		good = map[migration.Reason]bool{
			migration.Parked:     held+count[migration.OfOrigin] == 0 && !w.origin.runs && w.origin.webhook == migration.WebhookHarmless,
			migration.Finished:   held+count[migration.OfOrigin] == 0 && w.origin.gone && w.hosted.runs == migration.HostedAlone,
			migration.RolledBack: held+count[migration.OfHosted] == 0 && w.hosted.runs == migration.HostedAbsent && w.origin.runs,
			migration.Skipped:    skipped > 0 && (w.origin.runs || w.origin.undeployed),
		}[why]
	case migration.Stop:
		why = s.Why
		good = map[migration.Reason]bool{
			migration.GatewayFailed:  broken > 0,
			migration.HeldByOther:    others > 0,
			migration.OriginGone:     w.origin.gone,
			migration.OriginNotReady: w.origin.undeployed,
			migration.FewerRoutes: slices.ContainsFunc(w.gateways, func(g *simulated) bool {
				return g.UID == s.Gateway.UID && g.isCut
			}),
			// The disturbances lasted longer than the phase waits.
			migration.NotHeld:     !w.stopped.After(w.calmAt),
			migration.LockPending: !w.stopped.After(w.calmAt),
		}[why]
	case migration.Act, migration.Wait: // neither ends a migration
	}
	if !w.leftBehind() || slices.ContainsFunc(w.gateways, func(g *simulated) bool { return g.lost() && w.mayDeploy() }) {
		good = false
	}
	if !good {
		w.t.Errorf("seed %d ends with %#v: %v, held %d, broken %d, others %d, skipped %d, origin %+v, hosted %+v, lock %d, memo %s",
			seed, w.last, count, held, broken, others, skipped, w.origin, w.hosted, w.lock, w.memo)
	}
	return string(why)
}

// mayDeploy reports whether a Gateway without a Deployment could have got one. It is not released if the migration has
// stopped before an istiod leads, or at a Gateway that has only new pods.
func (w *simulation) mayDeploy() bool {
	stop, stops := w.last.(migration.Stop)
	if !stops || stop.Why == migration.OriginGone || stop.Why == migration.OriginNotReady {
		return !stops
	}
	return !slices.ContainsFunc(w.gateways, func(g *simulated) bool { return g.UID == stop.Gateway.UID && g.Of == migration.OfHosted })
}

// leftBehind reports whether a rollback that has ended has left only Gateways that cannot go back.
func (w *simulation) leftBehind() bool {
	stop, stops := w.last.(migration.Stop)
	if w.intent.Goal != migration.Backward || stops && (stop.Why == migration.OriginGone || stop.Why == migration.OriginNotReady) {
		return true
	}
	return !slices.ContainsFunc(w.gateways, func(g *simulated) bool {
		cannot := g.Elsewhere && g.Hold != model.Held || g.stranded || g.Skip || g.Hold == model.HeldByOther
		return !cannot && (g.Of == migration.OfHosted || g.Hold == model.Held)
	})
}

// TestHoldsThatAreReverted plays migrations beside a client that removes each hold once Gateways move. The migration
// stops, and does not write for ever.
func TestHoldsThatAreReverted(t *testing.T) {
	t.Parallel()
	stopped := 0
	for seed := range uint64(200) {
		w := newSimulation(t, seed)
		w.request(migration.RequestStart)
		writes := 0
		for range 4000 {
			w.pass()
			act, acts := w.last.(migration.Act)
			if _, holds := act.Action.(migration.HoldGateways); acts && holds && act.Phase == migration.Roll {
				writes++
			}
			for _, g := range w.gateways {
				if w.last.In() == migration.Roll && g.Hold == model.Held {
					g.Hold = model.Free
					g.changed()
				}
			}
			if w.rests() {
				break
			}
			w.advance(200 * time.Millisecond)
		}
		stop, stops := w.last.(migration.Stop)
		if stops && stop.Why == migration.NotHeld && stop.Phase == migration.Roll {
			stopped++
		}
		// A broken Gateway takes more than ten minutes. Then the count begins again.
		if limit := 3 * max(10, 3*len(w.gateways)); writes > limit || !w.ended() {
			t.Errorf("seed %d: %d holds of %d Gateways, ends with %#v", seed, writes, len(w.gateways), w.last)
		}
	}
	if stopped < 10 {
		t.Errorf("%d of 200 stopped because of the holds", stopped)
	}
}

// ended reports whether the last step waits for nothing.
func (w *simulation) ended() bool {
	switch w.last.(type) {
	case migration.Rest, migration.Stop:
		return true
	default:
		return false
	}
}

// TestAnUnreadableGuestKeepsNoProxyWithoutIstiod plays migrations whose guest can no longer be read while the lock
// moves. In less than a minute, the origin has pods again.
func TestAnUnreadableGuestKeepsNoProxyWithoutIstiod(t *testing.T) {
	t.Parallel()
	seen := 0
	for seed := range uint64(300) {
		w := newSimulation(t, seed)
		w.origin.lead = migration.Follows
		w.request(migration.RequestStart)
		needs := func(g *simulated) bool { return g.Of == migration.OfOrigin }
		moves := func() bool {
			return w.last != nil && w.last.In() == migration.Lead && w.origin.replicas == 0 && slices.ContainsFunc(w.gateways, needs)
		}
		for i := 0; i < 200 && !moves(); i++ {
			w.pass()
			w.advance(time.Second)
		}
		if !moves() {
			continue
		}
		seen++
		w.blind = 100
		for range 47 {
			w.pass()
			w.advance(time.Second)
		}
		if w.origin.replicas == 0 {
			t.Fatalf("seed %d: no istiod configures the proxies of the origin", seed)
		}
	}
	if seen < 100 {
		t.Errorf("%d migrations were in the phase Lead", seen)
	}
}

// TestHoldsThatAreRefused checks that a guest that refuses the writes of holds for a while, and answers reads, does not
// stop a migration: no client reverts anything.
func TestHoldsThatAreRefused(t *testing.T) {
	t.Parallel()
	s := onItsWay().with(func(s *situation) { s.e.Gateways[1].Hold, s.e.Gateways[1].ResourceVersion = model.Free, "7" })
	memo, now := s.memo, start
	for range 1000 {
		var step migration.Step
		step, memo = migration.Decide(s.e, s.i, memo, now)
		if _, acts := step.(migration.Act); !acts || memo.Holds > 1 {
			t.Fatalf("%#v, after %d counted holds", step, memo.Holds)
		}
		now = now.Add(500 * time.Millisecond)
	}
}
