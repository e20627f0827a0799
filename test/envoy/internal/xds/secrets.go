package xds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
)

// Secrets is the client of the agent's socket for secrets. It keeps one stream per name, as Envoy does.
type Secrets struct {
	Network, Address string
	Node             *corev3.Node
	// Update applies a secret. The error is sent as NACK.
	Update func(*tlsv3.Secret) error
	Log    *slog.Logger

	running map[string]context.CancelFunc
}

// Want starts streams for these names, and ends the streams for all other names. It must not be called concurrently.
func (s *Secrets) Want(ctx context.Context, names []string) {
	if s.running == nil {
		s.running = map[string]context.CancelFunc{}
	}
	for name, cancel := range s.running {
		if !slices.Contains(names, name) {
			cancel()
			delete(s.running, name)
		}
	}
	for _, name := range names {
		if s.running[name] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		s.running[name] = cancel
		go retry(ctx, func() bool {
			received, err := s.stream(ctx, name)
			if ctx.Err() == nil {
				s.Log.Warn("the stream of a secret has ended, the secret stays", "secret", name, "error", err)
			}
			return received
		})
	}
}

func (s *Secrets) stream(ctx context.Context, name string) (received bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := dial(s.Network, s.Address)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	stream, err := secretv3.NewSecretDiscoveryServiceClient(conn).StreamSecrets(ctx)
	if err != nil {
		return false, err
	}
	request := &discoveryv3.DiscoveryRequest{Node: s.Node, TypeUrl: SecretType, ResourceNames: []string{name}}
	for {
		if err := stream.Send(request); err != nil {
			return received, err
		}
		response, err := stream.Recv()
		if err != nil {
			return received, err
		}
		received = true
		next := &discoveryv3.DiscoveryRequest{
			TypeUrl: SecretType, ResourceNames: []string{name}, VersionInfo: response.GetVersionInfo(), ResponseNonce: response.GetNonce(),
		}
		if err := s.apply(name, response); err != nil {
			s.Log.Error("a secret is rejected", "secret", name, "error", err)
			next.VersionInfo = request.GetVersionInfo()
			next.ErrorDetail = &status.Status{Code: int32(codes.Internal), Message: err.Error()}
		}
		request = next
	}
}

func (s *Secrets) apply(name string, response *discoveryv3.DiscoveryResponse) error {
	for _, resource := range response.GetResources() {
		secret := &tlsv3.Secret{}
		if err := resource.UnmarshalTo(secret); err != nil {
			return fmt.Errorf("secret %q: %w", name, err)
		}
		if secret.GetName() != name {
			return fmt.Errorf("secret %q was not requested", secret.GetName())
		}
		if err := s.Update(secret); err != nil {
			return err
		}
	}
	return nil
}
