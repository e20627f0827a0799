package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/hypergate/hypergate/test/world"
	"github.com/hypergate/hypergate/test/xds"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hypergate/hypergate/test/conformance"
)

const (
	// manyGateways is the number of clients that connect beside the pods of the four Gateways.
	manyGateways = 200
	// routesToMany is the number of HTTPRoutes that are created one after the other for them.
	routesToMany = 20
	// retryAfter is when a client connects again that istiod refused because of its limit of new streams per second.
	retryAfter = 500 * time.Millisecond
)

// manyGateways connects many clients, beside the pods of the four Gateways. All claim to be the real pod of one of
// them: istiod finds the listeners by the name and the address of a pod. Then it creates HTTPRoutes, one after the
// other. It measures when each is at all clients, and when the real pod serves it.
//
// With the split, the clients use the published address, as gateways do. An istiod in the guest is reached in its own
// pod: nothing is between the two.
func (m *meter) manyGateways(side conformance.Side) conformance.ManyGateways {
	m.Helper()
	options := m.clientOptions()
	if side == conformance.InGuest {
		istiod := m.istiodPod()
		options.ServerName = "istiod-" + world.Revision + "." + m.namespace + ".svc"
		options.Dial = func(ctx context.Context, _ string) (net.Conn, error) { return m.world.DialIn(ctx, istiod, istiodPort) }
	}
	clients := make([]*xds.Client, manyGateways)
	before, begin := m.process(), time.Now()
	var connecting errgroup.Group
	for i := range clients {
		connecting.Go(func() (err error) {
			clients[i], err = m.configured(options)
			return err
		})
	}
	must(m.T, connecting.Wait())
	out := conformance.ManyGateways{Gateways: manyGateways, Configured: time.Since(begin)}
	for i := range routesToMany {
		route := measuredRoute(fmt.Sprintf("to-many-%d", i))
		pushed, served := m.toAll(clients, route)
		out.Pushed, out.Served = append(out.Pushed, pushed), append(out.Served, served)
	}
	out.CPU = m.process().cpu - before.cpu
	for _, client := range clients {
		_ = client.Close()
	}
	return out
}

// toAll creates an HTTPRoute. It returns the time until all clients have it, and until the real gateway serves it.
func (m *meter) toAll(clients []*xds.Client, route *gatewayv1.HTTPRoute) (pushed, served time.Duration) {
	m.Helper()
	arrivals := make([]<-chan arrived, 0, len(clients))
	for _, client := range clients {
		arrivals = append(arrivals, m.arrival(client, string(route.Spec.Hostnames[0])))
	}
	begin := time.Now()
	must(m.T, m.client.Create(m.Context(), route))
	m.until(route, http.StatusOK)
	served = time.Since(begin)
	for _, arrival := range arrivals {
		got := <-arrival
		must(m.T, got.err)
		pushed = max(pushed, got.at.Sub(begin))
	}
	must(m.T, m.client.Delete(m.Context(), route))
	return pushed, served
}

// configured returns a client that has a configuration. istiod refuses new streams beyond a rate that follows from its
// CPUs; a client then connects again, as a gateway does.
func (m *meter) configured(options xds.Options) (*xds.Client, error) {
	ctx, cancel := context.WithTimeout(m.Context(), stepTimeout)
	defer cancel()
	for {
		client, err := xds.Dial(m.Context(), options)
		if err == nil {
			if _, err = client.WaitFor(ctx, hasClusters); err == nil {
				return client, nil
			}
			_ = client.Close()
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(retryAfter):
		}
	}
}

func hasClusters(c *xds.Config) error {
	if c == nil || len(c.Clusters) == 0 {
		return errors.New("there are no clusters")
	}
	return nil
}

// istiodPod returns the UID of istiod's only pod.
func (m *meter) istiodPod() types.UID {
	m.Helper()
	pods, err := m.istiod.CoreV1().Pods(m.namespace).List(m.Context(), metav1.ListOptions{LabelSelector: "app=istiod"})
	must(m.T, err)
	if len(pods.Items) != 1 {
		m.Fatalf("istiod has %d pods, want 1", len(pods.Items))
	}
	return pods.Items[0].UID
}
