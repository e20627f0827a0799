package adversary_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/test/adversary"
)

// TestTheFirstTokenDoesNotWaitForRoles holds the first write of istiod's ClusterRole until its token is requested.
// istiod itself is not installed before its roles and bindings.
func TestTheFirstTokenDoesNotWaitForRoles(t *testing.T) {
	t.Parallel()
	m, g := adversary.Mgmt(t, mgmtNS), adversary.Guest(t)
	putHCP(m, "")
	requested, inTime, early := make(chan struct{}), false, 0
	once, hold := sync.OnceFunc(func() { close(requested) }), sync.Once{}
	run(t, m, g, func(o *controller.Options) {
		o.GuestConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return transport(func(r *http.Request) (*http.Response, error) {
				switch {
				case strings.HasSuffix(r.URL.Path, "/token"):
					once()
				case r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/clusterroles/"):
					hold.Do(func() {
						select {
						case <-requested:
							inTime = true
						case <-r.Context().Done():
						}
						early = len(m.Names("apps/v1", "deployments"))
					})
				}
				return next.RoundTrip(r)
			})
		})
	})
	eventually(t, "the CRDs are installed", func() bool { return len(g.Names(crdAPI, crdResource)) > 0 })
	putClass(g, "demo")
	eventually(t, "both sides are installed", func() bool { return installed(m, g) })
	hold.Do(func() { t.Error("no ClusterRole was written") }) // also a barrier: the results can be read
	if !inTime {
		t.Error("the token was requested after the ClusterRole was written")
	}
	if early != 0 {
		t.Error("istiod was installed before its ClusterRole")
	}
}
