package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"

	"github.com/hypergate/hypergate/test/envoy/internal/xds"
)

// serve sets routes, one listener and clusters with one endpoint each, and returns the address of the listener.
func (w *runningProxy) serve(routes []string, backends map[string]string) string {
	w.t.Helper()
	address := freeAddress(w.t)
	for name, backend := range backends {
		w.plane.Set(w.cluster(name, ""))
		if backend == "" {
			w.plane.Set(w.endpoints(name))
		} else {
			w.plane.Set(w.endpoints(name, backend))
		}
	}
	w.plane.Set(w.httpListener(address, ""), w.routes(routes...))
	w.ready()
	return address
}

func TestTheAgentsProbes(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.plane.Set(w.cluster("a", ""))
	w.run()
	w.eventually("the cluster is accepted", func() bool {
		const filter = "^(cluster_manager\\.cds|listener_manager\\.lds)\\.(update_success|update_rejected)$"
		return strings.Contains(w.get("/stats?usedonly&filter="+filter), "cluster_manager.cds.update_success: ")
	})
	// The cluster has no endpoints yet, so that listeners must not be requested.
	if got := w.get("/stats?usedonly&filter=^(server\\.state|listener_manager\\.workers_started)"); got !=
		"listener_manager.workers_started: 0\nserver.state: 2\n" {
		t.Errorf("before the first listener, stats = %q", got)
	}
	if got := w.get("/ready"); got != "PRE_INITIALIZING\n" {
		t.Errorf("ready = %q", got)
	}
	address := freeAddress(t)
	w.plane.Set(w.httpListener(address, ""))
	w.plane.Set(w.endpoints("a"))
	w.eventually("the routes are requested", func() bool { return strings.Contains(w.get("/stats"), "lds.update_success: 1") })
	if got := w.get("/ready"); got != "PRE_INITIALIZING\n" {
		t.Errorf("without routes, ready = %q", got)
	}
	w.plane.Set(w.routes(to("/", "a", "")))
	w.ready()
	if got := w.get("/stats?usedonly&filter=^(server\\.state|listener_manager\\.workers_started)"); got !=
		"listener_manager.workers_started: 1\nserver.state: 0\n" {
		t.Errorf("live, stats = %q", got)
	}
	if got := w.get("/listeners"); !strings.Contains(got, address) {
		t.Errorf("listeners = %q, want %s in it", got, address)
	}
}

// answer is a response as the tests compare it.
type answer struct {
	status int
	body   string
	header http.Header
}

func ask(t *testing.T, c *http.Client, method, url string, headers ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
		if name == "Host" {
			r.Host = value
		}
	}
	response, err := c.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return answer{response.StatusCode, string(body), response.Header}
}

// httpRoutes are the routes of TestHTTP.
func httpRoutes() []string {
	return []string{
		`{"match": {"prefix": "/", "headers": [{"name": "color", "string_match": {"exact": "blue"}}]}, "route": {"cluster": "blue"}}`,
		`{"match": {"prefix": "/query", "query_parameters": [{"name": "q", "string_match": {"exact": "1"}}]},
			"route": {"cluster": "blue"}}`,
		`{"match": {"prefix": "/method", "headers": [{"name": ":method", "string_match": {"exact": "POST"}}]},
			"route": {"cluster": "blue"}}`,
		`{"match": {"path": "/exact"}, "route": {"cluster": "blue"}}`,
		`{"match": {"prefix": "/redirect"}, "redirect": {"scheme_redirect": "https", "port_redirect": 8443, "response_code": "FOUND"}}`,
		`{"match": {"prefix": "/direct"}, "direct_response": {"status": 500}}`,
		`{"match": {"path_separated_prefix": "/rewrite"}, "route": {
			"cluster": "green", "prefix_rewrite": "/new", "host_rewrite_literal": "new.example"}}`,
		`{"match": {"prefix": "/headers"}, "route": {"cluster": "echo"}, "request_headers_to_remove": ["gone"],
			"request_headers_to_add": [{"header": {"key": "added", "value": "1"}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}],
			"response_headers_to_add": [{"header": {"key": "said", "value": "2"}}], "response_headers_to_remove": ["secret"]}`,
		`{"match": {"prefix": "/weighted"}, "route": {"weighted_clusters": {"clusters": [
			{"name": "blue", "weight": 0}, {"name": "green", "weight": 1}]}}}`,
		`{"match": {"prefix": "/unknown"}, "route": {"cluster": "nowhere", "cluster_not_found_response_code": "INTERNAL_SERVER_ERROR"}}`,
		to("/empty", "empty", ""), to("/refused", "refused", ""),
		`{"match": {"prefix": "/slow"}, "route": {"cluster": "slow", "timeout": "0.050s"}}`,
		to("/flaky", "flaky", `"retry_policy": {"retry_on": "retriable-status-codes", "retriable_status_codes": [503], "num_retries": 2}`),
		to("/mirror", "green", `"request_mirror_policies": [{"cluster": "mirror", "disable_shadow_host_suffix_append": true}]`),
		`{"match": {"prefix": "/cors"}, "route": {"cluster": "green"}, "typed_per_filter_config": {"envoy.filters.http.cors": {
			"@type": "type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy", "allow_methods": "GET,PUT", "max_age": "5",
			"allow_origin_string_match": [{"exact": "https://app.example"}], "allow_credentials": true}}}`,
		to("/green", "green", ""),
	}
}

