package adversary_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/test/adversary"
)

// endlessNamespaces answers each list of namespaces with a page that is not the last one.
func endlessNamespaces(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodGet || r.URL.Path != "/api/v1/namespaces" || !r.URL.Query().Has("limit") || r.URL.Query().Has("watch") {
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": map[string]any{"continue": "more"},
		"items": []any{map[string]any{"metadata": map[string]any{"name": "kube-system", "uid": "guest-uid"}}},
	})
	return true
}

// versionOf returns the resource version of an object.
func versionOf(o map[string]any) any {
	metadata, _ := o["metadata"].(map[string]any)
	return metadata["resourceVersion"]
}

// ahead is a clock that is fast by this duration.
type ahead time.Duration

// Now returns the time of the clock.
func (a ahead) Now() time.Time { return time.Now().Add(time.Duration(a)) }

// Since returns the time since t on this clock.
func (a ahead) Since(t time.Time) time.Duration { return a.Now().Sub(t) }

// TestAGuestWithTooManyNamespaces checks a process that starts and cannot find out whether the guest is the
// management cluster. It installs nothing, and an existing istiod keeps its token.
func TestAGuestWithTooManyNamespaces(t *testing.T) {
	t.Parallel()
	tokens := func(g *adversary.Server) int {
		n := 0
		for _, r := range g.Requests(http.MethodPost) {
			if strings.Contains(r, "/token?") {
				n++
			}
		}
		return n
	}
	later := func(o *controller.Options) {
		o.Clock = ahead(55 * time.Minute)
	}

	t.Run("a restart", func(t *testing.T) {
		t.Parallel()
		m, g := adversary.Mgmt(t, mgmtNS), adversary.Guest(t)
		putHCP(m, "")
		_, stop := runUntil(t, m, g)
		eventually(t, "the CRDs are installed", func() bool { return len(g.Names(crdAPI, crdResource)) > 0 })
		putClass(g, "demo")
		eventually(t, "both sides are installed", func() bool { return installed(m, g) && tokens(g) > 0 })
		eventually(t, "nothing is left to write", func() bool {
			return adversary.WebhookFailsClosed(g) && conditionOf(g, "demo", "ControllerInstalled") != "" &&
				reported(m, "everything is up to date")
		})
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		g.Between(endlessNamespaces)
		before, token, written := tokens(g), versionOf(m.Get("v1", "secrets", mgmtNS, "istio-kubeconfig")),
			len(g.Requests(http.MethodPatch))
		run(t, m, g, later)
		eventually(t, "the token is renewed", func() bool {
			return tokens(g) > before && versionOf(m.Get("v1", "secrets", mgmtNS, "istio-kubeconfig")) != token
		})
		eventually(t, "it is reported", func() bool { return reported(m, "namespaces") })
		if now := len(g.Requests(http.MethodPatch)); now != written {
			t.Errorf("%d objects were written into the guest", now-written)
		}
	})
	t.Run("an installation", func(t *testing.T) {
		t.Parallel()
		m, g := adversary.Mgmt(t, mgmtNS), adversary.Guest(t)
		putHCP(m, "")
		g.Between(endlessNamespaces)
		run(t, m, g)
		putClass(g, "demo")
		eventually(t, "it is reported", func() bool { return reported(m, "namespaces") })
		if written := len(g.Requests(http.MethodPatch)) + len(g.Requests(http.MethodPost)); written != 0 ||
			len(m.Names("v1", "secrets")) != 0 {
			t.Errorf("%d objects were written into the guest, and %s on the management side", written, m.Names("v1", "secrets"))
		}
	})
}
