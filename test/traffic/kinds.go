package traffic

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Kind is a way to use a gateway.
type Kind string

// The kinds of requests.
const (
	// NewConnection is a short request over a connection of its own.
	NewConnection Kind = "new connection"
	// KeptConnection is a short request over connections that are kept.
	KeptConnection Kind = "kept connection"
	// Download is a request whose answer takes Stream.Duration.
	Download Kind = "download"
	// GRPC is a bidirectional stream that lasts Stream.Duration, with a message each way every 100 ms.
	GRPC Kind = "gRPC stream"
)

// GatewayHeader is the header in which the gateway of these tests names its pod.
const GatewayHeader = "X-Gateway-Pod"

const (
	// shortTimeout is the default of Stream.Timeout. It is longer than a machine without free CPU time delays a
	// request. An answer after slowAfter is counted in the report.
	shortTimeout = 20 * time.Second
	slowAfter    = 5 * time.Second
	// beat is the time between two messages of a gRPC stream, and between two pieces of a download.
	beat = 100 * time.Millisecond
)

// answer is what is known of one request.
type answer struct {
	// gateway is the pod that answered, or that answered before on the same connection. It is empty if it is not known.
	gateway string
	err     error
}

// sender sends single requests of one stream.
type sender struct {
	stream Stream
	// kept is the client of KeptConnection and Download, fresh that of NewConnection and of Stream.Fresh.
	kept, fresh *http.Client
	grpc        *grpc.ClientConn
	// answered has the pod that answered last on a connection, by the local address of the connection.
	answered sync.Map
}

func newSender(s Stream) (*sender, error) {
	out := &sender{stream: s, kept: s.client(true), fresh: s.client(false)}
	if s.Kind != GRPC {
		return out, nil
	}
	transport := insecure.NewCredentials()
	if s.TLS != nil {
		transport = credentials.NewTLS(s.tls())
	}
	var err error
	out.grpc, err = grpc.NewClient("passthrough:///"+s.Address, grpc.WithTransportCredentials(transport), grpc.WithAuthority(s.Host),
		// A stream that fails before its first message would be sent again by the library.
		grpc.WithDisableRetry(), grpc.WithDisableServiceConfig())
	if err != nil {
		return nil, fmt.Errorf("making a gRPC client for %s: %w", s.Name, err)
	}
	return out, nil
}

// tls returns a copy of the TLS configuration, because net/http adds protocols to it. Its ServerName is the host.
func (s Stream) tls() *tls.Config {
	if s.TLS == nil {
		return nil
	}
	config := s.TLS.Clone()
	config.ServerName = s.Host
	return config
}

// client returns a client that reaches the address of the stream whatever the URL says.
func (s Stream) client(keep bool) *http.Client {
	dialer := &net.Dialer{}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, s.Address)
		},
		TLSClientConfig: s.tls(), DisableKeepAlives: !keep, MaxIdleConnsPerHost: 100,
		ForceAttemptHTTP2: keep, DisableCompression: true,
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (s *sender) close() {
	s.kept.CloseIdleConnections()
	if s.grpc != nil {
		_ = s.grpc.Close()
	}
}

// send sends one request, and waits for its end.
func (s *sender) send(ctx context.Context) answer {
	ctx, cancel := context.WithTimeout(ctx, s.stream.deadline())
	defer cancel()
	switch s.stream.Kind {
	case NewConnection:
		return s.get(ctx, s.fresh, "/", checkShort)
	case KeptConnection:
		return s.get(ctx, s.kept, "/", checkShort)
	case Download:
		pieces, client := s.stream.pieces(), s.kept
		if s.stream.Fresh {
			client = s.fresh
		}
		return s.get(ctx, client, "/download?pieces="+strconv.Itoa(pieces), func(body io.Reader) error { return checkPieces(body, pieces) })
	case GRPC:
		return s.talk(ctx)
	}
	return answer{err: fmt.Errorf("there is no kind %q", s.stream.Kind)}
}

