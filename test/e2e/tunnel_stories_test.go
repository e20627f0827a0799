package e2e_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/test/cluster"
	"github.com/hypergate/hypergate/test/cluster/guestnode"
	"github.com/hypergate/hypergate/test/traffic"
	"github.com/hypergate/hypergate/test/world"
)

func throughTheTunnel(t *fixture, edge *edgeOfTheGuest) {
	t.installed()
	t.tunnelUp()
	t.Log("gateways have the address of the relays' Service")
	d, err := t.GuestClient.AppsV1().Deployments(world.GuestNamespace).Get(t.ctx, trafficGateway+"-"+class, metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(envOf(d)["CA_ADDR"]).To(gomega.Equal(relayAddress()))
	t.Log("the HostedControlPlane says how istiod is published")
	t.Eventually(t.availableText).Should(gomega.ContainSubstring("published by tunnel: 2 relays"))

	load := edge.load(t)
	t.reconfigured(edge)
	t.more(load, 500)
	t.judge(load, 1000)

	t.Log("both ends count what they carry")
	sidecar, err := t.sidecar()
	t.Expect(err).NotTo(gomega.HaveOccurred())
	_, shown := t.mustRelays()
	for _, name := range []string{"hypergate_tunnel_streams_total", "hypergate_tunnel_bytes_total", "hypergate_tunnel_round_trip_seconds"} {
		t.Expect(sidecar.sum(name)).To(gomega.BeNumerically(">", 0), name)
	}
	t.Expect(shown[0].sum("hypergate_relay_bytes_total") + shown[1].sum("hypergate_relay_bytes_total")).To(gomega.BeNumerically(">", 0))
	t.Logf("round trip of a keepalive: %.2f ms and %.2f ms", 1000*sidecar[`hypergate_tunnel_round_trip_seconds{relay="istiod-relay-0"}`],
		1000*sidecar[`hypergate_tunnel_round_trip_seconds{relay="istiod-relay-1"}`])
	t.Log("hypergate proxies shows the gateway, through the tunnel")
	out, err := t.proxies()
	t.Expect(err).NotTo(gomega.HaveOccurred(), out)
	t.Expect(out).To(gomega.MatchRegexp(`"name": "` + t.gatewayPod().Name + `\.` + world.GuestNamespace + `"`))
	t.Log("the relays are on different nodes")
	pods, err := t.relayPods()
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(pods[0].Spec.NodeName).NotTo(gomega.Equal(pods[1].Spec.NodeName))
}

// relayAddress returns the address of xDS that gateways have with the tunnel.
func relayAddress() string {
	return net.JoinHostPort(model.RelayName+"."+world.GuestNamespace+".svc", strconv.Itoa(model.GatewaysPort))
}

// availableText returns status, reason and message of the HostedControlPlane's condition Available.
func (t *fixture) availableText() (string, error) { return t.planeText(status.ControlPlaneAvailable) }

// planeText returns status, reason and message of a condition of the HostedControlPlane.
func (t *fixture) planeText(kind string) (string, error) {
	plane, err := t.controlPlanes().Get(t.ctx, t.GuestName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	state, _ := plane.Object["status"].(map[string]any)
	conditions, _ := state["conditions"].([]any)
	for _, c := range conditions {
		if condition, _ := c.(map[string]any); condition["type"] == kind {
			return fmt.Sprintf("%s %s: %s", condition["status"], condition["reason"], condition["message"]), nil
		}
	}
	return "", fmt.Errorf("the HostedControlPlane has no condition %s", kind)
}

// proxies runs the command proxies as an admin of both clusters.
func (t *fixture) proxies() (string, error) {
	t.Helper()
	files := map[string]string{}
	for name, config := range map[string]*rest.Config{"mgmt": t.Mgmt, "guest": t.GuestConfig} {
		files[name] = filepath.Join(t.TempDir(), name+".kubeconfig")
		t.Expect(clientcmd.WriteToFile(clientcmdapi.Config{
			Clusters: map[string]*clientcmdapi.Cluster{name: {Server: config.Host, CertificateAuthorityData: config.CAData}},
			AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {
				ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken,
			}},
			Contexts: map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}}, CurrentContext: name,
		}, files[name])).To(gomega.Succeed())
	}
	out, err := exec.CommandContext(t.step(), t.Binary(), "proxies", "-o=json", "--kubeconfig="+files["mgmt"],
		"--namespace="+t.MgmtNamespace, "--guest-kubeconfig="+files["guest"], "--guest-namespace="+world.GuestNamespace).CombinedOutput()
	return string(out), err
}

