package xds

import (
	"context"
	"errors"
	"fmt"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// Ask sends one request for resources of a type over a separate connection, and returns istiod's answer. It is for
// the types that no proxy subscribes to, for example istio.io/debug/syncz. If istiod refuses, the error wraps a gRPC
// status.
func Ask(ctx context.Context, options Options, typeURL string, names ...string) (*discoveryv3.DiscoveryResponse, error) {
	c, err := connect(options)
	if err != nil {
		return nil, err
	}
	answer, err := c.ask(ctx, typeURL, names)
	if err != nil {
		err = fmt.Errorf("asking istiod for %s: %w", typeURL, err)
	}
	return answer, errors.Join(err, c.Close())
}

func (c *Client) ask(ctx context.Context, typeURL string, names []string) (*discoveryv3.DiscoveryResponse, error) {
	ads, err := discoveryv3.NewAggregatedDiscoveryServiceClient(c.conn).StreamAggregatedResources(ctx)
	if err != nil {
		return nil, err
	}
	// A failure to send has its reason in what Recv returns.
	_ = ads.Send(&discoveryv3.DiscoveryRequest{Node: c.node.Proto(), TypeUrl: typeURL, ResourceNames: names})
	return ads.Recv()
}
