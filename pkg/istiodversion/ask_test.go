package istiodversion_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/hypergate/hypergate/pkg/istiodversion"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/test/hang"
)

const name = "istiod.example.com"

// istiod is an xDS server with gRPC's library and the generated types.
type istiod struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	t       *testing.T
	ca      pki.CA
	address string
	answer  func(context.Context) (*discoveryv3.DiscoveryResponse, error)
}

// StreamAggregatedResources checks the first request as istiod does, and answers it.
func (s *istiod) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	request, err := stream.Recv()
	if err != nil {
		return err
	}
	if request.GetTypeUrl() != "istio.io/debug/syncz" {
		s.t.Errorf("the type is %q", request.GetTypeUrl())
	}
	node := request.GetNode()
	metadata := node.GetMetadata().GetFields()
	namespace, planned := metadata["NAMESPACE"].GetStringValue(), metadata["ISTIO_VERSION"].GetStringValue()
	if parts := strings.Split(node.GetId(), "~"); len(parts) != 4 || parts[0] != "router" || net.ParseIP(parts[1]) == nil ||
		!strings.HasPrefix(parts[3], namespace+".") || planned != "1.20.3" {
		s.t.Errorf("the node is %v", node)
	}
	client, _ := peer.FromContext(stream.Context())
	chains := client.AuthInfo.(credentials.TLSInfo).State.VerifiedChains
	if len(chains) == 0 || len(chains[0][0].URIs) != 1 || !strings.Contains(chains[0][0].URIs[0].String(), "/ns/"+namespace+"/") {
		s.t.Errorf("the client has no certificate for an identity in namespace %s", namespace)
	}
	response, err := s.answer(stream.Context())
	if err != nil {
		return err
	}
	return stream.Send(response)
}

func start(t *testing.T) *istiod {
	t.Helper()
	ca, err := pki.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	serving, err := ca.Serving(time.Now(), name)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(serving.Cert, serving.Key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.Root)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &istiod{t: t, ca: ca, address: listener.Addr().String()}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: roots,
	})))
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, s)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return s
}

// ask asks the server over a new connection.
func (s *istiod) ask(ctx context.Context) (string, error) {
	s.t.Helper()
	certificate, err := s.ca.Client(time.Now(), istiodversion.Identity())
	if err != nil {
		s.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.ca.Root)
	dialer := tls.Dialer{Config: &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: name, RootCAs: roots, NextProtos: []string{"h2"},
		Certificates: []tls.Certificate{certificate},
	}}
	conn, err := dialer.DialContext(ctx, "tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	return istiodversion.Ask(ctx, conn.(*tls.Conn), "1.20.3")
}

// identified returns an answer with what istiod says of itself, after the states of some gateways.
func identified(identifier string, gateways, size int) *discoveryv3.DiscoveryResponse {
	out := &discoveryv3.DiscoveryResponse{VersionInfo: "1", TypeUrl: "istio.io/debug/syncz", Nonce: "n"}
	for range gateways {
		out.Resources = append(out.Resources, &anypb.Any{TypeUrl: "t", Value: make([]byte, size)})
	}
	if identifier != "" {
		out.ControlPlane = &corev3.ControlPlane{Identifier: identifier}
	}
	return out
}

const instance = `{"Component":"istiod","ID":"istiod-6f5d","Info":{"version":"VERSION","revision":"abc","golang_version":"go1.26"}}`

func versioned(version string) string { return strings.Replace(instance, "VERSION", version, 1) }

func TestAsk(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, tc := range map[string]struct {
		answer *discoveryv3.DiscoveryResponse
		want   string
		err    error
	}{
		"a release":                    {answer: identified(versioned("1.20.3"), 0, 0), want: "1.20.3"},
		"a vendor's":                   {answer: identified(versioned("1.20.3-distroless_1+a"), 0, 0), want: "1.20.3-distroless_1+a"},
		"with many gateways":           {answer: identified(versioned("1.19.8"), 2000, 1000), want: "1.19.8"},
		"with as many as are read":     {answer: identified(versioned("1.19.8"), 7, 1<<20), want: "1.19.8"},
		"with more than are read":      {answer: identified(versioned("1.19.8"), 9, 1<<20), err: istiodversion.ErrTooLarge},
		"no control plane":             {answer: identified("", 3, 10), err: istiodversion.ErrNoVersion},
		"no JSON":                      {answer: identified("istiod", 0, 0), err: istiodversion.ErrNoVersion},
		"no version":                   {answer: identified(`{"Info":{}}`, 0, 0), err: istiodversion.ErrNoVersion},
		"another type":                 {answer: identified(`{"Info":{"version":["1"]}}`, 0, 0), err: istiodversion.ErrNoVersion},
		"a version of two lines":       {answer: identified(versioned(`1.20.3\nAll is well`), 0, 0), err: istiodversion.ErrNoVersion},
		"a version that ends a text":   {answer: identified(versioned(`1.20.3 [delete it]`), 0, 0), err: istiodversion.ErrNoVersion},
		"a version without end":        {answer: identified(versioned(strings.Repeat("1", 65)), 0, 0), err: istiodversion.ErrNoVersion},
		"an identifier that is longer": {answer: identified(versioned(strings.Repeat("1", 4096)), 0, 0), err: istiodversion.ErrTooLarge},
	} {
		s.answer = func(context.Context) (*discoveryv3.DiscoveryResponse, error) { return tc.answer, nil }
		ctx, cancel := context.WithTimeout(t.Context(), hang.Deadline)
		got, err := s.ask(ctx)
		cancel()
		if got != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestIstiodRefuses(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.answer = func(context.Context) (*discoveryv3.DiscoveryResponse, error) {
		return nil, status.Error(codes.Unauthenticated, "authentication failure\n[run this]")
	}
	ctx, cancel := context.WithTimeout(t.Context(), hang.Deadline)
	defer cancel()
	_, err := s.ask(ctx)
	if refused, is := errors.AsType[istiodversion.RefusedError](err); !is || refused.Code != int(codes.Unauthenticated) {
		t.Errorf("%v", err)
	}
}

// TestIstiodDoesNotAnswer checks that the caller's deadline ends the request.
func TestIstiodDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.answer = func(ctx context.Context) (*discoveryv3.DiscoveryResponse, error) {
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if got, err := s.ask(ctx); got != "" || !errors.Is(err, context.Canceled) {
		t.Errorf("%q, %v", got, err)
	}
}