// outcome returns what happens to a connection from a pod.
func (t *fixture) outcome(from *corev1.Pod, address string) string {
	err := t.ConnectFrom(t.ctx, from.UID, address)
	switch {
	case err == nil:
		return "open"
	case errors.Is(err, cluster.ErrForbidden):
		return "forbidden"
	}
	return err.Error()
}

func tunnelIsFenced(t *fixture, _ *edgeOfTheGuest) {
	t.installed()
	t.tunnelUp()
	istiod, gateway, backend := t.istiodPod(), t.gatewayPod(), t.podsOf(backends, "app=backend")[0]
	relays, _ := t.mustRelays()
	t.Log("istiod's policy admits no client of xDS, neither in its own namespace nor from the guest")
	for who, from := range map[string]*corev1.Pod{
		"kube-apiserver": t.podOf("app=kube-apiserver"), "another pod of the namespace": t.podOf("app=kube-controller-manager"),
		"a gateway": gateway, "a relay": &relays[0],
	} {
		for _, port := range []string{"15010", "15012", "15444"} {
			t.Expect(t.outcome(from, net.JoinHostPort(istiod.Status.PodIP, port))).To(gomega.Equal("forbidden"), "from %s to %s", who, port)
		}
	}
	_, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(t.ctx, "tcp", net.JoinHostPort(istiod.Status.PodIP, "15012"))
	t.Expect(err).To(gomega.HaveOccurred(), "from this machine")

	t.Log("a relay admits gateways, and on the port for tunnels all pods, which must prove who they are")
	for i := range relays {
		for port, want := range map[string][2]string{ // of a gateway, of another pod
			"15012": {"open", "forbidden"}, "15443": {"open", "open"}, "15444": {"forbidden", "forbidden"},
		} {
			address := net.JoinHostPort(relays[i].Status.PodIP, port)
			t.Expect(t.outcome(gateway, address)).To(gomega.Equal(want[0]), "from a gateway to %s of %s", port, relays[i].Name)
			t.Expect(t.outcome(&backend, address)).To(gomega.Equal(want[1]), "from a backend to %s of %s", port, relays[i].Name)
		}
	}
	t.Log("a relay connects to nothing")
	kubernetesService, err := t.GuestClient.CoreV1().Services(metav1.NamespaceDefault).Get(t.ctx, "kubernetes", metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	for _, address := range []string{
		net.JoinHostPort(kubernetesService.Spec.ClusterIP, "443"), net.JoinHostPort(backend.Status.PodIP, "8080"),
	} {
		t.Expect(t.outcome(gateway, address)).To(gomega.Equal("open"), "the address is right: "+address)
		t.Expect(t.outcome(&relays[0], address)).To(gomega.Equal("forbidden"), "from a relay to "+address)
	}
}

// relayKilled kills the relay with the most connections of gateways. The tunnel of the other one stays.
func relayKilled(t *fixture, edge *edgeOfTheGuest) {
	t.start()
	t.tunnelUp()
	pods, before := t.mustRelays()
	busy := 0
	if before[1][relayGateways] > before[0][relayGateways] {
		busy = 1
	}
	t.throughFault(edge, func() time.Time { return t.killRelay(&pods[busy]) })
	_, after := t.mustRelays()
	t.Expect(after[1-busy][relayTunnelsEver]).To(gomega.Equal(before[1-busy][relayTunnelsEver]), "the tunnel of the other relay stays")
}

// killRelay kills a relay, and waits until the sidecar has noticed and the kubelet has restarted it. It returns that
// moment.
func (t *fixture) killRelay(relay *corev1.Pod) time.Time {
	t.Helper()
	sidecar, err := t.sidecar()
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(t.KillIn(t.step(), relay.UID, tunnelProgram)).To(gomega.Succeed())
	t.Eventually(func() (float64, error) {
		now, err := t.sidecar()
		return now.reconnects("ended"), err
	}).Should(gomega.BeNumerically(">", sidecar.reconnects("ended")))
	t.Eventually(func() (map[string]int32, error) {
		now, err := t.GuestClient.CoreV1().Pods(relay.Namespace).Get(t.ctx, relay.Name, metav1.GetOptions{})
		return restartsOf(now), err
	}).ShouldNot(gomega.Equal(restartsOf(relay)))
	return time.Now()
}

// relayCutOff cuts the relay with the most connections of gateways off, as if its node had lost the network. Neither
// the sidecar nor a gateway is notified. The gateway connects through the other relay.
func relayCutOff(t *fixture, edge *edgeOfTheGuest) {
	t.start()
	t.tunnelUp()
	pods, before := t.mustRelays()
	busy := 0
	if before[1][relayGateways] > before[0][relayGateways] {
		busy = 1
	}
	t.throughFault(edge, func() time.Time {
		var restore func(context.Context) error
		back := t.outage(func(ctx context.Context) (err error) {
			restore, err = t.CutOff(ctx, pods[busy].UID)
			return err
		}, func(ctx context.Context) error {
			if restore == nil {
				return nil
			}
			return restore(ctx)
		})
		begin := time.Now()
		up := fmt.Sprintf("hypergate_tunnel_up{relay=%q}", pods[busy].Name)
		t.Eventually(func() (float64, error) {
			now, err := t.sidecar()
			return now[up], err
		}).Should(gomega.BeZero())
		t.Logf("the sidecar noticed after %s", time.Since(begin).Round(10*time.Millisecond))
		t.reconfigured(edge)
		t.Logf("new configuration reached the gateway through the other relay after %s", time.Since(begin).Round(10*time.Millisecond))
		back()
		return time.Now()
	})
	_, after := t.mustRelays()
	t.Expect(after[1-busy][relayTunnelsEver]).To(gomega.Equal(before[1-busy][relayTunnelsEver]), "the tunnel of the other relay stays")
}

func sidecarKilled(t *fixture, edge *edgeOfTheGuest) {
	var killed time.Time
	t.throughFault(edge, func() time.Time {
		_, before := t.mustRelays()
		istiod := t.istiodPod()
		killed = time.Now()
		t.Expect(t.KillIn(t.step(), istiod.UID, tunnelProgram)).To(gomega.Succeed())
		t.Eventually(func() map[string]int32 { return restartsOf(t.istiodPod()) }).Should(gomega.Equal(map[string]int32{
			"discovery": restartsOf(istiod)["discovery"], tunnelContainer: restartsOf(istiod)[tunnelContainer] + 1,
		}), "istiod does not restart")
		answers := time.Now()
		t.eachGotATunnel(before)
		return answers
	})
	t.logUnready(killed)
}

// logUnready waits until istiod's pod is ready, and logs for how long it was not, in whole seconds, as its status says.
func (t *fixture) logUnready(since time.Time) {
	t.Helper()
	var ready corev1.PodCondition
	t.Eventually(func() corev1.ConditionStatus {
		conditions := t.istiodPod().Status.Conditions
		ready = conditions[slices.IndexFunc(conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })]
		return ready.Status
	}).Should(gomega.Equal(corev1.ConditionTrue))
	lasted := max(ready.LastTransitionTime.Sub(since.Truncate(time.Second)), 0)
	t.Logf("istiod's pod was not ready for %s, while its sidecar started again", lasted)
}

