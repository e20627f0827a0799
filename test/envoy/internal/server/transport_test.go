package server_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/hypergate/hypergate/test/envoy/internal/xds"
)

const h2Options = `"typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
	"@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
	"explicit_http_config": {"http2_protocol_options": {}}}}`

// TestHTTPS serves two names with two certificates on one port, over HTTP/1.1 and HTTP/2, and replaces a certificate.
func TestHTTPS(t *testing.T) {
	t.Parallel()
	w, ca := start(t), newAuthority(t)
	address := freeAddress(t)
	w.plane.Set(w.cluster("a", ""), w.endpoints("a", backend(t, says("a"))), w.routes(to("/", "a", "")),
		ca.secret("one", 10, "one.example"), ca.secret("two", 20, "*.two.example"),
		w.httpListener(address, sni("one.example")+tlsSocket("one"), sni("*.two.example")+tlsSocket("two")))
	w.ready()
	serial := func(url string, version func(*http.Protocols)) int64 {
		c := client(t, address, ca.roots(), version)
		response, err := send(t, c, http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if body, _ := io.ReadAll(response.Body); string(body) != "a /x" {
			t.Errorf("%s: %d %s", url, response.StatusCode, body)
		}
		return response.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	for name, version := range map[string]func(*http.Protocols){"HTTP/1.1": http1, "HTTP/2": http2} {
		if got := serial("https://one.example/x", version); got != 10 {
			t.Errorf("%s: serial = %d, want 10", name, got)
		}
		if got := serial("https://b.two.example/x", version); got != 20 {
			t.Errorf("%s: serial = %d, want 20", name, got)
		}
	}
	if handshake(t, address, &tls.Config{RootCAs: ca.roots(), ServerName: "other.example"}) == nil {
		t.Error("a name without a filter chain should not be served")
	}
	w.plane.Set(ca.secret("one", 11, "one.example"))
	w.eventually("the new certificate is served", func() bool { return serial("https://one.example/x", http1) == 11 })
}

// TestASecretThatDoesNotExist keeps the former listener while the new one warms.
func TestASecretThatDoesNotExist(t *testing.T) {
	t.Parallel()
	w, ca := start(t), newAuthority(t)
	address := freeAddress(t)
	w.plane.Set(w.cluster("a", ""), w.endpoints("a", backend(t, says("a"))), w.routes(to("/", "a", "")),
		ca.secret("one", 10, "one.example"), w.httpListener(address, sni("one.example")+tlsSocket("one")))
	w.ready()
	w.plane.Set(w.httpListener(address, sni("one.example")+tlsSocket("one"), sni("two.example")+tlsSocket("two")))
	w.eventually("the listener warms", func() bool { return strings.Contains(w.get("/stats"), "total_listeners_warming: 1") })
	if got := ask(t, client(t, address, ca.roots(), http1), "GET", "https://one.example/"); got.status != 200 {
		t.Errorf("while the new listener warms: %d", got.status)
	}
	w.plane.Set(ca.secret("two", 20, "two.example"))
	w.eventually("the listener is active", func() bool { return strings.Contains(w.get("/stats"), "total_listeners_warming: 0") })
	if got := ask(t, client(t, address, ca.roots(), http1), "GET", "https://two.example/"); got.status != 200 {
		t.Errorf("after the secret has come: %d", got.status)
	}
}

// TestTheAgentsSecretIsLate has a cluster that waits for a secret of the agent's socket. Listeners are requested
// when it has come, although no response on the aggregated stream says so.
func TestTheAgentsSecretIsLate(t *testing.T) {
	t.Parallel()
	w, ca := start(t), newAuthority(t)
	address := freeAddress(t)
	w.plane.Set(w.cluster("a", `"transport_socket_matches": [{"name": "istio", "match": {"tlsMode": "istio"}, "transport_socket": {
		"name": "tls", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
		"common_tls_context": {"tls_certificate_sds_secret_configs": [{"name": "default", "sds_config": {"api_config_source": {
		"api_type": "GRPC", "grpc_services": [{"envoy_grpc": {"cluster_name": "sds-grpc"}}]}}}]}}}}, {"name": "plain", "match": {}}]`),
		w.endpoints("a", backend(t, says("a"))), w.httpListener(address, ""), w.routes(to("/", "a", "")))
	w.run()
	w.eventually("the cluster waits", func() bool {
		return strings.Contains(w.get("/stats"), "ClusterLoadAssignment.update_success: 1") &&
			strings.Contains(w.get("/stats"), "cluster_manager.warming_clusters: 1")
	})
	w.plane.Set(ca.secret("default", 1, "pod"))
	w.ready()
	if got := ask(t, client(t, address, nil, http1), "GET", "http://a.example/"); got.status != 200 {
		t.Errorf("got %d %s", got.status, got.body)
	}
}

// TestClientCertificates verifies the certificates of clients.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	w, ca, other := start(t), newAuthority(t), newAuthority(t)
	address := freeAddress(t)
	w.plane.Set(w.cluster("a", ""), w.endpoints("a", backend(t, says("a"))), w.routes(to("/", "a", "")),
		ca.secret("one", 10, "one.example"),
		parse(t, fmt.Sprintf(`{"name": "clients", "validation_context": {"trusted_ca": {"inline_string": %q}}}`, ca.pem),
			&tlsv3.Secret{}),
		w.httpListener(address, `"transport_socket": {"name": "tls", "typed_config": {
			"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
			"require_client_certificate": true, "common_tls_context": {
			"tls_certificate_sds_secret_configs": [{"name": "one", "sds_config": {"ads": {}}}],
			"combined_validation_context": {"default_validation_context": {},
			"validation_context_sds_secret_config": {"name": "clients", "sds_config": {"ads": {}}}}}}}, `))
	w.ready()
	get := func(certificates ...tls.Certificate) error {
		c := client(t, address, ca.roots(), http1)
		c.Transport.(*http.Transport).TLSClientConfig.Certificates = certificates
		response, err := send(t, c, http.MethodGet, "https://one.example/", http.NoBody)
		if err == nil {
			_ = response.Body.Close()
		}
		return err
	}
	issued := func(a *authority) tls.Certificate {
		key, certificate, _ := a.issue(&x509.Certificate{
			SerialNumber: big.NewInt(5), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		})
		return tls.Certificate{Certificate: [][]byte{certificate.Raw}, PrivateKey: key}
	}
	if err := get(issued(ca)); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	if get(issued(other)) == nil {
		t.Error("a certificate of another authority is accepted")
	}
	if get() == nil {
		t.Error("a client without certificate is accepted")
	}
}

// TestTLSParameters refuses clients that use an older version, another cipher suite or another curve.
func TestTLSParameters(t *testing.T) {
	t.Parallel()
	const suite = tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
	for name, tc := range map[string]struct {
		params            string
		accepted, refused *tls.Config
	}{
		"a version": {
			`"tls_minimum_protocol_version": "TLSv1_3"`,
			&tls.Config{MinVersion: tls.VersionTLS13}, &tls.Config{MaxVersion: tls.VersionTLS12},
		},
		"a cipher suite": {
			`"cipher_suites": ["ECDHE-ECDSA-AES256-GCM-SHA384"]`,
			&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{suite}},
			&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}},
		},
		"a curve": {
			`"ecdh_curves": ["P-384"]`,
			&tls.Config{CurvePreferences: []tls.CurveID{tls.CurveP384}}, &tls.Config{CurvePreferences: []tls.CurveID{tls.X25519}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, ca, address := start(t), newAuthority(t), freeAddress(t)
			socket := strings.Replace(tlsSocket("one"), `"alpn_protocols"`, `"tls_params": {`+tc.params+`}, "alpn_protocols"`, 1)
			w.plane.Set(w.cluster("a", ""), w.endpoints("a", backend(t, says("a"))), w.routes(to("/", "a", "")),
				ca.secret("one", 10, "one.example"), w.httpListener(address, socket))
			w.ready()
			dial := func(config *tls.Config) error {
				config = config.Clone()
				config.RootCAs, config.ServerName = ca.roots(), "one.example"
				connection, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", address)
				if err == nil {
					_ = connection.Close()
				}
				return err
			}
			if err := dial(tc.accepted); err != nil {
				t.Errorf("what is permitted is refused: %v", err)
			}
			if err := dial(tc.refused); err == nil || !strings.Contains(err.Error(), "remote error: tls:") {
				t.Errorf("what is not permitted: %v", err)
			}
		})
	}
}

