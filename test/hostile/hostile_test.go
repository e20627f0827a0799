package hostile_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/adversary"
	"github.com/hypergate/hypergate/test/hang"
	"github.com/hypergate/hypergate/test/published"
)

var (
	seedFlag     = flag.Uint64("seed", 1, "seed of TestHostile; 0: another one each time")
	durationFlag = flag.Duration("duration", 30*time.Second, "how long TestHostile's guest lies; it makes each move once at least")
	limitedFlag  = flag.Bool("limited", false, "run TestEveryMoveWithinTheMemoryLimit, which needs root")
)

const (
	hcpVersion  = "hypershift.openshift.io/v1beta1"
	hcps        = "hostedcontrolplanes"
	classAPI    = "gateway.networking.k8s.io/v1"
	classes     = "gatewayclasses"
	crdAPI      = "apiextensions.k8s.io/v1"
	crdResource = "customresourcedefinitions"
	webhookAPI  = "admissionregistration.k8s.io/v1"
	controller  = "example.com/gateway-controller"
	guestNS     = "openshift-ingress"

	// recovery is the time in which both sides must return to their earlier state. It is long because a watch that
	// often exceeds its limit pauses for five minutes.
	recovery = 15 * time.Minute

	// namespace is a unique name that must never reach the guest.
	namespace = "clusters-canary-of-management"
	// longestText is the maximum length of a text in a lie, in bytes.
	longestText = 1 << 20
	// mostActive is the maximum number of active lies.
	mostActive = 4
	// mostFailures is the number of failures after which no more are recorded.
	mostFailures = 20
)

// TestHostile runs hypergate against a guest that lies in one or several ways at a time. After each step it checks
// the invariants. In the end the guest is honest again, and both sides must become what an honest guest leads to.
//
// The seed decides the moves, their order and their content. The order of requests also decides which request meets
// which lie. So the same seed gives a similar run, but not an identical one.
func TestHostile(t *testing.T) {
	seed := seedOf(t)
	t.Logf("make hostile SEED=%d DURATION=%s", seed, *durationFlag)
	w := newHostileRun(t, seed, nil)
	w.installHonestly()
	before := w.reached()
	w.lie(*durationFlag)
	w.becomeHonest()
	w.reachAll(before)
}

// seedOf returns the seed of the flag, or a random one if the flag is 0.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	return seed
}

// hostileRun is hypergate between an honest management side and a guest that lies.
type hostileRun struct {
	t         *testing.T
	random    *rand.Rand
	m, g      *adversary.Server
	child     *child
	ended     usage // of processes that ended since the last check
	whole     whole
	began     time.Time // when the guest began to lie
	checked   time.Time // when the last check was, or when the guest began to lie
	group     *memoryGroup
	watcher   *watcher
	elsewhere *adversary.Server // the target of the guest's redirects
	published string            // the address of a stand-in for istiod
	honest    map[string]string
	root      string // the root of the first installation's mesh CA
	// original holds the guest's objects while the guest was honest.
	original map[string]map[string]any
	active   []*lie
	// patience is how long a move waits for a write that it must reach.
	patience time.Duration

	mu          sync.Mutex
	liar        *adversary.Liar
	shapes      map[string]*adversary.Shape
	handlers    map[string]adversary.Handler
	alterations map[string]adversary.Alteration
}

// lie is a move that is active.
type lie struct {
	move
	undo func()
}

func newHostileRun(t *testing.T, seed uint64, group *memoryGroup) *hostileRun {
	t.Helper()
	w := &hostileRun{
		t: t, group: group, random: rand.New(rand.NewPCG(seed, 0)), liar: adversary.NewLiar(seed, longestText),
		m: adversary.Mgmt(t, namespace), g: adversary.Guest(t), elsewhere: adversary.New(t),
		handlers: map[string]adversary.Handler{}, alterations: map[string]adversary.Alteration{}, patience: 3 * time.Second,
	}
	w.published = published.Listen(t, func() map[string][]byte { return adversary.SecretData(w.m, namespace, model.CASecretName) })
	w.watcher = newWatcher(w)
	serveMore(w.g)
	w.putHCP("")
	w.m.Between(func(rw http.ResponseWriter, r *http.Request) bool {
		answered := w.watcher.management(rw, r)
		w.watcher.underWay(r)
		return answered
	})
	w.g.Between(func(rw http.ResponseWriter, r *http.Request) bool {
		w.watcher.guest(r)
		w.watcher.underWay(r)
		return w.between(rw, r)
	})
	w.g.Alter(w.altered)
	w.start()
	t.Cleanup(func() {
		w.stop()
		if t.Failed() {
			t.Logf("the end of hypergate's log:\n%s", w.child.tail())
		}
	})
	return w
}

