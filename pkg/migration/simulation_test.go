package migration_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// simulation is a guest with an istiod of its own, the management side, and a hypergate that may end at any time.
type simulation struct {
	t      *testing.T
	random *rand.Rand
	now    time.Time
	intent migration.Intent
	// memo is what the Lease has, and answered the request that it belongs to.
	memo     string
	answered migration.Intent
	last     migration.Step
	origin   simulatedOrigin
	hosted   simulatedHosted
	lock     migration.Lock
	// roots is the holder of the lock of the controller for roots. trusted reports whether the guest has the roots of
	// the hosted istiod.
	roots    migration.Lock
	trusted  bool
	gateways []*simulated
	// failing is the share of writes, in percent, that fail. idle is the number of passes in a row without a step.
	failing, idle int
	outage        model.Outage
	// blind is the share of readings, in percent, that end after those of the origin and of the lock. isBlind reports
	// whether the last one did.
	blind   int
	isBlind bool
	// unstored is the part of the memo that ends with the process of hypergate.
	unstored migration.Unstored
	// lasts reports whether hypergate never restarts.
	lasts bool
	// calmAt is the time of the last disturbance, and stopped that of the first pass of those that have stopped since.
	calmAt, stopped time.Time
}

type simulatedOrigin struct {
	// gone reports whether nothing of it is left, and undeployed whether only its Deployment is gone.
	gone, undeployed bool

	replicas int32
	// runs reports whether its pod is ready. It follows replicas at the time at.
	runs    bool
	at      time.Time
	webhook migration.WebhookPolicy
	// version changes with each write to the webhook.
	version string
	lead    migration.LeadMode
}

// simulatedHosted is the hosted istiod: the mode of its Deployment, and that of its pod.
type simulatedHosted struct {
	mode, runs migration.HostedMode
	at         time.Time
}

// simulated is a Gateway.
type simulated struct {
	migration.Gateway
	// broken reports whether pods of the hosted istiod never become ready.
	broken bool
	// stranded reports whether new pods of the origin never become ready. servedBy is the istiod of those that serve.
	stranded bool
	// stuck reports whether it had pods that never become ready before the migration, besides those that serve.
	stuck bool
	// isCut reports whether it has lost attached routes, because a person removed them.
	isCut    bool
	servedBy migration.Istiod
	readyAt  time.Time
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	t.Helper()
	w := &simulation{
		t: t, random: rand.New(rand.NewPCG(seed, 7)), now: start,
		origin: simulatedOrigin{replicas: 1, runs: true, webhook: migration.WebhookBlocks},
		hosted: simulatedHosted{mode: migration.HostedAbsent, runs: migration.HostedAbsent}, lock: migration.LockOrigin,
	}
	w.origin.replicas += w.random.Int32N(2)
	if w.random.IntN(5) == 0 {
		w.origin.lead = migration.WritesStatus
	}
	for i := range w.random.IntN(6) {
		g := &simulated{Gateway: gateway(fmt.Sprint("g", i), model.Free, migration.OfOrigin)}
		g.broken, g.stranded, g.servedBy = w.random.IntN(12) == 0, w.random.IntN(12) == 0, g.Of
		if w.random.IntN(12) == 0 {
			g.makeStuck()
		}
		switch w.random.IntN(20) {
		case 0:
			g.Hold = model.HeldByOther
		case 1:
			g.Skip = w.origin.lead == migration.Follows // the check blocks it otherwise
		case 2:
			g.Of, g.Deployment = migration.OfNone, model.GatewayDeployment{}
		}
		w.gateways = append(w.gateways, g)
	}
	return w
}

// makeStuck lets a rollout begin that never ends, with either istiod.
func (g *simulated) makeStuck() {
	g.stuck, g.broken, g.stranded = true, true, true
	g.Deployment.State, g.Deployment.Old = model.DeploymentRolling, 1
}

// loseDeployment lets a person delete the Deployment. istiod creates another one, unless the Gateway is held.
func (g *simulated) loseDeployment() {
	g.Of, g.servedBy, g.Connected, g.Deployment = migration.OfNone, migration.OfNone, false, model.GatewayDeployment{}
}

// lost reports whether no istiod may create a Deployment for the Gateway.
func (g *simulated) lost() bool { return g.Of == migration.OfNone && g.Hold == model.Held }

