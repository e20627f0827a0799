package cluster_test

import (
	"context"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/test/cluster"
	"github.com/hypergate/hypergate/test/hang"
)

// TestNetworkPoliciesAreReal tries connections between pods, through a Service, from this machine and to the node,
// under changing policies.
func TestNetworkPoliciesAreReal(t *testing.T) {
	skipUnlessPossible(t)
	t.Parallel()
	g := hang.Gomega(t)
	c, err := cluster.Start(t.Context(),
		cluster.Options{Name: "netpol", Dir: t.TempDir(), StandIns: []string{standIn}, Progress: progress{t}})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	n := &network{t: t, g: g, c: c, mgmt: clientFor(g, c.Mgmt)}
	for _, namespace := range []string{"front", "back"} {
		_, err := n.mgmt.CoreV1().Namespaces().
			Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
	}
	client, neighbour, server := n.pod("front", "client"), n.pod("back", "neighbour"), n.pod("back", "server")
	service := n.service(server)

	t.Log("without a policy everything is allowed")
	for _, from := range []*corev1.Pod{client, neighbour} {
		n.reaches(from, n.port(server, "15021"))
		n.reaches(from, service)
		n.isRefused(from, n.port(server, "9999"))
	}
	g.Expect(dial(t.Context(), n.port(server, "15021"))).To(gomega.Succeed())

	n.ingress(client, neighbour, server, service)
	n.egress(client, server)
}

// ingress tests the effects of policies on the receiving side.
func (n *network) ingress(client, neighbour, server *corev1.Pod, service string) {
	n.t.Helper()
	health := n.port(server, "15021")
	n.t.Log("default deny: neither another pod nor this machine gets in, but the kubelet's probe does")
	deny := n.policy("back", "deny", `podSelector: {}`)
	n.isForbidden(client, health)
	n.isForbidden(client, service)
	n.isForbidden(neighbour, health)
	n.g.Expect(dial(n.t.Context(), health)).To(gomega.MatchError(syscall.EHOSTUNREACH))
	late := n.pod("back", "late") // it becomes ready under the policy
	n.isForbidden(client, n.port(late, "15021"))

	n.t.Log("another policy adds to it: a named port for a namespace, and nothing else of the pod or for others")
	n.policy("back", "health", `{podSelector: {matchLabels: {name: server}}, ingress: [{
		from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: front}}}], ports: [{port: health}]}]}`)
	n.reaches(client, health)
	n.reaches(client, service)
	n.isForbidden(client, n.port(server, "9999"))
	n.isForbidden(neighbour, health)
	n.isForbidden(client, n.port(late, "15021"))
	n.t.Log("a pod that comes later is of the namespace too")
	n.reaches(n.pod("front", "client2"), health)

	n.t.Log("this machine is an address block, also behind a ClusterIP")
	n.policy("back", "host", `{podSelector: {matchLabels: {name: server}}, ingress: [{from: [{ipBlock: {cidr: `+n.c.HostAddress().
		String()+`/32}}]}]}`)
	n.g.Eventually(func() error { return dial(n.t.Context(), health) }).Should(gomega.Succeed())
	n.g.Expect(dial(n.t.Context(), service)).To(gomega.Succeed())
	n.isForbidden(neighbour, health)

	n.t.Log("policies that are gone do nothing")
	n.g.Expect(n.mgmt.NetworkingV1().NetworkPolicies("back").Delete(n.t.Context(), deny.Name, metav1.DeleteOptions{})).To(gomega.Succeed())
	n.reaches(client, n.port(late, "15021"))
	n.isForbidden(neighbour, health) // the other two policies still exist
}

// egress tests the effects of a policy on the sending side, also for destinations on the node.
func (n *network) egress(client, server *corev1.Pod) {
	n.t.Helper()
	dns, api := net.JoinHostPort(n.c.DNSAddress().String(), "53"), strings.TrimPrefix(n.c.Mgmt.Host, "https://")
	kubernetesService, err := n.mgmt.CoreV1().Services("default").Get(n.t.Context(), "kubernetes", metav1.GetOptions{})
	n.g.Expect(err).NotTo(gomega.HaveOccurred())
	apiService := net.JoinHostPort(kubernetesService.Spec.ClusterIP, "443")
	n.t.Log("without a policy a pod reaches the management API")
	n.reaches(client, dns)
	n.reaches(client, api)
	n.reaches(client, apiService)

	n.t.Log("with one it reaches what that names")
	n.policy("front", "out", `{podSelector: {matchLabels: {name: client}}, policyTypes: [Egress], egress: [
		{to: [{ipBlock: {cidr: `+n.c.DNSAddress().String()+`/32}}], ports: [{port: 53}]},
		{to: [{namespaceSelector: {}, podSelector: {matchLabels: {name: server}}}], ports: [{port: 15021}]}]}`)
	n.isForbidden(client, api)
	n.isForbidden(client, apiService)
	n.reaches(client, dns)
	n.reaches(client, n.port(server, "15021"))
	n.t.Log("and the management API is still there for others")
	n.reaches(server, api)
}