// grpcBackend is a gRPC server with the health service.
func grpcBackend(t *testing.T) (string, *health.Server) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, service := grpc.NewServer(), health.NewServer()
	healthv1.RegisterHealthServer(server, service)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String(), service
}

func TestGRPC(t *testing.T) {
	t.Parallel()
	w := start(t)
	address := freeAddress(t)
	target, service := grpcBackend(t)
	w.plane.Set(w.cluster("a", h2Options), w.endpoints("a", target), w.httpListener(address, ""), w.routes(
		`{"match": {"path": "/grpc.health.v1.Health/List"}, "route": {"cluster": "nowhere"}}`,
		`{"match": {"prefix": "/grpc.health.v1.Health/", "grpc": {}},
			"route": {"cluster": "a", "timeout": "0s", "max_grpc_timeout": "0s"}}`))
	w.ready()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := healthv1.NewHealthClient(conn)
	response, err := c.Check(ctx, &healthv1.HealthCheckRequest{})
	if err != nil || response.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Fatalf("Check = %v, %v", response, err)
	}
	for range 300 { // The status must not depend on when the headers are flushed.
		if _, err := c.Check(ctx, &healthv1.HealthCheckRequest{Service: "none"}); status.Code(err) != codes.NotFound {
			t.Fatalf("an error of the backend: %v", err)
		}
	}
	if _, err := c.List(ctx, &healthv1.HealthListRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("a cluster that does not exist: %v", err)
	}
	stream, err := c.Watch(ctx, &healthv1.HealthCheckRequest{Service: "x"})
	if err != nil {
		t.Fatal(err)
	}
	const serving, notServing, unknown = healthv1.HealthCheckResponse_SERVING, healthv1.HealthCheckResponse_NOT_SERVING,
		healthv1.HealthCheckResponse_SERVICE_UNKNOWN
	for i, want := range []healthv1.HealthCheckResponse_ServingStatus{unknown, serving, notServing} {
		response, err := stream.Recv()
		if err != nil || response.GetStatus() != want {
			t.Fatalf("message %d = %v, %v, want %v", i, response, err, want)
		}
		next := serving
		if want == serving {
			next = notServing
		}
		service.SetServingStatus("x", next)
	}
}

