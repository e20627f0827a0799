package e2e_test

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/world"
)

// TestTunnel runs the stories about the tunnel with real parts: relay pods on real nodes of the guest, the sidecar in
// istiod's pod, and konnectivity between the guest's API server and the relays. The gateways are real, and under load.
func TestTunnel(t *testing.T) {
	t.Parallel()
	fixture := alone(t, world.Options{Name: "e2e-tunnel", GuestNodes: 2})
	fixture.Expect(fixture.AddControlPlane(fixture.step())).To(gomega.Succeed())
	fixture.settings = world.ByTunnel()
	fixture.runAll(fixture.trafficGateway(), tunnelStories())
}

// tunnelStories returns the stories about the tunnel, in their order.
func tunnelStories() []trafficStory {
	return []trafficStory{
		{"requests go through a gateway whose istiod is behind the tunnel", throughTheTunnel},
		{"gateways and istiod obey the TLS profile, and no request fails", tlsProfile},
		{"only gateways reach the relays, and only the sidecar reaches istiod", tunnelIsFenced},
		{"a relay is killed, and no request fails", relayKilled},
		{"a relay loses its network, and no request fails", relayCutOff},
		{"the sidecar is killed, and no request fails", sidecarKilled},
		{"the guest's API server is killed, and no request fails", guestAPIKilled},
		{"the guest's only API server is replaced, and no request fails", guestAPIReplaced},
		{"three API servers of the guest are replaced, and no request fails", guestAPIRolls},
		{"konnectivity's server is killed, and no request fails", konnectivityServerKilled},
		{"konnectivity's agents are killed, and no request fails", konnectivityAgentsKilled},
		{"the sidecar's RoleBinding is deleted, and no request fails", roleBindingTaken},
		{"the sidecar's Role is deleted, and no request fails", roleTaken},
		{"the sidecar's account is replaced, and no request fails", sidecarAccountReplaced},
		{"tunnels are replaced at their age, and no request fails", tunnelsAreReplaced},
		{"both tunnels carry nothing any more, and no request fails", halfOpen},
		{"istiod is replaced behind the tunnel, and no request fails", istiodRollsBehindTheTunnel},
		{"two istiods are replaced behind the tunnel, and no request fails", twoIstiodsBehindTheTunnel},
		{"one of two istiods hangs behind the tunnel, and no request fails", hungIstiodBehindTheTunnel},
		{"the mesh CA is rotated behind the tunnel, and no request fails", rotationBehindTheTunnel},
		{"a node with a relay is drained, and no request fails", relayNodeDrained},
		{"istiod leaves the tunnel and returns, and no request fails", strategySwitched},
		{"istiod moves to a load balancer and back to the tunnel, and no request fails", loadBalancerAndBack},
	}
}

const (
	tunnelProgram    = "hypergate-tunnel"
	tunnelContainer  = "tunnel"
	relayTunnels     = "hypergate_relay_tunnels"
	relayTunnelsEver = "hypergate_relay_tunnels_total"
	relayGateways    = "hypergate_relay_gateways"
)

// metrics are values by the name of the metric with its labels.
type metrics map[string]float64

// sum returns the sum of all values of a metric, over its labels.
func (m metrics) sum(name string) (total float64) {
	for key, value := range m {
		if key == name || strings.HasPrefix(key, name+"{") {
			total += value
		}
	}
	return total
}

// reconnects returns how often the sidecar had to dial again for a reason. Without one, it counts all reasons.
func (m metrics) reconnects(reason string) float64 {
	const name = "hypergate_tunnel_reconnects_total"
	if reason == "" {
		return m.sum(name)
	}
	return m[name+`{reason="`+reason+`"}`]
}

// metricsOf returns what an end of the tunnel shows.
func (t *fixture) metricsOf(pod *corev1.Pod) (metrics, error) {
	text, err := t.GetIn(t.ctx, pod.UID, model.TunnelHealthPort, "/metrics")
	if err != nil {
		return nil, err
	}
	out := metrics{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(name, "#") {
			continue
		}
		if out[name], err = strconv.ParseFloat(value, 64); err != nil {
			return nil, fmt.Errorf("reading the metric %q: %w", line, err)
		}
	}
	return out, nil
}

// sidecar returns what the sidecar shows.
func (t *fixture) sidecar() (metrics, error) {
	pods, err := t.MgmtClient.CoreV1().Pods(t.MgmtNamespace).List(t.ctx, metav1.ListOptions{LabelSelector: "app=istiod"})
	if err != nil {
		return nil, err
	}
	if len(pods.Items) != 1 {
		return nil, fmt.Errorf("%d pods of istiod", len(pods.Items))
	}
	return t.metricsOf(&pods.Items[0])
}

// relayPods returns the pods of the relays.
func (t *fixture) relayPods() ([]corev1.Pod, error) {
	pods, err := t.GuestClient.CoreV1().Pods(world.GuestNamespace).List(t.ctx, metav1.ListOptions{LabelSelector: "app=" + model.RelayName})
	if err != nil {
		return nil, err
	}
	if len(pods.Items) != model.RelayReplicas {
		return nil, fmt.Errorf("%d pods of the relays", len(pods.Items))
	}
	return pods.Items, nil
}

// relays returns the pods of the relays, and what they show.
func (t *fixture) relays() (pods []corev1.Pod, shown []metrics, err error) {
	if pods, err = t.relayPods(); err != nil {
		return nil, nil, err
	}
	for i := range pods {
		m, err := t.metricsOf(&pods[i])
		if err != nil {
			return nil, nil, err
		}
		shown = append(shown, m)
	}
	return pods, shown, nil
}

