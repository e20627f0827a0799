package adversary_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hypergate/hypergate/test/adversary"
)

const (
	// longestLogged is the maximum length of a line in hypergate's log.
	longestLogged = 4 << 10
	// mostHeap is the maximum growth of the heap because of a hostile answer. This process also runs both API
	// servers. The bench measures the memory of hypergate alone.
	mostHeap = 64 << 20
)

// ours reports whether a request writes an object that exists because of a GatewayClass. The namespace and the claims
// do not count, because hypergate plans nothing without them.
func ours(r *http.Request) bool {
	return r.Method == http.MethodPatch && !strings.Contains(r.URL.Path, "leases") &&
		!strings.HasSuffix(r.URL.Path, "/namespaces/openshift-ingress") &&
		!strings.Contains(r.URL.Path, crdResource)
}

// TestLongDenials checks that hypergate reports a denial once and briefly. A webhook in the guest denies all writes
// of hypergate with megabytes of text.
func TestLongDenials(t *testing.T) {
	m, g, log := start(t)
	text := strings.Repeat("z\\n\\u202e", 1<<19)
	body := `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"admission webhook ` +
		`\"evil.example.com\" denied the request: ` + text +
		`","reason":"Forbidden","code":403}`
	var denied atomic.Int64
	var most atomic.Int64
	before := liveHeap()
	g.Between(func(w http.ResponseWriter, r *http.Request) bool {
		if !ours(r) {
			return false
		}
		denied.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, body)
		if denied.Load()%10 == 0 {
			most.Store(max(most.Load(), liveHeap()-before))
		}
		return true
	})
	for i := range 20 {
		putClass(g, fmt.Sprintf("class-%d", i))
	}
	eventually(t, "40 writes are denied", func() bool { return denied.Load() >= 40 })
	eventually(t, "the HostedControlPlane names the webhook", func() bool {
		return reported(m, "denied by the admission webhook evil.example.com")
	})
	g.Between(nil)
	eventually(t, "hypergate installs when the webhook no longer denies", func() bool { return installed(m, g) })
	if all, longest := log.size(); longest > longestLogged || all > 256<<10 {
		t.Errorf("%d bytes were logged, the longest line has %d", all, longest)
	}
	if most.Load() > mostHeap {
		t.Errorf("%d MiB more heap than before", most.Load()>>20)
	}
	if s := log.String(); strings.Contains(s, "\u202e") || !strings.Contains(s, "evil.example.com") {
		t.Error("the log contains invisible characters, or does not name the webhook")
	}
}

// TestAFailingWatchIsLoggedSeldom checks that a failing watch does not fill the log. The guest's API server
// answers every second watch of GatewayClasses with an error of 1 MiB.
func TestAFailingWatchIsLoggedSeldom(t *testing.T) {
	_, g, log := start(t)
	body := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500,"message":"` +
		strings.Repeat("z", 1<<20) + `"}`
	var n atomic.Int64
	g.Between(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/"+classes) || r.Method != http.MethodGet {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		if n.Add(1)%2 == 0 {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, body)
			return true
		}
		const bookmark = `{"type":"BOOKMARK","object":{"apiVersion":"gateway.networking.k8s.io/v1","kind":"GatewayClass",` +
			`"metadata":{"resourceVersion":"%d","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"controllerName":"x"}}}` + "\n"
		fmt.Fprintf(w, bookmark, 1000+n.Load())
		return true
	})
	g.Drop()
	eventually(t, "there were 20 requests", func() bool { return n.Load() >= 20 })
	if all, longest := log.size(); longest > longestLogged || all > 256<<10 {
		t.Errorf("%d bytes were logged, the longest line has %d", all, longest)
	}
}

