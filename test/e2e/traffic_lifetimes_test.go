package e2e_test

import (
	"fmt"
	"net"
	"regexp"
	"strconv"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/test/traffic"
	"github.com/hypergate/hypergate/test/world"
)

// This file has outages that are longer than the certificate of a gateway lives. It is the shortest of the lifetimes:
// 24 h by default, and the agent renews it after half of that. Tokens live 12 h, but the kubelet renews them before,
// and an agent reads a token only when it connects. To renew a certificate, the agent needs istiod, and istiod asks the
// guest's API server about the agent's token.

const (
	// briefGateway is a gateway whose certificate lives for briefLife.
	briefGateway = "brief"
	briefLife    = time.Minute
	agentPort    = 15020
	// longOutage is how long an API server is away.
	longOutage = 5 * time.Minute
)

// smallGateway creates a gateway with one pod, and a route to the backends. It returns the address.
func (t *fixture) smallGateway(name, certificateLife string) string {
	t.Helper()
	return t.smallGatewayIn(world.GuestNamespace, name, certificateLife)
}

func (t *fixture) smallGatewayIn(namespace, name, certificateLife string) string {
	t.Helper()
	t.Expect(t.Apply(t.step(), "smallgateway.yaml", map[string]string{
		"name": name, "gatewayNamespace": namespace, "namespace": backends, "class": class, "host": hostOf(name),
		"certificateLife": certificateLife,
	})).To(gomega.Succeed())
	t.Expect(t.Programmed(t.step(), namespace, name)).To(gomega.Succeed())
	t.available(namespace, name+"-"+class)
	gateway, err := t.Gateways.Gateways(namespace).Get(t.ctx, name, metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(gateway.Status.Addresses).NotTo(gomega.BeEmpty())
	return gateway.Status.Addresses[0].Value
}

// deleteSmallGateway returns when the pods of the gateway are gone. The next story may create one with the same name.
func (t *fixture) deleteSmallGateway(name string) {
	t.Helper()
	t.deleteSmallGatewayIn(world.GuestNamespace, name)
}

func (t *fixture) deleteSmallGatewayIn(namespace, name string) {
	t.Helper()
	t.Expect(t.Gateways.HTTPRoutes(backends).Delete(t.ctx, name, metav1.DeleteOptions{})).To(gomega.Succeed())
	t.Expect(t.Gateways.Gateways(namespace).Delete(t.ctx, name, metav1.DeleteOptions{})).To(gomega.Succeed())
	t.Eventually(func(g gomega.Gomega) {
		_, err := t.GuestClient.AppsV1().Deployments(namespace).Get(t.ctx, name+"-"+class, metav1.GetOptions{})
		g.Expect(err).To(gomega.Satisfy(apierrors.IsNotFound))
		g.Expect(t.podsOf(namespace, "gateway.networking.k8s.io/gateway-name="+name)).To(gomega.BeEmpty())
	}).Should(gomega.Succeed())
}

func hostOf(gateway string) string { return gateway + ".guest1.example.com" }

// smallStreams returns the load of a gateway with few requests.
func smallStreams(name, address string) []traffic.Stream {
	plain := net.JoinHostPort(address, "80")
	return []traffic.Stream{
		{Name: name + ", new", Kind: traffic.NewConnection, Address: plain, Host: hostOf(name), Rate: 10},
		{Name: name + ", kept", Kind: traffic.KeptConnection, Address: plain, Host: hostOf(name), Rate: 20},
		{Name: name + ", download", Kind: traffic.Download, Address: plain, Host: hostOf(name), Rate: 0.5, Duration: 4 * time.Second},
	}
}

// brief creates the gateway whose certificate lives for a minute, with two pods. It returns its load and that of the
// edge.
func (t *fixture) brief(edge *edgeOfTheGuest) []traffic.Stream {
	t.Helper()
	address := t.smallGateway(briefGateway, briefLife.String())
	t.scale(world.GuestNamespace, briefGateway+"-"+class, 2)
	streams := append(edge.shortStreams(), smallStreams(briefGateway, address)...)
	t.answered(streams)
	return streams
}

func (t *fixture) briefPods() []corev1.Pod {
	t.Helper()
	return t.podsOf(world.GuestNamespace, "gateway.networking.k8s.io/gateway-name="+briefGateway)
}

// certificateLeft is the metric of an agent with the seconds until the gateway's certificate expires.
var certificateLeft = regexp.MustCompile(`(?m)^istio_agent_cert_expiry_seconds\{resource_name="default"\} (\S+)$`)

// left returns the seconds until a gateway's certificate expires. The pod's agent says so, without an API server.
func (t *fixture) left(pod *corev1.Pod) (float64, error) {
	text, err := t.GetIn(t.ctx, pod.UID, agentPort, "/stats/prometheus")
	if err != nil {
		return 0, err
	}
	found := certificateLeft.FindStringSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("the agent of pod %s says nothing about its certificate", pod.Name)
	}
	return strconv.ParseFloat(found[1], 64)
}