// gateway returns a Gateway whose pods work.
func gateway(name string, hold model.GatewayHold, of migration.Istiod) migration.Gateway {
	return migration.Gateway{
		ForeignObject: model.ForeignObject{
			Key: types.NamespacedName{Namespace: "shop", Name: name}, UID: types.UID("uid-" + name), ResourceVersion: "1",
		},
		Hold: hold, Of: of, Programmed: true, Routes: 2, Connected: of == migration.OfHosted,
		Deployment: model.GatewayDeployment{State: model.DeploymentComplete, Generation: 1, Wanted: 1},
	}
}

func (w *simulation) evidence() migration.Evidence {
	e := migration.Evidence{
		Origin: migration.Origin{
			Exists: !w.origin.gone, Undeployed: w.origin.undeployed,
			Replicas: w.origin.replicas, Webhook: w.origin.webhook, Lead: w.origin.lead,
			Validator: model.ForeignObject{Key: types.NamespacedName{Name: "istio-validator-r-ns"}, ResourceVersion: w.origin.version},
		},
		Hosted: migration.Hosted{Mode: w.hosted.mode, Ready: w.hosted.mode == w.hosted.runs, Trusted: w.trusted},
		Lock:   w.lock, Publisher: w.roots, Outage: w.outage,
	}
	if w.origin.runs {
		e.Origin.Pods, e.Origin.Ready = 1, 1
	}
	for _, g := range w.gateways {
		if g.Elsewhere && g.Hold != model.Held {
			continue // it is not read
		}
		one := g.Gateway
		one.OldOfOrigin = one.Of == migration.OfOrigin && g.servedBy == migration.OfOrigin
		e.Gateways = append(e.Gateways, one)
	}
	return e
}

// pass is one pass of hypergate. It can end between the write of its memory and its action.
func (w *simulation) pass() {
	w.t.Helper()
	memo, err := migration.ParseMemo(w.memo)
	if err != nil {
		w.t.Fatal(err)
	}
	if w.random.IntN(50) == 0 && !w.lasts {
		w.unstored = migration.Unstored{} // hypergate restarts
	}
	memo.Unstored = w.unstored
	memo = migration.Record{Intent: w.intent, Memo: memo, Report: migration.Report{Intent: w.answered}}.MemoAt(w.now)
	step, memo := w.decide(memo)
	if step == nil {
		return
	}
	if stop, stops := step.(migration.Stop); !stops {
		w.stopped = time.Time{}
	} else if before, also := w.last.(migration.Stop); !also || before.Why != stop.Why || w.stopped.IsZero() {
		w.stopped = w.now
	}
	w.last, w.unstored = step, memo.Unstored
	act, acts := step.(migration.Act)
	if acts && !slices.Contains(migration.Permitted(act.Phase), act.Action.Writes()) {
		w.t.Errorf("the phase %s writes: %s", act.Phase, act.Action.Writes())
	}
	encoded, err := memo.Encode()
	if err != nil {
		w.t.Fatal(err)
	}
	if w.fails() { // also a crash
		return
	}
	w.memo, w.answered = encoded, w.intent
	if acts && !w.fails() {
		w.checkAction(act)
		w.do(act.Action)
	}
}

// decide decides from all evidence, or from what a reading has that fails after the origin and the lock were read: the
// roots can be part of it.
func (w *simulation) decide(memo migration.Memo) (migration.Step, migration.Memo) {
	e := w.evidence()
	if w.isBlind = w.random.IntN(100) < w.blind; !w.isBlind {
		return migration.Decide(e, w.intent, memo, w.now)
	}
	e = migration.Evidence{Origin: e.Origin, Hosted: e.Hosted, Lock: e.Lock, Publisher: e.Publisher}
	e.Hosted.Trusted = e.Hosted.Trusted && w.random.IntN(2) == 0
	return migration.Rescue(e, w.intent, memo, w.now)
}

func (w *simulation) fails() bool { return w.random.IntN(100) < w.failing }

