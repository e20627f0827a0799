package rollout_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/rollout"
)

// simulation is a guest, an istiod and a hypergate that may end at any time.
type simulation struct {
	random   *rand.Rand
	now      time.Time
	mode     model.GatewayRollout
	gateways []*simulated
	// has is the configuration of istiod's Deployment, runs that of the pod that deploys gateways.
	has, runs, wanted string
	rollsUntil        time.Time
	// elected reports whether there are several istiods. leads is when one of them deploys Gateways after a change.
	elected bool
	leads   time.Time
	classes []*simulatedClass
	watched bool
	// failing is the share of patches, in percent, that fail.
	failing   int
	forbidden bool
	memo      rollout.Memo
	last      rollout.Step
	outage    model.Outage
}

// simulatedClass has defaults for pods: those that it should have, those that the guest has, and those that istiod has
// read, from a time on.
type simulatedClass struct {
	wanted, has, read string
	readsAt           time.Time
	refused           bool
}

// simulated is a Gateway. of is the configuration that its pods have.
type simulated struct {
	model.Gateway
	class   *simulatedClass
	of      string
	pending string // the configuration that istiod will give it, and when
	at      time.Time
	readyAt time.Time
	// broken reports whether new pods never become ready. inert reports whether configurations make no difference for
	// it.
	broken, inert bool
	// denied reports whether the guest denies patches of it. restored reports whether another client holds it again
	// after each release.
	denied, restored bool
	// released reports whether hypergate released it, and has not held it since.
	released bool
}

func newSimulation(seed uint64) *simulation {
	w := &simulation{
		random: rand.New(rand.NewPCG(seed, 1)), now: start, mode: model.OneByOne, has: "1", runs: "1", wanted: "1",
		elected: seed%2 == 1,
		classes: []*simulatedClass{{wanted: "d1", has: "d1", read: "d1"}, {wanted: "d1", has: "d1", read: "d1"}},
	}
	for i := range w.random.IntN(8) {
		g := &simulated{Gateway: free(fmt.Sprint("g", i)), class: w.classes[i%2], of: "1/d1", inert: w.random.IntN(6) == 0}
		g.Deployment.Wanted = w.random.Int32N(3)
		switch w.random.IntN(8) {
		case 0:
			g.Hold = model.HeldByOther
		case 1:
			g.Deployment = model.GatewayDeployment{}
		}
		w.gateways = append(w.gateways, g)
	}
	return w
}

// evidence returns what hypergate sees.
func (w *simulation) evidence() rollout.Evidence {
	e := rollout.Evidence{
		Now: w.now, Mode: w.mode, Wanted: w.wanted, Has: w.has, Installed: true, Istiod: model.Available, Rollout: model.RolledOut,
		Outage: w.outage, Elected: w.elected,
	}
	for i, class := range w.classes {
		e.Defaults = append(e.Defaults, rollout.ClassDefaults{Class: fmt.Sprint(i), Wanted: class.wanted, Has: class.has})
	}
	if w.now.Before(w.rollsUntil) {
		e.Rollout = model.Rolling
	}
	if w.watched {
		e.Gateways.View = model.GatewaysKnown
		for _, g := range w.gateways {
			e.Gateways.List = append(e.Gateways.List, g.Gateway)
		}
	}
	return e
}

// pass is one pass of hypergate.
func (w *simulation) pass(t *testing.T) {
	t.Helper()
	e := w.evidence()
	memo := w.memo.Before(e)
	step := rollout.Decide(e, memo)
	w.last, w.memo = step, memo.After(e, step)
	switch rollout.WatchingFor(step) {
	case rollout.WatchOn:
		w.watched = true
	case rollout.WatchOff:
		w.watched = false
	case rollout.WatchUnchanged:
	}
	switch s := step.(type) {
	case rollout.Hold:
		for _, g := range s.Gateways {
			w.patch(t, e, step, g, model.Held)
		}
	case rollout.Release:
		w.mayRelease(t, s.Gateway)
		if w.patch(t, e, step, s.Gateway, model.Free) {
			w.memo = w.memo.AfterRelease(s.Gateway, w.now)
		}
	case rollout.ReleaseAll:
		t.Errorf("one by one, all are released")
	}
	if !rollout.HoldsIstiod(step) && w.has != w.wanted {
		w.has, w.rollsUntil = w.wanted, w.now.Add(time.Duration(w.random.IntN(30))*time.Second)
	}
	if !rollout.HoldsIstiod(step) {
		w.writeDefaults(e)
	}
}