// killInAPIServerPod kills a program in the pod of the guest's API server, and waits until both relays got a new
// tunnel. The kubelet restarts the container. It returns the moment in which the API server reached pods again.
func (t *fixture) killInAPIServerPod(program string) time.Time {
	t.Helper()
	_, before := t.mustRelays()
	t.Expect(t.KillIn(t.step(), t.podOf("app=kube-apiserver").UID, program)).To(gomega.Succeed())
	t.reachesPods()
	reaches := time.Now()
	t.eachGotATunnel(before)
	return reaches
}

// reachesPods waits until the guest's API server is ready and reaches a kubelet through konnectivity.
func (t *fixture) reachesPods() {
	t.Helper()
	t.Eventually(func(g gomega.Gomega) {
		_, err := t.GuestClient.CoreV1().RESTClient().Get().AbsPath("/readyz").DoRaw(t.ctx)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		pods, err := t.relayPods()
		g.Expect(err).NotTo(gomega.HaveOccurred())
		_, err = t.GuestClient.CoreV1().Pods(world.GuestNamespace).GetLogs(pods[0].Name, &corev1.PodLogOptions{}).DoRaw(t.ctx)
		g.Expect(err).NotTo(gomega.HaveOccurred())
	}).Should(gomega.Succeed())
}

