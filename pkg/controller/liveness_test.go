package controller

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fakeapi"
	"github.com/hypergate/hypergate/test/freeport"
	"github.com/hypergate/hypergate/test/hang"
)

// TestLivenessOfTheWorker checks the result of /healthz at one second, after events at earlier seconds.
func TestLivenessOfTheWorker(t *testing.T) {
	start := time.Unix(0, 0)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	ask := func(s int) func(*worker) { return func(w *worker) { w.ask(at(s)) } }
	begin := func(s int) func(*worker) { return func(w *worker) { w.begin(at(s)) } }
	end := func(w *worker) { w.end() }
	limit := int(stuckAfter / time.Second)
	for name, tc := range map[string]struct {
		happened []func(*worker)
		at       int
		fails    string
	}{
		"a candidate without the Lease":        {nil, 100 * limit, ""},
		"nothing happens":                      {[]func(*worker){ask(0), begin(0), end}, 100 * limit, ""},
		"a pass runs":                          {[]func(*worker){ask(0), begin(1)}, limit + 1, ""},
		"a pass hangs":                         {[]func(*worker){ask(0), begin(1)}, limit + 2, "has been running for"},
		"a pass hangs, and more is asked":      {[]func(*worker){ask(0), begin(1), ask(limit)}, limit + 2, "has been running for"},
		"a pass ended, and the next began":     {[]func(*worker){ask(0), begin(1), end, begin(limit)}, limit + 2, ""},
		"asked":                                {[]func(*worker){ask(0)}, limit, ""},
		"asked, and no pass begins":            {[]func(*worker){ask(0), ask(limit)}, limit + 1, "has not begun"},
		"asked during a pass, and none begins": {[]func(*worker){ask(0), begin(1), ask(2), end}, limit + 3, "has not begun"},
		"asked during a pass, and one began":   {[]func(*worker){ask(0), begin(1), ask(2), end, begin(limit)}, limit + 3, ""},
		"a pass that nothing asked for":        {[]func(*worker){begin(0), end}, 100 * limit, ""},
	} {
		w := &worker{}
		for _, happens := range tc.happened {
			happens(w)
		}
		if err := w.check(at(tc.at)); (err == nil) != (tc.fails == "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
			t.Errorf("%s: %v, want %q", name, err, tc.fails)
		}
	}
}

// hangingClock is a clock whose Now blocks until goesOn is closed.
type hangingClock struct {
	clock.RealClock
	asked, goesOn chan struct{}
}

func (c hangingClock) Now() time.Time {
	select {
	case c.asked <- struct{}{}:
	default:
	}
	<-c.goesOn
	return c.RealClock.Now()
}

// newTestReconciler returns a Reconciler whose two sides are the same API server.
func newTestReconciler(t *testing.T, c clock.PassiveClock, api *rest.Config) *Reconciler {
	t.Helper()
	conn, err := guestconn.Fixed(api)
	if err != nil {
		t.Fatal(err)
	}
	source, err := charts.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	cfg := model.Config{
		Topology: model.TopologyHosted, MgmtNamespace: "clusters-guest1", GuestNamespace: "openshift-ingress", Revision: "r",
	}
	g, err := guest.New(conn, cfg, source)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mgmt.New(api, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return newReconciler(Options{Config: cfg, Source: source, Clock: c}, m, g)
}

// serveChecks runs a manager with the health checks of a Reconciler, and returns the URL of /healthz. The manager does
// not run the Reconciler.
func serveChecks(t *testing.T, r *Reconciler, api *rest.Config) string {
	t.Helper()
	address := freeport.Address(t)
	mgr, err := newManager(t.Context(), Options{MgmtConfig: api, HealthAddress: address, MetricsAddress: "0"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.addChecks(mgr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error("the manager ended:", err)
		}
	})
	return "http://" + address + "/healthz"
}

// statusCode returns the status code of a URL. 0 means that nothing answers.
func statusCode(t *testing.T, url string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// TestLivenessNoticesAPassThatHangs checks that /healthz fails while a pass hangs, and not before or after that.
func TestLivenessNoticesAPassThatHangs(t *testing.T) {
	hangs, api := hangingClock{asked: make(chan struct{}, 1), goesOn: make(chan struct{})}, fakeapi.New(t).Config()
	r := newTestReconciler(t, hangs, api)
	r.reports.hcp.reporting = ReportNothing
	healthz := serveChecks(t, r, api)

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = r.Reconcile(t.Context(), reconcile.Request{})
	}()
	select {
	case <-hangs.asked:
	case <-ended:
		t.Fatal("the pass did not hang")
	}
	hang.Gomega(t).Eventually(func() int { return statusCode(t, healthz) }).
		Should(gomega.Equal(http.StatusOK), "a pass that has just begun")
	r.worker.begin(time.Now().Add(-2 * stuckAfter)) // as if it had begun then
	if code := statusCode(t, healthz); code != http.StatusInternalServerError {
		t.Errorf("a pass that hangs is not noticed: /healthz answers %d", code)
	}
	close(hangs.goesOn)
	<-ended
	if code := statusCode(t, healthz); code != http.StatusOK {
		t.Errorf("after the pass ended, /healthz answers %d", code)
	}
}

// TestAnEventRequestsAPass checks that an event of either cluster requests one pass, which liveness waits for. The
// event also ends the running pass if there is a reason.
func TestAnEventRequestsAPass(t *testing.T) {
	r := newTestReconciler(t, clock.RealClock{}, fakeapi.New(t).Config())
	ctx, cancel := context.WithTimeout(t.Context(), hang.Deadline)
	defer cancel()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	context.AfterFunc(ctx, queue.ShutDown)
	if err := r.startWatches(ctx, queue); err != nil {
		t.Fatal(err)
	}
	if _, shutdown := queue.Get(); shutdown {
		t.Fatal("no pass was requested")
	}
	if err := r.worker.check(time.Now().Add(2 * stuckAfter)); err == nil {
		t.Error("liveness does not wait for the requested pass")
	}

	pass, over := r.passContext.begin(ctx)
	defer over()
	var paused atomic.Bool
	r.passContext.endWhen(func() error {
		if paused.Load() {
			return errors.New("paused")
		}
		return nil
	})
	paused.Store(true)
	if r.memory.endpointProbe.wake(); pass.Err() == nil {
		t.Error("the pass goes on")
	}
}
