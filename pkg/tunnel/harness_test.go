package tunnel

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/test/hang"
)

const tunnelName = "tunnel.istiod.istio-system.svc"

// bench has a relay and what a sidecar needs, on loopback. In place of an API server there is a proxy that passes
// upgraded requests on. test/tunnel has the real API server.
type bench struct {
	t     *testing.T
	g     *gomega.WithT
	dir   string
	ca    pki.CA
	log   *logBuffer
	relay *Relay
	// tunnels and gateways are the addresses of the relay, and target that of istiod.
	tunnels, gateways string
	target            netip.AddrPort
	api               *httptest.Server
	// upstream is where the API server passes requests on to. It is tunnels, unless a test replaces the relay.
	upstream atomic.Value
	// seen are the requests that arrived at the API server.
	seen requests
}

type requests struct {
	mu     sync.Mutex
	tokens []string
}

// newBench starts a relay with limits and versions, and an istiod that returns what it receives.
func newBench(t *testing.T, l limits, versions []Version) *bench {
	t.Helper()
	b := &bench{t: t, g: hang.Gomega(t), dir: t.TempDir(), log: &logBuffer{}}
	b.ca = b.newCA()
	b.write("root.pem", b.ca.Root)
	b.relay = newRelay(slog.New(slog.NewTextHandler(b.log, nil)), filepath.Join(b.dir, "root.pem"), tunnelName, l, versions)
	b.tunnels = b.serve(b.relay.ServeTunnels)
	b.upstream.Store(b.tunnels)
	b.gateways = b.serve(b.relay.ServeGateways)
	b.target = netip.MustParseAddrPort(b.serve(echo))
	b.api = b.proxy()
	b.write("guest/"+ServerFile, []byte(b.api.URL))
	b.write("guest/"+CAFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.api.Certificate().Raw}))
	b.write("guest/"+TokenFile, []byte("token-1"))
	b.identity(b.ca, tunnelName)
	return b
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) newCA() pki.CA {
	b.t.Helper()
	ca, err := pki.New(time.Now())
	b.must(err)
	return ca
}

func (b *bench) write(name string, data []byte) {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	b.must(os.MkdirAll(filepath.Dir(path), 0o755))
	b.must(os.WriteFile(path+".new", data, 0o600))
	b.must(os.Rename(path+".new", path))
}

// identity gives the sidecar a certificate of a CA.
func (b *bench) identity(ca pki.CA, name string) {
	b.t.Helper()
	b.identityAt(time.Now(), ca, name)
}

// identityAt is identity with the time at which the certificate was issued.
func (b *bench) identityAt(issued time.Time, ca pki.CA, name string) {
	b.t.Helper()
	serving, err := ca.Serving(issued, name)
	b.must(err)
	b.write("tls.key", serving.Key)
	b.write("tls.crt", serving.Cert)
}

// serve runs a server on loopback until the test ends, and returns its address.
func (b *bench) serve(run func(context.Context, net.Listener) error) string {
	b.t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(b.t.Context(), "tcp", "127.0.0.1:0")
	b.must(err)
	ctx, cancel := context.WithCancel(b.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := run(ctx, listener); err != nil {
			b.t.Errorf("serving: %v", err)
		}
	})
	b.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return listener.Addr().String()
}

// echo returns what it receives.
func echo(ctx context.Context, listener net.Listener) error {
	return serve(ctx, listener, func(ctx context.Context, conn net.Conn) {
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		_, _ = io.Copy(conn, conn)
		_ = conn.Close()
	})
}