// TestPassthrough does not terminate TLS: the certificate is that of the backend.
func TestPassthrough(t *testing.T) {
	t.Parallel()
	w, ca := start(t), newAuthority(t)
	chain, key := ca.pair(7, "pass.example")
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(says("inside"))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	t.Cleanup(server.Close)
	address := freeAddress(t)
	tcp := `"filters": [{"name": "tcp", "typed_config": {
		"@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "stat_prefix": "p", "cluster": "a"}}]`
	w.plane.Set(w.cluster("a", ""), w.endpoints("a", server.Listener.Addr().String()), ca.secret("one", 10, "one.example"),
		w.routes(to("/", "a", "")),
		w.listener(address, "{"+sni("pass.example")+tcp+"}", "{"+sni("one.example")+tlsSocket("one")+httpFilter+"}"))
	w.ready()
	response, err := send(t, client(t, address, ca.roots(), http1), http.MethodGet, "https://pass.example/x", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, _ := io.ReadAll(response.Body); string(body) != "inside /x" || response.TLS.PeerCertificates[0].SerialNumber.Int64() != 7 {
		t.Errorf("got %d %s", response.StatusCode, body)
	}
	w.plane.Set(w.endpoints("a"))
	w.eventually("a connection without endpoint is closed", func() bool {
		return handshake(t, address, &tls.Config{RootCAs: ca.roots(), ServerName: "pass.example"}) != nil
	})
}

// TestUpstreamTLS verifies the backend's certificate as a BackendTLSPolicy says.
func TestUpstreamTLS(t *testing.T) {
	t.Parallel()
	w, ca, other := start(t), newAuthority(t), newAuthority(t)
	chain, key := ca.pair(7, "backend.example")
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		t.Fatal(err)
	}
	names := make(chan string, 10)
	server := httptest.NewUnstartedServer(says("inside"))
	server.TLS = &tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		names <- hello.ServerName
		return &pair, nil
	}}
	server.StartTLS()
	t.Cleanup(server.Close)
	socket := func(name, secret string) string {
		return fmt.Sprintf(`"transport_socket": {"name": "tls", "typed_config": {
			"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", "sni": "backend.example",
			"common_tls_context": {"combined_validation_context": {
			"default_validation_context": {"match_subject_alt_names": [{"exact": %q}]},
			"validation_context_sds_secret_config": {"name": %q, "sds_config": {"ads": {}}}}}}}`, name, secret)
	}
	roots := func(name string, a *authority) *tlsv3.Secret {
		text := fmt.Sprintf(`{"name": %q, "validation_context": {"trusted_ca": {"inline_string": %q}}}`, name, a.pem)
		return parse(t, text, &tlsv3.Secret{})
	}
	target, address := server.Listener.Addr().String(), freeAddress(t)
	w.plane.Set(roots("ca", ca), roots("other", other), w.httpListener(address, ""),
		w.cluster("good", socket("backend.example", "ca")), w.endpoints("good", target),
		w.cluster("name", socket("another.example", "ca")), w.endpoints("name", target),
		w.cluster("root", socket("backend.example", "other")), w.endpoints("root", target),
		w.routes(to("/good", "good", ""), to("/name", "name", ""), to("/root", "root", "")))
	w.ready()
	c := client(t, address, nil, http1)
	if got := ask(t, c, "GET", "http://a.example/good"); got.status != 200 || <-names != "backend.example" {
		t.Errorf("good: %d %s", got.status, got.body)
	}
	for path, want := range map[string]string{"/name": "no name of the certificate is expected", "/root": "unknown authority"} {
		if got := ask(t, c, "GET", "http://a.example"+path); got.status != 503 || !strings.Contains(got.body, want) {
			t.Errorf("%s: %d %s, want %q in it", path, got.status, got.body, want)
		}
	}
}