const standIn = "registry.example.com/proxyv2:" + charts.EmbeddedVersion

type network struct {
	t    *testing.T
	g    gomega.Gomega
	c    *cluster.Cluster
	mgmt kubernetes.Interface
}

// pod returns a new, ready pod. It answers on port 15021, which has the name health.
func (n *network) pod(namespace, name string) *corev1.Pod {
	n.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}, Spec: corev1.PodSpec{
		TerminationGracePeriodSeconds: new(int64(0)),
		Containers: []corev1.Container{{
			Name: "istio-proxy", Image: standIn,
			Ports: []corev1.ContainerPort{{Name: "health", ContainerPort: 15021}},
			ReadinessProbe: &corev1.Probe{
				PeriodSeconds: 1,
				ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(15021)}},
			},
		}},
	}}
	n.g.Eventually(func() error { // the namespace's service account might not exist yet
		_, err := n.mgmt.CoreV1().Pods(namespace).Create(n.t.Context(), pod, metav1.CreateOptions{})
		return err
	}).Should(gomega.Succeed())
	n.g.Eventually(func(g gomega.Gomega) {
		var err error
		pod, err = n.mgmt.CoreV1().Pods(namespace).Get(n.t.Context(), name, metav1.GetOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(pod.Status.ContainerStatuses).To(gomega.HaveLen(1))
		g.Expect(pod.Status.ContainerStatuses[0].Ready).To(gomega.BeTrue())
	}).Should(gomega.Succeed())
	return pod
}

// service returns the address of a new Service for the pod. The Service has a different port.
func (n *network) service(pod *corev1.Pod) string {
	n.t.Helper()
	service, err := n.mgmt.CoreV1().Services(pod.Namespace).Create(n.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name},
		Spec:       corev1.ServiceSpec{Selector: pod.Labels, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(15021)}}},
	}, metav1.CreateOptions{})
	n.g.Expect(err).NotTo(gomega.HaveOccurred())
	return net.JoinHostPort(service.Spec.ClusterIP, "80")
}

// policy creates a policy from its spec.
func (n *network) policy(namespace, name, spec string) *networkingv1.NetworkPolicy {
	n.t.Helper()
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.g.Expect(yaml.UnmarshalStrict([]byte(strings.ReplaceAll(spec, "\t", "")), &policy.Spec)).To(gomega.Succeed())
	policy, err := n.mgmt.NetworkingV1().NetworkPolicies(namespace).Create(n.t.Context(), policy, metav1.CreateOptions{})
	n.g.Expect(err).NotTo(gomega.HaveOccurred())
	return policy
}

func (n *network) port(pod *corev1.Pod, port string) string {
	return net.JoinHostPort(pod.Status.PodIP, port)
}

func (n *network) connect(from *corev1.Pod, to string) func() error {
	return func() error { return n.c.ConnectFrom(n.t.Context(), from.UID, to) }
}

func (n *network) reaches(from *corev1.Pod, to string) {
	n.t.Helper()
	n.g.Eventually(n.connect(from, to)).Should(gomega.Succeed(), "%s should reach %s", from.Name, to)
}

func (n *network) isForbidden(from *corev1.Pod, to string) {
	n.t.Helper()
	n.g.Eventually(n.connect(from, to)).Should(gomega.MatchError(cluster.ErrForbidden), "%s should not reach %s", from.Name, to)
}

func (n *network) isRefused(from *corev1.Pod, to string) {
	n.t.Helper()
	n.g.Eventually(n.connect(from, to)).
		Should(gomega.MatchError(cluster.ErrRefused), "%s should reach %s, where nothing listens", from.Name, to)
}

// dial tries a connection from this machine.
func dial(ctx context.Context, address string) error {
	connection, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return connection.Close()
}
