package adversary_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
	"github.com/hypergate/hypergate/test/adversary"
)

// gate holds back requests until it is opened or their client gives up.
type gate struct {
	mu           sync.Mutex
	held, gaveUp int
	opened       chan struct{}
}

// hold makes a server hold back the requests with this method and with this text in their URL.
func hold(t *testing.T, s *adversary.Server, method, text string) *gate {
	t.Helper()
	g := &gate{opened: make(chan struct{})}
	t.Cleanup(g.open)
	s.Between(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != method || !strings.Contains(r.URL.RequestURI(), text) {
			return false
		}
		g.count(&g.held)
		select {
		case <-g.opened:
			return false
		case <-r.Context().Done():
			g.count(&g.gaveUp)
			return true
		}
	})
	return g
}

func (g *gate) count(what *int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	*what++
}

// open releases all requests: the held ones and later ones.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.opened:
	default:
		close(g.opened)
	}
}

// holds returns the number of requests that the gate held back, and how many of their clients gave up.
func (g *gate) holds() (held, gaveUp int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held, g.gaveUp
}

// written returns the writes in a server's log from an index on, without those of the HostedControlPlane's
// conditions.
func written(s *adversary.Server, from int) []string {
	var out []string
	for _, r := range s.Log()[from:] {
		if r.Method != http.MethodGet && !strings.Contains(r.Path, hcps) {
			out = append(out, r.String())
		}
	}
	return out
}

// sent is a log of the writes that hypergate sends to both sides, also of the HostedControlPlane's conditions. The log
// of a server has a request only when the server begins to handle it, which can be after its client gave up.
type sent struct {
	mu     sync.Mutex
	writes []string
}

// record adds the log to the clients of a controller.
func (s *sent) record(o *controller.Options) {
	for _, config := range []*rest.Config{o.MgmtConfig, o.GuestConfig} {
		config.Wrap(s.wrap)
	}
}

// wrap adds the log to one client.
func (s *sent) wrap(next http.RoundTripper) http.RoundTripper { return recorder{s, next} }

// since returns the writes from an index on. soFar is the index of the next one.
func (s *sent) since(from int) (writes []string, soFar int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.writes[from:]), len(s.writes)
}

// recorder is a transport that logs what it sends.
type recorder struct {
	log  *sent
	next http.RoundTripper
}

// RoundTrip sends a request. net/http sends none whose context has ended.
func (r recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodGet && request.Context().Err() == nil {
		r.log.mu.Lock()
		r.log.writes = append(r.log.writes, request.Method+" "+request.URL.Path)
		r.log.mu.Unlock()
	}
	return r.next.RoundTrip(request)
}

// askedClock is the clock of a controller. It counts how often its time is asked for. While the HostedControlPlane is
// paused or deleted, only passes ask.
type askedClock struct {
	clock.RealClock

	times atomic.Int64
}

// Now returns the time, and counts.
func (c *askedClock) Now() time.Time {
	c.times.Add(1)
	return c.RealClock.Now()
}

// changeUntilPasses adds classes to a guest until several passes began after the first of them. Without these passes, a
// test in which nothing is written shows nothing.
func (c *askedClock) changeUntilPasses(t *testing.T, g *adversary.Server) {
	t.Helper()
	const mostInPass, passes = 10, 3
	more, before := 0, c.times.Load()
	eventually(t, "passes begin after the changes", func() bool {
		putClass(g, fmt.Sprintf("one-more-%d", more))
		more++
		return c.times.Load() > before+mostInPass*passes
	})
}

// noTimeout fails the test if a request ran into its timeout.
func noTimeout(t *testing.T, log *logged) {
	t.Helper()
	for _, text := range []string{"deadline exceeded", "timed out", "Client.Timeout"} {
		if strings.Contains(log.String(), text) {
			t.Errorf("a pass continued until a request timed out (%q in the log)", text)
		}
	}
}

// endings are the changes that end the work of hypergate. The tests apply each to the management side while a pass
// waits for the guest.
func endings() map[string]struct{ plane, logged string } {
	deleted := strings.Replace(hcp(""), "uid: hcp-uid",
		"uid: hcp-uid, deletionTimestamp: '2026-11-22T04:00:00Z', finalizers: [hypershift.openshift.io/finalizer]", 1)
	return map[string]struct{ plane, logged string }{
		"paused":  {hcp(", pausedUntil: 'true'"), "it is paused"},
		"deleted": {deleted, "it is being deleted"},
	}
}

// slowWrites are writes that a side delays, by a part of their path. In the tests, the work of hypergate ends
// meanwhile.
func slowWrites() map[string]model.Side {
	return map[string]model.Side{"/clusterroles/": model.SideGuest, "/status": model.SideGuest, "/deployments/": model.SideMgmt}
}

