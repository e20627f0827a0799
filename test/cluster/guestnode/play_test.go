package guestnode_test

import (
	"context"
	"net/netip"
	"testing"

	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/hypergate/hypergate/test/cluster/guestnode"
	"github.com/hypergate/hypergate/test/cluster/planes"
	"github.com/hypergate/hypergate/test/hang"
)

// TestDeploymentBecomesAvailable checks the steps of a gateway. A Deployment's pods become ready on a node that does
// not exist. Its Service gets an external address and endpoints. Scaling it down removes pods.
func TestDeploymentBecomesAvailable(t *testing.T) {
	g := hang.Gomega(t)
	ctx := t.Context()
	plane, err := planes.StartPlane(ctx, "guest", t.TempDir(), true)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(plane.Stop)
	ended := make(chan error, 1)
	playing, stop := context.WithCancel(ctx)
	go func() { ended <- guestnode.Play(playing, plane.Config, guestnode.Options{Nodes: []string{"n1", "n2"}}) }()
	client, err := kubernetes.NewForConfig(plane.Config)
	g.Expect(err).NotTo(gomega.HaveOccurred())

	labels := map[string]string{"app": "gateway"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "prepare", Image: "example.com/prepare:1"}},
		Containers:     []corev1.Container{{Name: "proxy", Image: "example.com/proxy:1"}},
	}}
	_, err = client.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "gateway"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: template,
		},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = client.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "gateway"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Selector: labels, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(gomega.HaveOccurred())

	g.Eventually(func(g gomega.Gomega) {
		deployment, err := client.AppsV1().Deployments("default").Get(ctx, "gateway", metav1.GetOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(deployment.Status.AvailableReplicas).To(gomega.Equal(int32(3)))
		service, err := client.CoreV1().Services("default").Get(ctx, "gateway", metav1.GetOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(service.Status.LoadBalancer.Ingress).To(gomega.HaveLen(1))
		g.Expect(service.Status.LoadBalancer.Ingress[0].IP).To(gomega.Equal("198.51.100.1"))
		g.Expect(readyAddresses(ctx, g, client)).To(gomega.HaveLen(3))
	}).Should(gomega.Succeed())
	pods := podsOf(ctx, g, client)
	nodes := map[string]bool{}
	for _, pod := range pods {
		nodes[pod.Spec.NodeName] = true
		g.Expect(netip.MustParsePrefix("10.132.0.0/16").Contains(netip.MustParseAddr(pod.Status.PodIP))).To(gomega.BeTrue())
		g.Expect(pod.Status.InitContainerStatuses[0].State.Terminated).NotTo(gomega.BeNil())
	}
	g.Expect(nodes).To(gomega.HaveLen(2))

	_, err = client.AppsV1().Deployments("default").Patch(ctx, "gateway", types.MergePatchType, []byte(`{"spec":{"replicas":1}}`),
		metav1.PatchOptions{})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Eventually(func(g gomega.Gomega) { g.Expect(podsOf(ctx, g, client)).To(gomega.HaveLen(1)) }).Should(gomega.Succeed())

	stop()
	g.Eventually(ended).Should(gomega.Receive(gomega.BeNil()))
}

func podsOf(ctx context.Context, g gomega.Gomega, client kubernetes.Interface) []corev1.Pod {
	pods, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	return pods.Items
}

// readyAddresses returns the addresses that EndpointSlices list as ready, without repetitions.
func readyAddresses(ctx context.Context, g gomega.Gomega, client kubernetes.Interface) map[string]bool {
	slices, err := client.DiscoveryV1().EndpointSlices("default").
		List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=gateway"})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	addresses := map[string]bool{}
	for _, slice := range slices.Items {
		for _, endpoint := range slice.Endpoints {
			if endpoint.Conditions.Ready != nil && *endpoint.Conditions.Ready {
				addresses[endpoint.Addresses[0]] = true
			}
		}
	}
	return addresses
}
