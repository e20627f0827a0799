package controller

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
)

// TestAcquiringIsLimited checks what counts as an acquisition: each pass that has written a Lease, also if the guest
// then refuses the next one. Otherwise a guest that deletes the first Lease gets it again with each pass. A pass that
// has written nothing does not count: the conditions name why, and not that Leases are deleted.
func TestAcquiringIsLimited(t *testing.T) {
	t.Parallel()
	accept := func(w http.ResponseWriter, name string) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"metadata": {"name": %q, "uid": "u", "resourceVersion": "7"}}`, name)
	}
	longUID := func(w http.ResponseWriter, name string) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"metadata": {"name": %q, "uid": %q, "resourceVersion": "7"}}`, name, strings.Repeat("u", 65))
	}
	deny := func(w http.ResponseWriter, _ string) {
		http.Error(w, `admission webhook "w.example.com" denied the request`, http.StatusForbidden)
	}
	enlarge := func(w http.ResponseWriter, name string) { accept(w, name+strings.Repeat("x", 3<<20)) }
	away := func(http.ResponseWriter, string) { panic(http.ErrAbortHandler) }
	for name, tc := range map[string]struct {
		answers [2]func(w http.ResponseWriter, lease string)
		counts  bool
	}{
		"both":                         {[...]func(http.ResponseWriter, string){accept, accept}, true},
		"the second one is denied":     {[...]func(http.ResponseWriter, string){accept, deny}, true},
		"no answer for the second one": {[...]func(http.ResponseWriter, string){accept, away}, true},
		"the first one is enlarged":    {[...]func(http.ResponseWriter, string){enlarge, accept}, true},
		"the first one has a long UID": {[...]func(http.ResponseWriter, string){longUID, accept}, true},
		"the first one is denied":      {[...]func(http.ResponseWriter, string){deny, accept}, false},
		"no answer":                    {[...]func(http.ResponseWriter, string){away, accept}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			leases := ownership.Leases(model.Config{Revision: "r"})
			api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				for i, lease := range leases {
					if path.Base(r.URL.Path) == lease.Name {
						tc.answers[i](w, lease.Name)
					}
				}
			}))
			t.Cleanup(api.Close)
			ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})
			r := newTestReconciler(t, clock.RealClock{}, &rest.Config{Host: api.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}})
			o := observation{now: start, deadline: clock.RealClock{}.Now().Add(guestTime)}
			o.mgmt.NamespaceUID = "5f0b"
			for range acquireBurst {
				if wait := r.memory.acquiring.Wait(start); wait != 0 {
					t.Fatalf("it waits for %s too early", wait)
				}
				_ = newExecution(r, o).acquire(t.Context(), desired.Plan{}, leases)
			}
			if got := r.memory.acquiring.Wait(start) > 0; got != tc.counts {
				t.Errorf("after %d passes, the next one waits: %t", acquireBurst, got)
			}
		})
	}
}
