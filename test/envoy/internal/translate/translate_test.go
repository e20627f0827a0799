package translate_test

import (
	"strings"
	"testing"

	udpav1 "github.com/cncf/xds/go/udpa/type/v1"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3" // The JSON of the tests names it.
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/hypergate/hypergate/test/envoy/internal/model"
	"github.com/hypergate/hypergate/test/envoy/internal/translate"
)

func read[M proto.Message](t *testing.T, text string, into M) M {
	t.Helper()
	if err := protojson.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("the test's JSON: %v", err)
	}
	return into
}

// hcm is a listener with an HTTP connection manager that has these fields.
func hcm(fields string) string {
	return `{"name": "l", "address": {"socket_address": {"address": "0.0.0.0", "port_value": 80}}, "filter_chains": [{"filters": [{
		"name": "hcm", "typed_config": {
		"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
		"stat_prefix": "s", "rds": {"route_config_name": "r", "config_source": {"ads": {}}}, ` + fields + `}}]}]}`
}

// tlsListener is a listener that terminates TLS with these tls_params.
func tlsListener(params string) string {
	return `{"name": "l", "address": {"socket_address": {"address": "0.0.0.0", "port_value": 443}}, "filter_chains": [{
		"transport_socket": {"name": "tls", "typed_config": {
		"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
		"common_tls_context": {"tls_params": {` + params + `}}}}}]}`
}

const router = `{"name": "router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}`

func TestListenersAreRejectedByName(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ json, want string }{
		"a filter": {
			hcm(`"http_filters": [{"name": "rbac", "typed_config": {
				"@type": "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC"}}]`),
			"http_filters[0].typed_config: type envoy.extensions.filters.http.rbac.v3.RBAC is not supported",
		},
		"a field":   {hcm(`"local_reply_config": {}`), "typed_config.local_reply_config is not supported"},
		"no router": {hcm(`"http_filters": []`), "http_filters has no router"},
		"a filter at that place": {
			hcm(`"http_filters": [{"name": "x", "typed_config": {
				"@type": "type.googleapis.com/google.protobuf.Duration", "value": "1s"}}, ` + router + `]`),
			"http_filters[0].typed_config: type google.protobuf.Duration is not supported",
		},
		"a timeout of requests": {
			hcm(`"request_timeout": "5s", "http_filters": [` + router + `]`), "request_timeout is not supported",
		},
		"a timeout of headers": {
			hcm(`"request_headers_timeout": "5s", "http_filters": [` + router + `]`), "request_headers_timeout is not supported",
		},
		"an idle timeout of streams": {
			hcm(`"stream_idle_timeout": "5s", "http_filters": [` + router + `]`), "stream_idle_timeout is not supported",
		},
		"a lifetime of connections": {
			hcm(`"common_http_protocol_options": {"max_connection_duration": "5s"}, "http_filters": [` + router + `]`),
			"max_connection_duration is not supported",
		},
		"few streams": {
			hcm(`"http2_protocol_options": {"max_concurrent_streams": 100}, "http_filters": [` + router + `]`),
			"max_concurrent_streams: limits below 1024",
		},
		"UDP": {
			`{"name": "l", "address": {"socket_address": {"protocol": "UDP", "address": "0.0.0.0", "port_value": 443}},
				"udp_listener_config": {}}`,
			`listener "l".udp_listener_config is not supported`,
		},
		"a match of filter chains": {
			`{"name": "l", "filter_chains": [{"filter_chain_match": {"source_ports": [1]}}]}`,
			"filter_chains[0].filter_chain_match.source_ports is not supported",
		},
		"a cipher suite": {
			tlsListener(`"cipher_suites": ["TLS_AES_128_GCM_SHA256"]`), `the cipher suite "TLS_AES_128_GCM_SHA256" is not supported`,
		},
		"a curve": {tlsListener(`"ecdh_curves": ["secp384r1"]`), `the curve "secp384r1" is not supported`},
		"no terminal filter": {
			`{"name": "l", "address": {"socket_address": {"address": "::", "port_value": 1}}, "filter_chains": [{}]}`,
			"filter_chains[0]: there is no terminal filter",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := translate.New().Listener(read(t, test.json, &listenerv3.Listener{}))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error = %v, want %q in it", err, test.want)
			}
		})
	}
}

