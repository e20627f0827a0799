package xds

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// Silent is a hostile proxy: a connection that subscribes, and acknowledges nothing.
type Silent struct {
	client *Client
	pushes atomic.Int64
	ended  chan struct{}
	err    error // the reason for the end of the stream; valid once ended is closed
}

// DialSilent connects as a proxy, and subscribes to all clusters and listeners, and to endpoints, routes and secrets by
// these names. It acknowledges no push. With reads false it does not even read, so that istiod's buffers for it fill
// up.
//
// ctx must live as long as the connection. If istiod refuses it, Ended is closed, and Err returns the reason. That is
// seen only with reads.
func DialSilent(ctx context.Context, options Options, names []string, reads bool) (*Silent, error) {
	c, err := connect(options)
	if err != nil {
		return nil, err
	}
	ctx, c.cancel = context.WithCancel(ctx)
	ads, err := discoveryv3.NewAggregatedDiscoveryServiceClient(c.conn).StreamAggregatedResources(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("dialling istiod at %s as %s: %w", options.Address, options.ServerName, err), c.Close())
	}
	s := &Silent{client: c, ended: make(chan struct{})}
	for _, typeURL := range []string{clusterType, endpointType, listenerType, routeType, secretType} {
		request := &discoveryv3.DiscoveryRequest{Node: c.node.Proto(), TypeUrl: typeURL}
		if typeURL != clusterType && typeURL != listenerType {
			request.ResourceNames = names
		}
		if err := ads.Send(request); err != nil {
			break // Recv has the reason
		}
	}
	if reads {
		go s.count(ads)
	}
	return s, nil
}

// count reads pushes until the stream ends.
func (s *Silent) count(ads discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient) {
	defer close(s.ended)
	for {
		if _, s.err = ads.Recv(); s.err != nil {
			return
		}
		s.pushes.Add(1)
	}
}

// Pushes returns the number of pushes that were read.
func (s *Silent) Pushes() int { return int(s.pushes.Load()) }

// Ended returns a channel that is closed when istiod, or Close, has ended a stream that is read.
func (s *Silent) Ended() <-chan struct{} { return s.ended }

// Err returns the reason for the end of the stream. It wraps istiod's status. Call it only after Ended.
func (s *Silent) Err() error { return s.err }

// Close ends the connection.
func (s *Silent) Close() error { return s.client.Close() }