func guestAPIKilled(t *fixture, edge *edgeOfTheGuest) {
	t.throughFault(edge, func() time.Time { return t.killInAPIServerPod("kube-apiserver") })
}

// guestAPIRolls gives the guest three API servers, each with a konnectivity server of its own, as HyperShift does for a
// highly available control plane, and replaces one after the other.
func guestAPIRolls(t *fixture, edge *edgeOfTheGuest) {
	one := t.guestAPIServers().Spec
	t.rollGuestAPI(func(s *appsv1.DeploymentSpec) {
		s.Replicas = new(int32(3))
		s.Strategy.Type = appsv1.RollingUpdateDeploymentStrategyType
		s.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{
			MaxSurge: new(intstr.FromInt32(1)), MaxUnavailable: new(intstr.FromInt32(0)),
		}
		for i := range s.Template.Spec.Containers {
			for j, argument := range s.Template.Spec.Containers[i].Command {
				s.Template.Spec.Containers[i].Command[j] = strings.Replace(argument, "--server-count=1", "--server-count=3", 1)
			}
		}
	})
	defer t.rollGuestAPI(func(s *appsv1.DeploymentSpec) { *s = one })
	t.throughFault(edge, t.replacedGuestAPI)
}

// guestAPIReplaced replaces the only API server of the guest, as a new release does.
func guestAPIReplaced(t *fixture, edge *edgeOfTheGuest) { t.throughFault(edge, t.replacedGuestAPI) }

// replacedGuestAPI replaces all API servers of the guest, and waits until both relays got a new tunnel. It returns the
// moment in which the API server reached pods again.
func (t *fixture) replacedGuestAPI() time.Time {
	_, before := t.mustRelays()
	t.rollGuestAPI(func(s *appsv1.DeploymentSpec) {
		s.Template.Annotations = map[string]string{"example.com/rolled": time.Now().Format(time.RFC3339Nano)}
	})
	reaches := time.Now()
	t.eachGotATunnel(before)
	return reaches
}