func TestRoutesAndClustersAreRejectedByName(t *testing.T) {
	t.Parallel()
	route := func(fields string) string {
		return `{"name": "r", "virtual_hosts": [{"name": "h", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, ` + fields + `}]}]}`
	}
	for name, test := range map[string]struct{ json, want string }{
		"hash policy": {
			route(`"route": {"cluster": "c", "hash_policy": [{"terminal": true}]}`), "routes[0].route.hash_policy is not supported",
		},
		"no action": {route(`"name": "x"`), `virtual host "h": routes[0] (x): it has no action`},
		"a command in a header": {
			route(`"route": {"cluster": "c"}, "request_headers_to_add": [{"header": {"key": "a", "value": "%PROTOCOL%"}}]`),
			"commands in header values are not supported",
		},
		"host as a header": {
			route(`"route": {"cluster": "c"}, "request_headers_to_add": [{"header": {"key": "Host", "value": "a"}}]`), "rejects changes",
		},
		"retry_on": {
			route(`"route": {"cluster": "c", "retry_policy": {"retry_on": "5xx,envoy-ratelimited"}}`),
			`"envoy-ratelimited" is not supported`,
		},
		"a processor without bodies": {
			route(`"route": {"cluster": "c"}, "typed_per_filter_config": {"p": {
				"@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute", "overrides": {
				"processing_mode": {"request_header_mode": "SEND"}}}}`),
			"request_header_mode SEND with request_body_mode NONE is not supported",
		},
		"one domain twice": {
			`{"name": "r", "virtual_hosts": [{"name": "a", "domains": ["x"]}, {"name": "b", "domains": ["X"]}]}`, "have the same domain x",
		},
		"a broken regex": {
			`{"name": "r", "virtual_hosts": [{"name": "h", "domains": ["*"], "routes": [{"match": {"safe_regex": {"regex": "("}}}]}]}`,
			"missing closing",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := translate.New().Routes(read(t, test.json, &routev3.RouteConfiguration{}))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error = %v, want %q in it", err, test.want)
			}
		})
	}
	for _, c := range []struct{ json, want string }{
		{`{"name": "c", "type": "ORIGINAL_DST"}`, "type ORIGINAL_DST is not supported"},
		{`{"name": "c", "load_balancing_policy": {}}`, "load_balancing_policy beside lb_policy ROUND_ROBIN"},
		{`{"name": "c", "lb_policy": "CLUSTER_PROVIDED"}`, "load_balancing_policy: 0 policies are not"},
		{`{"name": "c", "lb_policy": "RING_HASH"}`, "lb_policy RING_HASH is not supported"},
		{`{"name": "c", "outlier_detection": {}}`, `cluster "c".outlier_detection is not supported`},
		{`{"name": "c", "circuit_breakers": {"thresholds": [{"max_connections": 1}]}}`, "max_connections: limits below 1024"},
		{`{"name": "c", "circuit_breakers": {"thresholds": [{"max_retries": 3}]}}`, "max_retries: limits below 1024"},
		{
			`{"name": "c", "round_robin_lb_config": {"slow_start_config": {"slow_start_window": "5s"}}}`,
			"slow_start_config is not supported",
		},
		{
			`{"name": "c", "lb_policy": "LEAST_REQUEST", "least_request_lb_config": {"slow_start_config": {}}}`,
			"slow_start_config is not",
		},
		{
			`{"name": "c", "lb_policy": "LEAST_REQUEST", "least_request_lb_config": {"choice_count": 3}}`,
			"choice_count: only 2 is supported",
		},
		{
			upstream(`"common_http_protocol_options": {"max_connection_duration": "5s"},
				"explicit_http_config": {"http_protocol_options": {}}`),
			"max_connection_duration is not supported",
		},
		{
			upstream(`"explicit_http_config": {"http2_protocol_options": {"max_concurrent_streams": 7}}`),
			"max_concurrent_streams: limits",
		},
		{`{"name": "c", "type": "EDS", "eds_cluster_config": {"eds_config": {"self": {}}}}`, "eds_config.self is not supported"},
	} {
		_, err := translate.New().Cluster(read(t, c.json, &clusterv3.Cluster{}))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error = %v, want %q in it", c.json, err, c.want)
		}
	}
}

// upstream is a cluster with these options of HTTP.
func upstream(options string) string {
	return `{"name": "c", "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
		"@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions", ` + options + `}}}`
}

