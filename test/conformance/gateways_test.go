package conformance_test

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/hypergate/hypergate/test/world"
	"github.com/hypergate/hypergate/test/xds"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/test/conformance"
)

const (
	// manyGateways is the number of clients that connect beside the pods of the four Gateways.
	manyGateways = 200
	// retryAfter is when a client connects again that istiod refused because of its limit of new streams per second.
	retryAfter = 500 * time.Millisecond
)

// manyGateways connects many clients that claim to be pods of the Gateway, beside its real pod and those of the three
// other Gateways. Then it creates an HTTPRoute, and measures when it is at all clients, and when the real pod serves
// it.
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
	route := measuredRoute("for-many-gateways")
	host := string(route.Spec.Hostnames[0])
	clients := make([]*xds.Client, manyGateways)
	before, begin := m.process(), time.Now()
	var connecting errgroup.Group
	for i := range clients {
		mine := options
		mine.Node.Pod, mine.Node.PodIP = fmt.Sprintf("%s-many-%d", mine.Node.Pod, i), fmt.Sprintf("192.0.2.%d", 1+i)
		connecting.Go(func() (err error) {
			clients[i], err = m.configured(mine)
			return err
		})
	}
	must(m.T, connecting.Wait())
	out := conformance.ManyGateways{Gateways: manyGateways, Configured: time.Since(begin)}
	arrivals := make([]<-chan arrived, 0, manyGateways)
	for _, client := range clients {
		arrivals = append(arrivals, m.arrival(client, host))
	}
	begin = time.Now()
	must(m.T, m.client.Create(m.Context(), route))
	m.until(route, 200)
	out.Served = time.Since(begin)
	for _, arrival := range arrivals {
		got := <-arrival
		must(m.T, got.err)
		out.Pushed = max(out.Pushed, got.at.Sub(begin))
	}
	out.CPU = m.process().cpu - before.cpu
	for _, client := range clients {
		_ = client.Close()
	}
	must(m.T, m.client.Delete(m.Context(), route))
	return out
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
		return fmt.Errorf("there are no clusters")
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
