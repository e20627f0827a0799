package integration_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/cluster/planes"
	"github.com/hypergate/hypergate/test/hang"
)

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	flag.Parse()
	if err := setUp(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for range atOnce {
		pairs <- nil
	}
	code := m.Run()
	if err := stopPairs(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// setUp sets the number of parallel tests to the number of pairs. The API servers (about a dozen) do most of the work
// of all tests. They would spend a third of it on garbage collection, so they get more memory instead.
func setUp() error {
	return errors.Join(flag.Set("test.parallel", strconv.Itoa(atOnce)), os.Setenv("GOGC", "300"), os.Setenv("GOMEMLIMIT", "600MiB"))
}

// harness is one test's part of the two clusters.
type harness struct {
	*testing.T
	gomega.Gomega
	// pair is the two clusters.
	pair                    *planes.Pair
	cfg                     model.Config
	mgmt, guest             kubernetes.Interface
	gateway                 gatewayclient.GatewayV1Interface
	mgmtConfig, guestConfig *rest.Config
	loadGuest               func() (*rest.Config, error)
	// ownMgmt is the test's own management cluster, if it has one.
	ownMgmt       *rest.Config
	mgmtRequests  *requests
	guestRequests *requests
	caOverlap     time.Duration
	clock         clock.PassiveClock
	reporting     controller.Reporting
	// probe is how istiod's endpoint is probed. Nothing answers there.
	probe controller.Probe
	// elects makes the controller hold its Lease while it works.
	elects bool
	// health is the address of the health checks.
	health string
	// log is the controller's log.
	log logged
}

// worlds counts the worlds, to give each a number.
var worlds atomic.Int32

// newHarness returns a world for a test that runs in parallel with others.
func newHarness(t *testing.T) *harness {
	t.Helper()
	return newWorldOn(t, takePair(t))
}

// newWorldOn returns a world on a pair that the test already has.
func newWorldOn(t *testing.T, pair *planes.Pair) *harness {
	t.Helper()
	n := worlds.Add(1)
	w := &harness{
		T: t, Gomega: hang.Gomega(t), pair: pair,
		mgmt: kubernetes.NewForConfigOrDie(pair.Mgmt.Config), guest: kubernetes.NewForConfigOrDie(pair.Guest.Config),
		gateway:      gatewayclient.NewForConfigOrDie(pair.Guest.Config),
		mgmtRequests: &requests{}, guestRequests: &requests{}, probe: controller.Probe{Off: true},
		cfg: model.Config{
			Topology:       model.TopologyHosted,
			MgmtNamespace:  fmt.Sprintf("clusters-guest%d", n),
			GuestNamespace: fmt.Sprintf("ingress%d", n),
			ControllerName: fmt.Sprintf("example.com/gateway-controller/v%d", n),
			Revision:       fmt.Sprintf("story%d", n),
			PilotImage:     "registry.example.com/pilot:" + charts.EmbeddedVersion,
			ProxyImage:     "registry.example.com/proxyv2:" + charts.EmbeddedVersion,
			XDS:            model.HostPort{Host: "istiod.apps.example.com", Port: 443},
			IstioResources: model.LayeredProductResources(),
			GuestServer:    "https://kube-apiserver:6443",

			NetworkPolicies: model.HyperShiftPeers(),
		},
	}
	w.Cleanup(w.log.end)
	w.cfg.WebhookHost = w.cfg.WebhookService()
	w.SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	w.mgmtConfig = counted(pair.Mgmt.Config, w.mgmtRequests)
	w.guestConfig = counted(pair.Guest.Config, w.guestRequests)
	w.createNamespace(w.mgmt, w.cfg.MgmtNamespace)
	go playGarbageCollector(w.Context(), w.mgmt, w.cfg.MgmtNamespace)
	return w
}

func (w *harness) createNamespace(client kubernetes.Interface, name string) {
	w.Helper()
	_, err := client.CoreV1().Namespaces().
		Create(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
}

// run starts the controller. The returned function stops it and waits for its end. At the end of the test, it stops
// in any case.
func (w *harness) run() func() {
	w.Helper()
	cancel, ended := w.tryRun()
	stop := sync.OnceFunc(func() {
		late := time.AfterFunc(lateEnd, func() {
			w.Logf("hypergate still runs %s after its end was requested:\n%s", lateEnd, goroutines())
		})
		defer late.Stop()
		cancel()
		w.Expect(<-ended).To(gomega.Succeed())
	})
	w.Cleanup(stop)
	return stop
}

// lateEnd is the time after which a controller that has not ended is reported. In a pod, it gives up after 20 seconds.
// Here it gives up after hang.Deadline, because the work that it waits for takes longer on a busy machine.
const lateEnd = 15 * time.Second

// goroutines returns the stacks of the goroutines that run code of hypergate.
func goroutines() string {
	text := make([]byte, 16<<20)
	text = text[:runtime.Stack(text, true)]
	all := slices.DeleteFunc(strings.Split(string(text), "\n\n"), func(one string) bool {
		return !strings.Contains(one, "hypergate/pkg/")
	})
	return strings.Join(all, "\n\n")
}

func (w *harness) tryRun() (stop func(), ended chan error) {
	w.Helper()
	source, err := charts.Embedded()
	w.Expect(err).NotTo(gomega.HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	log := logr.FromSlogHandler(slog.NewTextHandler(testWriter{w.T, &w.log}, &slog.HandlerOptions{Level: passLevel}))
	ended = make(chan error, 1)
	go func() {
		ended <- controller.Run(logr.NewContext(ctx, log), controller.Options{
			Config: w.cfg, Source: source, MgmtConfig: w.mgmtConfig, GuestConfig: w.guestConfig, LoadGuest: w.loadGuest,
			Probe:         w.probe,
			TokenLifetime: time.Hour, CAOverlap: cmp.Or(w.caOverlap, time.Hour), Clock: w.clock, HealthAddress: cmp.Or(w.health, "0"),
			MetricsAddress: "0",
			Reporting:      w.reporting, LeaderElection: w.elects, ShutdownTimeout: hang.Deadline,
		})
	}()
	return cancel, ended
}

// restart starts the controller again, and returns when it has observed both sides.
func (w *harness) restart() (stop func()) {
	w.Helper()
	computed := func() int { return strings.Count(w.log.String(), "Computed a plan") }
	before := computed()
	stop = w.run()
	w.Eventually(computed).Should(gomega.BeNumerically(">", before))
	return stop
}

// passLevel is the level at which controller-runtime logs the beginning of each pass.
const passLevel slog.Level = -5

// passes returns how many passes have begun.
func (w *harness) passes() int { return strings.Count(w.log.String(), "msg=Reconciling ") }

// looksAgain waits until three passes that began after the call have ended. It causes them by events in the guest that
// require no change. So hypergate has done what it does about everything before the call, however slow the machine is.
func (w *harness) looksAgain() {
	w.Helper()
	for range 4 { // the last one begins after the three have ended
		before, stirs := w.passes(), 0
		// A pass that is about to begin covers the first event. Then the next one causes another pass.
		w.Eventually(func() int {
			w.stir(fmt.Sprintf("again-%d-%d", before, stirs))
			stirs++
			return w.passes()
		}).WithPolling(200 * time.Millisecond).Should(gomega.BeNumerically(">", before))
	}
}

// testWriter keeps the controller's log and copies the important lines to the test's log. It copies nothing after the
// test has failed, so that the failure stays the last line.
type testWriter struct {
	t    *testing.T
	kept *logged
}

func (w testWriter) Write(p []byte) (int, error) {
	w.kept.mu.Lock()
	defer w.kept.mu.Unlock()
	if line := strings.TrimSpace(string(p)); !w.kept.over && !w.t.Failed() && !isDebug(line) && !isManagers(line) {
		w.t.Log(line)
	}
	return w.kept.text.Write(p)
}

func isDebug(line string) bool { return strings.Contains(line, "level=DEBUG") }

// isManagers reports whether a line is one that controller-runtime logs at each start and stop.
func isManagers(line string) bool {
	_, message, _ := strings.Cut(line, "msg=")
	return slices.ContainsFunc(
		[]string{
			"Starting EventSource", "Starting Controller", "Starting workers", "Stopping and waiting", "Shutdown signal",
			"All workers", "Wait completed",
		},
		func(s string) bool { return strings.HasPrefix(message, `"`+s) })
}

type logged struct {
	mu   sync.Mutex
	text strings.Builder
	// over means that the test has ended. A watch may still log after that.
	over bool
}

// lines returns the lines above the debug level.
func (l *logged) lines() []string {
	return slices.DeleteFunc(strings.Split(l.String(), "\n"), isDebug)
}

func (l *logged) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
}

// String returns the whole log.
func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (w *harness) createClass(name string) {
	w.Helper()
	class := &gatewayv1.GatewayClass{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       gatewayv1.GatewayClassSpec{ControllerName: gatewayv1.GatewayController(w.cfg.ControllerName)},
	}
	// The CRD may have been installed just before.
	w.Eventually(func() error {
		_, err := w.gateway.GatewayClasses().Create(w.Context(), class, metav1.CreateOptions{})
		return err
	}).Should(gomega.Succeed())
	w.Cleanup(func() { _ = w.gateway.GatewayClasses().Delete(context.Background(), name, metav1.DeleteOptions{}) })
}

func (w *harness) deleteClass(name string) {
	w.Helper()
	w.Expect(w.gateway.GatewayClasses().Delete(w.Context(), name, metav1.DeleteOptions{})).To(gomega.Succeed())
}

// condition returns a condition of a class, or nil.
func (w *harness) condition(class, kind string) *metav1.Condition {
	got, err := w.gateway.GatewayClasses().Get(w.Context(), class, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return meta.FindStatusCondition(got.Status.Conditions, kind)
}

// istiod returns istiod's Deployment, or nil.
func (w *harness) istiod() *appsv1.Deployment {
	d, err := w.mgmt.AppsV1().Deployments(w.cfg.MgmtNamespace).Get(w.Context(), w.cfg.IstiodName(), metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return d
}

// playIstiod writes the status that the Deployment controller would write if istiod is available or not.
func (w *harness) playIstiod(status corev1.ConditionStatus) {
	w.Helper()
	w.Eventually(func() error {
		d, err := w.mgmt.AppsV1().Deployments(w.cfg.MgmtNamespace).Get(w.Context(), w.cfg.IstiodName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		ready := int32(0)
		if status == corev1.ConditionTrue {
			ready = 1
		}
		d.Status = appsv1.DeploymentStatus{
			ObservedGeneration: d.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: ready, AvailableReplicas: ready,
			Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: status, LastTransitionTime: metav1.Now()}},
		}
		_, err = w.mgmt.AppsV1().Deployments(w.cfg.MgmtNamespace).UpdateStatus(w.Context(), d, metav1.UpdateOptions{})
		return err
	}).Should(gomega.Succeed())
}

// playGarbageCollector removes the finalizers of a Deployment that is deleted in the foreground, as if its pods were
// gone.
func playGarbageCollector(ctx context.Context, client kubernetes.Interface, namespace string) {
	deployments := client.AppsV1().Deployments(namespace)
	changes, err := deployments.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for change := range changes.ResultChan() {
		if d, ok := change.Object.(*appsv1.Deployment); ok && d.DeletionTimestamp != nil && len(d.Finalizers) > 0 {
			_, _ = deployments.Patch(ctx, d.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		}
	}
}

// install creates a class and waits until everything is applied and istiod is reported as available.
func (w *harness) install(class string) {
	w.Helper()
	w.createClass(class)
	w.playIstiod(corev1.ConditionTrue)
	w.Eventually(func() *metav1.Condition { return w.condition(class, "ControllerInstalled") }).
		Should(haveStatus(metav1.ConditionTrue, "Installed"))
	w.settle()
}

// settle waits until the controller is idle.
func (w *harness) settle() {
	w.Helper()
	w.rests(20)
}

// rests waits until the controller makes no request during a number of rounds. In each round, the test makes one
// request to each API server. Rounds are 20 ms apart. On a busy machine, the rounds take longer, as the controller's
// work does, so a delayed controller does not look idle. After one idle minute, twenty rounds are enough.
func (w *harness) rests(rounds int) {
	w.Helper()
	before, quiet, since := -1, 0, time.Now()
	w.Eventually(func() int {
		w.work()
		if now := w.mgmtRequests.count() + w.guestRequests.count(); now != before {
			before, quiet, since = now, 0, time.Now()
		} else {
			quiet++
		}
		if quiet >= 20 && time.Since(since) > time.Minute {
			return rounds
		}
		return quiet
	}).Should(gomega.BeNumerically(">=", rounds))
}

// work sends a request to each API server. It is the work of a round of hang.Within.
func (w *harness) work() {
	for _, client := range []kubernetes.Interface{w.mgmt, w.guest} {
		_, _ = client.CoreV1().Namespaces().Get(w.Context(), metav1.NamespaceDefault, metav1.GetOptions{}) // the answer does not matter
	}
}

// movedClock is the system's clock, moved ahead by the test, until the test stops it.
type movedClock struct {
	clock.RealClock
	ahead   atomic.Int64
	stopped atomic.Pointer[time.Time]
}

// Now returns the time.
func (c *movedClock) Now() time.Time {
	now := time.Now()
	if at := c.stopped.Load(); at != nil {
		now = *at
	}
	return now.Add(time.Duration(c.ahead.Load()))
}

func (c *movedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func (c *movedClock) move(by time.Duration) { c.ahead.Add(int64(by)) }

// stop stops the clock. Then only move changes the time.
func (c *movedClock) stop() { c.stopped.Store(new(time.Now())) }

// requests counts the requests of a client, except watches.
type requests struct {
	mu  sync.Mutex
	all []string
	// at holds the time of each request.
	at []time.Time
	// refused counts the 401 answers, including those to watches.
	refused int
}

// unauthorized returns the number of 401 answers.
func (r *requests) unauthorized() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refused
}

func (r *requests) answered(response *http.Response) {
	if response != nil && response.StatusCode == http.StatusUnauthorized {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.refused++
	}
}

func (r *requests) add(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, line)
	r.at = append(r.at, time.Now())
}

// longestPause returns the longest time between two of the requests with a prefix, after the first n requests.
func (r *requests) longestPause(n int, prefix string) (longest time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var last time.Time
	for i := n; i < len(r.all); i++ {
		if !strings.HasPrefix(r.all[i], prefix) {
			continue
		}
		if !last.IsZero() {
			longest = max(longest, r.at[i].Sub(last))
		}
		last = r.at[i]
	}
	return longest
}

// firstWrite returns the time of the first write after the first n requests.
func (r *requests) firstWrite(n int) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, line := range r.all[n:] {
		if len(writes([]string{line})) > 0 && !isReport(line) {
			return r.at[n+i]
		}
	}
	return time.Time{}
}

// since returns the requests after the first n.
func (r *requests) since(n int) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all[n:])
}

func (r *requests) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

// writes returns the requests in a list that change something.
func writes(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool {
		return strings.HasPrefix(s, http.MethodGet) || strings.Contains(s, "dryRun=All")
	})
}

func counted(config *rest.Config, into *requests) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if req.URL.Query().Get("watch") == "" {
				into.add(req.Method + " " + req.URL.Path + "?" + req.URL.RawQuery)
			}
			response, err := next.RoundTrip(req)
			into.answered(response)
			return response, err
		})
	})
	return config
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func haveStatus(status metav1.ConditionStatus, reason string) gomega.OmegaMatcher {
	return gomega.And(gomega.Not(gomega.BeNil()), gomega.HaveField("Status", status), gomega.HaveField("Reason", reason))
}
