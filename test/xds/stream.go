package xds

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// The resource types of a proxy in the xDS protocol.
const (
	clusterType  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	endpointType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	listenerType = "type.googleapis.com/envoy.config.listener.v3.Listener"
	routeType    = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	secretType   = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
)

// stream is one aggregated discovery stream (https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol, state
// of the world).
type stream struct {
	ads   discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	node  *corev3.Node
	types map[string]*subscription
}

// subscription is the state of one resource type.
type subscription struct {
	// A push of a wildcard type contains all resources. A push of another type may contain only the changed ones.
	wildcard       bool
	names          []string
	version, nonce string
	resources      map[string]proto.Message
}

func newStream(ads discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient, node *corev3.Node) *stream {
	return &stream{ads: ads, node: node, types: map[string]*subscription{
		clusterType: {wildcard: true}, listenerType: {wildcard: true}, endpointType: {}, routeType: {}, secretType: {},
	}}
}

// start requests the clusters. Like Envoy, next requests listeners only after the clusters to which they lead.
func (s *stream) start() error { return s.request(clusterType) }

// next receives one push, acknowledges it, sends the requests that result from it, and returns everything known so
// far.
func (s *stream) next() (*Config, error) {
	push, err := s.ads.Recv()
	if err != nil {
		return nil, err
	}
	sub := s.types[push.GetTypeUrl()]
	if sub == nil {
		return nil, fmt.Errorf("istiod pushed resources of type %s without a request", push.GetTypeUrl())
	}
	if err := sub.take(push); err != nil {
		return nil, err
	}
	if err := s.request(push.GetTypeUrl()); err != nil { // the push's version and nonce make this an acknowledgement
		return nil, err
	}
	if err := s.follow(push.GetTypeUrl()); err != nil {
		return nil, err
	}
	return newConfig(s.types), nil
}

// take stores a push.
func (s *subscription) take(push *discoveryv3.DiscoveryResponse) error {
	if s.wildcard || s.resources == nil {
		s.resources = map[string]proto.Message{}
	}
	for _, packed := range push.GetResources() {
		resource, err := packed.UnmarshalNew()
		if err != nil {
			return fmt.Errorf("decoding a pushed %s: %w", packed.GetTypeUrl(), err)
		}
		name, err := nameOf(resource)
		if err != nil {
			return err
		}
		s.resources[name] = resource
	}
	s.version, s.nonce = push.GetVersionInfo(), push.GetNonce()
	return nil
}

func nameOf(resource proto.Message) (string, error) {
	switch r := resource.(type) {
	case interface{ GetClusterName() string }: // endpoints
		return r.GetClusterName(), nil
	case interface{ GetName() string }:
		return r.GetName(), nil
	default:
		return "", fmt.Errorf("istiod pushed a %T, which has no name", resource)
	}
}

// follow subscribes to the resources to which a type's resources refer.
func (s *stream) follow(typeURL string) error {
	switch typeURL {
	case clusterType:
		if err := s.subscribe(endpointType, endpointNames(s.types[clusterType].resources)); err != nil {
			return err
		}
		if s.types[listenerType].nonce == "" {
			return s.request(listenerType)
		}
	case listenerType:
		routes, secrets := referredTo(s.types[listenerType].resources)
		if err := s.subscribe(routeType, routes); err != nil {
			return err
		}
		return s.subscribe(secretType, secrets)
	}
	return nil
}

// subscribe changes the subscribed names of a type and drops resources that are no longer needed.
func (s *stream) subscribe(typeURL string, names map[string]bool) error {
	sub := s.types[typeURL]
	sorted := slices.Sorted(maps.Keys(names))
	if slices.Equal(sorted, sub.names) {
		return nil
	}
	sub.names = sorted
	maps.DeleteFunc(sub.resources, func(name string, _ proto.Message) bool { return !names[name] })
	return s.request(typeURL)
}

func (s *stream) request(typeURL string) error {
	sub := s.types[typeURL]
	err := s.ads.Send(&discoveryv3.DiscoveryRequest{
		Node: s.node, TypeUrl: typeURL, ResourceNames: sub.names, VersionInfo: sub.version, ResponseNonce: sub.nonce,
	})
	if errors.Is(err, io.EOF) {
		// The stream has ended. gRPC returns the reason only from Recv.
		_, err = s.ads.Recv()
	}
	return err
}
