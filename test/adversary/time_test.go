package adversary_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/test/adversary"
)

// gate holds back requests until it is opened, or their client gives up.
type gate struct {
	mu           sync.Mutex
	held, gaveUp int
	opened       chan struct{}
}

// hold has a server hold back the requests of a method whose path has a text.
func hold(t *testing.T, s *adversary.Server, method, text string) *gate {
	t.Helper()
	g := &gate{opened: make(chan struct{})}
	t.Cleanup(g.open)
	s.Between(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != method || !strings.Contains(r.URL.Path, text) {
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

// open lets all requests pass, those held back and those to come.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.opened:
	default:
		close(g.opened)
	}
}

// holds is how many requests it held back and how many of those gave up.
func (g *gate) holds() (held, gaveUp int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held, g.gaveUp
}

// written are the writes of a server's log from an index on, but those of the HostedControlPlane's conditions.
func written(s *adversary.Server, from int) []string {
	var out []string
	for _, r := range s.Log()[from:] {
		if r.Method != http.MethodGet && !strings.Contains(r.Path, hcps) {
			out = append(out, r.String())
		}
	}
	return out
}

// noTimeout fails the test if a request had to run into its timeout.
func noTimeout(t *testing.T, log *logged) {
	t.Helper()
	for _, text := range []string{"deadline exceeded", "timed out", "Client.Timeout"} {
		if strings.Contains(log.String(), text) {
			t.Errorf("a pass went on until a request timed out (%q in the log)", text)
		}
	}
}

// endings are what ends the work of hypergate: each is put to the management side while a pass waits for the guest.
func endings() map[string]struct{ plane, logged string } {
	deleted := strings.Replace(hcp(""), "uid: hcp-uid", "uid: hcp-uid, deletionTimestamp: '2026-11-22T04:00:00Z', finalizers: [hypershift.openshift.io/finalizer]", 1)
	return map[string]struct{ plane, logged string }{
		"paused":  {hcp(", pausedUntil: 'true'"), "it is paused"},
		"deleted": {deleted, "it is being deleted"},
	}
}

// TestNothingIsWrittenAfterTheEnd: a guest delays what it is sent, and the HostedControlPlane is paused or deleted meanwhile. The pass under
// way ends with the requests that it waits for, the pause is reported at once, and nothing is written on either side from then on, when the
// guest answers again.
func TestNothingIsWrittenAfterTheEnd(t *testing.T) {
	t.Parallel()
	for name, end := range endings() {
		for _, held := range []string{"/clusterroles/", "/status"} {
			t.Run(name+" during "+strings.Trim(held, "/"), func(t *testing.T) {
				t.Parallel()
				m, g := adversary.Mgmt(t, mgmtNS), adversary.Guest(t)
				putHCP(m, "")
				log, stop := runUntil(t, m, g)
				t.Cleanup(func() { _ = stop() })
				eventually(t, "the CRDs are installed", func() bool { return len(g.Names(crdAPI, crdResource)) > 0 })
				gate := hold(t, g, http.MethodPatch, held)
				for i := range 20 {
					putClass(g, fmt.Sprintf("class-%02d", i))
				}
				eventually(t, "the guest holds back requests", func() bool { n, _ := gate.holds(); return n > 0 })

				m.Put(hcpVersion, hcps, end.plane)
				eventually(t, "the pass ends", func() bool { return strings.Contains(log.String(), end.logged) })
				if end.logged == "it is paused" {
					eventually(t, "the pause is reported", func() bool { return reported(m, "ReconciliationPaused") })
				}
				eventually(t, "the requests under way are given up", func() bool { held, gaveUp := gate.holds(); return held == gaveUp })
				noTimeout(t, log)
				onMgmt, inGuest := len(m.Log()), len(g.Log())
				gate.open()
				putClass(g, "one-more")
				g.Delete("v1", "namespaces", "", "openshift-ingress")
				if err := stop(); err != nil {
					t.Error("the controller ended:", err)
				}
				if after := slices.Concat(written(m, onMgmt), written(g, inGuest)); len(after) > 0 {
					t.Errorf("written after the HostedControlPlane was %s:\n%s", name, strings.Join(after, "\n"))
				}
			})
		}
	}
}

// TestAClaimThatIsLostEndsThePass: another hypergate has the guest by now, and nothing more is written there.
func TestAClaimThatIsLostEndsThePass(t *testing.T) {
	t.Parallel()
	m, g, log := start(t)
	gate := hold(t, g, http.MethodPatch, "/clusterroles/")
	putClass(g, "demo")
	eventually(t, "the guest holds back requests", func() bool { n, _ := gate.holds(); return n > 0 })
	lease := desired.LeasesOf(config())[0].Name
	g.Put("coordination.k8s.io/v1", "leases", "{metadata: {namespace: openshift-ingress, name: "+lease+"}, spec: {holderIdentity: another}}")
	eventually(t, "the pass ends", func() bool { held, gaveUp := gate.holds(); return held == gaveUp })
	eventually(t, "the refusal is logged", func() bool { return strings.Contains(log.String(), "another hypergate") })
	noTimeout(t, log)
	if istiods := m.Names("apps/v1", "deployments"); len(istiods) > 0 {
		t.Errorf("istiod was installed: %v", istiods)
	}
}

// TestTheManagementSideDoesNotWaitForTheGuest: while the guest holds back the defaults of a new class, istiod's Deployment, which somebody has
// deleted, is put back, and its token, which is due, is renewed.
func TestTheManagementSideDoesNotWaitForTheGuest(t *testing.T) {
	t.Parallel()
	clock := testingclock.NewFakePassiveClock(time.Now())
	m, g, log := start(t, func(o *controller.Options) { o.Clock = clock })
	putClass(g, "demo")
	eventually(t, "both sides are installed", func() bool { return installed(m, g) })
	eventually(t, "the class has its status", func() bool {
		return slices.ContainsFunc(g.Requests(http.MethodPatch), func(r string) bool { return strings.Contains(r, "gatewayclasses/demo/status") })
	})
	putHCP(m, ", pausedUntil: 'true'")
	eventually(t, "the pause is reported", func() bool { return reported(m, "ReconciliationPaused") })
	// All at once, when the pause ends.
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

// TestAClassWhoseStatusGetsNoAnswerHoldsUpNoOther: each class gets its turn, however often a status before it fails.
func TestAClassWhoseStatusGetsNoAnswerHoldsUpNoOther(t *testing.T) {
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

// conditionOf is the reason of a class's condition; empty when it has none.
func conditionOf(g *adversary.Server, class, conditionType string) string {
	reason, _ := findCondition(g, class, conditionType)["reason"].(string)
	return reason
}

// findCondition is a class's condition; nil when it has none.
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

// TestClassesBeyondTheBound: of many classes the oldest get defaults for their gateways, and the others a condition that says why not. 64 of these
// conditions are written in a row, and then one a second.
func TestClassesBeyondTheBound(t *testing.T) {
	t.Parallel()
	m, g, _ := start(t)
	const more, inARow = 80, 64
	for i := range desired.MaxClasses + more {
		// The newest come first by name.
		created := time.Unix(1_700_000_000, 0).Add(-time.Duration(i) * time.Minute).UTC().Format(time.RFC3339)
		g.Put(classAPI, classes, fmt.Sprintf("{metadata: {name: class-%03d, generation: 1, creationTimestamp: '%s'}, spec: {controllerName: example.com/gateway-controller}}", i, created))
	}
	eventually(t, "both sides are installed", func() bool { return installed(m, g) })
	defaults := func() (n int) {
		for _, name := range g.Names("v1", "configmaps") {
			if strings.Contains(name, "gatewayclass-class-") {
				n++
			}
		}
		return n
	}
	eventually(t, "all classes have a status", func() bool {
		first, last := conditionOf(g, "class-000", "ControllerInstalled"), conditionOf(g, fmt.Sprintf("class-%03d", desired.MaxClasses+more-1), "ControllerInstalled")
		return first == "TooManyClasses" && last != "" && last != "TooManyClasses"
	})
	eventually(t, "those that are served have their defaults", func() bool { return defaults() >= desired.MaxClasses })
	if n := defaults(); n != desired.MaxClasses {
		t.Errorf("%d classes have defaults, want %d", n, desired.MaxClasses)
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
	if took := last.Sub(first); took < (more-inARow-2)*time.Second { // two for times in whole seconds
		t.Errorf("%d conditions are written within %s", more, took)
	}
}

// TestPassesAreApart: a guest that changes something as soon as it sees the last change worked off gets no more than ten passes a second.
func TestPassesAreApart(t *testing.T) {
	t.Parallel()
	m, g, log := start(t)
	putClass(g, "demo")
	eventually(t, "both sides are installed", func() bool { return installed(m, g) })
	plans := func() int { return strings.Count(log.String(), "Computed a plan") }
	const rounds, spacing = 15, 100 * time.Millisecond
	begun := time.Now()
	for generation := range rounds {
		before := plans()
		g.Put(classAPI, classes, fmt.Sprintf("{metadata: {name: demo, generation: %d}, spec: {controllerName: example.com/gateway-controller}}", generation+2))
		eventually(t, "the change was worked off", func() bool { return plans() > before })
	}
	if took, least := time.Since(begun), (rounds-1)*spacing; took < least {
		t.Errorf("%d passes in %s, want at least %s", rounds, took, least)
	}
}
