package guest

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

// leadingGuest is a guest whose istiod has some replicas. The hosted istiod deploys Gateways. answer answers requests
// for what tenants create, and reports whether it has.
func leadingGuest(t *testing.T, replicas int, answer func(http.ResponseWriter, *http.Request) bool) *Cluster {
	t.Helper()
	config := apiServer(t, leadingAPI(replicas, answer))
	config.QPS = -1
	return clusterOf(t, config, leadingConfig())
}

func leadingConfig() model.Config {
	return model.Config{Revision: "r", GuestNamespace: "ns", ControllerName: "example.com/ours"}
}

// leadingAPI is the API server of leadingGuest.
func leadingAPI(replicas int, answer func(http.ResponseWriter, *http.Request) bool) http.HandlerFunc {
	cfg := leadingConfig()
	objects := map[string]any{
		"/apis/apps/v1/namespaces/ns/deployments/" + cfg.IstiodName(): map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "spec": map[string]any{"replicas": replicas},
			"metadata": map[string]any{"namespace": "ns", "name": cfg.IstiodName(), "uid": "d", "resourceVersion": "7"},
		},
		"/apis/coordination.k8s.io/v1/namespaces/ns/leases/" + deploymentLock + "r": map[string]any{
			"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": map[string]any{"holderIdentity": "hosted:p"},
			"metadata": map[string]any{"namespace": "ns", "name": deploymentLock + "r", "uid": "l", "resourceVersion": "8"},
		},
		"/api/v1/namespaces/ns/configmaps/" + rootsLock: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{
				"namespace": "ns", "name": rootsLock, "uid": "c", "resourceVersion": "9",
				"annotations": map[string]any{holderAnnotation: `{"holderIdentity":"istiod-r-1","holderKey":"r"}`},
			},
		},
	}
	return func(w http.ResponseWriter, r *http.Request) {
		object, is := objects[r.URL.Path]
		switch {
		case strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/ns/pods"):
			object = map[string]any{"apiVersion": "v1", "kind": "PodList", "items": []any{}}
		case (!is || strings.Contains(r.URL.Path, "/configmaps/")) && answer(w, r):
			return
		case !is:
			w.WriteHeader(http.StatusNotFound)
			object = map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(object)
	}
}

// TestAFailedReadLeavesTheOrigin checks that a reading that fails at what tenants create has the origin and the lock.
// Without the Deployment of the origin, it has nothing that counts.
func TestAFailedReadLeavesTheOrigin(t *testing.T) {
	t.Parallel()
	fails := func(part string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, part) {
				return false
			}
			http.Error(w, "no answer", http.StatusInternalServerError)
			return true
		}
	}
	for _, part := range []string{"/configmaps/", "/gatewayclasses", "/istios/", "/validatingwebhookconfigurations/", "/gateways"} {
		facts, err := leadingGuest(t, 0, fails(part)).Migration(t.Context(), MigrationQuestion{Urgent: true})
		if err == nil {
			t.Errorf("%s: no error", part)
		}
		publisher := "istiod-r-1"
		if part == "/configmaps/" {
			publisher = ""
		}
		isLed := facts.Essential && facts.Leader == "hosted:p" && facts.Publisher == publisher
		if d := facts.Inventory.Origin.Deployment; d == nil || d.Wanted != 0 || facts.Origin.UID != "d" || !isLed {
			t.Errorf("%s: origin %+v, Deployment %+v, leader %q, publisher %q", part, facts.Origin, d, facts.Leader, facts.Publisher)
		}
	}
	guest := leadingGuest(t, 0, fails(""))
	guest.cfg.GuestNamespace = "other"
	if facts, err := guest.Migration(t.Context(), MigrationQuestion{Urgent: true}); err == nil || facts.Origin.UID != "" {
		t.Errorf("without the Deployment: %+v, %v", facts.Origin, err)
	}
}

// TestAReadingIsShortWhileTheOriginIsAway checks that a slow list of what tenants create delays the next step only if
// the origin has replicas.
func TestAReadingIsShortWhileTheOriginIsAway(t *testing.T) {
	t.Parallel()
	const slow = restTime + 2*time.Second // foreignPatchTimeout is longer
	for _, of := range []struct {
		name     string
		replicas int
		urgent   bool
		fails    bool
		lasts    time.Duration
	}{
		{"away", 0, true, true, restTime}, {"serves", 1, true, false, slow}, {"parked", 0, false, false, slow},
	} {
		t.Run(of.name, func(t *testing.T) {
			t.Parallel()
			config := apiServer(t, http.NotFound) // only its certificate is used
			synctest.Test(t, func(t *testing.T) {
				config.QPS = -1
				config.Wrap(func(http.RoundTripper) http.RoundTripper { return inProcess(leadingAPI(of.replicas, slowly(slow))) })
				began, guest := time.Now(), clusterOf(t, config, leadingConfig())
				facts, err := guest.Migration(t.Context(), MigrationQuestion{Urgent: of.urgent})
				if lasted := time.Since(began); (err != nil) != of.fails || lasted != of.lasts {
					t.Errorf("after %s: %v, want %s", lasted, err, of.lasts)
				}
				if facts.Leader != "hosted:p" || facts.Inventory.Origin.Kind() == migration.NoOrigin {
					t.Errorf("%+v", facts)
				}
			})
		})
	}
}

// slowly lets a list of Gateways take some time.
func slowly(slow time.Duration) func(http.ResponseWriter, *http.Request) bool {
	return func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/gateways") {
			select {
			case <-time.After(slow):
			case <-r.Context().Done():
			}
		}
		return false
	}
}

// TestOnePatchRelaxesSomeWebhooks checks that the guest does not decide how large the patch of the origin's webhook is.
func TestOnePatchRelaxesSomeWebhooks(t *testing.T) {
	t.Parallel()
	webhooks := []any{map[string]any{"failurePolicy": "Ignore"}}
	for range 2 * mostBlocking {
		webhooks = append(webhooks, map[string]any{})
	}
	guest := leadingGuest(t, 1, func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/validatingwebhookconfigurations/") {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
			"metadata": map[string]any{"name": "w", "uid": "w", "resourceVersion": "9"}, "webhooks": webhooks,
		})
		return true
	})
	facts, err := guest.Migration(t.Context(), MigrationQuestion{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(facts.Blocking); n != mostBlocking || facts.Blocking[0] != 1 || facts.Blocking[n-1] != n {
		t.Errorf("%d webhooks are relaxed at once, from %v; want %d", n, facts.Blocking[:min(n, 3)], mostBlocking)
	}
}
