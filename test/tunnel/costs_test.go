package tunnel_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"github.com/hypergate/hypergate/pkg/tunnel"
	"github.com/hypergate/hypergate/test/hang"
)

// Limits of what the guest's API server may need: for a tunnel, and for one stream of a tunnel, which it does not know.
const (
	mostPerTunnel = 300 << 10
	mostPerStream = 1 << 10
	// mostGoroutines is for one stream. It leaves room for goroutines that have nothing to do with the streams.
	mostGoroutines = 0.1
)

// BenchmarkAPIServer measures what the guest's API server needs for tunnels that have carried data, and for 1,000
// gateways on one tunnel: memory after a garbage collection, and goroutines. It fails beyond the limits.
func BenchmarkAPIServer(b *testing.B) {
	w := newHarness(b)
	w.must(w.plane.Profile(b.Context())) // a request for its heap is preceded by a garbage collection
	const tunnels = 200
	listener, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", relay1IP+":15443")
	w.must(err)
	b.Cleanup(func() { _ = listener.Close() })
	go acceptUpgrades(listener)
	w.pod("istiod-relay-1", relay1IP)
	w.upgraded().end() // the first one makes caches
	before := w.apiServer()
	var open []upgraded
	for range tunnels {
		open = append(open, w.upgraded())
	}
	perTunnel := w.apiServer().minus(before).of(tunnels)
	for _, one := range open {
		one.end()
	}
	b.ReportMetric(perTunnel.bytes/1024, "KiB/tunnel")
	b.ReportMetric(perTunnel.goroutines, "goroutines/tunnel")
	if perTunnel.bytes > mostPerTunnel {
		b.Errorf("a tunnel needs %.0f KiB", perTunnel.bytes/1024)
	}

	w.pod("istiod-relay-0", relay0IP)
	w.relay("istiod-relay-0", relay0IP)
	w.sidecar()
	w.talks(relay0IP)
	before = w.apiServer()
	const gateways = 900
	w.connect(gateways)
	perStream := w.apiServer().minus(before).of(gateways)
	b.ReportMetric(perStream.bytes, "B/stream")
	b.ReportMetric(perStream.goroutines, "goroutines/stream")
	if perStream.bytes > mostPerStream {
		b.Errorf("a stream needs %.0f bytes", perStream.bytes)
	}
	if perStream.goroutines > mostGoroutines {
		b.Errorf("a stream needs %.3f goroutines", perStream.goroutines)
	}
	b.ReportMetric(0, "ns/op")
}

// connect opens connections of gateways, each with TLS, and sends something on each.
func (w *harness) connect(n int) {
	w.t.Helper()
	var group errgroup.Group
	group.SetLimit(20)
	for range n {
		group.Go(func() error {
			conn, err := w.gateway(relay0IP)
			if err != nil {
				return err
			}
			return talk(conn, "hello")
		})
	}
	w.must(group.Wait())
}

// used is what a process of Go needs.
type used struct{ bytes, goroutines float64 }

func (u used) minus(other used) used {
	return used{u.bytes - other.bytes, u.goroutines - other.goroutines}
}

func (u used) of(n float64) used { return used{u.bytes / n, u.goroutines / n} }

// apiServer returns what the API server needs after a garbage collection: its heap and its stacks.
func (w *harness) apiServer() used {
	w.t.Helper()
	client := w.guest.(*kubernetes.Clientset).RESTClient()
	for range 2 { // the first collection leaves what finalizers hold
		_, err := client.Get().AbsPath("/debug/pprof/heap").Param("gc", "1").DoRaw(w.t.Context())
		w.must(err)
	}
	text, err := client.Get().AbsPath("/metrics").DoRaw(w.t.Context())
	w.must(err)
	value := func(name string) float64 {
		for line := range strings.Lines(string(text)) {
			if rest, is := strings.CutPrefix(line, name+" "); is {
				out, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
				w.must(err)
				return out
			}
		}
		w.t.Fatalf("the API server has no metric %s", name)
		return 0
	}
	return used{value("go_memstats_heap_inuse_bytes") + value("go_memstats_stack_inuse_bytes"), value("go_goroutines")}
}