// TestWhatIstiodSendsByDefault checks that the values that istiod 1.29 sends without a setting of a user are accepted.
func TestWhatIstiodSendsByDefault(t *testing.T) {
	t.Parallel()
	const most = "4294967295"
	for _, json := range []string{
		`{"name": "c", "lb_policy": "LEAST_REQUEST", "circuit_breakers": {"thresholds": [{"max_connections": ` + most + `,
			"max_pending_requests": ` + most + `, "max_requests": ` + most + `, "max_retries": ` + most + `, "track_remaining": true}]}}`,
		`{"name": "c", "max_requests_per_connection": 1, "circuit_breakers": {"thresholds": [{"max_requests": 100000}]}}`, // bootstrap
		upstream(`"explicit_http_config": {"http2_protocol_options": {}}`),
	} {
		if _, err := translate.New().Cluster(read(t, json, &clusterv3.Cluster{})); err != nil {
			t.Errorf("%s: %v", json, err)
		}
	}
	listener := hcm(`"stream_idle_timeout": "0s", "common_http_protocol_options": {"idle_timeout": "3600s"},
		"http_filters": [` + router + `]`)
	if _, err := translate.New().Listener(read(t, listener, &listenerv3.Listener{})); err != nil {
		t.Error(err)
	}
}

// TestUnknownFieldNumbers reads a message of a newer API.
func TestUnknownFieldNumbers(t *testing.T) {
	t.Parallel()
	cluster := &clusterv3.Cluster{Name: "c"}
	cluster.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 30001, protowire.VarintType), 1))
	if _, err := translate.New().Cluster(cluster); err == nil || !strings.Contains(err.Error(), "field numbers [30001]") {
		t.Errorf("error = %v, want the field number", err)
	}
}

// TestTypesThatAreUnknown shows that the name of an extension is enough: to accept it, and to reject it.
func TestTypesThatAreUnknown(t *testing.T) {
	t.Parallel()
	typed, err := anypb.New(&udpav1.TypedStruct{TypeUrl: "type.googleapis.com/io.istio.http.peer_metadata.Config"})
	if err != nil {
		t.Fatal(err)
	}
	for url, config := range map[string]struct {
		config *anypb.Any
		ok     bool
	}{
		"telemetry of Istio, by its type": {&anypb.Any{TypeUrl: "type.googleapis.com/stats.PluginConfig"}, true},
		"telemetry of Istio, as a struct": {typed, true},
		"an unknown filter":               {&anypb.Any{TypeUrl: "type.googleapis.com/acme.Filter"}, false},
	} {
		listener := read(t, hcm(`"http_filters": [`+router+`]`), &listenerv3.Listener{})
		chain := listener.GetFilterChains()[0]
		filter := &listenerv3.Filter{Name: "x", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: config.config}}
		chain.Filters = append([]*listenerv3.Filter{filter}, chain.Filters...)
		if _, err := translate.New().Listener(listener); (err == nil) != config.ok {
			t.Errorf("%s: error = %v, accepted = %t expected", url, err, config.ok)
		}
	}
	_ = rbacv3.RBAC{} // Registers the type that TestListenersAreRejectedByName names.
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	table, err := translate.New().Routes(read(t, `{"name": "http.80", "ignore_port_in_host_matching": true, "virtual_hosts": [{
		"name": "h", "domains": ["a.example"], "include_request_attempt_count": true, "routes": [
		{"match": {"path_separated_prefix": "/strip", "case_sensitive": true}, "route": {
			"weighted_clusters": {"clusters": [{"name": "a", "weight": 3}, {"name": "b", "weight": 1, "host_rewrite_literal": "x"}]},
			"cluster_not_found_response_code": "INTERNAL_SERVER_ERROR", "timeout": "0s", "max_grpc_timeout": "0s",
			"regex_rewrite": {"pattern": {"regex": "^/strip(/?)(.*)"}, "substitution": "/\\2"},
			"retry_policy": {"retry_on": "connect-failure,unavailable", "num_retries": 2, "retry_host_predicate": [{"name": "p"}],
				"host_selection_retry_max_attempts": "5"},
			"request_mirror_policies": [{"cluster": "m", "runtime_fraction": {"default_value": {"numerator": 50}}}]}},
		{"match": {"prefix": "/"}, "redirect": {"response_code": "FOUND", "path_redirect": "/x"}},
		{"match": {"prefix": "/"}, "direct_response": {"status": 500}}]}]}`, &routev3.RouteConfiguration{}))
	if err != nil {
		t.Fatal(err)
	}
	routes := table.Hosts[0].Routes
	forward, ok := routes[0].Action.(*model.Forward)
	if !ok {
		t.Fatalf("action = %T, want *model.Forward", routes[0].Action)
	}
	if forward.NotFound != 500 || forward.Timeout != 0 || !forward.GRPCTimeout.Obey {
		t.Errorf("forward = %+v", forward)
	}
	if len(forward.Clusters) != 2 || forward.Clusters[1].Host != "x" {
		t.Errorf("forward = %+v", forward)
	}
	if got := forward.Path.Apply(&routes[0].Match.Path, "/strip/two"); got != "/two" {
		t.Errorf("path = %s, want /two", got)
	}
	if r := forward.Retry; r.Attempts != 2 || r.On != model.OnConnectFailure|model.OnGRPCUnavailable || !r.OtherHosts || r.HostPicks != 5 {
		t.Errorf("retry = %+v", r)
	}
	if m := forward.Mirrors[0]; m.Fraction != 500_000 || m.Cluster != "m" || m.KeepHost {
		t.Errorf("mirror = %+v", m)
	}
	if redirect, ok := routes[1].Action.(*model.Redirect); !ok || redirect.Status != 302 || redirect.Path != "/x" {
		t.Errorf("redirect = %+v", routes[1].Action)
	}
	if direct, ok := routes[2].Action.(*model.Direct); !ok || direct.Status != 500 {
		t.Errorf("direct = %+v", routes[2].Action)
	}
}

