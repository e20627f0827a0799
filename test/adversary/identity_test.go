package adversary_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/test/adversary"
)

// identified returns a guest with this UID of the namespace kube-system, which identifies the guest.
func identified(t *testing.T, uid string) *adversary.Server {
	t.Helper()
	g := adversary.Guest(t)
	g.Delete("v1", "namespaces", "", "kube-system") // its UID cannot change
	g.Put("v1", "namespaces", "{metadata: {name: kube-system, uid: "+uid+"}}")
	return g
}

// TestTheKubeconfigOfAnotherGuest has two hosted clusters, each with its own hypergate. One of them gets the
// kubeconfig of the other guest by mistake. This hypergate continues with its own guest, writes nothing anywhere, and
// reports the problem until the right kubeconfig is back.
func TestTheKubeconfigOfAnotherGuest(t *testing.T) {
	t.Parallel()
	g1, g2 := identified(t, "guest-1"), identified(t, "guest-2")
	m1, m2 := adversary.Mgmt(t, mgmtNS), adversary.Mgmt(t, mgmtNS)
	putHCP(m1, "")
	m2.Put(hcpVersion, hcps, strings.NewReplacer("clusterID: abc", "clusterID: def", "hcp-uid", "hcp-uid-2").Replace(hcp("")))
	var wrong atomic.Bool
	run(t, m2, g2)
	run(t, m1, g1, func(o *controller.Options) {
		o.LoadGuest = func() (*rest.Config, error) {
			if wrong.Load() {
				return g2.Config(), nil
			}
			return g1.Config(), nil
		}
	})
	for g, m := range map[*adversary.Server]*adversary.Server{g1: m1, g2: m2} {
		eventually(t, "the CRDs are installed", func() bool { return len(g.Names(crdAPI, crdResource)) > 0 })
		putClass(g, "demo")
		eventually(t, "both sides are installed", func() bool { return installed(m, g) })
		eventually(t, "the installation is reported", func() bool { return reported(m, "AsExpected") })
		eventually(t, "the class is reported", func() bool { return g.Get(classAPI, classes, "", "demo")["status"] != nil })
		eventually(t, "the webhook fails closed", func() bool { return adversary.WebhookFailsClosed(g) })
	}
	secret := func() any { return m1.Get("v1", "secrets", mgmtNS, "istio-kubeconfig")["data"] }
	before, istiod := secret(), m1.Get("apps/v1", "deployments", mgmtNS, "istiod-rev")["spec"]
	sinceM, since1, since2 := len(m1.Log()), len(g1.Log()), len(g2.Log())

	wrong.Store(true)
	eventually(t, "the problem is reported", func() bool { return reported(m1, "the kubeconfig leads to another guest") })
	for _, request := range append(written(g2, since2), written(g1, since1)...) {
		if !strings.Contains(request, "/gatewayclasses/demo/status") { // a result that was proven before may still be reported
			t.Error("a write in a guest:", request)
		}
	}
	for _, request := range written(m1, sinceM) {
		t.Error("a write on the management side:", request)
	}
	same := func() {
		t.Helper()
		if !equal(before, secret()) || !equal(istiod, m1.Get("apps/v1", "deployments", mgmtNS, "istiod-rev")["spec"]) {
			t.Error("istiod has another credential, or was rolled out")
		}
	}
	same()

	// hypergate continues with its own guest.
	putClass(g1, "later")
	eventually(t, "a class of its own guest is observed", func() bool {
		return strings.Contains(strings.Join(g1.Names("v1", "configmaps"), " "), "gatewayclass-rev.later")
	})
	wrong.Store(false)
	eventually(t, "the problem is not reported any more", func() bool { return !reported(m1, "the kubeconfig leads to another guest") })
	same()
	for _, request := range written(g2, since2) {
		if strings.Contains(request, "/token") {
			t.Error("a token of the other guest was asked for")
		}
	}
}

// TestAStartWithTheKubeconfigOfAnotherGuest has two hosted clusters, each with its own hypergate. One of them gets the
// kubeconfig of the other guest while its hypergate is down, and that guest does not list one resource. The hypergate
// that starts requests no token there, and istiod keeps its credential.
func TestAStartWithTheKubeconfigOfAnotherGuest(t *testing.T) {
	t.Parallel()
	for _, resource := range []string{classes, leases} {
		t.Run(resource, func(t *testing.T) {
			t.Parallel()
			g1, g2 := identified(t, "guest-1"), identified(t, "guest-2")
			m1, m2 := adversary.Mgmt(t, mgmtNS), adversary.Mgmt(t, mgmtNS)
			putHCP(m1, "")
			m2.Put(hcpVersion, hcps, strings.NewReplacer("clusterID: abc", "clusterID: def", "hcp-uid", "hcp-uid-2").Replace(hcp("")))
			for g, m := range map[*adversary.Server]*adversary.Server{g1: m1, g2: m2} {
				_, stop := runUntil(t, m, g)
				eventually(t, "the CRDs are installed", func() bool { return len(g.Names(crdAPI, crdResource)) > 0 })
				putClass(g, "demo")
				eventually(t, "both sides are installed", func() bool { return installed(m, g) })
				eventually(t, "the installation is reported", func() bool { return reported(m, "AsExpected") })
				if err := stop(); err != nil {
					t.Error("the controller ended:", err)
				}
			}
			secret := func() any { return m1.Get("v1", "secrets", mgmtNS, "istio-kubeconfig")["data"] }
			before, since := secret(), len(g2.Log())

			g2.Between(func(w http.ResponseWriter, r *http.Request) bool {
				held := r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/"+resource)
				if held {
					adversary.Fail(w, http.StatusForbidden, "Forbidden", resource+" is forbidden")
				}
				return held
			})
			log := run(t, m1, g2)
			eventually(t, "the problem is reported", func() bool {
				return resource == leases && reported(m1, leases) || strings.Contains(log.String(), "some required lists are missing")
			})
			for _, request := range written(g2, since) {
				if strings.Contains(request, "/token") {
					t.Error("a token of the other guest was asked for:", request)
				}
			}
			if !equal(before, secret()) {
				t.Error("istiod has another credential")
			}
		})
	}
}

func equal(a, b any) bool { return fmt.Sprint(a) == fmt.Sprint(b) }
