package adversary_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/adversary"
	"github.com/hypergate/hypergate/test/freeport"
)

// The maximum durations of requests: of watches, and of all others.
const (
	requestLimit = 40 * time.Second
	watchLimit   = 11 * time.Minute
)

// deadlines records the deadlines of all requests to one side. It is the innermost transport, so each request passes
// through it.
type deadlines struct {
	side string

	mu   sync.Mutex
	seen map[string]bool
	bad  []string
}

func (d *deadlines) wrap(next http.RoundTripper) http.RoundTripper {
	return transport(func(r *http.Request) (*http.Response, error) {
		d.record(r)
		return next.RoundTrip(r)
	})
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (d *deadlines) record(r *http.Request) {
	verb, limit := r.Method, requestLimit
	switch {
	case r.URL.Query().Has("watch"):
		verb, limit = "WATCH", watchLimit
	case r.URL.Query().Has("dryRun"):
		verb = "DRYRUN"
	}
	end, bounded := r.Context().Deadline()
	d.mu.Lock()
	defer d.mu.Unlock()
	// Record each path element after the API prefix, because one of them is the resource.
	parts := strings.Split(r.URL.Path, "/")
	for _, part := range parts[2:] {
		d.seen[verb+" "+part] = true
	}
	if left := time.Until(end); !bounded || left > limit {
		d.bad = append(d.bad, fmt.Sprintf("%s side: %s %s could last for %s (bounded: %t)", d.side, verb, r.URL.Path,
			left.Round(time.Second), bounded))
	}
}

// check reports requests without a sufficient deadline. It also reports kinds of requests that were not made, because
// they were not checked.
func (d *deadlines) check(t *testing.T, kinds ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, bad := range slices.Compact(d.bad) {
		t.Error(bad)
	}
	for _, kind := range kinds {
		if !d.seen[kind] {
			t.Errorf("%s side: no request %s was made", d.side, kind)
		}
	}
}

// TestEveryRequestHasADeadline checks the requests of a controller's whole life: it takes the Lease, installs,
// renews, reports, and removes the installation. Requests that later changes add are checked too.
func TestEveryRequestHasADeadline(t *testing.T) {
	t.Parallel()
	management, guest := &deadlines{side: "management", seen: map[string]bool{}}, &deadlines{side: "guest", seen: map[string]bool{}}
	m, g := adversary.Mgmt(t, mgmtNS), adversary.Guest(t)
	putHCP(m, "")
	run(t, m, g, func(o *controller.Options) {
		o.LeaderElection = true
		o.MgmtConfig.Wrap(management.wrap)
		o.GuestConfig.Wrap(guest.wrap)
		config := o.GuestConfig
		o.LoadGuest = func() (*rest.Config, error) { return rest.CopyConfig(config), nil }
	})
	eventually(t, "the CRDs are installed", func() bool { return len(g.Names(crdAPI, crdResource)) > 0 })
	putClass(g, "demo")
	eventually(t, "both sides are installed", func() bool { return installed(m, g) })
	eventually(t, "the webhook is proven", func() bool {
		return slices.ContainsFunc(g.Requests(http.MethodPost), func(r string) bool { return strings.Contains(r, "dryRun=All") })
	})
	eventually(t, "the HostedControlPlane reports it", func() bool { return reported(m, "AsExpected") })
	g.Delete(classAPI, classes, "", "demo")
	eventually(t, "both sides are cleared", func() bool {
		return len(m.Names("apps/v1", "deployments"))+len(g.Names(webhookAPI, webhooks)) == 0 && len(g.Requests(http.MethodDelete)) > 0
	})
	management.check(t, "GET leases", "POST leases", "GET namespaces", "GET secrets", "PATCH deployments", "PATCH secrets", "PATCH status",
		"DELETE deployments", "WATCH hostedcontrolplanes", "WATCH deployments")
	guest.check(t, "GET namespaces", "GET customresourcedefinitions", "POST token", "DRYRUN destinationrules", "PATCH status",
		"PATCH customresourcedefinitions", "PATCH leases",
		"DELETE validatingwebhookconfigurations", "WATCH gatewayclasses", "WATCH customresourcedefinitions")
}

// TestEveryRequestOfAMigrationHasADeadline checks the requests of a reading of the guest, and the writes of a migration
// to Gateways, to the istiod in the guest and to the Lease. TestEveryProbeHasADeadline in pkg/controller has the
// probes, which do not use the clients of the two sides.
func TestEveryRequestOfAMigrationHasADeadline(t *testing.T) {
	t.Parallel()
	management, guest := &deadlines{side: "management", seen: map[string]bool{}}, &deadlines{side: "guest", seen: map[string]bool{}}
	m, g := adversary.Mgmt(t, mgmtNS), adversary.Guest(t)
	putHCP(m, "")
	run(t, m, g, askingIstiod(t, m), func(o *controller.Options) {
		o.MgmtConfig.Wrap(management.wrap)
		o.GuestConfig.Wrap(guest.wrap)
		config := o.GuestConfig
		o.LoadGuest = func() (*rest.Config, error) { return rest.CopyConfig(config), nil }
	})
	eventually(t, "the CRDs are installed", func() bool { return len(g.Names(crdAPI, crdResource)) > 0 })
	putOrigin(g)
	migrate(m)
	eventually(t, "the origin is scaled down", func() bool {
		return slices.ContainsFunc(g.Requests(http.MethodPatch), func(r string) bool {
			return strings.Contains(r, "/deployments/istiod-rev")
		})
	})
	management.check(t, "PATCH leases", "WATCH leases")
	guest.check(t, "GET istiorevisions", "GET gateways", "GET pods", "GET deployments", "GET leases", "GET configmaps",
		"POST selfsubjectaccessreviews", "PATCH gateways", "PATCH deployments")
}

// TestEveryRequestOfARolloutHasADeadline checks the requests of a rollout that hypergate continues after a restart: it
// watches the Gateways and their Deployments, and releases the Gateways that an earlier process held.
func TestEveryRequestOfARolloutHasADeadline(t *testing.T) {
	t.Parallel()
	guest := &deadlines{side: "guest", seen: map[string]bool{}}
	m, g := adversary.Mgmt(t, mgmtNS), adversary.Guest(t)
	putHCP(m, "")
	putClass(g, "demo")
	held := fmt.Sprintf(", annotations: {%s: '%s'}", model.HoldAnnotation, model.HoldValue("rev"))
	for _, name := range []string{"first", "second"} {
		g.Put(classAPI, "gateways", adversary.Gateway("shop", name, "demo", held))
		g.Put("apps/v1", "deployments",
			adversary.GatewayDeployment("shop", name, "demo", "istiod.apps.example.com:443", "istio-ca-root-cert"))
	}
	run(t, m, g, func(o *controller.Options) {
		o.GuestConfig.Wrap(guest.wrap)
		config := o.GuestConfig
		o.LoadGuest = func() (*rest.Config, error) { return rest.CopyConfig(config), nil }
	})
	eventually(t, "both Gateways are released", func() bool {
		return !slices.ContainsFunc([]string{"first", "second"}, func(name string) bool {
			return strings.Contains(fmt.Sprint(g.Get(classAPI, "gateways", "shop", name)["metadata"]), model.HoldAnnotation)
		})
	})
	guest.check(t, "WATCH gateways", "WATCH deployments", "PATCH gateways")
}

// TestHealthWhileTheGuestDoesNotAnswer checks that /healthz reports the state of the worker only. An outage of the
// guest is not a reason to restart.
func TestHealthWhileTheGuestDoesNotAnswer(t *testing.T) {
	t.Parallel()
	address := freeport.Address(t)
	_, g, _ := start(t, func(o *controller.Options) { o.HealthAddress = address })
	g.Between(func(_ http.ResponseWriter, r *http.Request) bool {
		<-r.Context().Done()
		return true
	})
	g.Hangup()
	putClass(g, "demo")
	eventually(t, "the worker is healthy", func() bool {
		return strings.Contains(ask(t, "http://"+address+"/healthz?verbose"), "[+]worker ok")
	})
}