// start starts hypergate and waits until it answers.
func (w *hostileRun) start() {
	w.child = startChild(w.t, namespace, w.m, w.g, w.published, w.group)
	for range polls(hang.Deadline) {
		if w.child.works(w.t.Context()) || !w.running() {
			return
		}
	}
	w.t.Fatal("hypergate does not answer after its start")
}

func (w *hostileRun) putHCP(spec string) {
	w.m.Put(hcpVersion, hcps, adversary.HostedControlPlane(namespace, spec))
}

func (w *hostileRun) putClass() {
	w.g.Put(classAPI, classes, adversary.GatewayClass("demo", controller))
}

// installHonestly lets hypergate install while the guest is honest, and records the resulting state.
func (w *hostileRun) installHonestly() {
	w.t.Helper()
	w.putClass()
	installed := func() bool { return w.settled() && adversary.WebhookFailsClosed(w.g) }
	for range polls(hang.Deadline) {
		if w.running() && installed() {
			break
		}
	}
	if !installed() {
		w.t.Fatalf("an honest guest is not installed: %v", w.m.Get(hcpVersion, hcps, namespace, "guest1")["status"])
	}
	w.honest, w.original, w.root = w.snapshot(), w.g.Objects(), w.meshRoot()
	w.migrateHonestly()
	w.sinceCheck()
	w.watcher.learn()
	w.began = time.Now()
	w.checked = w.began
	w.shapes = shapes(w.t, w.g)
	n := 0
	for _, shape := range w.shapes {
		n += shape.Paths()
	}
	w.t.Logf("an honest guest leads to %d objects; lies are possible at %d places of %d kinds", len(w.honest), n, len(w.shapes))
}

// running fails the test if hypergate has ended.
func (w *hostileRun) running() bool {
	w.t.Helper()
	select {
	case <-w.child.Done():
		w.t.Fatalf("hypergate ended: %v", w.child.Exit())
	default:
	}
	return true
}

// lie makes and undoes moves for this duration, and until each was made once.
func (w *hostileRun) lie(duration time.Duration) {
	w.t.Helper()
	end, all := time.Now().Add(duration), len(moves())
	w.lieWhile(func(step int) (goOn bool, longest time.Duration) {
		if step <= all {
			return true, shortStep
		}
		return time.Now().Before(end), longStep
	})
}

// lieOnce makes each move once.
func (w *hostileRun) lieOnce() {
	w.t.Helper()
	w.lieWhile(func(step int) (bool, time.Duration) { return step <= len(moves()), longStep })
}

// A step waits for 200 ms at least, and for one of these times at most. With the short one, the steps of all moves wait
// for 22 seconds together. A move stays active for several steps.
const shortStep, longStep = 600 * time.Millisecond, 1500 * time.Millisecond

// lieWhile makes and undoes moves. It makes each move once before it repeats any. goOn returns whether there is another
// step, and how long it lasts at most.
func (w *hostileRun) lieWhile(goOn func(step int) (bool, time.Duration)) {
	w.t.Helper()
	const shortest = 200 * time.Millisecond
	var next []move
	made := map[string]bool{}
	for step := 1; ; step++ {
		more, longest := goOn(step)
		if !more {
			break
		}
		if len(next) == 0 {
			next = moves()
			w.random.Shuffle(len(next), func(i, j int) { next[i], next[j] = next[j], next[i] })
		}
		if len(w.active) >= mostActive || len(w.active) > 0 && w.random.IntN(4) == 0 {
			w.undo(w.random.IntN(len(w.active)))
		}
		if m := next[0]; !slices.ContainsFunc(w.active, func(l *lie) bool { return l.name == m.name }) {
			w.active = append(w.active, &lie{m, m.make(w)})
			made[m.name] = true
		}
		next = next[1:]
		<-time.After(shortest + time.Duration(w.random.Int64N(int64(longest-shortest))))
		w.running()
		w.check(fmt.Sprintf("step %d (%s)", step, strings.Join(w.names(), "; ")))
	}
	for _, m := range moves() {
		if !made[m.name] {
			w.t.Errorf("this move was never made: %s", m.name)
		}
	}
	w.t.Logf("%d of %d moves were made", len(made), len(moves()))
}