// expire waits until the certificates of pods have expired. Until the fault, their agents have renewed them.
func (t *fixture) expire(pods []corev1.Pod) {
	t.Helper()
	for i := range pods {
		t.Eventually(t.left).WithArguments(&pods[i]).Should(gomega.BeNumerically("<", 0), pods[i].Name)
	}
}

// renewed waits until the certificates of pods are valid again.
func (t *fixture) renewed(pods []corev1.Pod) {
	t.Helper()
	for i := range pods {
		t.Eventually(t.left).WithArguments(&pods[i]).Should(gomega.BeNumerically(">", 0), pods[i].Name)
	}
}

// signedAgain waits until pods have other certificates than now. A renewal moves the end of a certificate by half of
// its life. A slow answer moves what is read here by at most its timeout of five seconds.
func (t *fixture) signedAgain(pods []corev1.Pod) {
	t.Helper()
	t.Expect(pods).NotTo(gomega.BeEmpty())
	for i := range pods {
		expires := func() (time.Time, error) {
			left, err := t.left(&pods[i])
			return time.Now().Add(time.Duration(left * float64(time.Second))), err
		}
		before, err := expires()
		t.Expect(err).NotTo(gomega.HaveOccurred())
		t.Eventually(expires).Should(gomega.BeTemporally(">", before.Add(briefLife/4)), pods[i].Name)
	}
}

// istiodDownForLong stops istiod until the certificates of a gateway's pods have expired, and then deletes one of its
// two pods. What is lost: the new pod does not become ready, because it has neither a certificate nor a configuration.
// Other pods serve, also with an expired certificate, which they use only towards istiod and other proxies of the mesh.
// When istiod is back, the new pod becomes ready, and the certificates are renewed.
func istiodDownForLong(t *fixture, edge *edgeOfTheGuest) {
	streams := t.brief(edge)
	defer t.deleteSmallGateway(briefGateway)
	load, old := t.loaded(streams), t.briefPods()
	restore := t.byHand(`{"spec":{"replicas":0}}`, 0)
	t.expire(old)
	deleted := old[0]
	t.Expect(t.GuestClient.CoreV1().Pods(deleted.Namespace).Delete(t.ctx, deleted.Name, metav1.DeleteOptions{})).To(gomega.Succeed())
	var fresh corev1.Pod
	t.Eventually(func(g gomega.Gomega) {
		pods := t.briefPods()
		g.Expect(pods).To(gomega.HaveLen(2), "the deleted pod is gone")
		for _, pod := range pods {
			if pod.UID != old[1].UID {
				fresh = pod
			}
		}
		g.Expect(fresh.UID).NotTo(gomega.Equal(deleted.UID))
		g.Expect(fresh.Status.Phase).To(gomega.Equal(corev1.PodRunning))
	}).Should(gomega.Succeed())
	t.more(load, 3000)
	for _, pod := range t.briefPods() {
		t.Expect(servesRequests(&pod)).To(gomega.Equal(pod.UID == old[1].UID), "only the old pod is ready: %s", pod.Name)
	}
	restore()
	t.available(world.GuestNamespace, briefGateway+"-"+class)
	t.renewed(t.briefPods())
	t.reconfigured(edge)
	t.more(load, 1000)
	t.judge(load, 10_000)
}