func TestWebsocket(t *testing.T) {
	t.Parallel()
	w := start(t)
	address := w.serve([]string{to("/", "a", "")}, map[string]string{"a": backend(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, buffer, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(conn, buffer)
	})})
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("response = %+v, %v", response, err)
	}
	defer response.Body.Close()
	_, _ = io.WriteString(conn, "ping\n")
	if line, err := reader.ReadString('\n'); err != nil || line != "ping\n" {
		t.Errorf("echo = %q, %v", line, err)
	}
}

// TestTheStreamEnds keeps all configuration, and begins the next stream with the versions that it has.
func TestTheStreamEnds(t *testing.T) {
	t.Parallel()
	w := start(t)
	address := w.serve([]string{to("/", "a", "")}, map[string]string{"a": backend(t, says("a"))})
	before := w.plane.Requests()
	w.plane.EndStreams()
	c := client(t, address, nil, http1)
	if got := ask(t, c, "GET", "http://a.example/"); got.status != 200 {
		t.Errorf("without a stream: %d", got.status)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	seen := 0
	first, err := w.plane.WaitFor(ctx, func(r *discoveryv3.DeltaDiscoveryRequest) bool {
		seen++
		// The last answer on the stream before can come later. It has no node.
		return seen > before && r.GetNode() != nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if first.GetTypeUrl() != xds.ClusterType || first.GetNode().GetId() == "" || first.GetInitialResourceVersions()["a"] == "" {
		t.Errorf("the first request = %+v", first)
	}
	w.plane.Set(w.endpoints("a", backend(t, says("other"))))
	w.eventually("the new endpoint is used", func() bool { return strings.HasPrefix(ask(t, c, "GET", "http://a.example/").body, "other") })
}

// TestDrain ends connections with their next response, and closes the sockets at its end.
func TestDrain(t *testing.T) {
	t.Parallel()
	w := start(t, "--drain-time-s", "1")
	began, release := make(chan bool, 1), make(chan bool)
	address := w.serve([]string{to("/", "a", "")}, map[string]string{"a": backend(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			began <- true
			<-release
		}
	})})
	one, two := client(t, address, nil, http1), client(t, address, nil, h2c)
	for _, c := range []*http.Client{one, two} {
		if got := ask(t, c, "GET", "http://a.example/"); got.status != 200 || got.header.Get("Connection") != "" {
			t.Fatalf("before: %+v", got)
		}
	}
	slow := make(chan int, 1)
	go func() {
		response, err := send(t, one, http.MethodGet, "http://a.example/slow", http.NoBody)
		if err != nil {
			slow <- 0
			return
		}
		_ = response.Body.Close()
		slow <- response.StatusCode
	}()
	<-began
	response, err := send(t, http.DefaultClient, http.MethodPost, "http://"+w.admin+"/drain_listeners?graceful", http.NoBody)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("drain_listeners: %+v, %v", response, err)
	}
	_ = response.Body.Close()
	for range 3 { // New connections are accepted, and are closed after one response.
		got, err := send(t, client(t, address, nil, http1), http.MethodGet, "http://a.example/", http.NoBody)
		if err != nil || !got.Close {
			t.Fatalf("during the drain: %+v, %v", got, err)
		}
		_ = got.Body.Close()
		if got := ask(t, two, "GET", "http://a.example/"); got.status != 200 {
			t.Errorf("HTTP/2 during the drain: %+v", got)
		}
	}
	w.eventually("the socket is closed", func() bool { return w.get("/listeners") == "" })
	close(release)
	if got := <-slow; got != 200 {
		t.Errorf("a request that was under way: %d", got)
	}
}