// TestAnOversizedTokenIsRefused checks that hypergate refuses a token that is too large. A mutating webhook adds
// audiences to the TokenRequest for istiod, and the guest signs them.
//
// Nothing of the token reaches the management side, and the condition gives the reason. When the webhook is gone,
// istiod gets a token.
func TestAnOversizedTokenIsRefused(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"100 KiB": 100 << 10, "16 MiB": 16 << 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, g, log := start(t)
			now := time.Now().Unix()
			claims, err := json.Marshal(map[string]any{
				"iat": now, "exp": now + 3600, "aud": strings.Repeat("x", size),
				"kubernetes.io": map[string]any{"serviceaccount": map[string]any{"uid": "u"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			token := "e30." + base64.RawURLEncoding.EncodeToString(claims) + ".c2ln"
			var requested, written, bytes atomic.Int64
			g.Between(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/token") {
					return false
				}
				requested.Add(1)
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusCreated)
				fmt.Fprintf(w, `{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","status":{"token":"%s",`+
					`"expirationTimestamp":"2036-01-01T00:00:00Z"}}`, token)
				return true
			})
			m.Between(func(_ http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/istio-kubeconfig") {
					written.Add(1)
					bytes.Add(r.ContentLength)
				}
				return false
			})
			putClass(g, "demo")
			eventually(t, "a token was asked for more than once", func() bool { return requested.Load() > 1 || written.Load() > 0 })
			if written.Load() > 0 {
				t.Fatalf("%d writes of %d bytes to the management API", written.Load(), bytes.Load())
			}
			eventually(t, "the class gives the reason", func() bool {
				return classSays(g, "demo", "KiB: a mutating webhook may have enlarged it")
			})
			eventually(t, "the HostedControlPlane gives the next step", func() bool {
				return reported(m, "KiB: a mutating webhook may have enlarged it "+
					"[find the mutating webhook that adds to hypergate's objects")
			})
			g.Between(nil)
			eventually(t, "istiod has a token when the webhook is gone", func() bool { return written.Load() > 0 && installed(m, g) })
			if bytes.Load() > 1<<20 {
				t.Errorf("%d bytes were written", bytes.Load())
			}
			if _, longest := log.size(); longest > longestLogged {
				t.Errorf("the longest line has %d bytes", longest)
			}
		})
	}
}

// classSays reports whether the status of a class contains this text.
func classSays(g *adversary.Server, class, what string) bool {
	return strings.Contains(fmt.Sprint(g.Get(classAPI, classes, "", class)["status"]), what)
}

// TestAnObjectEnlargedByAWebhookIsNamed checks the report about an object that a webhook enlarges. A mutating
// webhook adds to a ConfigMap of hypergate: 300 KiB, or more than hypergate reads of an answer to a write. The
// condition names the ConfigMap and the webhook, and hypergate does not write it repeatedly.
func TestAnObjectEnlargedByAWebhookIsNamed(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"300 KiB": 300 << 10, "600 KiB": 600 << 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, g, _ := start(t)
			var writes atomic.Int64
			g.Between(func(w http.ResponseWriter, r *http.Request) bool {
				isWrite, isRead := r.Method == http.MethodPatch, r.Method == http.MethodGet && !r.URL.Query().Has("watch")
				if _, name, one := strings.Cut(r.URL.Path, "/configmaps/"); !one || name == "" || !isWrite && !isRead {
					return false
				}
				if isWrite {
					writes.Add(1)
				}
				enlarge(g, size, w, r)
				return true
			})
			putClass(g, "demo")
			eventually(t, "the HostedControlPlane names the ConfigMap and the next step", func() bool {
				return reported(m, "applying ConfigMap ") &&
					reported(m, "a mutating webhook may have enlarged it [find the mutating webhook that adds to hypergate's objects")
			})
			first := writes.Load()
			for i := range 30 { // each change triggers a pass
				putClass(g, fmt.Sprintf("more-%d", i))
				eventually(t, "the condition names the ConfigMap", func() bool {
					return classSays(g, fmt.Sprintf("more-%d", i), "ConfigMap")
				})
			}
			if more := writes.Load() - first; more > 40 { // each class has its own ConfigMap, written once
				t.Errorf("%d writes of ConfigMaps, %d before", more, first)
			}
		})
	}
}

// enlarge answers a request with an annotation of this size more.
func enlarge(g *adversary.Server, size int, w http.ResponseWriter, r *http.Request) {
	answer := httptest.NewRecorder()
	g.Real(answer, r)
	var o map[string]any
	if json.Unmarshal(answer.Body.Bytes(), &o) == nil && answer.Code < http.StatusBadRequest {
		if meta, is := o["metadata"].(map[string]any); is {
			meta["annotations"] = map[string]any{"evil.example.com/x": strings.Repeat("x", size)}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(answer.Code)
	_ = json.NewEncoder(w).Encode(o)
}