// writeDefaults writes the defaults of the classes, as far as the guest accepts them. istiod reads them a moment later.
func (w *simulation) writeDefaults(e rollout.Evidence) {
	var tried []string
	for i, class := range w.classes {
		tried = append(tried, fmt.Sprint(i))
		if !class.refused && class.has != class.wanted {
			class.has, class.readsAt = class.wanted, w.now.Add(time.Duration(w.random.IntN(3000))*time.Millisecond)
		}
	}
	w.memo, _ = w.memo.AfterWrites(e, tried)
}

// target returns what istiod gives a Gateway now.
func (w *simulation) target(g *simulated) string { return w.runs + "/" + g.class.read }

// patch changes the hold of a Gateway, or fails. No patch may reach a Gateway that another client holds.
func (w *simulation) patch(t *testing.T, e rollout.Evidence, step rollout.Step, of model.Gateway, to model.GatewayHold) bool {
	t.Helper()
	if w.forbidden {
		w.memo = w.memo.AfterForbidden(e, step)
		return false
	}
	i := slices.IndexFunc(w.gateways, func(g *simulated) bool { return g.UID == of.UID })
	if i < 0 || w.random.IntN(100) < w.failing {
		return false
	}
	g := w.gateways[i]
	if g.denied {
		w.memo = w.memo.AfterPatches(e, step, nil, map[types.UID]string{of.UID: "denied"})
		w.last = w.memo.Tried(e, step)
		return false
	}
	w.memo = w.memo.AfterPatches(e, step, []types.UID{of.UID}, nil)
	w.last = w.memo.Tried(e, step)
	if g.Hold == model.HeldByOther || g.Hold == to {
		t.Errorf("%s: a Gateway with the hold %d is patched to %d", g.Key, g.Hold, to)
	}
	g.Hold, g.released, g.pending = to, to == model.Free, ""
	if g.released {
		w.deploy(g)
	}
	return true
}

// mayRelease checks that no other Gateway rolls. Those that istiod deploys a moment after a release count, too.
func (w *simulation) mayRelease(t *testing.T, next model.Gateway) {
	t.Helper()
	if !w.outage.EndedAt.IsZero() && w.now.Sub(w.outage.EndedAt) < 2*time.Minute {
		t.Errorf("%s is released while clients of the guest lag behind", next.Key)
	}
	for _, g := range w.gateways {
		rolls := g.released && g.Deployment.Generation > 0 && (g.pending != "" || g.Deployment.State != model.DeploymentComplete)
		if rolls && g.UID != next.UID {
			t.Errorf("%s is released while %s rolls (pending %q, state %d)", next.Key, g.Key, g.pending, g.Deployment.State)
		}
	}
}

// deploy makes istiod deploy a Gateway within a second. An istiod of before, which has ended, deploys nothing more.
func (w *simulation) deploy(g *simulated) {
	g.pending = ""
	if g.of != w.target(g) && !g.inert {
		from := w.now
		if w.leads.After(from) {
			from = w.leads
		}
		g.pending, g.at = w.target(g), from.Add(time.Duration(w.random.IntN(1000))*time.Millisecond)
	}
}