// get sends a request. Over HTTP/1.1, net/http sends a request again if a kept connection ends before the answer,
// unless the request has a body that cannot be read twice. So each request has such a body, which is empty. Kept
// connections with TLS use HTTP/2. There, net/http sends again only what the server did not process, as its GOAWAY
// says.
func (s *sender) get(ctx context.Context, client *http.Client, path string, check func(io.Reader) error) answer {
	scheme, kept := "http", client == s.kept
	if s.stream.TLS != nil {
		scheme = "https"
	}
	var connection string
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { connection = info.Conn.LocalAddr().String() },
	})
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, scheme+"://"+s.stream.Host+path, io.MultiReader())
	if err != nil {
		return answer{err: err}
	}
	if s.stream.TLS != nil && kept {
		request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(io.MultiReader()), nil }
	}
	response, err := client.Do(request)
	if err != nil {
		pod, _ := s.answered.Load(connection)
		gateway, _ := pod.(string)
		return answer{gateway: gateway, err: err}
	}
	defer func() { _ = response.Body.Close() }()
	out := answer{gateway: response.Header.Get(GatewayHeader)}
	if kept {
		s.answered.Store(connection, out.gateway)
	}
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 200)) // the status is the failure, with or without a text
		out.err = fmt.Errorf("%w: %q", statusError(response.StatusCode), text)
		return out
	}
	out.err = check(response.Body)
	return out
}

// statusError is the status of an answer that is not 200.
type statusError int

func (e statusError) Error() string { return "status " + strconv.Itoa(int(e)) }

// The answers of the backend.
const (
	shortAnswer = "traffic\n"
	piece       = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n"
)

var errAnswer = errors.New("the answer is not that of the backend")

func checkShort(body io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(body, int64(len(shortAnswer))+1))
	if err == nil && string(text) != shortAnswer {
		err = errAnswer
	}
	return err
}

func checkPieces(body io.Reader, pieces int) error {
	lines := bufio.NewReader(body)
	for range pieces {
		line, err := lines.ReadString('\n')
		if err != nil {
			return fmt.Errorf("in the middle of a download: %w", err)
		}
		if line != piece {
			return errAnswer
		}
	}
	if _, err := lines.ReadByte(); !errors.Is(err, io.EOF) {
		return errors.Join(errAnswer, err)
	}
	return nil
}

// EchoMethod is the full name of the gRPC method of the backend: a bidirectional stream that echoes.
const EchoMethod = "/hypergate.test.Traffic/Echo"

// talk opens a gRPC stream, and exchanges a message every beat.
func (s *sender) talk(ctx context.Context) answer {
	stream, err := s.grpc.NewStream(ctx, &grpc.StreamDesc{StreamName: "Echo", ServerStreams: true, ClientStreams: true}, EchoMethod)
	if err != nil {
		return answer{err: err}
	}
	var out answer
	ticks := time.NewTicker(beat)
	defer ticks.Stop()
	for i := range s.stream.pieces() {
		sent, got := wrapperspb.Int64(int64(i)), &wrapperspb.Int64Value{}
		if err := stream.SendMsg(sent); err != nil && !errors.Is(err, io.EOF) { // after io.EOF, RecvMsg has the cause
			return answer{gateway: out.gateway, err: err}
		}
		if err := stream.RecvMsg(got); err != nil {
			return answer{gateway: out.gateway, err: fmt.Errorf("in the middle of a stream: %w", err)}
		}
		if got.GetValue() != sent.GetValue() {
			return answer{gateway: out.gateway, err: errAnswer}
		}
		if header, err := stream.Header(); err == nil {
			out.gateway = first(header, GatewayHeader)
		}
		<-ticks.C
	}
	if err := stream.CloseSend(); err != nil {
		return answer{gateway: out.gateway, err: err}
	}
	if err := stream.RecvMsg(&wrapperspb.Int64Value{}); !errors.Is(err, io.EOF) {
		out.err = fmt.Errorf("at the end of a stream: %w", errors.Join(errAnswer, err))
	}
	return out
}

func first(header metadata.MD, key string) string {
	if values := header.Get(key); len(values) > 0 {
		return values[0]
	}
	return ""
}

// These are the causes of a request that took too long.
const timeout, timeoutOfGRPC = "timeout", "gRPC DeadlineExceeded"

// cause returns the class of a failure, for a table. Texts of errors have addresses and ports in them.
func cause(err error) string {
	var status statusError
	var certificate *tls.CertificateVerificationError
	switch text := err.Error(); {
	case errors.As(err, &status):
		return status.Error()
	case errors.Is(err, context.DeadlineExceeded) || isTimeout(err):
		return timeout
	case errors.As(err, &certificate):
		return "certificate not accepted"
	case contains(text, "connection refused"):
		return "connection refused"
	case contains(text, "connection reset", "broken pipe"):
		return "connection reset"
	case contains(text, "no route to host", "network is unreachable"):
		return "no route"
	case contains(text, "EOF", "server closed", "GOAWAY", "client connection is closing", "transport is closing"):
		return "connection closed"
	case errors.Is(err, errAnswer):
		return "wrong answer"
	case contains(text, "tls:"):
		return "TLS"
	case contains(text, "rpc error"):
		return grpcCause(err)
	}
	return "other"
}
