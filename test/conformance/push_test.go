package conformance_test

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/hypergate/hypergate/test/xds"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/test/conformance"
)

// istiodPort is istiod's port for gateways.
const istiodPort = 15012

// pushes creates HTTPRoutes one after the other, and measures when each arrives at two clients that are connected all
// the time. Both claim to be the Gateway's pod. One uses the published address, as gateways do. The other connects in
// istiod's pod, so nothing is between the two.
func (m *meter) pushes() conformance.Pushes {
	m.Helper()
	istiod := m.istiodPod()
	options := m.clientOptions()
	published := m.connect(options)
	options.Dial = func(ctx context.Context, _ string) (net.Conn, error) {
		return m.world.DialIn(ctx, istiod, istiodPort)
	}
	direct := m.connect(options)
	var out conformance.Pushes
	for i := range measuredRoutes {
		route := measuredRoute(fmt.Sprintf("pushed-%d", i))
		host := string(route.Spec.Hostnames[0])
		atPublished, atDirect := m.arrival(published, host), m.arrival(direct, host)
		begin := time.Now()
		must(m.T, m.client.Create(m.Context(), route))
		for _, one := range []struct {
			arrival <-chan arrived
			times   *conformance.Durations
		}{{atPublished, &out.Published}, {atDirect, &out.Direct}} {
			got := <-one.arrival
			must(m.T, got.err)
			*one.times = append(*one.times, got.at.Sub(begin))
		}
		must(m.T, m.client.Delete(m.Context(), route))
	}
	return out
}

// arrived is when a client has received an HTTPRoute.
type arrived struct {
	at  time.Time
	err error
}

// arrival waits for a route with a host name at a client, in the background.
func (m *meter) arrival(client *xds.Client, host string) <-chan arrived {
	m.Helper()
	out, ctx := make(chan arrived, 1), step(m.T)
	go func() {
		_, err := client.WaitFor(ctx, func(c *xds.Config) error {
			_, err := c.Reach(80, host, "/")
			return err
		})
		out <- arrived{time.Now(), err}
	}()
	return out
}

// connect returns a client that lives as long as the test.
func (m *meter) connect(options xds.Options) *xds.Client {
	m.Helper()
	client, err := xds.Dial(m.Context(), options)
	must(m.T, err)
	m.Cleanup(func() { _ = client.Close() })
	return client
}

// clientOptions returns the options of a client that claims to be the Gateway's pod.
func (m *meter) clientOptions() xds.Options {
	m.Helper()
	ctx := step(m.T)
	pod, err := m.world.GatewayPod(ctx, infra, gateway)
	must(m.T, err)
	token, err := m.world.GuestToken(ctx, pod, "istio-ca")
	must(m.T, err)
	options, err := m.world.ProxyOptions(ctx, pod, token)
	must(m.T, err)
	root, err := m.world.GuestClient.CoreV1().ConfigMaps(infra).Get(ctx, m.rootsOf(pod), metav1.GetOptions{})
	must(m.T, err)
	options.RootCAs = []byte(root.Data["root-cert.pem"])
	return options
}

// rootsOf returns the name of the ConfigMap with istiod's roots, which a gateway mounts.
func (m *meter) rootsOf(pod *corev1.Pod) string {
	m.Helper()
	for _, volume := range pod.Spec.Volumes {
		if volume.Name == "istiod-ca-cert" && volume.ConfigMap != nil {
			return volume.ConfigMap.Name
		}
	}
	m.Fatalf("pod %s mounts no roots of istiod", pod.Name)
	return ""
}
