package tunnel_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/tunnel"
	"github.com/hypergate/hypergate/test/proc"
)

const (
	up0 = `hypergate_tunnel_up{relay="istiod-relay-0"}`
	up1 = `hypergate_tunnel_up{relay="istiod-relay-1"}`
)

func reconnects(reason string) string {
	return `hypergate_tunnel_reconnects_total{reason="` + reason + `"}`
}

// TestTunnel is the story of a tunnel: it comes up, carries connections, and comes back after each fault.
func TestTunnel(t *testing.T) {
	w := newHarness(t)
	w.pod("istiod-relay-0", relay0IP)
	w.pod("istiod-relay-1", relay1IP)
	relay := w.relay("istiod-relay-0", relay0IP)
	w.relay("istiod-relay-1", relay1IP)
	w.isReady(relay0IP, http.StatusServiceUnavailable)
	sidecar := w.sidecar()

	for _, ip := range []string{relay0IP, relay1IP} {
		w.talks(ip)
		w.isReady(ip, http.StatusOK)
	}
	w.becomes(istiodIP, up0, 1)
	w.becomes(istiodIP, up1, 1)
	w.memory("empty", relay, sidecar)
	w.needAtMost(t, 12, relay, sidecar)
	conn := w.talks(relay0IP)
	if err := talk(conn, strings.Repeat("0123456789abcdef", 1<<18)); err != nil { // 4 MiB each way
		t.Errorf("4 MiB: %v", err)
	}

	t.Run("a thousand gateways", func(t *testing.T) { w.thousandGateways(t, relay, sidecar) })
	t.Run("only two ports are allowed", w.onlyTheRelays)
	t.Run("a caller with the sidecar's identity reaches istiod", w.caller)
	t.Run("the API server is killed", func(t *testing.T) {
		w.plane.StopAPI()
		w.becomes(istiodIP, up0, 0)
		w.isReady(relay0IP, http.StatusServiceUnavailable)
		w.must(w.plane.StartAPI(t.Context()))
		begin := time.Now()
		w.talks(relay0IP)
		w.talks(relay1IP)
		t.Logf("a gateway reaches istiod %s after the API server is ready", time.Since(begin).Round(time.Millisecond))
	})
	t.Run("a relay is killed", func(*testing.T) {
		before := w.value(istiodIP, reconnects("ended"))
		relay.Kill()
		w.grows(istiodIP, reconnects("ended"), before)
		w.grows(istiodIP, reconnects("unavailable"), 0)
		w.talks(relay1IP)
		relay = w.relay("istiod-relay-0", relay0IP)
		w.talks(relay0IP)
	})
	t.Run("the permission is taken and given back", func(t *testing.T) { relay = w.withoutPermission(t, relay) })
	t.Run("the sidecar restarts", func(*testing.T) {
		sidecar.Kill()
		w.isReady(relay0IP, http.StatusServiceUnavailable)
		sidecar = w.sidecar()
		w.talks(relay0IP)
	})
	w.grows(istiodIP, `hypergate_tunnel_round_trip_seconds{relay="istiod-relay-0"}`, 0)
	t.Logf("round trip of a keepalive: %.2f ms",
		1000*w.value(istiodIP, `hypergate_tunnel_round_trip_seconds{relay="istiod-relay-0"}`))
}

// hypergate returns how hypergate connects to istiod: through the API server and a relay, beside the tunnel.
func (w *harness) hypergate() tunnel.Caller {
	w.t.Helper()
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(w.dir, name))
		w.must(err)
		return data
	}
	return tunnel.Caller{
		Server: w.plane.Config.Host, CA: w.plane.Config.CAData, Token: w.token, Namespace: namespace,
		Cert: read("tunnel/tls.crt"), Key: read("tunnel/tls.key"),
	}
}

// caller connects to istiod as hypergate does.
func (w *harness) caller(t *testing.T) {
	raw, err := w.hypergate().Dial(t.Context(), "istiod-relay-0")
	w.must(err)
	defer func() { _ = raw.Close() }()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.ca.Root)
	conn := tls.Client(raw, &tls.Config{RootCAs: roots, ServerName: istiodName, MinVersion: tls.VersionTLS13})
	w.must(conn.HandshakeContext(t.Context()))
	w.must(talk(conn, "hello"))
}