// TestNothingIsWrittenAfterAPauseOrDeletion pauses or deletes the HostedControlPlane while a side delays writes. The
// current pass ends and gives up its requests. hypergate reports the pause at once.
//
// After that, it writes nothing on either side, even when the side answers again. The guest changes meanwhile, so that
// there is something to write in several passes.
func TestNothingIsWrittenAfterAPauseOrDeletion(t *testing.T) {
	t.Parallel()
	for name, end := range endings() {
		for held, side := range slowWrites() {
			t.Run(name+" during "+strings.Trim(held, "/"), func(t *testing.T) {
				t.Parallel()
				m, g := adversary.Mgmt(t, mgmtNS), adversary.Guest(t)
				putHCP(m, "")
				writes, asked := &sent{}, &askedClock{}
				log, stop := runUntil(t, m, g, writes.record, func(o *controller.Options) { o.Clock = asked })
				t.Cleanup(func() { _ = stop() })
				eventually(t, "the CRDs are installed", func() bool { return len(g.Names(crdAPI, crdResource)) > 0 })
				gate := hold(t, map[model.Side]*adversary.Server{model.SideMgmt: m, model.SideGuest: g}[side], http.MethodPatch, held)
				for i := range 20 {
					putClass(g, fmt.Sprintf("class-%02d", i))
				}
				eventually(t, "writes are delayed", func() bool { n, _ := gate.holds(); return n > 0 })

				m.Put(hcpVersion, hcps, end.plane)
				eventually(t, "the pass ends", func() bool { return strings.Contains(log.String(), end.logged) })
				if end.logged == "it is paused" {
					eventually(t, "the pause is reported", func() bool { return reported(m, "ReconciliationPaused") })
				}
				eventually(t, "the current requests are cancelled", func() bool { held, gaveUp := gate.holds(); return held == gaveUp })
				noTimeout(t, log)
				_, before := writes.since(0)
				gate.open()
				g.Delete("v1", "namespaces", "", "openshift-ingress")
				asked.changeUntilPasses(t, g)
				if err := stop(); err != nil {
					t.Error("the controller ended:", err)
				}
				if after, _ := writes.since(before); len(after) > 0 || before == 0 {
					t.Errorf("%d writes before, written after the HostedControlPlane was %s:\n%s", before, name, strings.Join(after, "\n"))
				}
			})
		}
	}
}

// TestNothingIsWrittenAfterTheLeaseIsLost gives hypergate's own Lease to another pod while a side delays writes. The
// next renewal of the Lease fails, 26 s later at most. Then the process ends, and gives up its requests. It writes
// nothing more on either side, also not the Lease, even when the side answers again.
func TestNothingIsWrittenAfterTheLeaseIsLost(t *testing.T) {
	t.Parallel()
	for held, side := range slowWrites() {
		if held == "/status" {
			continue // such a write has a deadline that is before the renewal
		}
		t.Run("during "+strings.Trim(held, "/"), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { losesTheLease(t, held, side) })
		})
	}
}

// losesTheLease is TestNothingIsWrittenAfterTheLeaseIsLost for one kind of write and its side.
func losesTheLease(t *testing.T, held string, side model.Side) {
	t.Helper()
	m, g, writes := adversary.Mgmt(t, mgmtNS), adversary.Guest(t), &sent{}
	putHCP(m, "")
	log, stop := runUntil(t, m, g, locally(m, g), writes.record, func(o *controller.Options) { o.LeaderElection = true })
	t.Cleanup(func() { _ = stop() })
	eventually(t, "the CRDs are installed", func() bool { return len(g.Names(crdAPI, crdResource)) > 0 })
	gate := hold(t, map[model.Side]*adversary.Server{model.SideMgmt: m, model.SideGuest: g}[side], http.MethodPatch, held)
	putClass(g, "demo")
	eventually(t, "writes are delayed", func() bool { n, _ := gate.holds(); return n > 0 })

	const another = "another-pod"
	m.Put(leaseAPI, leases, "{metadata: {namespace: "+mgmtNS+", name: hypergate-"+config().Revision+"}, "+
		"spec: {holderIdentity: "+another+", leaseDurationSeconds: 137}}")
	eventually(t, "the renewal shows it, and the current requests are cancelled", func() bool {
		held, gaveUp := gate.holds()
		return held == gaveUp
	})
	noTimeout(t, log)
	_, before := writes.since(0)
	gate.open()
	putClass(g, "one-more")
	if err := stop(); err == nil || !strings.Contains(err.Error(), another) {
		t.Errorf("the process ended: %v", err)
	}
	if after, _ := writes.since(before); len(after) > 0 {
		t.Errorf("written after another pod took the Lease:\n%s", strings.Join(after, "\n"))
	}
	spec, _ := m.Get(leaseAPI, leases, mgmtNS, "hypergate-"+config().Revision)["spec"].(map[string]any)
	if spec["holderIdentity"] != another {
		t.Errorf("the Lease was written: %v", spec)
	}
}

