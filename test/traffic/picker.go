package traffic

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"
)

// What an endpoint picker of the Gateway API's inference extension and a gateway agree on.
const (
	pickNamespace = "envoy.lb"
	pickName      = "x-gateway-destination-endpoint"
)

// PickedHeader is the header that the picker adds to each request.
const PickedHeader = "X-Picked"

// maxPicked limits the body of a request to a picker, in bytes.
const maxPicked = 64 << 10

// RegisterPicker adds an endpoint picker to a server. It sends each request to the endpoint (address and port) that is
// its body. It does not look at responses.
func RegisterPicker(server *grpc.Server) {
	extprocv3.RegisterExternalProcessorServer(server, picker{})
}

type picker struct {
	extprocv3.UnimplementedExternalProcessorServer
}

// Process implements extprocv3.ExternalProcessorServer. As the pickers of the inference extension, it answers about the
// headers when it has the whole body.
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
		if body.Len() > maxPicked {
			return errors.New("the body is too long")
		}
		if end {
			return errors.Join(stream.Send(pickedHeaders(body.String())), stream.Send(pickedBody(body.String())))
		}
	}
}

func pickedHeaders(endpoint string) *extprocv3.ProcessingResponse {
	picked := &structpb.Struct{Fields: map[string]*structpb.Value{pickName: structpb.NewStringValue(endpoint)}}
	hint := &structpb.Struct{Fields: map[string]*structpb.Value{pickNamespace: structpb.NewStructValue(picked)}}
	set := func(name, value string) *corev3.HeaderValueOption {
		return &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: name, RawValue: []byte(value)}}
	}
	return &extprocv3.ProcessingResponse{
		DynamicMetadata: hint,
		Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{
			Response: &extprocv3.CommonResponse{HeaderMutation: &extprocv3.HeaderMutation{
				SetHeaders: []*corev3.HeaderValueOption{set(pickName, endpoint), set(PickedHeader, "yes")},
			}},
		}},
	}
}

func pickedBody(text string) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{
		RequestBody: &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{
			Mutation: &extprocv3.BodyMutation_StreamedResponse{
				StreamedResponse: &extprocv3.StreamedBodyResponse{Body: []byte(text), EndOfStream: true},
			},
		}}},
	}}
}

// serveWho answers with the name of the pod, what the picker has added, and the body.
func serveWho(w http.ResponseWriter, r *http.Request) {
	name, err := os.Hostname()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxPicked))
	if err != nil {
		return // the client has gone
	}
	w.Header().Set("Content-Type", "text/plain")
	_, _ = io.WriteString(w, name+" "+r.Header.Get(PickedHeader)+" "+string(body)) //nolint:gosec // It is plain text.
}
