package xds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
)

// The types of resources.
const (
	ClusterType   = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	EndpointType  = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	ListenerType  = "type.googleapis.com/envoy.config.listener.v3.Listener"
	RouteType     = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	SecretType    = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	ExtensionType = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"
)

// MaxMessage limits a response, in bytes.
const MaxMessage = 64 << 20

// The time between two attempts to connect: random, below a limit that doubles. These are Envoy's defaults.
const (
	firstBackoff = 500 * time.Millisecond
	lastBackoff  = 30 * time.Second
	dialTimeout  = 5 * time.Second
)

// Sink takes resources.
type Sink interface {
	// Update applies a response. The error is sent as NACK.
	Update(Update) error
	// Wants returns the names to subscribe to. No names mean a wildcard for clusters and listeners. If subscribe is
	// false, then the type is not requested yet.
	Wants(typeURL string) (names []string, subscribe bool)
}

// Update is a response.
type Update struct {
	Type      string
	Resources []*discoveryv3.Resource
	Removed   []string
}

// Client is the client of the aggregated stream.
type Client struct {
	Network, Address string
	Node             *corev3.Node
	Sink             Sink
	Log              *slog.Logger
	// Changed says that Sink may want other names although there was no response. It may be nil.
	Changed <-chan struct{}
	// OnConnected is called with true when a stream begins, and with false when it ends. It may be nil.
	OnConnected func(bool)

	types map[string]*subscription
}

// subscription is the state of one type. versions outlive a stream.
type subscription struct {
	requested bool
	names     []string
	versions  map[string]string
}

// typeOrder is the order of requests. It is also Envoy's order: clusters before endpoints before listeners before
// routes.
func typeOrder() []string {
	return []string{ClusterType, EndpointType, ListenerType, RouteType, SecretType, ExtensionType}
}

func wildcard(typeURL string) bool { return typeURL == ClusterType || typeURL == ListenerType }

// Run keeps a stream until ctx ends.
func (c *Client) Run(ctx context.Context) {
	c.types = map[string]*subscription{}
	for _, typeURL := range typeOrder() {
		c.types[typeURL] = &subscription{versions: map[string]string{}}
	}
	retry(ctx, func() bool {
		received, err := c.stream(ctx)
		if ctx.Err() == nil {
			c.Log.Warn("the stream has ended, the configuration stays", "error", err)
		}
		return received
	})
}

// retry calls attempt until ctx ends. If attempt returns true, then the backoff starts at its beginning.
func retry(ctx context.Context, attempt func() bool) {
	limit := firstBackoff
	for ctx.Err() == nil {
		if attempt() {
			limit = firstBackoff
		}
		timer := time.NewTimer(rand.N(limit)) //nolint:gosec // The jitter protects nothing.
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
		limit = min(2*limit, lastBackoff)
	}
}

// dial prepares a gRPC connection without a request.
func dial(network, address string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage)),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			dialer := net.Dialer{Timeout: dialTimeout}
			return dialer.DialContext(ctx, network, address)
		}))
}

type adsStream = discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient

// stream reports whether it has received something.
func (c *Client) stream(ctx context.Context) (received bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := dial(c.Network, c.Address)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return false, err
	}
	c.connected(true)
	defer c.connected(false)
	for _, subscription := range c.types {
		subscription.requested, subscription.names = false, nil
	}
	return c.follow(ctx, &session{client: c, stream: stream})
}

// follow answers responses until the stream ends. It is the only sender.
func (c *Client) follow(ctx context.Context, s *session) (received bool, err error) {
	responses, ended := make(chan *discoveryv3.DeltaDiscoveryResponse), make(chan error, 1)
	go func() {
		for {
			response, err := s.stream.Recv()
			if err != nil {
				ended <- err
				return
			}
			select {
			case responses <- response:
			case <-ctx.Done():
				return
			}
		}
	}()
	if err := s.subscribe(); err != nil {
		return false, err
	}
	for {
		select {
		case response := <-responses:
			received = true
			err = s.answer(response)
		case <-c.Changed:
			err = s.subscribe()
		case err = <-ended:
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			return received, err
		}
	}
}

func (c *Client) connected(state bool) {
	if c.OnConnected != nil {
		c.OnConnected(state)
	}
}

// session is one stream.
type session struct {
	client   *Client
	stream   adsStream
	nodeSent bool
}

func (s *session) send(request *discoveryv3.DeltaDiscoveryRequest) error {
	if !s.nodeSent {
		request.Node, s.nodeSent = s.client.Node, true
	}
	return s.stream.Send(request)
}

// answer applies a response and sends ACK or NACK, and then what has to be subscribed to next.
func (s *session) answer(response *discoveryv3.DeltaDiscoveryResponse) error {
	typeURL := response.GetTypeUrl()
	subscription := s.client.types[typeURL]
	request := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, ResponseNonce: response.GetNonce()}
	err := fmt.Errorf("type %s was not requested", typeURL)
	if subscription != nil {
		err = s.client.Sink.Update(Update{Type: typeURL, Resources: response.GetResources(), Removed: response.GetRemovedResources()})
	}
	if err != nil {
		s.client.Log.Error("a response is rejected", "type", typeURL, "error", err)
		request.ErrorDetail = &status.Status{Code: int32(codes.Internal), Message: err.Error()}
		return s.send(request)
	}
	for _, resource := range response.GetResources() {
		subscription.versions[resource.GetName()] = resource.GetVersion()
	}
	for _, name := range response.GetRemovedResources() {
		delete(subscription.versions, name)
	}
	if err := s.send(request); err != nil {
		return err
	}
	return s.subscribe()
}

// subscribe requests what the sink wants and what is not requested on this stream.
func (s *session) subscribe() error {
	for _, typeURL := range typeOrder() {
		names, wanted := s.client.Sink.Wants(typeURL)
		if !wanted {
			continue
		}
		if request := s.client.types[typeURL].next(typeURL, names); request != nil {
			if err := s.send(request); err != nil {
				return err
			}
		}
	}
	return nil
}

// next returns the request that leads to these names, or nil if nothing has changed.
func (s *subscription) next(typeURL string, names []string) *discoveryv3.DeltaDiscoveryRequest {
	request := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL}
	if !wildcard(typeURL) {
		s.forgetAllBut(names)
		request.ResourceNamesSubscribe = missing(names, s.names)
		request.ResourceNamesUnsubscribe = missing(s.names, names)
	}
	switch {
	case !s.requested && !wildcard(typeURL) && len(names) == 0: // An empty list would be a wildcard.
		return nil
	case !s.requested:
		request.InitialResourceVersions = maps.Clone(s.versions)
	case len(request.GetResourceNamesSubscribe())+len(request.GetResourceNamesUnsubscribe()) == 0:
		return nil
	}
	s.requested, s.names = true, slices.Clone(names)
	return request
}

func (s *subscription) forgetAllBut(names []string) {
	for _, name := range missing(slices.Collect(maps.Keys(s.versions)), names) {
		delete(s.versions, name)
	}
}

// missing returns the names of all that are not in some.
func missing(all, some []string) []string {
	var out []string
	have := map[string]bool{}
	for _, name := range some {
		have[name] = true
	}
	for _, name := range all {
		if !have[name] {
			out = append(out, name)
		}
	}
	return out
}