// mustRelays returns the relays of a tunnel that works.
func (t *fixture) mustRelays() ([]corev1.Pod, []metrics) {
	t.Helper()
	pods, shown, err := t.relays()
	t.Expect(err).NotTo(gomega.HaveOccurred())
	return pods, shown
}

// tunnelUp waits until both relays have a tunnel and are ready, and gateways have connections through them.
func (t *fixture) tunnelUp() {
	t.Helper()
	t.Eventually(func(g gomega.Gomega) {
		sidecar, err := t.sidecar()
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(sidecar.sum("hypergate_tunnel_up")).To(gomega.BeEquivalentTo(model.RelayReplicas))
		g.Expect(sidecar["hypergate_tunnel_streams"]).To(gomega.BeNumerically(">=", 1))
		pods, shown, err := t.relays()
		g.Expect(err).NotTo(gomega.HaveOccurred())
		held := 0.0
		for i := range pods {
			g.Expect(servesRequests(&pods[i])).To(gomega.BeTrue(), pods[i].Name)
			g.Expect(shown[i][relayTunnels]).To(gomega.BeNumerically(">=", 1), pods[i].Name)
			held += shown[i][relayGateways]
		}
		g.Expect(held).To(gomega.BeNumerically(">=", 1))
	}).Should(gomega.Succeed())
}

// relayNodeDrained drains a node that has a relay. Once the node gets pods again, both relays have a tunnel.
func relayNodeDrained(t *fixture, edge *edgeOfTheGuest) {
	restore := t.drainGatewaysNode(edge)
	t.reconfigured(edge)
	restore()
	t.tunnelUp()
}

// reconfigured adds a route, and waits until the gateway serves it. Only istiod can bring it to the gateway.
func (t *fixture) reconfigured(edge *edgeOfTheGuest) {
	t.Helper()
	t.reconfiguredAt(world.GuestNamespace, trafficGateway, edge)
}

// reconfiguredAt is reconfigured for another gateway. The address is that of at.
func (t *fixture) reconfiguredAt(namespace, gateway string, at *edgeOfTheGuest) {
	t.Helper()
	name, host := t.newRouteAt(namespace, gateway)
	t.Eventually(at.status).WithArguments(t.ctx, host).Should(gomega.Equal(http.StatusOK))
	t.Expect(t.Gateways.HTTPRoutes(backends).Delete(t.ctx, name, metav1.DeleteOptions{})).To(gomega.Succeed())
}

// newRoute adds a route to the backends, with a host of its own.
func (t *fixture) newRoute() (name, host string) {
	t.Helper()
	return t.newRouteAt(world.GuestNamespace, trafficGateway)
}

func (t *fixture) newRouteAt(namespace, gateway string) (name, host string) {
	t.Helper()
	name = strings.ToLower(rand.Text())
	host = name + ".guest1.example.com"
	t.Eventually(func() error {
		_, err := t.Gateways.HTTPRoutes(backends).Create(t.ctx, &gatewayv1.HTTPRoute{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: gatewayv1.HTTPRouteSpec{
				CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{
					Name: gatewayv1.ObjectName(gateway), Namespace: new(gatewayv1.Namespace(namespace)),
				}}},
				Hostnames: []gatewayv1.Hostname{gatewayv1.Hostname(host)},
				Rules: []gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{
					BackendObjectReference: gatewayv1.BackendObjectReference{Name: "backend", Port: new(gatewayv1.PortNumber(8080))},
				}}}}},
			},
		}, metav1.CreateOptions{})
		return err
	}).Should(gomega.Succeed())
	return name, host
}

// throughFault causes a fault of the tunnel under load. cause returns the moment in which both ends of the tunnels
// answer again. After it, both tunnels are up again, and new configuration reaches the gateway. The times are logged
// and not limited: they depend on the machine. The tests of pkg/tunnel limit the pauses that lead to them.
func (t *fixture) throughFault(edge *edgeOfTheGuest, cause func() time.Time) {
	t.Helper()
	t.start()
	t.tunnelUp()
	t.reconfigured(edge) // istiod's watches of the guest are back after the story before
	t.undisturbed(edge, func() {
		over := cause()
		t.tunnelUp()
		t.Logf("tunnels and streams are back %s after both ends answer", time.Since(over).Round(10*time.Millisecond))
		t.reconfigured(edge)
		t.Logf("new configuration has reached the gateway after %s", time.Since(over).Round(10*time.Millisecond))
	})
}

// restartsOf returns how often the containers of a pod have restarted, by name.
func restartsOf(pod *corev1.Pod) map[string]int32 {
	out := map[string]int32{}
	for _, c := range pod.Status.ContainerStatuses {
		out[c.Name] = c.RestartCount
	}
	return out
}

// eachGotATunnel waits until each relay was given a new tunnel since.
func (t *fixture) eachGotATunnel(before []metrics) {
	t.Helper()
	t.Eventually(func(g gomega.Gomega) {
		_, shown, err := t.relays()
		g.Expect(err).NotTo(gomega.HaveOccurred())
		for i := range shown {
			g.Expect(shown[i][relayTunnelsEver]).To(gomega.BeNumerically(">", before[i][relayTunnelsEver]))
		}
	}).Should(gomega.Succeed())
}