// advance passes time, and lets istiod and the Deployment controller work.
func (w *simulation) advance(by time.Duration) {
	w.now = w.now.Add(by)
	if !w.now.Before(w.rollsUntil) && w.runs != w.has {
		w.runs = w.has
		if w.elected {
			w.leads = w.rollsUntil.Add(time.Duration(w.random.IntN(47)) * time.Second)
		}
		for _, g := range w.gateways {
			if g.Hold == model.Free {
				w.deploy(g)
			}
		}
	}
	for _, class := range w.classes {
		if class.read != class.has && !w.now.Before(class.readsAt) {
			class.read = class.has
			w.redeploy(class)
		}
	}
	for _, g := range w.gateways {
		if g.restored && g.released && w.watched { // what happens after the end is not seen
			g.Hold, g.released = model.Held, false
		}
		if g.pending != "" && !w.now.Before(g.at) && g.Hold == model.Free {
			g.of, g.pending = g.pending, ""
			g.Deployment.State = model.DeploymentRolling
			g.Deployment.Generation++
			g.readyAt = w.now.Add(time.Duration(w.random.IntN(60)) * time.Second)
			if g.broken {
				g.readyAt = w.now.Add(1000 * time.Hour)
			}
		}
		switch {
		case g.Deployment.State != model.DeploymentRolling:
		case !w.now.Before(g.readyAt):
			g.Deployment.State = model.DeploymentComplete
		case g.broken && w.random.IntN(20) == 0:
			g.Deployment.State = model.DeploymentStuck
		}
	}
}

// redeploy makes istiod deploy the Gateways of a class that are not held.
func (w *simulation) redeploy(class *simulatedClass) {
	for _, g := range w.gateways {
		if g.class == class && g.Hold == model.Free {
			w.deploy(g)
		}
	}
}

// accept makes the guest accept the defaults of a class, or not. Gateways that hypergate released without them roll at
// once when it does.
func (w *simulation) accept(class *simulatedClass, accepts bool) {
	class.refused = !accepts
	if !accepts || class.has == class.wanted {
		return
	}
	for _, g := range w.gateways {
		g.released = g.released && g.class != class
	}
}

// disturb does something that can happen at any time.
func (w *simulation) disturb() {
	switch w.random.IntN(16) {
	case 0:
		w.memo, w.watched = rollout.Memo{}, false // hypergate restarts
	case 1:
		w.wanted = fmt.Sprint(1 + w.random.IntN(3))
	case 2:
		w.failing = 30 * w.random.IntN(3)
	case 3:
		if len(w.gateways) > 0 {
			w.gateways[w.random.IntN(len(w.gateways))].broken = w.random.IntN(2) == 0
		}
	case 4:
		if len(w.gateways) > 0 {
			i := w.random.IntN(len(w.gateways))
			w.gateways = slices.Delete(w.gateways, i, i+1)
		}
	case 5:
		w.forbidden = w.random.IntN(4) == 0
	case 6:
		if w.random.IntN(4) == 0 {
			w.advance(time.Duration(w.random.IntN(300)) * time.Second) // the guest's API server is away
			w.outage.EndedAt = w.now
		}
	case 7:
		if len(w.gateways) > 0 {
			w.gateways[w.random.IntN(len(w.gateways))].denied = w.random.IntN(2) == 0
		}
	case 8:
		if len(w.gateways) > 0 {
			w.gateways[w.random.IntN(len(w.gateways))].restored = w.random.IntN(4) == 0
		}
	case 9:
		w.classes[w.random.IntN(2)].wanted = fmt.Sprint("d", 1+w.random.IntN(3))
	case 10:
		w.accept(w.classes[w.random.IntN(2)], w.random.IntN(3) > 0)
	}
}