// TestALostOwnershipLeaseEndsThePass checks that a pass ends when another hypergate takes the ownership Lease. Nothing
// more is written in the guest but the statuses of classes, even when the guest answers again.
//
// The guest changes meanwhile, so that there is something to write in several passes.
func TestALostOwnershipLeaseEndsThePass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, g, writes := adversary.Mgmt(t, mgmtNS), adversary.Guest(t), &sent{}
		putHCP(m, "")
		log := run(t, m, g, locally(m, g), func(o *controller.Options) { o.GuestConfig.Wrap(writes.wrap) })
		eventually(t, "the CRDs are installed", func() bool { return len(g.Names(crdAPI, crdResource)) > 0 })
		gate := hold(t, g, http.MethodPatch, "/clusterroles/")
		putClass(g, "demo")
		eventually(t, "the guest holds back requests", func() bool { n, _ := gate.holds(); return n > 0 })
		lease := ownership.Leases(config())[0].Name
		g.Put("coordination.k8s.io/v1", "leases",
			"{metadata: {namespace: openshift-ingress, name: "+lease+"}, spec: {holderIdentity: another}}")
		eventually(t, "the pass ends", func() bool { held, gaveUp := gate.holds(); return held == gaveUp })
		eventually(t, "the refusal is logged", func() bool { return strings.Contains(log.String(), "another hypergate") })
		noTimeout(t, log)
		_, before := writes.since(0)
		gate.open()
		g.Delete("v1", "namespaces", "", "openshift-ingress")
		putClass(g, "one-more")
		eventually(t, "a pass sees the other class", func() bool { return classSays(g, "one-more", "another hypergate") })
		<-time.After(time.Minute)
		after, _ := writes.since(before)
		after = slices.DeleteFunc(after, func(write string) bool { // a status gives the owner
			return strings.Contains(write, "/gatewayclasses/") && strings.HasSuffix(write, "/status")
		})
		if len(after) > 0 || before == 0 {
			t.Errorf("%d writes before, written in the guest after another hypergate took it:\n%s", before, strings.Join(after, "\n"))
		}
		if istiods := m.Names("apps/v1", "deployments"); len(istiods) > 0 {
			t.Errorf("istiod was installed: %v", istiods)
		}
	})
}

// TestTheManagementSideDoesNotWaitForTheGuest checks that a slow guest does not delay the management side. While the
// guest holds back the defaults of a new class, hypergate restores istiod's deleted Deployment and renews its token,
// which is due.
func TestTheManagementSideDoesNotWaitForTheGuest(t *testing.T) {
	t.Parallel()
	clock := testingclock.NewFakePassiveClock(time.Now())
	m, g, log := start(t, func(o *controller.Options) { o.Clock = clock })
	putClass(g, "demo")
	eventually(t, "both sides are installed", func() bool { return installed(m, g) })
	eventually(t, "the class has its status", func() bool {
		return slices.ContainsFunc(g.Requests(http.MethodPatch), func(r string) bool {
			return strings.Contains(r, "gatewayclasses/demo/status")
		})
	})
	// The pause ends the writes under way. One of them could reach the gate below.
	eventually(t, "nothing is left to write", func() bool { return adversary.WebhookFailsClosed(g) && hasDefaults(g) })
	putHCP(m, ", pausedUntil: 'true'")
	eventually(t, "the pause is reported", func() bool { return reported(m, "ReconciliationPaused") })
	// These changes all take effect when the pause ends.
	gate := hold(t, g, http.MethodPatch, "/configmaps/")
	putClass(g, "another")
	m.Delete("apps/v1", "deployments", mgmtNS, "istiod-rev")
	clock.SetTime(clock.Now().Add(50 * time.Minute))
	tokens, istiods := len(g.Requests(http.MethodPost)), len(m.Names("apps/v1", "deployments"))
	putHCP(m, "")
	eventually(t, "the guest holds back requests", func() bool { n, _ := gate.holds(); return n > 0 })
	eventually(t, "a token is asked for", func() bool { return len(g.Requests(http.MethodPost)) > tokens })
	eventually(t, "istiod's Deployment is back", func() bool { return len(m.Names("apps/v1", "deployments")) > istiods })
	if _, gaveUp := gate.holds(); gaveUp > 0 {
		t.Errorf("the management side waited for %d requests that the guest held back", gaveUp)
	}
	noTimeout(t, log)
}