// checkAction checks what must be true before an action.
func (w *simulation) checkAction(act migration.Act) {
	w.t.Helper()
	need, free, ours := false, false, false
	for _, g := range w.gateways {
		if g.Elsewhere {
			continue
		}
		need = need || g.Of == migration.OfOrigin
		free = free || g.Of != migration.OfNone && g.Hold == model.Free
		ours = ours || g.Of == migration.OfHosted || g.servedBy == migration.OfHosted
	}
	switch a := act.Action.(type) {
	case migration.ScaleOrigin:
		isWriter := w.lock == migration.LockHosted && w.hosted.mode != migration.HostedServing
		if w.origin.undeployed {
			w.t.Errorf("a Deployment that does not exist is scaled")
		}
		mayWrite := w.isBlind && w.hosted.mode == migration.HostedLeading
		if a.Replicas > 0 && w.origin.lead == migration.WritesStatus && (isWriter || mayWrite) {
			w.t.Errorf("an origin that writes status starts beside the hosted istiod")
		}
		if a.Replicas == 0 && act.Phase == migration.Park && need {
			w.t.Errorf("the origin is parked while Gateways need it")
		}
		if a.Replicas == 0 && act.Phase == migration.Lead && w.settles() {
			w.t.Errorf("the origin gives up the lock while clients of the guest lag behind")
		}
		if a.Replicas == 0 && act.Phase == migration.Lead && free {
			w.t.Errorf("the origin gives up the lock while Gateways are not held")
		}
	case migration.SetHosted:
		if a.Mode == migration.HostedAlone && !w.origin.gone {
			w.t.Errorf("elections are off while there is an origin")
		}
		if a.Mode == migration.HostedAbsent && ours {
			w.t.Errorf("the hosted istiod is removed while Gateways need it")
		}
		if a.Mode == migration.HostedServing && w.hosted.mode == migration.HostedLeading && free {
			w.t.Errorf("the hosted istiod gives up the lock while Gateways are not held")
		}
	case migration.ReleaseGateways:
		if act.Phase == migration.Roll && len(a.Gateways) != 1 && w.hosted.mode != migration.HostedAbsent {
			w.t.Errorf("%d Gateways are released at once", len(a.Gateways))
		}
		if act.Phase == migration.Roll && w.settles() && w.hosted.mode != migration.HostedAbsent {
			w.t.Errorf("a Gateway is released while clients of the guest lag behind")
		}
	case migration.HoldGateways, migration.RelaxWebhook, migration.RestoreTemplate:
	}
}

// settles reports whether clients of the guest can lag behind after an outage of its API server.
func (w *simulation) settles() bool {
	return !w.outage.EndedAt.IsZero() && w.now.Sub(w.outage.EndedAt) < 2*time.Minute
}

// do carries out an action.
func (w *simulation) do(action migration.Action) {
	switch a := action.(type) {
	case migration.SetHosted:
		w.setHosted(a.Mode)
	case migration.HoldGateways:
		w.patch(a.Gateways, func(g *simulated) { g.Hold = model.Held })
	case migration.ReleaseGateways:
		w.patch(a.Gateways, func(g *simulated) { g.Hold = model.Free })
	case migration.ScaleOrigin:
		w.scale(a.Replicas)
	case migration.RelaxWebhook:
		w.origin.webhook, w.origin.version = migration.WebhookHarmless, w.origin.version+"1"
	case migration.RestoreTemplate:
		w.patch([]model.ForeignObject{a.Gateway}, func(g *simulated) {
			if g.Hold != model.Held {
				w.t.Errorf("the Deployment of a Gateway that is not held has two writers")
			}
			w.deploy(g, migration.OfOrigin)
		})
	}
}

func (w *simulation) setHosted(mode migration.HostedMode) {
	if w.hosted.mode == mode {
		return
	}
	// The pod ends, and gives up its lock, before another one starts.
	w.hosted.mode, w.hosted.runs, w.hosted.at = mode, migration.HostedAbsent, w.later(40)
	w.trusted = w.trusted && mode != migration.HostedAbsent // its CA is removed with it
	if w.lock == migration.LockHosted {
		w.lock = migration.LockFree
	}
}

func (w *simulation) scale(replicas int32) {
	if !w.origin.gone && !w.origin.undeployed && w.origin.replicas != replicas {
		w.origin.replicas, w.origin.at = replicas, w.later(20)
	}
}

// later returns a time within some seconds.
func (w *simulation) later(most int) time.Time {
	return w.now.Add(time.Duration(w.random.IntN(most*1000)) * time.Millisecond)
}

func (w *simulation) patch(all []model.ForeignObject, edit func(*simulated)) {
	for _, of := range all {
		i := slices.IndexFunc(w.gateways, func(g *simulated) bool { return g.UID == of.UID })
		if i < 0 || w.fails() {
			continue
		}
		if w.gateways[i].Hold == model.HeldByOther {
			w.t.Errorf("%s: another client holds it", of.Key)
		}
		edit(w.gateways[i])
		w.gateways[i].changed()
	}
}

