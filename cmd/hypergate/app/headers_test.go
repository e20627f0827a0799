package app_test

import (
	"encoding/base64"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// TestCommandsLimitHeaders checks for each command that reads a guest: it does not take in headers of an answer that
// are longer than the limit of pkg/guestconn. No limit of the body covers them. A test there covers HTTP/2.
func TestCommandsLimitHeaders(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 32 {
			w.Header().Add("Long", strings.Repeat("x", 32<<10))
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`))
	}))
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	kubeconfig := file(t, "guest", `{apiVersion: v1, kind: Config, current-context: g, users: [{name: u, user: {token: abc}}],
clusters: [{name: c, cluster: {server: "`+server.URL+`", certificate-authority-data: `+base64.StdEncoding.EncodeToString(ca)+`}}],
contexts: [{name: g, context: {cluster: c, user: u}}]}`)
	_, mgmt := serveLeases(t, leaseWith("clusters-guest1", good(t, "guest1")))
	guest := "--guest-kubeconfig=" + kubeconfig
	commands := map[string][]string{
		"bundle":           {"bundle", guest, "--kubeconfig=" + mgmt, "-o=" + filepath.Join(t.TempDir(), "a.tar.gz")},
		"crds":             {"crds", guest},
		"guest-kubeconfig": {"guest-kubeconfig", guest},
		"migrate plan":     {"migrate", "plan", guest},
		"preflight":        append([]string{"preflight", guest, "--kubeconfig=" + mgmt}, flags()...),
		"proxies":          {"proxies", guest, "--address=istiod.example.com:443"},
		"release":          {"release", guest},
	}
	for name, args := range commands {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := execute(t, args...)
			if all := r.out + r.errOut; r.code == 0 || !strings.Contains(all, "server response headers exceeded") {
				t.Errorf("code %d: %s", r.code, all)
			}
		})
	}
}
