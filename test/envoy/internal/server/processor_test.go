package server_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/override_host/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"
)

// hintNamespace and hintName are where an endpoint picker names the endpoints.
const hintNamespace, hintName = "envoy.lb", "x-gateway-destination-endpoint"

// picker is an external processor. It sends a request to the endpoint that its body names. The body "refuse" is
// answered with 429, and with "fail" the stream ends.
type picker struct {
	extprocv3.UnimplementedExternalProcessorServer
}

func (picker) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	var body strings.Builder
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		end := request.GetRequestHeaders().GetEndOfStream()
		if part := request.GetRequestBody(); part != nil {
			body.Write(part.GetBody())
			end = part.GetEndOfStream()
		}
		if !end {
			continue
		}
		switch text := body.String(); text {
		case "refuse":
			return stream.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{
				ImmediateResponse: &extprocv3.ImmediateResponse{Status: &typev3.HttpStatus{Code: typev3.StatusCode_TooManyRequests}},
			}})
		case "fail":
			return errors.New("no endpoint")
		default:
			if err := answerWith(stream, text); err != nil {
				return err
			}
		}
	}
}

func answerWith(stream extprocv3.ExternalProcessor_ProcessServer, endpoint string) error {
	hint, err := structpb.NewStruct(map[string]any{
		hintNamespace: map[string]any{hintName: endpoint}, "other": map[string]any{hintName: "127.0.0.1:1"},
	})
	if err != nil {
		return err
	}
	if err := stream.Send(&extprocv3.ProcessingResponse{
		DynamicMetadata: hint,
		Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{
			Response: &extprocv3.CommonResponse{HeaderMutation: &extprocv3.HeaderMutation{
				SetHeaders: []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: "x-picked", RawValue: []byte("yes")}}},
			}},
		}},
	}); err != nil || endpoint == "" {
		return err
	}
	return stream.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{
		RequestBody: &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{
			Mutation: &extprocv3.BodyMutation_StreamedResponse{StreamedResponse: &extprocv3.StreamedBodyResponse{
				Body: []byte("for " + endpoint), EndOfStream: true,
			}},
		}}},
	}})
}

// startPicker returns the address of a picker.
func startPicker(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	extprocv3.RegisterExternalProcessorServer(server, picker{})
	go func() { _ = server.Serve(listener) }() // It ends with Stop.
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

// The configuration of a route to an InferencePool, as istiod 1.29 sends it.
const (
	poolFilter = `{"name": "envoy.filters.http.ext_proc", "typed_config": {
		"@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
		"grpc_service": {"envoy_grpc": {"cluster_name": "dummy"}, "timeout": "10s"}, "failure_mode_allow": true,
		"processing_mode": {"request_header_mode": "SKIP", "response_header_mode": "SKIP"}, "message_timeout": "1000s",
		"metadata_options": {"receiving_namespaces": {"untyped": ["envoy.lb"]}, "forwarding_namespaces": {"untyped": ["envoy.lb"]}}}}, `
	poolPolicy = `"load_balancing_policy": {"policies": [{"typed_extension_config": {"name": "override_host", "typed_config": {
		"@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost",
		"override_host_sources": [{"metadata": {"key": "envoy.lb", "path": [{"key": "x-gateway-destination-endpoint"}]}}],
		"fallback_policy": {"policies": [{"typed_extension_config": {"name": "round_robin", "typed_config": {
			"@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin"}}}]}}}}]}`
	http2Options = `"typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
		"@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
		"explicit_http_config": {"http2_protocol_options": {}}}}`
)

// poolRoute is a route to the cluster "pool" by the processor in the cluster "picker".
func poolRoute(failOpen bool) string {
	return fmt.Sprintf(`{"match": {"prefix": "/"}, "route": {"cluster": "pool"}, "typed_per_filter_config": {
		"envoy.filters.http.ext_proc": {"@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute",
		"overrides": {"failure_mode_allow": %t, "grpc_service": {"envoy_grpc": {"cluster_name": "picker"}}, "processing_mode": {
			"request_header_mode": "SEND", "request_body_mode": "FULL_DUPLEX_STREAMED", "request_trailer_mode": "SEND",
			"response_header_mode": "SEND", "response_body_mode": "FULL_DUPLEX_STREAMED", "response_trailer_mode": "SEND"}}}}}`, failOpen)
}

// servePool serves a pool of endpoints, and returns the address of the listener.
func (w *runningProxy) servePool(failOpen bool, endpoints ...string) string {
	w.t.Helper()
	address := freeAddress(w.t)
	pool := w.cluster("pool", poolPolicy)
	pool.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
	w.plane.Set(pool, w.endpoints("pool", endpoints...), w.cluster("picker", http2Options), w.endpoints("picker", startPicker(w.t)))
	chain := strings.Replace(httpFilter, `{"name": "cors"`, poolFilter+`{"name": "cors"`, 1)
	w.plane.Set(w.listener(address, "{"+chain+"}"), w.routes(poolRoute(failOpen)))
	w.ready()
	return address
}

// TestAnEndpointPicker checks that a request goes to the endpoint that an external processor picks, with the body and
// the headers of the processor.
func TestAnEndpointPicker(t *testing.T) {
	t.Parallel()
	seen := func(name string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s %s", name, r.Header.Get("X-Picked"), body)
		}
	}
	one, other := backend(t, seen("one")), backend(t, seen("other"))
	w := start(t)
	address := w.servePool(false, one, other)
	c := client(t, address, nil, http1)
	for range 5 {
		for name, endpoint := range map[string]string{"one": one, "other": other} {
			if got := w.posted(c, endpoint); got != "200 "+name+" yes for "+endpoint {
				t.Errorf("picked %s: %q", name, got)
			}
		}
	}
	// An endpoint that is not in the pool is skipped.
	if got := w.posted(c, "127.0.0.1:1"); !strings.HasPrefix(got, "200 o") {
		t.Errorf("picked an unknown endpoint: %q", got)
	}
	if got := w.posted(c, ""); !strings.HasPrefix(got, "200 o") || !strings.Contains(got, " yes ") {
		t.Errorf("without a body: %q", got)
	}
	if got := w.posted(c, "refuse"); !strings.HasPrefix(got, "429") {
		t.Errorf("refused: %q", got)
	}
	if got := w.posted(c, "fail"); !strings.HasPrefix(got, "500") {
		t.Errorf("the picker fails: %q", got)
	}
	if got := w.posted(c, strings.Repeat("x", 1<<20+1)); !strings.HasPrefix(got, "413") {
		t.Errorf("too long: %.80q", got)
	}
}

// TestAPickerThatFailsOpen checks that requests are forwarded as they are.
func TestAPickerThatFailsOpen(t *testing.T) {
	t.Parallel()
	w := start(t)
	address := w.servePool(true, backend(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	}))
	if got := w.posted(client(t, address, nil, http1), "fail"); got != "200 fail" {
		t.Errorf("the picker fails: %q", got)
	}
}

// posted posts a body, and returns the status and the body of the response.
func (w *runningProxy) posted(c *http.Client, body string) string {
	w.t.Helper()
	var reader io.Reader = http.NoBody
	if body != "" {
		reader = strings.NewReader(body)
	}
	response, err := send(w.t, c, http.MethodPost, "http://models/", reader)
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", response.StatusCode, text)
}