// TestAFailedStatusWriteDoesNotDelayOtherClasses checks that failed status writes of some classes do not delay the
// status of other classes.
func TestAFailedStatusWriteDoesNotDelayOtherClasses(t *testing.T) {
	t.Parallel()
	m, g, _ := start(t)
	putClass(g, "m")
	eventually(t, "both sides are installed", func() bool { return installed(m, g) })
	g.Between(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPatch || !strings.Contains(r.URL.Path, "/gatewayclasses/a") {
			return false
		}
		http.Error(w, "no", http.StatusServiceUnavailable)
		return true
	})
	for i := range 20 {
		putClass(g, fmt.Sprintf("a%02d", i))
	}
	putClass(g, "z")
	eventually(t, "the last class has its status", func() bool { return conditionOf(g, "z", "ControllerInstalled") != "" })
}

// conditionOf returns the reason of a class's condition, or an empty string if the class does not have it.
func conditionOf(g *adversary.Server, class, conditionType string) string {
	reason, _ := findCondition(g, class, conditionType)["reason"].(string)
	return reason
}

// findCondition returns a class's condition, or nil if the class does not have it.
func findCondition(g *adversary.Server, class, conditionType string) map[string]any {
	status, _ := g.Get(classAPI, classes, "", class)["status"].(map[string]any)
	conditions, _ := status["conditions"].([]any)
	for _, c := range conditions {
		if condition, _ := c.(map[string]any); condition["type"] == conditionType {
			return condition
		}
	}
	return nil
}

// TestClassesBeyondTheLimit checks that only the oldest classes get defaults for their gateways, up to the limit. The
// others get a condition with the reason. hypergate writes 64 of these conditions at once, and then one per second.
func TestClassesBeyondTheLimit(t *testing.T) {
	t.Parallel()
	m, g, _ := start(t)
	const more, inARow = 80, 64
	for i := range model.MaxClasses + more {
		// By name, the newest classes come first.
		created := time.Unix(1_700_000_000, 0).Add(-time.Duration(i) * time.Minute).UTC().Format(time.RFC3339)
		g.Put(classAPI, classes, fmt.Sprintf(
			"{metadata: {name: class-%03d, generation: 1, creationTimestamp: '%s'}, spec: {controllerName: "+
				"example.com/gateway-controller}}", i, created))
	}
	eventually(t, "both sides are installed", func() bool { return installed(m, g) })
	defaults := func() (n int) {
		for _, name := range g.Names("v1", "configmaps") {
			if strings.Contains(name, "gatewayclass-rev.class-") {
				n++
			}
		}
		return n
	}
	eventually(t, "all classes have a status", func() bool {
		first, last := conditionOf(g, "class-000", "ControllerInstalled"),
			conditionOf(g, fmt.Sprintf("class-%03d", model.MaxClasses+more-1), "ControllerInstalled")
		return first == "TooManyClasses" && last != "" && last != "TooManyClasses"
	})
	eventually(t, "those that are served have their defaults", func() bool { return defaults() >= model.MaxClasses })
	if n := defaults(); n != model.MaxClasses {
		t.Errorf("%d classes have defaults, want %d", n, model.MaxClasses)
	}
	var first, last time.Time
	eventually(t, "all others have a condition", func() bool {
		first, last = time.Time{}, time.Time{}
		for i := range more {
			condition := findCondition(g, fmt.Sprintf("class-%03d", i), "ControllerInstalled")
			at, err := time.Parse(time.RFC3339, fmt.Sprint(condition["lastTransitionTime"]))
			if err != nil || condition["reason"] != "TooManyClasses" {
				return false
			}
			if first.IsZero() || at.Before(first) {
				first = at
			}
			if at.After(last) {
				last = at
			}
		}
		return true
	})
	if took := last.Sub(first); took < (more-inARow-2)*time.Second { // minus two, because the times are in whole seconds
		t.Errorf("%d conditions are written within %s", more, took)
	}
}

// TestPassesAreRateLimited checks the rate of passes. A guest that changes a class as soon as hypergate has processed
// the last change causes at most ten passes per second.
func TestPassesAreRateLimited(t *testing.T) {
	t.Parallel()
	m, g, log := start(t)
	putClass(g, "demo")
	eventually(t, "both sides are installed", func() bool { return installed(m, g) })
	plans := func() int { return strings.Count(log.String(), "Computed a plan") }
	const rounds, spacing = 15, 100 * time.Millisecond
	begun := time.Now()
	for generation := range rounds {
		before := plans()
		g.Put(classAPI, classes, fmt.Sprintf(
			"{metadata: {name: demo, generation: %d}, spec: {controllerName: example.com/gateway-controller}}", generation+2))
		eventually(t, "a pass processed the change", func() bool { return plans() > before })
	}
	// The first of these passes can have begun before the first change, and the second one can have begun at once.
	if took, least := time.Since(begun), (rounds-2)*spacing; took < least {
		t.Errorf("%d passes in %s, want at least %s", rounds, took, least)
	}
}
