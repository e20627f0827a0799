package adversary_test

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/test/adversary"
)

// locally makes a controller reach both sides without a network, for a test in a bubble of testing/synctest.
func locally(m, g *adversary.Server) option {
	return func(o *controller.Options) {
		guestConfig := g.Local()
		o.MgmtConfig, o.GuestConfig = m.Local(), guestConfig
		o.LoadGuest = func() (*rest.Config, error) { return rest.CopyConfig(guestConfig), nil }
	}
}

// slow makes a server delay some requests, and returns how many of those their clients gave up.
func slow(s *adversary.Server, delay time.Duration, which func(*http.Request) bool) *atomic.Int64 {
	var gaveUp atomic.Int64
	s.Between(func(_ http.ResponseWriter, r *http.Request) bool {
		if !which(r) {
			return false
		}
		select {
		case <-time.After(delay):
			return false
		case <-r.Context().Done():
			gaveUp.Add(1)
			return true
		}
	})
	return &gaveUp
}

// hasDefaults reports whether a guest has the defaults of the class demo.
func hasDefaults(g *adversary.Server) bool {
	return slices.Contains(g.Names("v1", "configmaps"), "openshift-ingress/hypergate-gatewayclass-rev.demo")
}

// TestASlowGuestEndsThePassInTime checks that the work of one pass in the guest ends after 40 s, and that the next pass
// continues with it. A webhook of the guest delays two kinds of writes by 25 s each, one after the other.
func TestASlowGuestEndsThePassInTime(t *testing.T) {
	t.Parallel()
	const delay, limit = 25 * time.Second, 40 * time.Second
	for name, tc := range map[string]struct {
		method, first, second string
		begin                 func(g *adversary.Server)
		done                  func(g *adversary.Server) bool
	}{
		"installing": {
			http.MethodPatch, "/clusterroles/", "/configmaps/", func(g *adversary.Server) { putClass(g, "demo") }, hasDefaults,
		},
		"removing": {
			http.MethodDelete, "/clusterrolebindings/", "/clusterroles/",
			func(g *adversary.Server) { g.Delete(classAPI, classes, "", "demo") },
			func(g *adversary.Server) bool {
				return len(g.Names("rbac.authorization.k8s.io/v1", "clusterroles")) == 0
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m, g := adversary.Mgmt(t, mgmtNS), adversary.Guest(t)
				putHCP(m, "")
				log := run(t, m, g, locally(m, g))
				eventually(t, "the CRDs are installed", func() bool { return len(g.Names(crdAPI, crdResource)) > 0 })
				if name == "removing" {
					putClass(g, "demo")
					eventually(t, "the webhook fails closed", func() bool { return adversary.WebhookFailsClosed(g) && hasDefaults(g) })
				}
				gaveUp := slow(g, delay, func(r *http.Request) bool {
					return r.Method == tc.method && (strings.Contains(r.URL.Path, tc.first) || strings.Contains(r.URL.Path, tc.second))
				})
				began := time.Now()
				tc.begin(g)
				const slowly = "The guest answers slowly; the next pass continues with it"
				eventually(t, "the pass ends", func() bool { return strings.Contains(log.String(), slowly) })
				if took := time.Since(began); took < limit || took > limit+time.Second {
					t.Errorf("the pass ended after %s, want %s", took, limit)
				}
				if gaveUp.Load() == 0 {
					t.Error("no request of the pass was given up")
				}
				eventually(t, "the next pass completes the work", func() bool { return tc.done(g) })
				if took := time.Since(began); took < limit+delay || took > limit+delay+2*time.Second {
					t.Errorf("the next pass was done after %s, want %s", took, limit+delay)
				}
				if n := strings.Count(log.String(), slowly); n != 1 {
					t.Errorf("%d passes ended early, want 1", n)
				}
			})
		})
	}
}