// changed gives a Gateway another resource version, as each write does.
func (g *simulated) changed() { g.ResourceVersion += "1" }

// deploy gives a Gateway the addresses of an istiod.
func (w *simulation) deploy(g *simulated, of migration.Istiod) {
	g.Of, g.Connected = of, false
	g.Deployment.State, g.Deployment.Wanted = model.DeploymentRolling, max(1, g.Deployment.Wanted)
	g.Deployment.Generation++
	g.Deployment.Old = g.Deployment.Wanted
	g.readyAt = w.later(60)
}

// advance lets both istiods, the Deployment controller and kubelets work.
func (w *simulation) advance(by time.Duration) {
	w.t.Helper()
	w.now = w.now.Add(by)
	if !w.now.Before(w.origin.at) {
		w.origin.runs = !w.origin.gone && w.origin.replicas > 0
	}
	if !w.now.Before(w.hosted.at) {
		w.hosted.runs = w.hosted.mode
	}
	w.elect()
	w.write()
	for _, g := range w.gateways {
		serves := g.Of == migration.OfOrigin && w.origin.runs || g.Of == migration.OfHosted && w.hosted.runs != migration.HostedAbsent
		fails := g.broken && g.Of == migration.OfHosted || g.stranded && g.Of == migration.OfOrigin
		works := serves && !g.stuck && (!fails || g.servedBy == g.Of) // the pods of before still exist
		if g.Deployment.State == model.DeploymentRolling && !w.now.Before(g.readyAt) && works {
			g.Deployment.State, g.Connected = model.DeploymentComplete, g.Of == migration.OfHosted
			g.Deployment.Old, g.servedBy = 0, g.Of
		}
	}
}

// electRoots gives the lock of the controller for roots to one of those that want it. It is lost now and then. An
// istiod without elections publishes its roots in any case.
func (w *simulation) electRoots() {
	lost := w.roots == migration.LockOrigin && !w.origin.runs ||
		w.roots == migration.LockHosted && w.hosted.runs != migration.HostedLeading
	if lost || w.random.IntN(50) == 0 {
		w.roots = migration.LockFree
	}
	leads := w.hosted.runs == migration.HostedLeading
	switch {
	case w.roots != migration.LockFree:
	case w.origin.runs && (!leads || w.random.IntN(2) == 0):
		w.roots = migration.LockOrigin
	case leads:
		w.roots = migration.LockHosted
	}
	elects := leads || w.hosted.runs == migration.HostedAbsent
	w.trusted = w.trusted || w.roots == migration.LockHosted || !elects
}

// elect gives a free lock to one of those that want it.
func (w *simulation) elect() {
	w.electRoots()
	if w.lock == migration.LockOrigin && !w.origin.runs {
		w.lock = migration.LockFree
	}
	if w.hosted.runs == migration.HostedAlone {
		w.lock = migration.LockHosted
	}
	if w.lock != migration.LockFree || w.random.IntN(3) == 0 {
		return
	}
	var candidates []migration.Lock
	if w.origin.runs {
		candidates = append(candidates, migration.LockOrigin)
	}
	if w.hosted.runs == migration.HostedLeading {
		candidates = append(candidates, migration.LockHosted)
	}
	if len(candidates) > 0 {
		w.lock = candidates[w.random.IntN(len(candidates))]
	}
}

// write lets the istiods that deploy Gateways work. There is at most one for each Gateway.
func (w *simulation) write() {
	w.t.Helper()
	var writers []migration.Istiod
	if w.origin.runs && (w.lock == migration.LockOrigin || w.hosted.runs == migration.HostedAlone) {
		writers = append(writers, migration.OfOrigin)
	}
	if w.lock == migration.LockHosted && w.hosted.runs != migration.HostedAbsent {
		writers = append(writers, migration.OfHosted)
	}
	for _, g := range w.gateways {
		if g.Hold != model.Free || len(writers) == 0 || g.Elsewhere {
			continue
		}
		if len(writers) > 1 {
			w.t.Errorf("%s: its Deployment has two writers", g.Key)
		}
		if g.Of != writers[0] && w.random.IntN(2) == 0 {
			w.deploy(g, writers[0])
		}
	}
}
