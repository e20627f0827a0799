package migration_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

// TestOneHeldGatewayKeepsNoOthers plays a rollback after the Deployment of the hosted istiod was deleted. For an hour,
// another client holds the first Gateway again after each release. The second one is released all the same, and the
// rollback stops at the first one.
func TestOneHeldGatewayKeepsNoOthers(t *testing.T) {
	t.Parallel()
	s, writes := moved().with(func(s *situation) {
		back(s)
		s.e.Hosted, s.e.Lock = migration.Hosted{Mode: migration.HostedAbsent}, migration.LockOrigin
		s.memo = migration.Memo{Phase: migration.Roll, Since: ago(time.Minute)}
	}), 0
	var step migration.Step
	for now := start; now.Before(start.Add(time.Hour)); now = now.Add(500 * time.Millisecond) {
		step, s.memo = migration.Decide(s.e, s.i, s.memo, now)
		act, acts := step.(migration.Act)
		if !acts {
			continue
		}
		writes++
		for _, of := range act.Action.(migration.ReleaseGateways).Gateways {
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
	stop, _ := step.(migration.Stop)
	if writes > 75 || stop.Phase != migration.Roll || stop.Why != migration.HoldReturns || stop.Gateway.UID != "uid-a" {
		t.Errorf("%d writes, and then %#v", writes, step)
	}
}

// undoing is a client that undoes what hypergate writes in the phase Park.
type undoing struct {
	// again undoes a write. why and about are what is reported.
	again func(w *simulation)
	why   migration.Reason
	about string
}

// undoers are clients that set the failure policy of the webhook again, or hold a Gateway again.
func undoers() map[string]undoing {
	fail := func(w *simulation) {
		w.origin.webhook, w.origin.version = migration.WebhookBlocks, w.origin.version+"1"
	}
	hold := func(w *simulation) {
		if g := w.gateways[1]; g.Hold == model.Free {
			g.Hold = model.Held
			g.changed()
		}
	}
	return map[string]undoing{
		"the webhook fails again": {fail, migration.WebhookReturns, "istio-validator-r-ns"},
		"a Gateway is held again": {hold, migration.HoldReturns, "shop/b"},
		"both at once":            {func(w *simulation) { fail(w); hold(w) }, migration.WebhookReturns, "istio-validator-r-ns"},
	}
}

// simulateParked returns a guest whose migration has ended in the phase Park, with a hypergate that does not restart.
func simulateParked(t *testing.T, goal migration.Request) *simulation {
	t.Helper()
	w := newSimulation(t, 1)
	w.origin.lead, w.lasts, w.gateways = migration.Follows, true, nil
	for _, name := range []string{"a", "b", "c"} {
		g := gateway(name, model.Free, migration.OfOrigin)
		w.gateways = append(w.gateways, &simulated{Gateway: g, servedBy: g.Of})
	}
	w.request(migration.RequestStart)
	for i := 0; i < 2000 && w.last != migration.Step(migration.Rest{Phase: migration.Park, Why: migration.Parked}); i++ {
		w.pass()
		w.advance(time.Second)
	}
	w.request(goal)
	return w
}

// paced is a pass, and the time until the next reading, as in pkg/controller. It returns what is reported.
func (w *simulation) paced(before migration.Report) migration.Report {
	w.t.Helper()
	w.pass()
	memo, err := migration.ParseMemo(w.memo)
	if err != nil {
		w.t.Fatal(err)
	}
	memo.Unstored = w.unstored
	report := migration.NewReport(w.evidence(), w.intent, w.last, memo, before, w.now)
	switch w.last.(type) {
	case migration.Act:
		w.advance(500 * time.Millisecond)
	case migration.Stop:
		w.advance(15 * time.Second)
	default:
		w.advance(time.Minute)
	}
	return report
}

// TestAClientUndoesParkForAnHour plays a client that undoes each write of the phase Park for an hour. hypergate writes
// about once a minute, and the report names the object all the time. All others are released. Once the client stops,
// the migration ends by itself.
func TestAClientUndoesParkForAnHour(t *testing.T) {
	t.Parallel()
	for name, client := range undoers() {
		w, writes, report := simulateParked(t, migration.RequestRetire), map[migration.Write]int{}, migration.Report{}
		for begin := w.now; w.now.Sub(begin) < time.Hour; {
			if client.again(w); w.now.Equal(begin) {
				w.gateways[2].Hold = model.Held // only once
			}
			report = w.paced(report)
			if act, acts := w.last.(migration.Act); acts {
				writes[act.Action.Writes()]++
			}
			named := report.Gateway == client.about || report.Cause == client.about
			if w.now.Sub(begin) > time.Minute && (report.Progress != migration.Stopped || report.Why != client.why || !named) {
				t.Fatalf("%s: after %s: %+v", name, w.now.Sub(begin), report)
			}
		}
		for write, n := range writes {
			if n > 75 {
				t.Errorf("%s: %d writes: %s", name, n, write)
			}
		}
		if w.gateways[0].Hold != model.Free || w.gateways[2].Hold != model.Free {
			t.Errorf("%s: others are still held", name)
		}
		for stopped := w.now; report.Why != migration.OriginExists; report = w.paced(report) {
			if w.now.Sub(stopped) > 3*time.Minute {
				t.Fatalf("%s: it does not go on: %+v", name, report)
			}
		}
	}
}

// TestWritesThatAreUndoneAreCounted checks what counts as undone: objects that have changed since the last write, and
// are not fewer. A request, a hold by hypergate, and ten minutes begin again.
func TestWritesThatAreUndoneAreCounted(t *testing.T) {
	t.Parallel()
	written := parked().with(func(s *situation) {
		s.e.Gateways[0].Hold, s.e.Gateways[1].Hold = model.Held, model.Held
		_, s.memo = migration.Decide(s.e, s.i, migration.Memo{Phase: migration.Park}, ago(time.Second))
	})
	undone := func(s *situation) { s.e.Gateways[0].ResourceVersion = "7" }
	counted := written.with(undone).with(func(s *situation) { s.memo.Freed.Times = 3 })
	for name, tc := range map[string]struct {
		of   situation
		want int
	}{
		"the first":           {written.with(func(s *situation) { s.memo.Freed = migration.Undone{} }), 0},
		"refused writes":      {written, 0},
		"undone":              {written.with(undone), 1},
		"again":               {counted, 4},
		"others are released": {counted.with(func(s *situation) { s.e.Gateways[1].Hold = model.Free }), 3},
		"ten minutes later":   {counted.with(func(s *situation) { s.memo.Freed.At = ago(10 * time.Minute) }), 0},
		"a request":           {counted.with(func(s *situation) { s.i.At = start }), 0},
	} {
		step, memo := migration.Decide(tc.of.e, tc.of.i, tc.of.memo, start)
		if _, acts := step.(migration.Act); !acts || memo.Freed.Times != tc.want {
			t.Errorf("%s: %d times, want %d: %#v", name, memo.Freed.Times, tc.want, step)
		}
	}
	rolls := onItsWay().with(func(s *situation) { s.e.Gateways[0].Hold, s.memo.Freed = model.Free, counted.memo.Freed })
	if step, memo := migration.Decide(rolls.e, rolls.i, rolls.memo, start); memo.Freed != (migration.Undone{}) {
		t.Errorf("after a hold: %#v, %+v", step, memo.Freed)
	}
}

// TestManyHeldGatewaysKeepNoOthers checks that a pass, which releases only the first 16 Gateways, comes to one that
// stays free after 40 that another client holds again.
func TestManyHeldGatewaysKeepNoOthers(t *testing.T) {
	t.Parallel()
	s := parked()
	s.e.Gateways = nil
	for i := range 41 {
		s.e.Gateways = append(s.e.Gateways, gateway(fmt.Sprintf("g%02d", i), model.Held, migration.OfHosted))
	}
	last := &s.e.Gateways[40]
	for now := start; last.Hold == model.Held; now = now.Add(time.Second) {
		if now.After(start.Add(20 * time.Minute)) {
			t.Fatal("it is still held")
		}
		var step migration.Step
		step, s.memo = migration.Decide(s.e, s.i, s.memo, now)
		act, acts := step.(migration.Act)
		if !acts {
			continue
		}
		for _, of := range act.Action.(migration.ReleaseGateways).Gateways[:16] {
			at := slices.IndexFunc(s.e.Gateways, func(g migration.Gateway) bool { return g.UID == of.UID })
			s.e.Gateways[at].ResourceVersion += "1"
			if of.UID == last.UID {
				last.Hold = model.Free
			}
		}
	}
}

// TestADeniedRelaxationKeepsNoGatewayHeld plays a guest that denies for an hour to relax the webhook, or reverts it. In
// the second case, it denies the release of a Gateway, too. The others are released at once. Neither write is tried
// more often than hypergate reads the guest, and neither keeps the other one from a try within two minutes.
func TestADeniedRelaxationKeepsNoGatewayHeld(t *testing.T) {
	t.Parallel()
	const pace = 15 * time.Second
	for name, keepsHold := range map[string]bool{"the webhook": false, "and a Gateway": true} {
		s := parked().with(func(s *situation) {
			s.e.Origin.Webhook = migration.WebhookBlocks
			s.e.Origin.Validator = model.ForeignObject{UID: "v", ResourceVersion: "1"}
			s.e.Gateways[0].Hold, s.e.Gateways[1].Hold = model.Held, model.Held
		})
		last, writes := map[migration.Write]time.Time{}, map[migration.Write]int{}
		for now := start; now.Before(start.Add(time.Hour)); now = now.Add(pace) {
			var step migration.Step
			step, s.memo = migration.Decide(s.e, s.i, s.memo, now)
			act, acts := step.(migration.Act)
			if !acts {
				t.Fatalf("%s: %#v", name, step)
			}
			write := act.Action.Writes()
			if before, is := last[write]; is && now.Sub(before) > 2*time.Minute {
				t.Errorf("%s: no %s between %s and %s", name, write, before, now)
			}
			last[write] = now
			writes[write]++
			if write == migration.WriteRelease {
				s.e.Gateways[1].Hold = model.Free
				if !keepsHold {
					s.e.Gateways[0].Hold = model.Free
				}
			}
			if now.Sub(start) >= pace && s.e.Gateways[1].Hold != model.Free {
				t.Fatalf("%s: a Gateway is still held after %s", name, now.Sub(start))
			}
		}
		if releases := writes[migration.WriteRelease]; writes[migration.WriteWebhook] < 60 || !keepsHold && releases != 1 {
			t.Errorf("%s: %v", name, writes)
		}
	}
}

// TestAnOriginThatReturnsIsAStop checks that the report of an origin that another client starts again becomes a stop,
// and stays one while it is parked again. It ends once the origin has stayed parked.
func TestAnOriginThatReturnsIsAStop(t *testing.T) {
	t.Parallel()
	s := parked().with(func(s *situation) { s.memo = migration.Memo{Phase: migration.Park, Since: ago(time.Hour)} })
	report, now, acts := migration.Report{}, start, 0
	for range 20 * 60 {
		s.e.Origin.Replicas, s.e.Origin.Pods = 1, 1 // its operator
		step, memo := migration.Decide(s.e, s.i, s.memo, now)
		report = migration.NewReport(s.e, s.i, step, memo, report, now)
		if _, is := step.(migration.Act); is {
			acts++
		}
		if stops := report.Progress == migration.Stopped; stops != (acts > 10) {
			t.Fatalf("after %d returns: %s %s", acts-1, report.Progress, report.Why)
		}
		s.memo, now = memo, now.Add(time.Second)
	}
	if acts != 20 || report.Why != migration.OriginReturns {
		t.Errorf("parked %d times in 20 minutes, and then %s", acts, report.Why)
	}
	s.e.Origin.Replicas, s.e.Origin.Pods = 0, 0
	step, memo := migration.Decide(s.e, s.i, s.memo, now.Add(time.Minute))
	if r := migration.NewReport(s.e, s.i, step, memo, report, now.Add(time.Minute)); r.Why != migration.Parked {
		t.Errorf("after it has stayed parked: %s %s", r.Progress, r.Why)
	}
}

// TestAnOriginThatIsNotParkedIsDenied checks that the report stays that of the denial while the guest denies that the
// origin is parked, also after ten tries.
func TestAnOriginThatIsNotParkedIsDenied(t *testing.T) {
	t.Parallel()
	s := parked().with(denies(migration.WriteReplicas, 0)).with(func(s *situation) {
		s.e.Origin.Replicas, s.e.Origin.Pods = 1, 1
		s.memo = migration.Memo{Phase: migration.Park, Since: ago(time.Hour)}
	})
	for i := range 20 * 60 {
		now := start.Add(time.Duration(i) * time.Second)
		step, memo := migration.Decide(s.e, s.i, s.memo, now)
		r := migration.NewReport(s.e, s.i, step, memo, migration.Report{}, now)
		if r.Why != migration.WriteDenied || r.Progress != migration.Waiting {
			t.Fatalf("after %d seconds: %s %s", i, r.Progress, r.Why)
		}
		s.memo = memo
	}
}

// TestPodsThatEndHaveTenMinutes checks that the time of pods that end begins when they are seen, and not when the
// origin was parked.
func TestPodsThatEndHaveTenMinutes(t *testing.T) {
	t.Parallel()
	s := parked().with(func(s *situation) {
		s.e.Origin.Pods, s.memo = 1, migration.Memo{Phase: migration.Park, Since: ago(time.Hour), ScaledAt: ago(time.Hour)}
	})
	for i := range 15 {
		now := start.Add(time.Duration(i) * time.Minute)
		step, memo := migration.Decide(s.e, s.i, s.memo, now)
		if _, stops := step.(migration.Stop); stops != (i >= 10) {
			t.Fatalf("after %d minutes: %#v", i, step)
		}
		s.memo = memo
	}
	s.e.Origin.Pods = 0
	if _, memo := migration.Decide(s.e, s.i, s.memo, start.Add(time.Hour)); !memo.Ending.IsZero() {
		t.Errorf("they have ended: %s", memo.Ending)
	}
}
