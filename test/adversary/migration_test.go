package adversary_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
	"github.com/hypergate/hypergate/test/adversary"
	"github.com/hypergate/hypergate/test/published"
)

const leaseAPI, leases = "coordination.k8s.io/v1", "leases"

// putOrigin gives a guest a class, and an istiod of its own that has deployed a Gateway of it.
func putOrigin(g *adversary.Server) {
	cfg := config()
	putClass(g, "demo")
	adversary.PutOrigin(g, cfg.GuestNamespace, cfg.IstiodName(), migration.OriginAddress(cfg))
}

// migrate requests a migration on its Lease.
func migrate(m *adversary.Server) {
	m.Put(leaseAPI, leases, fmt.Sprintf("{metadata: {namespace: %s, name: %s, annotations: {%s: %s, %s: '2026-01-01T00:00:00Z'}}}",
		mgmtNS, migration.LeaseName("rev"), migration.GoalAnnotation, migration.Forward, migration.RequestedAtAnnotation))
}

// abandoned records why a client gave up the requests to a path.
type abandoned struct {
	path string

	mu   sync.Mutex
	errs []error
}

func (a *abandoned) wrap(next http.RoundTripper) http.RoundTripper {
	return transport(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if ended := r.Context().Err(); ended != nil && strings.Contains(r.URL.Path, a.path) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.errs = append(a.errs, ended)
		}
		return response, err
	})
}

func (a *abandoned) all() []error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.errs
}

func isCanceled(err error) bool { return errors.Is(err, context.Canceled) }

func isTimeout(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

// TestAReadingForAMigrationEndsEarly checks that hypergate gives up a reading of the guest as soon as its result does
// not count any more, and does not wait for the timeout of the request: 10 s.
func TestAReadingForAMigrationEndsEarly(t *testing.T) {
	t.Parallel()
	type setup struct {
		m, g    *adversary.Server
		replace func()       // gives hypergate another kubeconfig of the guest
		stop    func() error // ends the process
	}
	ends := map[string]func(w setup){
		"another session": func(w setup) { w.replace() },
		"a lost ownership Lease": func(w setup) {
			w.g.Put(leaseAPI, leases, "{metadata: {namespace: openshift-ingress, name: "+ownership.Leases(config())[0].Name+
				"}, spec: {holderIdentity: another}}")
		},
		"no GatewayClass":        func(w setup) { w.g.Delete(classAPI, classes, "", "demo") },
		"the end of the process": func(w setup) { _ = w.stop() },
	}
	for name, end := range endings() {
		ends["the HostedControlPlane is "+name] = func(w setup) { w.m.Put(hcpVersion, hcps, end.plane) }
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup{m: adversary.Mgmt(t, mgmtNS), g: adversary.Guest(t)}
			putHCP(w.m, "")
			gate, given := hold(t, w.g, http.MethodGet, "/istiorevisions/"), &abandoned{path: "/istiorevisions/"}
			var token atomic.Value
			token.Store("first")
			w.replace = func() { token.Store("second") }
			var log *logged
			log, w.stop = runUntil(t, w.m, w.g, func(o *controller.Options) {
				o.GuestConfig.BearerToken = "first"
				o.GuestConfig.Wrap(given.wrap)
				guestConfig := o.GuestConfig
				o.LoadGuest = func() (*rest.Config, error) {
					out := rest.CopyConfig(guestConfig)
					out.BearerToken, _ = token.Load().(string)
					return out, nil
				}
			})
			t.Cleanup(func() {
				if err := w.stop(); err != nil {
					t.Error("the controller ended:", err)
				}
			})
			eventually(t, "the CRDs are installed", func() bool { return len(w.g.Names(crdAPI, crdResource)) > 0 })
			putOrigin(w.g)
			migrate(w.m)
			eventually(t, "the guest holds back a reading", func() bool { held, _ := gate.holds(); return held > 0 })
			end(w)
			// On a slow machine, a reading can reach its time limit before hypergate sees the cause. Another one
			// follows.
			eventually(t, "a reading is given up", func() bool { return slices.ContainsFunc(given.all(), isCanceled) })
			if !slices.ContainsFunc(given.all(), isTimeout) {
				noTimeout(t, log)
			}
			if modes := w.m.Names("apps/v1", "deployments"); len(modes) > 0 {
				t.Errorf("the hosted istiod was installed without a reading: %v", modes)
			}
		})
	}
}

// TestAForbiddenWriteOfAMigration checks that the condition about a migration whose state cannot be written names the
// request, and the permission that is missing. It stays while hypergate tries again.
func TestAForbiddenWriteOfAMigration(t *testing.T) {
	t.Parallel()
	m, g, _ := start(t, func(o *controller.Options) { o.Probe = controller.Probe{} }) // without a probe, the migration is blocked
	var refused atomic.Int64
	m.Between(func(w http.ResponseWriter, r *http.Request) bool {
		is := r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/leases/"+migration.LeaseName("rev"))
		if is {
			refused.Add(1)
			adversary.Fail(w, http.StatusForbidden, "Forbidden", `leases.coordination.k8s.io "x" is forbidden: User "u" cannot patch `+
				`resource "leases" in API group "coordination.k8s.io" in the namespace "n"`)
		}
		return is
	})
	putOrigin(g)
	migrate(m)
	const what = "migrating: writing the state: not allowed to patch leases.coordination.k8s.io (RBAC) [grant this permission"
	eventually(t, "the missing permission is reported", func() bool { return reported(m, what) })
	tries := func(more int64) {
		want := refused.Load() + more
		eventually(t, "hypergate tries again", func() bool { return refused.Load() >= want })
	}
	tries(1)
	before := m.Get(hcpVersion, hcps, mgmtNS, "guest1")["status"]
	tries(2)
	if diff := cmp.Diff(before, m.Get(hcpVersion, hcps, mgmtNS, "guest1")["status"]); diff != "" {
		t.Errorf("the conditions change with each try: -before +after:\n%s", diff)
	}
}

// askingIstiod lets hypergate connect to a server in place of istiod: without a probe, a migration is blocked.
func askingIstiod(t *testing.T, m *adversary.Server) func(*controller.Options) {
	t.Helper()
	at := published.Listen(t, func() map[string][]byte { return adversary.SecretData(m, mgmtNS, model.CASecretName) })
	return func(o *controller.Options) { o.Probe = controller.Probe{Via: at} }
}

// TestAMigrationAsksIstiod checks that a migration does not begin if hypergate is not to connect to istiod's published
// address, where it asks which pods are connected. With an address that it can reach, the migration goes on.
func TestAMigrationAsksIstiod(t *testing.T) {
	t.Parallel()
	m, g, _ := start(t) // its probe is off
	putOrigin(g)
	migrate(m)
	eventually(t, "the flag is reported", func() bool { return reported(m, "AddressNotAsked: Deployment openshift-ingress/istiod-rev") })
	if deployed := m.Names("apps/v1", "deployments"); len(deployed) > 0 {
		t.Errorf("the hosted istiod was installed: %v", deployed)
	}

	m, g = adversary.Mgmt(t, mgmtNS), adversary.Guest(t)
	putHCP(m, "")
	run(t, m, g, askingIstiod(t, m))
	eventually(t, "the CRDs are installed", func() bool { return len(g.Names(crdAPI, crdResource)) > 0 })
	putOrigin(g)
	migrate(m)
	eventually(t, "the Gateway is held", func() bool {
		_, held, _ := unstructured.NestedString(g.Get(classAPI, "gateways", "shop", "web"), "metadata", "annotations", model.HoldAnnotation)
		return held
	})
}