// httpCase is a request, and what must come back. header is "Name: value".
type httpCase struct {
	method, path string
	headers      []string
	status       int
	body         string
	header       string
}

func httpCases() map[string]httpCase {
	return map[string]httpCase{
		"exact path":            {"GET", "/exact", nil, 200, "blue /exact", "Server: istio-envoy"},
		"header":                {"GET", "/green", []string{"Color: blue"}, 200, "blue /green", ""},
		"query":                 {"GET", "/query?q=1", nil, 200, "blue /query?q=1", ""},
		"query does not match":  {"GET", "/query?q=2", nil, 404, "", ""},
		"method":                {"POST", "/method", nil, 200, "blue /method", ""},
		"method does not match": {"GET", "/method", nil, 404, "", ""},
		"no route":              {"GET", "/none", nil, 404, "", ""},
		"redirect": {
			"GET", "/redirect/a?b=c", []string{"Host: a.example"}, 302, "", "Location: https://a.example:8443/redirect/a?b=c",
		},
		"direct response": {"GET", "/direct", nil, 500, "", ""},
		"rewrite":         {"GET", "/rewrite/a?b=c", nil, 200, "green /new/a?b=c", ""},
		"encoded path":    {"GET", "/green/a%2Fb%20c", nil, 200, "green /green/a%2Fb%20c", ""},
		"dot segments":    {"GET", "/none/../green", nil, 200, "green /green", ""},
		"headers": {
			"GET", "/headers",
			[]string{"Gone: 1", "Host: a.example"},
			200,
			"added=1 gone= for=127.0.0.1 proto=http attempt=1 host=a.example", "Said: 2",
		},
		"weight 0":           {"GET", "/weighted", nil, 200, "green /weighted", ""},
		"an unknown cluster": {"GET", "/unknown", nil, 500, "", ""},
		"no endpoints":       {"GET", "/empty", nil, 503, "no healthy upstream", ""},
		"refused":            {"GET", "/refused", nil, 503, "upstream connect error", ""},
		"timeout":            {"GET", "/slow", nil, 504, "upstream request timeout", ""},
		"retries":            {"GET", "/flaky", nil, 200, "attempt 3", ""},
		"mirror":             {"GET", "/mirror", []string{"Host: a.example"}, 200, "green /mirror", ""},
		"gRPC error":         {"POST", "/empty", []string{"Content-Type: application/grpc"}, 200, "", "Grpc-Status: 14"},
		"preflight": {
			"OPTIONS", "/cors",
			[]string{"Origin: https://app.example", "Access-Control-Request-Method: PUT"},
			200, "",
			"Access-Control-Allow-Methods: GET,PUT",
		},
		"CORS": {
			"GET", "/cors", []string{"Origin: https://app.example"}, 200, "green /cors", "Access-Control-Allow-Origin: https://app.example",
		},
		"CORS, other origin": {
			"GET", "/cors", []string{"Origin: https://other.example"}, 200, "green /cors", "Access-Control-Allow-Origin: ",
		},
		"an upgrade that is not allowed": {"GET", "/green", []string{"Connection: upgrade", "Upgrade: other"}, 403, "", ""},
	}
}