// acceptUpgrades answers each upgraded request, and then returns what it receives.
func acceptUpgrades(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = conn.Close() }()
			from := bufio.NewReader(conn)
			if _, err := http.ReadRequest(from); err != nil {
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: hypergate-tunnel\r\n\r\n")
			_, _ = io.Copy(conn, from)
		}()
	}
}

// upgraded is an upgraded request to the second relay, through the API server.
type upgraded struct{ conn *tls.Conn }

func (u upgraded) end() { _ = u.conn.Close() }

// upgraded opens an upgraded request as the sidecar does, and carries 64 KiB in each direction.
func (w *harness) upgraded() upgraded {
	w.t.Helper()
	server, err := url.Parse(w.plane.Config.Host)
	w.must(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.plane.Config.CAData)
	conn, err := (&tls.Dialer{
		NetDialer: &net.Dialer{Timeout: hang.Deadline}, Config: &tls.Config{RootCAs: roots, NextProtos: []string{"http/1.1"}},
	}).DialContext(w.t.Context(), "tcp", server.Host)
	w.must(err)
	w.t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "GET /api/v1/namespaces/%s/pods/%s/proxy/tunnel HTTP/1.1\r\nHost: hypergate-tunnel\r\n"+
		"Authorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: hypergate-tunnel\r\n\r\n",
		namespace, tunnel.ProxyResource("istiod-relay-1"), w.token)
	w.must(err)
	from := bufio.NewReader(conn)
	answer, err := http.ReadResponse(from, nil)
	w.must(err)
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusSwitchingProtocols || from.Buffered() > 0 {
		w.t.Fatalf("the API server answers %s", answer.Status)
	}
	w.must(talk(conn, strings.Repeat("0123456789abcdef", 4<<10)))
	return upgraded{conn.(*tls.Conn)}
}

// BenchmarkStalled measures a gateway beside 100 others that ask for much and read nothing, before and meanwhile. The
// sidecar and a relay keep what was sent to those. It fails if the gateway's round trip doubles.
func BenchmarkStalled(b *testing.B) {
	w := newHarness(b)
	w.pod("istiod-relay-0", relay0IP)
	relay, sidecar := w.relay("istiod-relay-0", relay0IP), w.sidecar()
	other := w.talks(relay0IP)
	before := w.pings(other)
	const stalled = 100
	for range stalled {
		conn, err := w.gateway(relay0IP)
		w.must(err)
		_, err = fmt.Fprintf(conn, more, int64(1)<<40)
		w.must(err)
	}
	w.still(relay0IP, `hypergate_relay_bytes_total{direction="to_gateways"}`)
	during, begin := w.pings(other), time.Now()
	conn, err := w.gateway(relay0IP)
	w.must(err)
	const megabytes = 64
	_, err = fmt.Fprintf(conn, more, int64(1)<<40)
	w.must(err)
	_, err = io.CopyN(io.Discard, conn, megabytes<<20)
	w.must(err)
	speed := megabytes / time.Since(begin).Seconds()
	if held := w.value(relay0IP, "hypergate_relay_gateways"); held < stalled {
		b.Errorf("only %.0f gateways are left: the stalled ones were cut before the measurement ended", held)
	}
	if during > 2*before {
		b.Errorf("a round trip takes %.2f ms beside stalled gateways, and %.2f ms without them", during, before)
	}
	_, ofRelay := w.resident(relay)
	_, ofSidecar := w.resident(sidecar)
	for name, value := range map[string]float64{
		"ms-before": before, "ms-beside-100-stalled": during, "MB/s-beside-100-stalled": speed,
		"MiB-relay": ofRelay, "MiB-sidecar": ofSidecar, "ns/op": 0,
	} {
		b.ReportMetric(value, name)
	}
}

// pings returns the median round trip of a byte, in milliseconds.
func (w *harness) pings(conn net.Conn) float64 {
	w.t.Helper()
	took := make([]time.Duration, 500)
	for i := range took {
		begin := time.Now()
		w.must(talk(conn, "x"))
		took[i] = time.Since(begin)
	}
	return float64(median(took).Microseconds()) / 1000
}

// still waits until a metric does not change any more.
func (w *harness) still(ip, name string) {
	w.t.Helper()
	last := -1.0
	w.g.Eventually(func() (bool, error) {
		now, err := metric(ip, name)
		same := now == last
		last = now
		return same, err
	}).WithPolling(200*time.Millisecond).Should(gomega.BeTrue(), name)
}