// thousandGateways fills a relay, and measures both ends.
func (w *harness) thousandGateways(t *testing.T, relay, sidecar *proc.Process) {
	t.Helper()
	const held = "hypergate_relay_gateways"
	var open errgroup.Group
	open.SetLimit(20)
	conns := make([]*tls.Conn, 1000-int(w.value(relay0IP, held)))
	for i := range conns {
		open.Go(func() (err error) {
			if conns[i], err = w.gateway(relay0IP); err != nil {
				return err
			}
			return talk(conns[i], "hello")
		})
	}
	w.must(open.Wait())
	w.becomes(relay0IP, held, 1000)
	w.memory("1,000 gateways", relay, sidecar)
	w.needAtMost(t, 32, relay, sidecar)
	if _, err := w.gateway(relay0IP); err == nil {
		t.Error("one more gateway was accepted")
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	w.g.Eventually(func() (float64, error) { return metric(relay0IP, held) }).Should(gomega.BeNumerically("<", 10))
}

// needAtMost checks the resident memory of both ends, in MiB.
func (w *harness) needAtMost(t *testing.T, most float64, relay, sidecar *proc.Process) {
	t.Helper()
	for name, process := range map[string]*proc.Process{"relay": relay, "sidecar": sidecar} {
		if _, all := w.resident(process); all > most {
			t.Errorf("the %s has %.1f MiB, more than %.0f", name, all, most)
		}
	}
}

// onlyTheRelays checks that the API server refuses everything but the upgrade requests for the two relays.
func (w *harness) onlyTheRelays(t *testing.T) {
	config := rest.AnonymousClientConfig(w.plane.Config)
	config.BearerToken = w.token
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	pods := config.Host + "/api/v1/namespaces/" + namespace + "/pods/"
	for _, tc := range []struct {
		method, path string
		want         int
	}{
		{http.MethodGet, "http:istiod-relay-0:15443/proxy/tunnel", http.StatusUpgradeRequired}, // the relay answers
		{http.MethodGet, "http:istiod-relay-0:15012/proxy/", http.StatusForbidden},
		{http.MethodGet, "http:istiod-relay-0:15444/proxy/metrics", http.StatusForbidden},
		{http.MethodGet, "https:istiod-relay-0:15443/proxy/tunnel", http.StatusForbidden},
		{http.MethodGet, "istiod-relay-0:15443/proxy/tunnel", http.StatusForbidden},
		{http.MethodGet, "istiod-relay-0/proxy/tunnel", http.StatusForbidden},
		{http.MethodGet, "http:istiod-relay-2:15443/proxy/tunnel", http.StatusForbidden},
		{http.MethodPost, "http:istiod-relay-0:15443/proxy/tunnel", http.StatusForbidden},
		{http.MethodGet, "istiod-relay-0", http.StatusForbidden},
		{http.MethodGet, "istiod-relay-0/log", http.StatusForbidden},
		{http.MethodGet, "", http.StatusForbidden},
	} {
		request, err := http.NewRequestWithContext(t.Context(), tc.method, pods+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Errorf("%s %s: %v", tc.method, tc.path, err)
			continue
		}
		_ = response.Body.Close()
		if response.StatusCode != tc.want {
			t.Errorf("%s %s: %s, want %d", tc.method, tc.path, response.Status, tc.want)
		}
	}
}

// withoutPermission takes the permission from the sidecar. The open tunnel stays. A new one comes up when the
// permission is back.
func (w *harness) withoutPermission(t *testing.T, relay *proc.Process) *proc.Process {
	t.Helper()
	conn := w.talks(relay0IP)
	w.must(w.guest.RbacV1().RoleBindings(namespace).Delete(t.Context(), "istiod-tunnel", metav1.DeleteOptions{}))
	if err := talk(conn, "still here"); err != nil {
		t.Errorf("the open tunnel: %v", err)
	}
	relay.Kill()
	relay = w.relay("istiod-relay-0", relay0IP)
	before := w.value(istiodIP, reconnects("forbidden"))
	w.grows(istiodIP, reconnects("forbidden"), before+2)
	w.bind()
	w.talks(relay0IP)
	return relay
}

func (w *harness) value(ip, name string) float64 {
	w.t.Helper()
	value, err := metric(ip, name)
	w.must(err)
	return value
}

// isReady waits for an answer of /readyz.
func (w *harness) isReady(ip string, want int) {
	w.t.Helper()
	w.g.Eventually(func() (int, error) {
		response, err := http.Get("http://" + ip + health + "/readyz") //nolint:noctx // a test
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}).Should(gomega.Equal(want))
}

// memory logs the memory of the processes.
func (w *harness) memory(when string, relay, sidecar *proc.Process) {
	w.t.Helper()
	relayAnonymous, relayAll := w.resident(relay)
	sidecarAnonymous, sidecarAll := w.resident(sidecar)
	w.t.Logf("%s: relay %.1f MiB (anonymous %.1f), sidecar %.1f MiB (anonymous %.1f)",
		when, relayAll, relayAnonymous, sidecarAll, sidecarAnonymous)
}