// guestAPIServers returns the Deployment of the guest's API servers.
func (t *fixture) guestAPIServers() *appsv1.Deployment {
	t.Helper()
	d, err := t.MgmtClient.AppsV1().Deployments(t.MgmtNamespace).Get(t.ctx, "kube-apiserver", metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	return d
}

// rollGuestAPI changes the Deployment of the guest's API servers, and waits for its pods.
func (t *fixture) rollGuestAPI(change func(*appsv1.DeploymentSpec)) {
	t.Helper()
	t.Eventually(func() error {
		d := t.guestAPIServers()
		change(&d.Spec)
		_, err := t.MgmtClient.AppsV1().Deployments(t.MgmtNamespace).Update(t.ctx, d, metav1.UpdateOptions{})
		return err
	}).Should(gomega.Succeed())
	t.Eventually(func() int {
		d := t.guestAPIServers()
		if d.Status.ObservedGeneration < d.Generation || d.Status.Replicas > d.Status.UpdatedReplicas {
			return -1
		}
		return int(*d.Spec.Replicas - d.Status.AvailableReplicas)
	}).Should(gomega.BeZero())
	t.reachesPods()
}

func konnectivityServerKilled(t *fixture, edge *edgeOfTheGuest) {
	t.throughFault(edge, func() time.Time { return t.killInAPIServerPod("proxy-server") })
}

// konnectivityAgentsKilled kills the agents on all nodes. istiod reaches the guest's API server, and sees a new route
// meanwhile. Nothing brings it to the gateway before the agents are back.
func konnectivityAgentsKilled(t *fixture, edge *edgeOfTheGuest) {
	t.throughFault(edge, func() time.Time {
		back := t.withoutKonnectivity()
		t.Eventually(func() (float64, error) {
			now, err := t.sidecar()
			return now.sum("hypergate_tunnel_up"), err
		}).Should(gomega.BeZero())
		name, host := t.newRoute()
		t.Expect(t.RouteAccepted(t.step(), backends, name)).To(gomega.Succeed())
		t.Expect(edge.status(t.ctx, host)).To(gomega.Equal(http.StatusNotFound))
		_, before := t.mustRelays()
		back()
		t.reachesPods()
		reaches := time.Now()
		t.eachGotATunnel(before)
		t.Eventually(edge.status).WithArguments(t.ctx, host).Should(gomega.Equal(http.StatusOK))
		return reaches
	})
}

// roleBindingTaken takes the binding of the sidecar's Role, and roleTaken the Role.
func roleBindingTaken(t *fixture, edge *edgeOfTheGuest) { permissionTaken(t, edge, "rolebindings") }
func roleTaken(t *fixture, edge *edgeOfTheGuest)        { permissionTaken(t, edge, "roles") }

// permissionTaken deletes an object of the sidecar's permission while hypergate does not run. Open tunnels stay. A
// relay that restarts gets none, until hypergate creates the object again.
func permissionTaken(t *fixture, edge *edgeOfTheGuest, resource string) {
	do := func(request *rest.Request) error {
		return request.Namespace(world.GuestNamespace).Resource(resource).Name(model.TunnelAccountName).Do(t.ctx).Error()
	}
	rbac := t.GuestClient.RbacV1().RESTClient()
	t.throughFault(edge, func() time.Time {
		t.start().Terminate()
		pods, before := t.mustRelays()
		t.Expect(do(rbac.Delete())).To(gomega.Succeed())
		t.killRelay(&pods[0])
		t.Eventually(func() (float64, error) {
			now, err := t.sidecar()
			return now.reconnects("forbidden"), err
		}).Should(gomega.BeNumerically(">", 3))
		_, now := t.mustRelays()
		t.Expect(now[1][relayTunnelsEver]).To(gomega.Equal(before[1][relayTunnelsEver]), "the open tunnel stays")
		t.Expect(now[1][relayTunnels]).To(gomega.BeEquivalentTo(1))
		t.reconfigured(edge)
		h := t.start()
		t.Expect(h.Ready(t.step(), "readyz")).To(gomega.Succeed())
		t.Eventually(func() error { return do(rbac.Get()) }).Should(gomega.Succeed())
		return time.Now()
	})
}

// sidecarAccountReplaced deletes the sidecar's account in the guest, which ends its token. hypergate makes another one
// with another token. Open tunnels stay, and the next one uses the new token.
func sidecarAccountReplaced(t *fixture, edge *edgeOfTheGuest) {
	t.throughFault(edge, func() time.Time {
		pods, before := t.mustRelays()
		istiod := t.istiodPod().UID
		mounted := func() (string, error) { return t.fileIn(istiod, "/var/run/secrets/guest/token") }
		old, err := mounted()
		t.Expect(err).NotTo(gomega.HaveOccurred())
		accounts := t.GuestClient.CoreV1().ServiceAccounts(world.GuestNamespace)
		t.Expect(accounts.Delete(t.ctx, model.TunnelAccountName, metav1.DeleteOptions{})).To(gomega.Succeed())
		t.Eventually(mounted).ShouldNot(gomega.Equal(old))
		t.Eventually(func() bool { return t.authenticated(old) }).Should(gomega.BeFalse()) // the API server caches the answer
		_, now := t.mustRelays()
		for i := range now {
			t.Expect(now[i][relayTunnelsEver]).To(gomega.Equal(before[i][relayTunnelsEver]), "the open tunnels stay")
		}
		return t.killRelay(&pods[0])
	})
}

// halfOpen drops the packets of both open tunnels between the sidecar and the API server. No end is notified.
func halfOpen(t *fixture, edge *edgeOfTheGuest) {
	t.throughFault(edge, func() time.Time {
		_, before := t.mustRelays()
		restore, err := t.DropConnections(t.step(), t.istiodPod().UID, tunnelProgram, 6443, model.RelayReplicas)
		t.Expect(err).NotTo(gomega.HaveOccurred())
		t.Cleanup(func() { t.Expect(restore(t.ctx)).To(gomega.Succeed()) })
		begin := time.Now()
		t.eachGotATunnel(before)
		t.Logf("each relay has a new tunnel after %s", time.Since(begin).Round(10*time.Millisecond))
		return time.Now()
	})
}

func istiodRollsBehindTheTunnel(t *fixture, edge *edgeOfTheGuest) {
	t.start()
	istiodRolls(t, edge)
	t.tunnelUp()
}

// twoIstiodsBehindTheTunnel runs two istiods, and replaces both. Each relay then has a tunnel to each istiod.
func twoIstiodsBehindTheTunnel(t *fixture, edge *edgeOfTheGuest) {
	t.start()
	t.tunnelUp()
	defer t.twoByHand()()
	t.eachRelayHolds(2)
	t.undisturbed(edge, func() {
		t.restartBoth()
		t.eachRelayHolds(2)
		t.reconfigured(edge)
	})
}

// hungIstiodBehindTheTunnel stops the process of one of two istiods, whose kernel still accepts connections. Its
// sidecar's tunnels accept no more streams, and gateways whose connection is silent make a new one. So the other istiod
// configures all gateways, also a new one.
func hungIstiodBehindTheTunnel(t *fixture, edge *edgeOfTheGuest) {
	const fresh = "fresh"
	t.start()
	t.tunnelUp()
	defer t.twoByHand()()
	t.eachRelayHolds(2)
	t.undisturbed(edge, func() {
		hung, err := t.ProcessIn(t.istiodPod().UID, "pilot-discovery")
		t.Expect(err).NotTo(gomega.HaveOccurred())
		t.Expect(syscall.Kill(hung, syscall.SIGSTOP)).To(gomega.Succeed())
		goOn := func() { _ = syscall.Kill(hung, syscall.SIGCONT) }
		t.Cleanup(goOn)
		begin := time.Now()
		t.smallGateway(fresh, "24h")
		t.Logf("a new Gateway is programmed, and has its pod, after %s", time.Since(begin).Round(100*time.Millisecond))
		t.reconfigured(edge)
		t.Logf("a new route is served after %s", time.Since(begin).Round(100*time.Millisecond))
		goOn()
		t.eachRelayHolds(2)
		t.deleteSmallGateway(fresh)
	})
}

// eachRelayHolds waits until each relay has that number of tunnels.
func (t *fixture) eachRelayHolds(tunnels int) {
	t.Helper()
	t.Eventually(func(g gomega.Gomega) {
		pods, shown, err := t.relays()
		g.Expect(err).NotTo(gomega.HaveOccurred())
		for i := range pods {
			g.Expect(shown[i][relayTunnels]).To(gomega.BeEquivalentTo(tunnels), pods[i].Name)
		}
	}).Should(gomega.Succeed())
}

// rotationBehindTheTunnel rotates the mesh CA, and then kills both relays. Their next tunnels verify the sidecar with
// the new root.
func rotationBehindTheTunnel(t *fixture, edge *edgeOfTheGuest) {
	servesDuringRotation(t, edge)
	root := t.caFiles()["root-cert.pem"]
	pods, _ := t.mustRelays()
	t.Log("the relays have only the new root, and the sidecar has a certificate of the new CA")
	for i := range pods {
		t.Eventually(t.fileIn).WithArguments(pods[i].UID, "/var/run/secrets/istio/root-cert.pem").Should(gomega.Equal(root))
	}
	roots := x509.NewCertPool()
	t.Expect(roots.AppendCertsFromPEM([]byte(root))).To(gomega.BeTrue())
	t.Eventually(func() error {
		text, err := t.fileIn(t.istiodPod().UID, "/var/run/secrets/tunnel/tls.crt")
		if err != nil {
			return err
		}
		block, _ := pem.Decode([]byte(text))
		if block == nil {
			return errors.New("the file has no certificate")
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return err
		}
		others := x509.NewCertPool() // of the intermediate CA, which the file has, too
		others.AppendCertsFromPEM([]byte(text))
		_, err = certificate.Verify(x509.VerifyOptions{
			Roots: roots, Intermediates: others, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
		})
		return err
	}).Should(gomega.Succeed())
	t.throughFault(edge, func() time.Time {
		t.killRelay(&pods[0])
		return t.killRelay(&pods[1])
	})
}

// fileIn returns a file as the program of the tunnel sees it in a pod.
func (t *fixture) fileIn(pod types.UID, path string) (string, error) {
	pid, err := t.ProcessIn(pod, tunnelProgram)
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/root%s", pid, path))
	return string(data), err
}

// tunnelsAreReplaced lets the sidecar replace its tunnels every five seconds. Two must be replaced at each relay.
func tunnelsAreReplaced(t *fixture, edge *edgeOfTheGuest) {
	t.start()
	t.tunnelUp()
	defer t.byHand(`{"spec":{"template":{"spec":{"containers":[{"name":"`+tunnelContainer+`","args":`+
		t.sidecarArgs("--max-age=5s")+`}]}}}}`, 1)()
	t.undisturbed(edge, func() {
		for range 2 {
			_, before := t.mustRelays()
			t.eachGotATunnel(before)
		}
	})
}

// sidecarArgs returns the arguments of the sidecar and more, as JSON.
func (t *fixture) sidecarArgs(more ...string) string {
	t.Helper()
	for _, container := range t.istiodPod().Spec.Containers {
		if container.Name == tunnelContainer {
			text, err := json.Marshal(slices.Concat(container.Args, more))
			t.Expect(err).NotTo(gomega.HaveOccurred())
			return string(text)
		}
	}
	t.Fatal("istiod's pod has no sidecar")
	return ""
}

// strategySwitched publishes istiod at the router, and by the tunnel again. The Gateways roll one by one.
func strategySwitched(t *fixture, edge *edgeOfTheGuest) {
	const second = "second"
	t.start()
	t.tunnelUp()
	t.Expect(t.Apply(t.step(), "gateway.yaml", map[string]string{"name": second, "namespace": world.GuestNamespace, "class": class})).
		To(gomega.Succeed())
	t.Expect(t.Programmed(t.step(), world.GuestNamespace, second)).To(gomega.Succeed())
	t.available(world.GuestNamespace, second+"-"+class)
	both := []string{trafficGateway, second}

	t.settings = nil
	t.switched(edge, edge.shortStreams(), t.XDS().String(), both)
	t.noRelayStays()

	t.settings = world.ByTunnel()
	t.switched(edge, edge.shortStreams(), relayAddress(), both)
	t.tunnelUp()
	t.Expect(t.Gateways.Gateways(world.GuestNamespace).Delete(t.ctx, second, metav1.DeleteOptions{})).To(gomega.Succeed())
}

// noRelayStays waits until the guest has no relay.
func (t *fixture) noRelayStays() {
	t.Helper()
	t.Eventually(func() []corev1.Pod { return t.podsOf(world.GuestNamespace, "app="+model.RelayName) }).
		Should(gomega.BeEmpty(), "no relay stays")
}

// loadBalancerAndBack publishes istiod at a load balancer of the management cluster, and by the tunnel again.
func loadBalancerAndBack(t *fixture, edge *edgeOfTheGuest) {
	t.start()
	t.tunnelUp()
	t.playCloud(guestnode.Options{OnlyLoadBalancers: true, LoadBalancerAddresses: t.MgmtLoadBalancers()})
	address := net.JoinHostPort(t.MgmtLoadBalancers().Addr().Next().String(), "15012")
	gateways := []string{trafficGateway}
	there := *t
	there.settings = byLoadBalancer()
	there.switched(edge, edge.halfOfTheLoad(), address, gateways)
	t.noRelayStays()
	t.switched(edge, edge.halfOfTheLoad(), relayAddress(), gateways)
	t.tunnelUp()
	t.Eventually(func(g gomega.Gomega) {
		services, err := t.MgmtClient.CoreV1().Services(t.MgmtNamespace).List(t.ctx, metav1.ListOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		for _, s := range services.Items {
			g.Expect(s.Spec.Type).NotTo(gomega.Equal(corev1.ServiceTypeLoadBalancer), s.Name)
		}
	}).Should(gomega.Succeed(), "no load balancer stays")
}

// byLoadBalancer returns the settings with which hypergate publishes istiod at a load balancer.
func byLoadBalancer() []string {
	return []string{"--xds-address=", "--publish=loadbalancer", "--publish-probe="}
}

// publishedByLoadBalancer switches from the router to a load balancer of the management cluster, and back. The load is
// that of publishedByTunnel, for the same reason.
func publishedByLoadBalancer(t *fixture, edge *edgeOfTheGuest) {
	t.playCloud(guestnode.Options{OnlyLoadBalancers: true, LoadBalancerAddresses: t.MgmtLoadBalancers()})
	address := net.JoinHostPort(t.MgmtLoadBalancers().Addr().Next().String(), "15012")
	gateways := []string{trafficGateway}
	there := *t
	there.settings = byLoadBalancer()
	there.switched(edge, edge.halfOfTheLoad(), address, gateways)
	t.switched(edge, edge.halfOfTheLoad(), t.XDS().String(), gateways)
}

// halfOfTheLoad returns the usual streams with half of their rate.
func (e *edgeOfTheGuest) halfOfTheLoad() []traffic.Stream {
	streams := e.shortStreams()
	for i := range streams {
		streams[i].Rate /= 2
	}
	return streams
}

// publishedByTunnel switches from the router to the tunnel. Pods of istiod, the relays and the gateway start meanwhile,
// so half of the usual load leaves them CPU time on two cores. TestTunnel does the same with all of it.
func publishedByTunnel(t *fixture, edge *edgeOfTheGuest) {
	t.settings = world.ByTunnel()
	t.switched(edge, edge.halfOfTheLoad(), relayAddress(), []string{trafficGateway})
	t.tunnelUp()
}

// switched restarts hypergate with the settings of the story, and waits until all Gateways have the address. A load
// goes on meanwhile.
func (t *fixture) switched(edge *edgeOfTheGuest, streams []traffic.Stream, address string, gateways []string) {
	t.Helper()
	load, begin := t.loaded(streams), time.Now()
	h := t.start()
	t.Expect(h.Ready(t.step(), "readyz")).To(gomega.Succeed())
	t.oneByOne(gateways, 1, func(d *appsv1.Deployment) bool { return envOf(d)["CA_ADDR"] == address })
	t.Logf("all gateways have the address %s after %s", address, time.Since(begin).Round(100*time.Millisecond))
	t.rolledOut()
	t.Expect(t.ClassCondition(t.step(), class, "ControllerInstalled", metav1.ConditionTrue)).To(gomega.Succeed())
	t.reconfigured(edge)
	t.more(load, 500)
	t.judge(load, 1000)
	t.served(edge)
}

// oneByOne waits until the Deployments of all Gateways are changed, and are complete. At no look may more than most be
// incomplete: one, and those that were incomplete before. changed also gets Deployments that are incomplete.
func (t *fixture) oneByOne(gateways []string, most int, changed func(*appsv1.Deployment) bool) {
	t.Helper()
	t.Eventually(func(g gomega.Gomega) {
		done, rolling := 0, map[string]bool{}
		// One list is one moment. Requests for one Deployment after the other would mix moments.
		list, err := t.GuestClient.AppsV1().Deployments(world.GuestNamespace).List(t.ctx, metav1.ListOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		for i := range list.Items {
			d := &list.Items[i]
			name := strings.TrimSuffix(d.Name, "-"+class)
			if !slices.Contains(gateways, name) {
				continue
			}
			s := d.Status
			// What an incomplete Deployment has counts, too: a Gateway can have rolled too early.
			is := changed(d)
			if s.ObservedGeneration < d.Generation || s.UpdatedReplicas < *d.Spec.Replicas || s.AvailableReplicas < s.Replicas ||
				s.Replicas > s.UpdatedReplicas {
				rolling[name] = true
			} else if is {
				done++
			}
		}
		t.Expect(len(rolling)).To(gomega.BeNumerically("<=", most), "%v roll at once", slices.Sorted(maps.Keys(rolling)))
		g.Expect(done).To(gomega.Equal(len(gateways)))
	}).Should(gomega.Succeed())
}
