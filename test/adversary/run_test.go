package adversary_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/pkg/logs"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/adversary"
	"github.com/hypergate/hypergate/test/hang"
)

const (
	mgmtNS = "clusters-guest1"

	hcpVersion  = "hypershift.openshift.io/v1beta1"
	hcps        = "hostedcontrolplanes"
	classAPI    = "gateway.networking.k8s.io/v1"
	classes     = "gatewayclasses"
	crdAPI      = "apiextensions.k8s.io/v1"
	crdResource = "customresourcedefinitions"
	webhookAPI  = "admissionregistration.k8s.io/v1"
	webhooks    = "validatingwebhookconfigurations"
)

func config() model.Config {
	cfg := model.Config{
		Topology: model.TopologyHosted, MgmtNamespace: mgmtNS, GuestNamespace: "openshift-ingress",
		ControllerName: "example.com/gateway-controller",
		Revision:       "rev", PilotImage: "registry.example.com/pilot:1", ProxyImage: "registry.example.com/proxyv2:1",
		XDS: model.HostPort{Host: "istiod.apps.example.com", Port: 443}, IstioResources: model.LayeredProductResources(),
		GuestServer: "https://kube-apiserver:6443", NetworkPolicies: model.HyperShiftPeers(),
	}
	cfg.WebhookHost = cfg.WebhookService()
	return cfg
}

// logged holds the beginning of a controller's log, and the log's size.
type logged struct {
	mu             sync.Mutex
	text           bytes.Buffer
	bytes, longest int
}

const (
	// logKept is the number of bytes of a log that a test keeps. logLine is the number of bytes that it keeps of each
	// line.
	logKept = 1 << 20
	logLine = 2000
)

func (l *logged) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes += len(line)
	l.longest = max(l.longest, len(line))
	if l.text.Len() < logKept {
		l.text.Write(line[:min(len(line), logLine)])
	}
	return len(line), nil
}

// String returns the beginning of the log.
func (l *logged) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.text.String() }

// size returns the size of the log and of its longest line, in bytes.
func (l *logged) size() (all, longest int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes, l.longest
}

type option func(*controller.Options)

// run runs a controller against two sides until the test ends. The controller must then end without an error: nothing
// that a guest does delays the end of the process beyond its limit, or costs it the Lease.
func run(t *testing.T, m, g *adversary.Server, change ...option) *logged {
	t.Helper()
	log, stop := runUntil(t, m, g, change...)
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error("the controller ended:", err)
		}
		if all, longest := log.size(); t.Failed() {
			s := log.String()
			t.Logf("log (%d bytes in all, longest line %d):\n%s", all, longest, s[:min(len(s), 20_000)])
		}
	})
	return log
}

// runUntil runs a controller against two sides until stop is called. stop returns the controller's error.
func runUntil(t *testing.T, m, g *adversary.Server, change ...option) (log *logged, stop func() error) {
	t.Helper()
	source, err := charts.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	log = &logged{}
	ctx, cancel := context.WithCancel(context.Background())
	ctx = logr.NewContext(ctx, logs.New(log, 4))
	guestConfig := g.Config()
	o := controller.Options{
		Config: config(), Source: source, MgmtConfig: m.Config(), GuestConfig: guestConfig,
		LoadGuest: func() (*rest.Config, error) { return rest.CopyConfig(guestConfig), nil },
		Probe:     controller.Probe{Off: true}, TokenLifetime: time.Hour, CAOverlap: 24 * time.Hour, HealthAddress: "0",
		MetricsAddress: "0",
	}
	for _, f := range change {
		f(&o)
	}
	ended := make(chan error, 1)
	go func() { ended <- controller.Run(ctx, o) }()
	return log, sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
}

// start runs a controller against two sides with a HostedControlPlane and no GatewayClass. It returns when the CRDs
// are installed.
func start(t *testing.T, change ...option) (m, g *adversary.Server, log *logged) {
	t.Helper()
	m, g = adversary.Mgmt(t, mgmtNS), adversary.Guest(t)
	putHCP(m, "")
	log = run(t, m, g, change...)
	eventually(t, "the CRDs are installed", func() bool { return len(g.Names(crdAPI, crdResource)) > 0 })
	return m, g, log
}

// hcp returns a HostedControlPlane as YAML. spec adds fields to its spec, for example ", pausedUntil: 'true'".
func hcp(spec string) string { return adversary.HostedControlPlane(mgmtNS, spec) }

func putHCP(m *adversary.Server, spec string) { m.Put(hcpVersion, hcps, hcp(spec)) }

func putClass(g *adversary.Server, name string) {
	g.Put(classAPI, classes, adversary.GatewayClass(name, "example.com/gateway-controller"))
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	gomega.NewWithT(t).Eventually(holds, hang.Deadline, 10*time.Millisecond).Should(gomega.BeTrue(), what)
}

// installed reports whether both sides have the objects that a GatewayClass of hypergate leads to.
func installed(m, g *adversary.Server) bool {
	return len(m.Names("apps/v1", "deployments")) > 0 && len(g.Names(webhookAPI, webhooks)) > 0
}

// reported reports whether the reason or message of a condition of the HostedControlPlane contains this text.
func reported(m *adversary.Server, what string) bool {
	status, _ := m.Get(hcpVersion, hcps, mgmtNS, "guest1")["status"].(map[string]any)
	conditions, _ := status["conditions"].([]any)
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return strings.Contains(fmt.Sprint(condition["reason"], " ", condition["message"]), what)
	})
}

// TestAnHonestGuest checks that a GatewayClass in an honest guest leads to objects on both sides, and that hypergate
// reports a pause.
func TestAnHonestGuest(t *testing.T) {
	t.Parallel()
	m, g, _ := start(t)
	putClass(g, "demo")
	eventually(t, "both sides are installed", func() bool { return installed(m, g) })
	putHCP(m, ", pausedUntil: 'true'")
	eventually(t, "the HostedControlPlane reports the pause", func() bool { return reported(m, "ReconciliationPaused") })
}
