package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/proto"

	"github.com/hypergate/hypergate/test/envoy/internal/model"
)

const (
	// processMethod is the gRPC method of external processors.
	processMethod = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
	// processLimit limits the body of a request that goes to a processor, and each answer, in bytes.
	processLimit = 1 << 20
	// grpcPrefix is the length of what precedes each message of gRPC, in bytes.
	grpcPrefix = 5
)

// processed is what an external processor answered about a request.
type processed struct {
	headers model.HeaderChanges
	// body replaces that of the request. It is nil for a request without a body.
	body []byte
	// metadata is by namespace and name.
	metadata map[model.MetadataKey]string
	// immediate is a response in place of that of the backend. It may be nil.
	immediate *extprocv3.ImmediateResponse
}

// process sends the request to the processor of its route. Without a processor, it returns nil. ok reports whether the
// request goes on; otherwise it was answered.
func (x *exchange) process() (answer *processed, ok bool) {
	processor := x.route.Processor
	if processor == nil || x.config.Process == nil {
		return nil, true
	}
	var body []byte
	if x.r.Body != nil && x.r.Body != http.NoBody {
		var err error
		if body, err = io.ReadAll(io.LimitReader(x.r.Body, processLimit+1)); err != nil {
			x.reply(http.StatusBadRequest, "the body of the request cannot be read")
			return nil, false
		}
		if len(body) > processLimit {
			x.reply(http.StatusRequestEntityTooLarge, "the body of the request is too long for the external processor")
			return nil, false
		}
	}
	answer, err := x.ask(processor, body)
	switch {
	case err != nil && processor.FailOpen:
		x.proxy.Log.Warn("an external processor failed", "cluster", processor.Cluster, "err", err)
		answer = &processed{body: body}
	case err != nil:
		x.reply(http.StatusInternalServerError, "the external processor failed: "+err.Error())
		return nil, false
	case answer.immediate != nil:
		x.reply(int(answer.immediate.GetStatus().GetCode()), string(answer.immediate.GetBody()))
		return nil, false
	}
	x.r.Body, x.r.ContentLength = http.NoBody, 0
	if len(answer.body) > 0 {
		x.r.Body, x.r.ContentLength = io.NopCloser(bytes.NewReader(answer.body)), int64(len(answer.body))
	}
	return answer, true
}

// ask sends the headers and the body of the request on one stream, and reads until the answers to both are complete.
// Envoy then goes on with the response. Here the stream ends.
func (x *exchange) ask(processor *model.Processor, body []byte) (*processed, error) {
	c := (*x.proxy.clusters.Load())[processor.Cluster]
	if c == nil {
		return nil, fmt.Errorf("there is no cluster %s", processor.Cluster)
	}
	if x.protocol(c) != model.HTTP2 && c.config.Protocol != model.AutoProtocol {
		return nil, errors.New("the cluster does not use HTTP/2")
	}
	e := c.pick(nil, 1)
	if e == nil {
		return nil, errNoHosts
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), x.config.Process.Timeout)
	defer cancel()
	read, write := io.Pipe()
	defer func() { _ = read.Close() }()
	r := (&http.Request{
		Method: http.MethodPost, URL: &url.URL{Path: processMethod}, Host: model.WithoutPort(e.host.Address), Body: read,
		ContentLength: -1, Proto: "HTTP/2.0", ProtoMajor: 2,
		Header: http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}},
	}).WithContext(ctx)
	go func() {
		err := send(write, x.headersMessage(len(body) == 0))
		if err == nil && len(body) > 0 {
			err = send(write, &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
				RequestBody: &extprocv3.HttpBody{Body: body, EndOfStream: true},
			}})
		}
		if err != nil {
			_ = write.CloseWithError(err) // The answer does not come then.
		}
	}()
	response, err := e.roundTrip(r, model.HTTP2)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if status := response.Header.Get("Grpc-Status"); status != "" && status != "0" {
		return nil, fmt.Errorf("gRPC status %s: %s", status, response.Header.Get("Grpc-Message"))
	}
	return x.answers(response.Body, len(body) > 0)
}

func (x *exchange) headersMessage(end bool) *extprocv3.ProcessingRequest {
	all := []*corev3.HeaderValue{
		{Key: ":method", RawValue: []byte(x.r.Method)},
		{Key: ":path", RawValue: []byte(x.r.URL.RequestURI())},
		{Key: ":authority", RawValue: []byte(x.r.Host)},
		{Key: ":scheme", RawValue: []byte(x.about.Scheme)},
	}
	for name, values := range x.r.Header {
		for _, value := range values {
			all = append(all, &corev3.HeaderValue{Key: strings.ToLower(name), RawValue: []byte(value)})
		}
	}
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{
		RequestHeaders: &extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{Headers: all}, EndOfStream: end},
	}}
}