func TestClusterTLS(t *testing.T) {
	t.Parallel()
	const tls = `"transport_socket": {"name": "tls", "typed_config": {
		"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", "sni": "a.example",
		"common_tls_context": {"combined_validation_context": {
			"default_validation_context": {"match_subject_alt_names": [{"exact": "a.example"}]},
			"validation_context_sds_secret_config": {"name": "configmap://ns/ca", "sds_config": {"ads": {}}}}}}}`
	plain, err := translate.New().Cluster(read(t, `{"name": "c", `+tls+`}`, &clusterv3.Cluster{}))
	if err != nil {
		t.Fatal(err)
	}
	v := plain.TLS.Validation
	if v.CA == nil || *v.CA != (model.SecretRef{Name: "configmap://ns/ca"}) || len(v.SANs) != 1 || plain.TLS.ServerName != "a.example" {
		t.Errorf("TLS = %+v, validation %+v", plain.TLS, v)
	}
	matched, err := translate.New().Cluster(read(t, `{"name": "c", "transport_socket_matches": [
		{"name": "istio", "match": {"tlsMode": "istio"}, `+tls+`}, {"name": "plain", "match": {}}]}`, &clusterv3.Cluster{}))
	if err != nil {
		t.Fatal(err)
	}
	if matched.TLSFor(map[string]string{"tlsMode": "istio"}) == nil || matched.TLSFor(nil) != nil {
		t.Error("only endpoints with the label tlsMode=istio should get TLS")
	}
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	endpoints, err := translate.New().Endpoints(read(t, `{"cluster_name": "c", "endpoints": [{
		"priority": 1, "load_balancing_weight": 7, "lb_endpoints": [
		{"health_status": "UNHEALTHY", "endpoint": {"address": {"socket_address": {"address": "::1", "port_value": 80}}},
			"metadata": {"filter_metadata": {"envoy.transport_socket_match": {"tlsMode": "istio"}, "istio": {"workload": "w"}}}},
		{"endpoint": {"address": {"pipe": {"path": "/s"}}}, "load_balancing_weight": 3}]}]}`, &endpointv3.ClusterLoadAssignment{}))
	if err != nil {
		t.Fatal(err)
	}
	locality := endpoints.Localities[0]
	first, second := locality.Hosts[0], locality.Hosts[1]
	if locality.Priority != 1 || locality.Weight != 7 {
		t.Errorf("locality = %+v", locality)
	}
	if first.Healthy || first.Address != "[::1]:80" || first.Labels["tlsMode"] != "istio" {
		t.Errorf("first = %+v of %+v", first, locality)
	}
	if !second.Healthy || second.Network != "unix" || second.Weight != 3 {
		t.Errorf("second = %+v", second)
	}
}

func TestSecretsThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for json, want := range map[string]string{
		`{"name": "s", "tls_certificate": {"certificate_chain": {"inline_string": "x"}}}`: `secret "s"`,
		`{"name": "s", "validation_context": {"trusted_ca": {"inline_string": "x"}}}`:     "there is no PEM",
		`{"name": "s"}`: "neither a certificate nor roots",
	} {
		if _, err := translate.New().Secret(read(t, json, &tlsv3.Secret{})); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error = %v, want %q in it", json, err, want)
		}
	}
}