func TestHTTP(t *testing.T) {
	t.Parallel()
	var flaky atomic.Int64
	mirrored := make(chan string, 1)
	w := start(t)
	slow := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	address := w.serve(httpRoutes(), map[string]string{
		"blue": backend(t, says("blue")), "green": backend(t, says("green")), "slow": backend(t, slow),
		"empty": "", "refused": freeAddress(t),
		"echo": backend(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Secret", "x")
			fmt.Fprintf(w, "added=%s gone=%s for=%s proto=%s attempt=%s host=%s", r.Header.Get("Added"), r.Header.Get("Gone"),
				r.Header.Get("X-Forwarded-For"), r.Header.Get("X-Forwarded-Proto"), r.Header.Get("X-Envoy-Attempt-Count"), r.Host)
		}),
		"flaky": backend(t, func(w http.ResponseWriter, r *http.Request) {
			if flaky.Add(1) < 3 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			fmt.Fprint(w, "attempt "+r.Header.Get("X-Envoy-Attempt-Count"))
		}),
		"mirror": backend(t, func(_ http.ResponseWriter, r *http.Request) { mirrored <- r.Host + r.URL.Path }),
	})
	c := client(t, address, nil, http1)
	for name, test := range httpCases() {
		t.Run(name, func(t *testing.T) {
			got := ask(t, c, test.method, "http://gateway.test"+test.path, test.headers...)
			if got.status != test.status || !strings.HasPrefix(got.body, test.body) {
				t.Errorf("got %d %q, want %d %q", got.status, got.body, test.status, test.body)
			}
			if name, value, ok := strings.Cut(test.header, ": "); ok && got.header.Get(name) != value {
				t.Errorf("%s = %q, want %q", name, got.header.Get(name), value)
			}
			if got.header.Get("Secret") != "" && test.path == "/headers" {
				t.Error("the header was not removed from the response")
			}
		})
	}
	select {
	case got := <-mirrored:
		if got != "a.example/mirror" {
			t.Errorf("mirrored = %s", got)
		}
	case <-time.After(patience):
		t.Error("the request was not mirrored")
	}
}

// TestBodies sends bodies that are longer than what is kept, with retries and mirrors.
func TestBodies(t *testing.T) {
	t.Parallel()
	w := start(t)
	length := func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, err)
	}
	lengths := make(chan int64, 10)
	address := w.serve([]string{
		to("/mirror", "echo", `"request_mirror_policies": [{"cluster": "mirror"}]`),
		to("/", "echo", `"retry_policy": {"retry_on": "connect-failure", "num_retries": 2}`),
	}, map[string]string{
		"echo": backend(t, length),
		"mirror": backend(t, func(_ http.ResponseWriter, r *http.Request) {
			n, _ := io.Copy(io.Discard, r.Body)
			lengths <- n
		}),
	})
	for protocol, version := range map[string]func(*http.Protocols){"HTTP/1.1": http1, "HTTP/2": h2c} {
		c := client(t, address, nil, version)
		for _, size := range []int64{0, 1, 100_000, 10 << 20} {
			response, err := send(t, c, http.MethodPost, "http://a.example/", io.LimitReader(endless{}, size))
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if want := fmt.Sprint(size, " <nil>"); string(body) != want {
				t.Errorf("%s, %d bytes: %d %q, want %q", protocol, size, response.StatusCode, body, want)
			}
		}
		response, err := send(t, c, http.MethodPost, "http://a.example/mirror", io.LimitReader(endless{}, 1000))
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if n := <-lengths; n != 1000 {
			t.Errorf("%s: the mirror got %d bytes, want 1000", protocol, n)
		}
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestABackendThatClosesConnections closes a kept connection when the second request comes, without a response.
// The proxy must not hide it.
func TestABackendThatClosesConnections(t *testing.T) {
	t.Parallel()
	w := start(t)
	var answered sync.Map
	address := w.serve([]string{
		to("/again", "a", `"retry_policy": {"retry_on": "reset", "num_retries": 1}`), to("/", "a", ""),
	}, map[string]string{"a": backend(t, func(w http.ResponseWriter, r *http.Request) {
		if _, before := answered.LoadOrStore(r.RemoteAddr, true); before {
			panic(http.ErrAbortHandler)
		}
		says("a")(w, r)
	})})
	c := client(t, address, nil, http1)
	for i, want := range []int{200, 503, 200, 503} {
		if got := ask(t, c, "GET", "http://a.example/"); got.status != want {
			t.Errorf("request %d: %d %s, want %d", i, got.status, got.body, want)
		}
	}
	for i := range 4 {
		if got := ask(t, c, "GET", "http://a.example/again"); got.status != 200 {
			t.Errorf("request %d with retries: %d %s", i, got.status, got.body)
		}
	}
}

// TestBackendsAreReplaced sends requests all the time, while the only backend is replaced again and again. No
// request may fail.
func TestBackendsAreReplaced(t *testing.T) {
	t.Parallel()
	w := start(t)
	address := w.serve([]string{to("/", "a", "")}, map[string]string{"a": backend(t, says("0"))})
	stop, failures := make(chan struct{}), make(chan string, 100)
	var clients sync.WaitGroup
	var sent atomic.Int64
	for range 4 {
		clients.Go(func() {
			c := client(t, address, nil, http1)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if got := ask(t, c, "GET", "http://a.example/"); got.status != 200 {
					failures <- fmt.Sprint(got.status, " ", got.body)
				}
				sent.Add(1)
			}
		})
	}
	c := client(t, address, nil, http1)
	for i := 1; i <= 10; i++ {
		name := fmt.Sprint(i, " /")
		w.plane.Set(w.endpoints("a", backend(t, says(fmt.Sprint(i)))))
		w.eventually("the new backend is used", func() bool { return ask(t, c, "GET", "http://a.example/").body == name })
	}
	close(stop)
	clients.Wait()
	close(failures)
	for failure := range failures {
		t.Error(failure)
	}
	if sent.Load() < 10 {
		t.Errorf("only %d requests were sent", sent.Load())
	}
}