// answers reads until the answers about the headers and, with a body, about the whole body are there.
func (x *exchange) answers(from io.Reader, hasBody bool) (*processed, error) {
	out := &processed{metadata: map[model.MetadataKey]string{}}
	for headersDone, bodyDone := false, !hasBody; !headersDone || !bodyDone; {
		message := &extprocv3.ProcessingResponse{}
		if err := receive(from, message); err != nil {
			return nil, err
		}
		x.takeMetadata(message, out)
		switch response := message.GetResponse().(type) {
		case *extprocv3.ProcessingResponse_RequestHeaders:
			headersDone = true
			if err := takeMutation(response.RequestHeaders.GetResponse().GetHeaderMutation(), out); err != nil {
				return nil, err
			}
		case *extprocv3.ProcessingResponse_RequestBody:
			streamed := response.RequestBody.GetResponse().GetBodyMutation().GetStreamedResponse()
			if streamed == nil {
				return nil, errors.New("it answers about the body without streamed_response")
			}
			if out.body = append(out.body, streamed.GetBody()...); len(out.body) > processLimit {
				return nil, errors.New("its body is too long")
			}
			bodyDone = streamed.GetEndOfStream()
		case *extprocv3.ProcessingResponse_ImmediateResponse:
			out.immediate = response.ImmediateResponse
			return out, nil
		default:
			return nil, fmt.Errorf("it answers with %T", response)
		}
	}
	return out, nil
}

// takeMetadata keeps the texts in the dynamic metadata of an answer, in the namespaces that a processor may set.
func (x *exchange) takeMetadata(message *extprocv3.ProcessingResponse, out *processed) {
	for namespace, value := range message.GetDynamicMetadata().GetFields() {
		if !slices.Contains(x.config.Process.Namespaces, namespace) {
			continue
		}
		for name, text := range value.GetStructValue().GetFields() {
			out.metadata[model.MetadataKey{Namespace: namespace, Name: name}] = text.GetStringValue()
		}
	}
}

func takeMutation(mutation *extprocv3.HeaderMutation, out *processed) error {
	out.headers.RequestRemove = append(out.headers.RequestRemove, mutation.GetRemoveHeaders()...)
	for _, option := range mutation.GetSetHeaders() {
		name, value := option.GetHeader().GetKey(), option.GetHeader().GetRawValue()
		switch {
		case strings.EqualFold(name, "content-length"): // It follows from the body.
			continue
		case strings.HasPrefix(name, ":") || strings.EqualFold(name, "host"):
			return fmt.Errorf("a change of %s is not supported", name)
		}
		if len(value) == 0 {
			value = []byte(option.GetHeader().GetValue())
		}
		out.headers.RequestAdd = append(out.headers.RequestAdd, model.HeaderValue{
			Name: name, Value: string(value), Action: model.HeaderSet, KeepEmpty: true,
		})
	}
	return nil
}

// hinted returns the endpoints of a cluster that the processor has chosen, in its order. The others are skipped, as
// Envoy does.
func (p *processed) hinted(c *cluster) []*endpoint {
	if p == nil || c.config.Hint == (model.MetadataKey{}) {
		return nil
	}
	var out []*endpoint
	for address := range strings.SplitSeq(p.metadata[c.config.Hint], ",") {
		for _, e := range c.hosts.Load().all {
			if e.host.Address == strings.TrimSpace(address) && e.healthy.Load() {
				out = append(out, e)
			}
		}
	}
	return out
}

// send writes one message of gRPC.
func send(to io.Writer, message proto.Message) error {
	encoded, err := proto.Marshal(message)
	if err != nil {
		return err
	}
	framed := make([]byte, grpcPrefix, grpcPrefix+len(encoded))
	binary.BigEndian.PutUint32(framed[1:], uint32(len(encoded))) //nolint:gosec // It is at most processLimit and the headers.
	_, err = to.Write(append(framed, encoded...))
	return err
}

// receive reads one message of gRPC.
func receive(from io.Reader, into proto.Message) error {
	prefix := make([]byte, grpcPrefix)
	if _, err := io.ReadFull(from, prefix); err != nil {
		return fmt.Errorf("reading its answer: %w", err)
	}
	length := binary.BigEndian.Uint32(prefix[1:])
	if prefix[0] != 0 || length > 2*processLimit {
		return errors.New("its answer is compressed or too long")
	}
	encoded := make([]byte, length)
	if _, err := io.ReadFull(from, encoded); err != nil {
		return fmt.Errorf("reading its answer: %w", err)
	}
	return proto.Unmarshal(encoded, into)
}