func (w *hostileRun) undo(i int) {
	l := w.active[i]
	w.active = slices.Delete(w.active, i, i+1)
	if l.undo != nil {
		l.undo()
	}
}

func (w *hostileRun) names() []string {
	out := make([]string, 0, len(w.active))
	for _, l := range w.active {
		out = append(out, l.name)
	}
	return out
}

// becomeHonest undoes all moves, and waits until both sides have their earlier state.
func (w *hostileRun) becomeHonest() {
	w.t.Helper()
	for len(w.active) > 0 {
		w.undo(len(w.active) - 1)
	}
	w.cleanUp()
	w.serveAll()
	begin, minutes := time.Now(), 1
	recovered := w.asHonest()
	for range polls(recovery) {
		w.running()
		if recovered = w.asHonest(); recovered {
			break
		}
		if time.Since(begin) > time.Duration(minutes)*time.Minute {
			w.t.Logf("after %d minutes both sides still differ: %s", minutes, w.difference())
			w.serveAll() // what was read of a CRD can be older than the last lie
			minutes++
		}
	}
	took := time.Since(begin).Round(100 * time.Millisecond)
	if !recovered {
		w.t.Errorf("the guest is honest again, but after %s both sides do not have their earlier state: %s", took, w.difference())
	} else {
		w.t.Logf("both sides have their state with an honest guest %s after the last lie", took)
	}
	w.check("the end")
	w.checkRun()
	w.watcher.summary()
}

// cleanUp removes the objects that moves left behind, for example from a restored backup, and restores the objects
// that moves removed. It leaves objects of hypergate alone, because hypergate must repair them.
func (w *hostileRun) cleanUp() {
	for key, o := range w.g.Objects() {
		if w.original[key] == nil && !ours(o) {
			remove(w.g, key, o)
		}
	}
	now := w.g.Objects()
	for key, o := range w.original {
		if !ours(o) && (now[key] == nil || text(normal(now[key])) != w.honest["guest "+key]) {
			resource, _, _ := strings.Cut(key, " ")
			put(w.g, resource, o)
		}
	}
}

// polls yields every 100 ms until the duration has passed.
func polls(until time.Duration) func(func(int) bool) {
	return func(yield func(int) bool) {
		end := time.Now().Add(until)
		for i := 0; time.Now().Before(end) && yield(i); i++ {
			<-time.After(100 * time.Millisecond)
		}
	}
}

// between offers a request to the handlers of the active lies, in the order of their names.
func (w *hostileRun) between(rw http.ResponseWriter, r *http.Request) bool {
	for _, h := range sortedValues(w, w.handlers) {
		if h(rw, r) {
			return true
		}
	}
	return false
}

func (w *hostileRun) altered(key string, o map[string]any) map[string]any {
	for _, a := range sortedValues(w, w.alterations) {
		o = a(key, o)
	}
	return o
}

func sortedValues[V any](w *hostileRun, all map[string]V) []V {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	out := make([]V, 0, len(all))
	for _, name := range names {
		out = append(out, all[name])
	}
	return out
}

// handle adds a handler and returns a function that removes it.
func (w *hostileRun) handle(name string, h adversary.Handler) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handlers[name] = h
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.handlers, name)
	}
}

// alter adds an alteration and returns a function that removes it. Both end all watches, so that new watches show the
// change.
func (w *hostileRun) alter(name string, a adversary.Alteration) func() {
	w.mu.Lock()
	w.alterations[name] = a
	w.mu.Unlock()
	w.g.Drop()
	return func() {
		w.mu.Lock()
		delete(w.alterations, name)
		w.mu.Unlock()
		w.g.Drop()
	}
}

// lies lets the Liar choose a value. It takes the lock, because handlers run concurrently.
func lies[V any](w *hostileRun, choose func(*adversary.Liar) V) V {
	w.mu.Lock()
	defer w.mu.Unlock()
	return choose(w.liar)
}

// chance returns true in n percent of the calls.
func (w *hostileRun) chance(n int) bool {
	return lies(w, func(l *adversary.Liar) bool { return l.IntN(100) < n })
}
