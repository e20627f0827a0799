package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/hypergate/hypergate/test/envoy/internal/controlplane"
	"github.com/hypergate/hypergate/test/envoy/internal/server"
)

// patience limits each wait of these tests.
const patience = 5 * time.Minute

// runningProxy is a running proxy with its control plane.
type runningProxy struct {
	t     *testing.T
	plane *controlplane.Server
	admin string
	// run starts the proxy. ended gets its result.
	run     func()
	running atomic.Bool
	ended   chan error
}

// start prepares a proxy under a control plane without resources. ready starts it.
func start(t *testing.T, arguments ...string) *runningProxy {
	t.Helper()
	dir := t.TempDir()
	w := &runningProxy{t: t, plane: controlplane.New(), admin: freeAddress(t), ended: make(chan error, 1)}
	socket := filepath.Join(dir, "s") // A path of a socket must be short.
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	go w.plane.Serve(listener)
	t.Cleanup(w.plane.Stop)
	host, port, _ := net.SplitHostPort(w.admin)
	static := func(name string) string {
		return fmt.Sprintf(`{"name": %q, "type": "STATIC", "load_assignment": {"cluster_name": %q, "endpoints": [{"lb_endpoints": [{
			"endpoint": {"address": {"pipe": {"path": %q}}}}]}]}}`, name, name, socket)
	}
	file := filepath.Join(dir, "envoy.json")
	text := fmt.Sprintf(`{"node": {"id": "router~127.0.0.1~pod.ns~ns.svc.cluster.local", "cluster": "pod.ns"}, "stats_config": {},
		"admin": {"address": {"socket_address": {"address": %q, "port_value": %s}}},
		"dynamic_resources": {"lds_config": {"ads": {}}, "cds_config": {"ads": {}},
			"ads_config": {"api_type": "DELTA_GRPC", "grpc_services": [{"envoy_grpc": {"cluster_name": "xds-grpc"}}]}},
		"static_resources": {"clusters": [%s, %s]}}`, host, port, static("xds-grpc"), static("sds-grpc"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	arguments = append([]string{"-c", file, "--drain-strategy", "immediate", "--disable-hot-restart", "-l", "warning"}, arguments...)
	w.run = sync.OnceFunc(func() {
		w.running.Store(true)
		go func() { w.ended <- server.Run(ctx, arguments, t.Output()) }()
	})
	t.Cleanup(func() {
		cancel()
		if !w.running.Load() {
			return
		}
		select {
		case err := <-w.ended:
			if err != nil {
				t.Errorf("the proxy ended with %v", err)
			}
		case <-time.After(patience):
			t.Error("the proxy does not end")
		}
	})
	return w
}

// freeAddress returns an address at which nothing listens. Its IP address is given out once, so that no other server or
// connection takes the port before it is used, or while a test expects that it refuses connections.
func freeAddress(t *testing.T) string {
	t.Helper()
	n := addresses.Add(1)
	host := fmt.Sprintf("127.%d.%d.%d", 1+n>>16%254, n>>8%256, n%256)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// addresses counts the addresses of loopback that were given out.
var addresses atomic.Uint32

func parse[M proto.Message](t *testing.T, text string, into M) M {
	t.Helper()
	if err := protojson.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("the test's JSON: %v\n%s", err, text)
	}
	return into
}

// eventually waits until a condition holds.
func (w *runningProxy) eventually(what string, holds func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: not within %s", what, patience)
		}
		<-ticker.C
	}
}

// get returns the body of an admin endpoint, or the empty string.
func (w *runningProxy) get(path string) string {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, "http://"+w.admin+path, http.NoBody)
	if err != nil {
		w.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return string(body)
}

// ready starts the proxy and waits until it is live. What the control plane has by then is active.
func (w *runningProxy) ready() {
	w.t.Helper()
	w.run()
	w.eventually("the proxy is live", func() bool { return strings.TrimSpace(w.get("/ready")) == "LIVE" })
}

// nack waits for a NACK of the type that contains a text.
func (w *runningProxy) nack(typeURL, text string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	if _, err := w.plane.WaitFor(ctx, func(r *discoveryv3.DeltaDiscoveryRequest) bool {
		return r.GetTypeUrl() == typeURL && strings.Contains(r.GetErrorDetail().GetMessage(), text)
	}); err != nil {
		w.t.Fatalf("a NACK with %q: %v", text, err)
	}
}

// cluster returns a cluster by EDS with more fields.
func (w *runningProxy) cluster(name, fields string) *clusterv3.Cluster {
	w.t.Helper()
	if fields != "" {
		fields = ", " + fields
	}
	return parse(w.t, fmt.Sprintf(`{"name": %q, "type": "EDS", "connect_timeout": "2s", "lb_policy": "LEAST_REQUEST",
		"eds_cluster_config": {"eds_config": {"ads": {}}}%s}`, name, fields), &clusterv3.Cluster{})
}