// TestARolloutEndsOrStops plays rollouts with crashes, other versions, failing and denied patches, releases that
// another client undoes, lost permissions and pods that do not become ready. At most one Gateway is released at once,
// no Gateway of another client is patched, and each rollout ends or stops with a reason.
func TestARolloutEndsOrStops(t *testing.T) {
	t.Parallel()
	ends := map[string]int{}
	for seed := range uint64(2000) {
		w := newSimulation(seed)
		w.wanted = "2"
		for range 60 {
			w.disturb()
			w.pass(t)
			w.advance(time.Duration(w.random.IntN(3000)) * time.Millisecond)
			if w.random.IntN(5) == 0 {
				w.advance(30 * time.Second) // without an event
			}
		}
		w.failing = 0
		for range 2000 { // longer than all of the Gateways take, one after another
			w.pass(t)
			w.advance(time.Second)
		}
		for range 30 { // a release is tried once a minute, and the rollout stops again
			if _, stops := w.last.(rollout.Stop); stops {
				break
			}
			w.pass(t)
			w.advance(time.Second)
		}
		ends[w.end(t, seed)]++
		ends["refused defaults"] += w.refusedDefaults(t, seed)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	for _, end := range []string{"done", "pods", "forbidden", "denied", "held again", "limited", "refused defaults"} {
		if ends[end] == 0 {
			t.Errorf("no rollout ends with %q: %v", end, ends)
		}
	}
}

// end checks how a rollout ended, and returns it.
func (w *simulation) end(t *testing.T, seed uint64) string {
	t.Helper()
	var held, old int
	for _, g := range w.gateways {
		if g.Hold == model.Held {
			held++
		}
		if g.Hold == model.Free && g.Deployment.Generation > 0 && g.of != w.wanted+"/"+g.class.has && !g.inert {
			old++
		}
	}
	switch s := w.last.(type) {
	case rollout.Done:
		if held > 0 || old > 0 || w.watched {
			t.Errorf("seed %d: done, with %d held Gateways and %d old ones; Gateways are watched: %t", seed, held, old, w.watched)
		}
		if w.memo.Report(w.evidence(), s).Limit != rollout.NoLimit {
			return "limited"
		}
		return "done"
	case rollout.Stop:
		if s.Why == rollout.MayNotRelease {
			if !w.forbidden {
				t.Errorf("seed %d: stopped although patches are allowed", seed)
			}
			return "forbidden"
		}
		if s.Why == rollout.ReleaseDenied || s.Why == rollout.HeldAgain {
			return w.notReleased(t, seed, s)
		}
		if s.Gateway.Deployment.State == model.DeploymentComplete || s.Gateway.Key.Name == "" {
			t.Errorf("seed %d: stopped for %v", seed, s.Gateway)
		}
		return "pods"
	default:
		t.Errorf("seed %d: %T %+v after all that", seed, s, s)
		return "neither"
	}
}

// refusedDefaults returns how many classes have other defaults in the end, and checks that the guest refuses these, and
// that a report names them.
func (w *simulation) refusedDefaults(t *testing.T, seed uint64) int {
	t.Helper()
	refused := w.memo.Report(w.evidence(), w.last).Refused
	for i, class := range w.classes {
		differs := class.has != class.wanted
		if _, held := w.last.(rollout.Stop); held {
			continue // perhaps before the change
		}
		if differs != slices.Contains(refused, fmt.Sprint(i)) || differs && !class.refused {
			t.Errorf("seed %d: class %d has %s, wanted %s; the guest refuses it: %t; the report has %v",
				seed, i, class.has, class.wanted, class.refused, refused)
		}
	}
	return len(refused)
}

// notReleased checks a rollout that stopped because Gateways stay held, and returns how it ended.
func (w *simulation) notReleased(t *testing.T, seed uint64, s rollout.Stop) string {
	t.Helper()
	for _, g := range w.gateways {
		if g.Hold == model.Held && !g.denied && !g.restored {
			t.Errorf("seed %d: stopped for %s: %s is held, and can be released", seed, s.Gateway.Key, g.Key)
		}
		if g.UID == s.Gateway.UID && (s.Why == rollout.ReleaseDenied && !g.denied || s.Why == rollout.HeldAgain && !g.restored) {
			t.Errorf("seed %d: stopped for %s with %s", seed, g.Key, s.Why)
		}
	}
	if s.Why == rollout.HeldAgain {
		return "held again"
	}
	return "denied"
}