// TestDrainSwitchedOff ends no connection during a drain. Stories use it to show that they see what a missing drain
// costs.
func TestDrainSwitchedOff(t *testing.T) {
	t.Setenv("STAND_IN_DRAIN", "off")
	w := start(t, "--drain-time-s", "0")
	address := w.serve([]string{to("/", "a", "")}, map[string]string{"a": backend(t, says("a"))})
	response, err := send(t, http.DefaultClient, http.MethodPost, "http://"+w.admin+"/drain_listeners?graceful", http.NoBody)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("drain_listeners: %+v, %v", response, err)
	}
	_ = response.Body.Close()
	got, err := send(t, client(t, address, nil, http1), http.MethodGet, "http://a.example/", http.NoBody)
	if err != nil || got.Close {
		t.Fatalf("after the drain was asked for: %+v, %v", got, err)
	}
	_ = got.Body.Close()
	if w.get("/listeners") == "" {
		t.Error("the sockets are closed")
	}
}

// TestResponsesNameThePod checks the header by which a load names the gateway of a failure.
func TestResponsesNameThePod(t *testing.T) {
	t.Setenv("POD_NAME", "edge-1")
	w := start(t)
	address := w.serve([]string{to("/a", "a", "")}, map[string]string{"a": backend(t, says("a"))})
	c := client(t, address, nil, http1)
	for path, status := range map[string]int{"/a": http.StatusOK, "/b": http.StatusNotFound} {
		if got := ask(t, c, "GET", "http://a.example"+path); got.status != status || got.header.Get("X-Gateway-Pod") != "edge-1" {
			t.Errorf("%s: %+v", path, got)
		}
	}
}

// TestAnUpdateKeepsConnections changes one of two filter chains. Connections of the other stay open.
func TestAnUpdateKeepsConnections(t *testing.T) {
	t.Parallel()
	w, ca := start(t), newAuthority(t)
	address := freeAddress(t)
	one, two := sni("one.example")+tlsSocket("one"), sni("two.example")+tlsSocket("two")
	w.plane.Set(w.cluster("a", ""), w.endpoints("a", backend(t, says("a"))), w.routes(to("/", "a", "")), w.httpListener(address, one, two),
		ca.secret("one", 10, "one.example"), ca.secret("two", 20, "two.example"), ca.secret("new", 21, "two.example"))
	w.ready()
	kept, drained := client(t, address, ca.roots(), http1), client(t, address, ca.roots(), http1)
	ends := func(c *http.Client, url string) bool {
		response, err := send(t, c, http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, response.Body)
		return response.Close
	}
	if ends(kept, "https://one.example/") || ends(drained, "https://two.example/") {
		t.Fatal("a connection ends too early")
	}
	w.plane.Set(w.httpListener(address, one, sni("two.example")+tlsSocket("new")))
	w.eventually("the new listener is active", func() bool { return strings.Contains(w.get("/config_dump"), `"new"`) })
	w.eventually("the changed chain drains", func() bool { return ends(drained, "https://two.example/") })
	if ends(kept, "https://one.example/") {
		t.Error("a connection of the unchanged chain ends")
	}
}