// TestRefusedEndpointsAreAvoided has one endpoint of two that refuses connections.
func TestRefusedEndpointsAreAvoided(t *testing.T) {
	t.Parallel()
	w := start(t)
	address := w.serve([]string{to("/", "a", `"retry_policy": {"retry_on": "connect-failure", "num_retries": 2,
		"retry_host_predicate": [{"name": "p"}], "host_selection_retry_max_attempts": "50"}`)}, map[string]string{"a": ""})
	w.plane.Set(w.endpoints("a", backend(t, says("a")), freeAddress(t)))
	c := client(t, address, nil, http1)
	w.eventually("the endpoints are there", func() bool { return ask(t, c, "GET", "http://a.example/").status == 200 })
	for range 50 {
		if got := ask(t, c, "GET", "http://a.example/"); got.status != 200 {
			t.Fatalf("got %d %s", got.status, got.body)
		}
	}
}

func TestRejectedConfigurationChangesNothing(t *testing.T) {
	t.Parallel()
	w := start(t)
	address := w.serve([]string{to("/", "a", "")}, map[string]string{"a": backend(t, says("a"))})
	c := client(t, address, nil, http1)
	bad := w.httpListener(address, "")
	bad.FilterChains[0].Filters = append(bad.FilterChains[0].Filters, bad.FilterChains[0].Filters[0])
	w.plane.Set(bad)
	w.nack(xds.ListenerType, "a second terminal filter is not supported")
	w.plane.Set(w.cluster("a", `"outlier_detection": {}`))
	w.nack(xds.ClusterType, `cluster "a".outlier_detection is not supported`)
	if got := ask(t, c, "GET", "http://a.example/x"); got.status != 200 {
		t.Errorf("after the NACKs: %d %s", got.status, got.body)
	}
	if got := w.get("/stats?filter=lds.update_rejected"); got != "listener_manager.lds.update_rejected: 1\n" {
		t.Errorf("stats = %q", got)
	}
}

func TestRemovedListenersClose(t *testing.T) {
	t.Parallel()
	w := start(t)
	address := w.serve([]string{to("/", "a", "")}, map[string]string{"a": backend(t, says("a"))})
	_, port, _ := net.SplitHostPort(address)
	w.plane.Remove(xds.ListenerType, "l"+port)
	w.eventually("the port is closed", func() bool {
		conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
}