// guestAPIDownForLong stops the guest's API server. istiod can no longer verify the tokens of agents. Drift on the
// management side is repaired, at the latest after the outage.
func guestAPIDownForLong(t *fixture, edge *edgeOfTheGuest) {
	h := t.start()
	services, service := t.MgmtClient.CoreV1().Services(t.MgmtNamespace), "istiod-"+world.Revision
	var back func()
	t.downForLong(edge, h, func(pods []corev1.Pod) time.Time {
		back = t.withoutGuestAPI()
		began := time.Now()
		t.Log("the guest's API server is away")
		t.Expect(services.Delete(t.ctx, service, metav1.DeleteOptions{})).To(gomega.Succeed())
		t.expire(pods)
		return began
	}, func() {
		back()
		t.Expect(h.Ready(t.step(), "readyz")).To(gomega.Succeed())
		t.Eventually(func() error {
			_, err := services.Get(t.ctx, service, metav1.GetOptions{})
			return err
		}).Should(gomega.Succeed())
	})
}

// mgmtAPIDownForLong stops the management API server. Neither istiod nor a gateway needs it: certificates are
// renewed, and new routes arrive. hypergate cannot renew its Lease, and ends. The kubelet restarts it. After the
// outage, drift in the guest is repaired.
func mgmtAPIDownForLong(t *fixture, edge *edgeOfTheGuest) {
	h := t.start()
	var back func()
	t.downForLong(edge, h, func(pods []corev1.Pod) time.Time {
		back = t.withoutMgmtAPI()
		began := time.Now()
		t.Eventually(h.Done()).Should(gomega.BeClosed())
		t.Expect(t.GuestClient.AdmissionregistrationV1().ValidatingWebhookConfigurations().
			Delete(t.ctx, t.webhooks().Name, metav1.DeleteOptions{})).To(gomega.Succeed())
		<-time.After(2 * briefLife)
		t.renewed(pods)
		t.reconfigured(edge)
		return began
	}, func() {
		back()
		// A container that the kubelet started during the outage may have ended, too.
		t.Eventually(func() error {
			next, err := t.Restarted(t.step(), h)
			if err != nil {
				return err
			}
			return next.Ready(t.step(), "readyz")
		}).Should(gomega.Succeed())
		t.Eventually(t.webhooks).ShouldNot(gomega.BeNil())
	})
}

// downForLong runs an outage under load. outage returns when the API server had stopped. end ends the outage, and waits
// until hypergate is ready. After that, certificates are valid, and a new route arrives.
func (t *fixture) downForLong(edge *edgeOfTheGuest, h *world.Hypergate, outage func([]corev1.Pod) time.Time, end func()) {
	t.Helper()
	t.Expect(h.Ready(t.step(), "readyz")).To(gomega.Succeed())
	streams := t.brief(edge)
	defer t.deleteSmallGateway(briefGateway)
	pods := t.briefPods()
	t.Expect(pods).To(gomega.HaveLen(2))
	t.undisturbedUnder(edge, t.loaded(streams), func() {
		began := outage(pods)
		<-time.After(time.Until(began.Add(longOutage))) // the load goes on meanwhile, and the story is about this time
		t.Logf("the outage took %s", time.Since(began).Round(time.Second))
		end()
		t.Log("the API server is back")
		t.renewed(pods)
	})
	for _, pod := range t.briefPods() {
		t.Expect(pod.Status.ContainerStatuses[0].RestartCount).To(gomega.BeZero(), pod.Name)
	}
}