// proxy passes requests for pods/proxy on to the relay, as an API server does, and notes their tokens.
func (b *bench) proxy() *httptest.Server {
	proxy := &httputil.ReverseProxy{
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		Rewrite: func(r *httputil.ProxyRequest) {
			b.seen.mu.Lock()
			b.seen.tokens = append(b.seen.tokens, r.In.Header.Get("Authorization"))
			b.seen.mu.Unlock()
			_, path, _ := strings.Cut(r.In.URL.Path, "/proxy")
			r.Out.URL = &url.URL{Scheme: "http", Host: b.upstream.Load().(string), Path: path}
			r.Out.Header.Del("Authorization")
		},
	}
	server := httptest.NewUnstartedServer(proxy)
	server.EnableHTTP2 = true // as that of an API server: the sidecar must not negotiate it
	server.Config.ErrorLog = proxy.ErrorLog
	server.StartTLS()
	b.t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

// sidecar runs a sidecar until stop is called or the test ends.
func (b *bench) sidecar(l limits, versions []Version) (running *Sidecar, stop func()) {
	b.t.Helper()
	s := NewSidecar("istiod-relay-0")
	s.limits, s.versions = l, versions
	s.Log = slog.New(slog.NewTextHandler(b.log, nil)).With("end", "sidecar")
	s.Credential = Credential(filepath.Join(b.dir, "guest"))
	s.Identity = Identity{filepath.Join(b.dir, "tls.crt"), filepath.Join(b.dir, "tls.key")}
	s.Namespace, s.Target = "istio-system", b.target
	ctx, cancel := context.WithCancel(b.t.Context())
	var group sync.WaitGroup
	group.Go(func() { s.Run(ctx) })
	stop = func() {
		cancel()
		group.Wait()
	}
	b.t.Cleanup(stop)
	return s, stop
}

// connected waits until both ends have one tunnel, the same one. On a busy machine, the sidecar can give up an attempt
// that the relay has already taken for a tunnel.
func (b *bench) connected(sidecar *Sidecar) {
	b.t.Helper()
	b.g.Eventually(func() [2]string {
		return [2]string{
			metric(b.relay.Handler(), "hypergate_relay_tunnels"), metric(sidecar.Handler(), `hypergate_tunnel_up{relay="istiod-relay-0"}`),
		}
	}).Should(gomega.Equal([2]string{"1", "1"}), func() string { return b.log.String() })
}

// gateway connects to the relay as a gateway does.
func (b *bench) gateway() *net.TCPConn {
	b.t.Helper()
	return b.dial(b.gateways)
}

func (b *bench) dial(address string) *net.TCPConn {
	b.t.Helper()
	return b.dialFrom("127.0.0.1", address)
}

// dialFrom connects from an address of loopback.
func (b *bench) dialFrom(source, address string) *net.TCPConn {
	b.t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	conn, err := dialer.DialContext(b.t.Context(), "tcp", address)
	b.must(err)
	b.t.Cleanup(func() { _ = conn.Close() })
	b.must(conn.SetDeadline(time.Now().Add(hang.Deadline)))
	return conn.(*net.TCPConn)
}

// talk sends a text and expects it back.
func talk(conn net.Conn, text string) error {
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(conn, text)
		sent <- err
	}()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(conn, got); err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	if string(got) != text {
		return fmt.Errorf("%d bytes came back changed", len(text))
	}
	return <-sent
}

// talks expects that a new connection reaches istiod, now or soon, and returns it.
func (b *bench) talks() *net.TCPConn {
	b.t.Helper()
	var conn *net.TCPConn
	b.g.Eventually(func() error {
		conn = b.gateway()
		return talk(conn, "hello")
	}).Should(gomega.Succeed(), func() string { return b.log.String() })
	return conn
}

// ends expects that the other end closes a connection.
func (b *bench) ends(conn net.Conn) {
	b.t.Helper()
	if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
		b.t.Errorf("the connection stays: %v", err)
	}
}

// logs waits for a text in the log.
func (b *bench) logs(text string) {
	b.t.Helper()
	b.g.Eventually(b.log.String).Should(gomega.ContainSubstring(text))
}

// workload returns a certificate as istiod issues it to a workload: with a SPIFFE identity only.
func (b *bench) workload(ca pki.CA) tls.Certificate {
	b.t.Helper()
	issuer, err := tls.X509KeyPair(ca.Cert, ca.Key)
	b.must(err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	b.must(err)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		URIs:        []*url.URL{{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/istio-system/sa/" + tunnelName}},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, issuer.Leaf, key.Public(), issuer.PrivateKey)
	b.must(err)
	return tls.Certificate{Certificate: [][]byte{der, issuer.Certificate[0]}, PrivateKey: key}
}

// upgraded opens a connection to the port for tunnels and sends the request, as a hostile pod can.
func (b *bench) upgraded() net.Conn {
	b.t.Helper()
	conn := b.dial(b.tunnels)
	_, err := conn.Write(upgradeRequest(requestPath, "x"))
	b.must(err)
	from, err := readAnswer(conn)
	b.must(err)
	return behind{conn, from}
}

// metric returns a line of the metrics of a handler.
func metric(handler http.Handler, name string) string {
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(recorder.Body.String()) {
		if value, is := strings.CutPrefix(line, name+" "); is {
			return strings.TrimSpace(value)
		}
	}
	return "none"
}

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends to the log.
func (l *logBuffer) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(data)
}

// String returns the log.
func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// caller returns a caller with what the sidecar has.
func (b *bench) caller() Caller {
	b.t.Helper()
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(b.dir, name))
		b.must(err)
		return data
	}
	return Caller{
		Server: string(read("guest/" + ServerFile)), Token: string(read("guest/" + TokenFile)), CA: read("guest/" + CAFile),
		Cert: read("tls.crt"), Key: read("tls.key"), Namespace: "istio-system",
	}
}