func (w *runningProxy) endpoints(cluster string, addresses ...string) *endpointv3.ClusterLoadAssignment {
	w.t.Helper()
	var all []string
	for _, address := range addresses {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, fmt.Sprintf(`{"endpoint": {"address": {"socket_address": {"address": %q, "port_value": %s}}}}`, host, port))
	}
	return parse(w.t, fmt.Sprintf(`{"cluster_name": %q, "endpoints": [{"lb_endpoints": [%s]}]}`, cluster, strings.Join(all, ",")),
		&endpointv3.ClusterLoadAssignment{})
}

// httpListener returns a listener with one HTTP filter chain per entry. An entry is the match and the transport
// socket.
func (w *runningProxy) httpListener(address string, chains ...string) *listenerv3.Listener {
	w.t.Helper()
	var all []string
	for _, chain := range chains {
		all = append(all, "{"+chain+httpFilter+"}")
	}
	return w.listener(address, all...)
}

const httpFilter = `"filters": [{"name": "hcm", "typed_config": {
	"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
	"stat_prefix": "in", "server_name": "istio-envoy", "use_remote_address": true, "normalize_path": true,
	"upgrade_configs": [{"upgrade_type": "websocket"}], "rds": {"route_config_name": "routes", "config_source": {"ads": {}}},
	"http_filters": [
		{"name": "cors", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors"}},
		{"name": "router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}]}}]`

func (w *runningProxy) listener(address string, chains ...string) *listenerv3.Listener {
	w.t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		w.t.Fatal(err)
	}
	return parse(w.t, fmt.Sprintf(`{"name": %q, "address": {"socket_address": {"address": %q, "port_value": %s}},
		"listener_filters": [{"name": "tls", "typed_config": {
			"@type": "type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector"}}],
		"filter_chains": [%s]}`, "l"+port, host, port, strings.Join(chains, ",")), &listenerv3.Listener{})
}

// tlsSocket is a transport socket with a certificate of the aggregated stream.
func tlsSocket(secret string) string {
	return fmt.Sprintf(`"transport_socket": {"name": "tls", "typed_config": {
		"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext", "common_tls_context": {
		"alpn_protocols": ["h2", "http/1.1"], "tls_certificate_sds_secret_configs": [{"name": %q, "sds_config": {"ads": {}}}]}}}, `, secret)
}

func sni(name string) string {
	return fmt.Sprintf(`"filter_chain_match": {"server_names": [%q]}, `, name)
}

// routes returns the route configuration "routes" with one virtual host for all domains.
func (w *runningProxy) routes(routes ...string) *routev3.RouteConfiguration {
	w.t.Helper()
	return parse(w.t, fmt.Sprintf(`{"name": "routes", "ignore_port_in_host_matching": true, "virtual_hosts": [{
		"name": "all", "domains": ["*"], "include_request_attempt_count": true, "routes": [%s]}]}`,
		strings.Join(routes, ",")), &routev3.RouteConfiguration{})
}

// to is a route for a prefix to a cluster, with more fields of the action.
func to(prefix, cluster, fields string) string {
	if fields != "" {
		fields = ", " + fields
	}
	const route = `{"match": {"prefix": %q}, "route": {"cluster": %q, "timeout": "0s", "max_grpc_timeout": "0s"%s}}`
	return fmt.Sprintf(route, prefix, cluster, fields)
}

// backend is an HTTP server. Its responses begin with its name.
func backend(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// says is a handler that answers with a text and the path.
func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s %s", text, r.URL.RequestURI()) }
}

// authority issues certificates.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.key, a.cert, a.pem = a.issue(&x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

func (a *authority) issue(template *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate, []byte) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := template, key
	if a.cert != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return key, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// pair issues a certificate for a server.
func (a *authority) pair(serial int64, names ...string) (chain, key []byte) {
	a.t.Helper()
	private, _, chain := a.issue(&x509.Certificate{
		SerialNumber: big.NewInt(serial), DNSNames: names, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	return chain, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func (a *authority) secret(name string, serial int64, names ...string) *tlsv3.Secret {
	a.t.Helper()
	chain, key := a.pair(serial, names...)
	return parse(a.t, fmt.Sprintf(`{"name": %q, "tls_certificate": {"certificate_chain": {"inline_string": %q},
		"private_key": {"inline_string": %q}}}`, name, chain, key), &tlsv3.Secret{})
}

func (a *authority) roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// client returns an HTTP client that dials one address, whatever the URL says.
func client(t *testing.T, address string, roots *x509.CertPool, protocols func(*http.Protocols)) *http.Client {
	t.Helper()
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		},
		TLSClientConfig: &tls.Config{RootCAs: roots}, Protocols: new(http.Protocols),
	}
	protocols(transport.Protocols)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport: transport, Timeout: patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// send sends a request. The caller closes the body.
func send(t *testing.T, c *http.Client, method, url string, body io.Reader) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return c.Do(r)
}

// handshake connects with TLS, and closes the connection.
func handshake(t *testing.T, address string, config *tls.Config) error {
	t.Helper()
	conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

func http1(p *http.Protocols) { p.SetHTTP1(true) }
func http2(p *http.Protocols) { p.SetHTTP2(true) }
func h2c(p *http.Protocols)   { p.SetUnencryptedHTTP2(true) }
