package cluster_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/hypergate/hypergate/test/cluster"
	"github.com/hypergate/hypergate/test/cluster/guestnode"
	"github.com/hypergate/hypergate/test/hang"
)

const (
	standInImage = "registry.example.com/stand-in:1"
	readyPort    = 15021
)

// TestRealGuestNodes checks the real nodes of a guest: pods run on both and reach each other, Services and the API
// server; this machine reaches load balancers; and nothing is left behind.
func TestRealGuestNodes(t *testing.T) {
	skipUnlessPossible(t)
	t.Parallel()
	g := hang.Gomega(t)
	before, begin := sysctls(t), time.Now()
	c, err := cluster.Start(t.Context(), cluster.Options{
		Name: "guestnodes", Guest: true, GuestNodes: 2, Dir: t.TempDir(), StandIns: []string{standInImage}, Progress: progress{t},
	})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("started in %.1f s", time.Since(begin).Seconds())
	guest := clientFor(g, c.Guest)
	playLoadBalancers(t, c)

	pods := podsOnBothNodes(t, g, c, guest)
	t.Log("pods of both nodes reach each other, a Service and the API server")
	service := loadBalancer(t, g, guest)
	for _, from := range pods {
		targets := []string{net.JoinHostPort(service.Spec.ClusterIP, "80"), "172.31.0.1:443"}
		for _, to := range pods {
			targets = append(targets, net.JoinHostPort(to.Status.PodIP, fmt.Sprint(readyPort)))
		}
		for _, target := range targets {
			g.Eventually(func() error { return c.ConnectFrom(t.Context(), from.UID, target) }).
				Should(gomega.Succeed(), from.Name+" to "+target)
		}
	}
	t.Log("this machine reaches the load balancer")
	url := "http://" + service.Status.LoadBalancer.Ingress[0].IP + "/"
	g.Eventually(func() error { return get(t.Context(), url) }).Should(gomega.Succeed())

	t.Log("the kubelet gives the guest's API server the logs of pods")
	g.Expect(podLog(t.Context(), guest, pods[0].Name)).NotTo(gomega.ContainSubstring("error"))

	g.Expect(c.Stop()).To(gomega.Succeed())
	g.Expect(leftovers(t, "guestnodes", c.Dir)).To(gomega.BeEmpty())
	g.Expect(sysctls(t)).To(gomega.Equal(before))
}

// playLoadBalancers gives Services of type LoadBalancer an address until the test ends.
func playLoadBalancers(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- guestnode.Play(ctx, c.Guest, guestnode.Options{OnlyLoadBalancers: true, LoadBalancerAddresses: c.GuestLoadBalancers()})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// podsOnBothNodes starts a ready pod on each node of the guest.
func podsOnBothNodes(t *testing.T, g gomega.Gomega, c *cluster.Cluster, guest kubernetes.Interface) []*corev1.Pod {
	t.Helper()
	pods := make([]*corev1.Pod, 0, len(c.GuestNodes))
	for _, node := range c.GuestNodes {
		name := "on-" + node.Name
		g.Eventually(func() error { // the namespace's service account might not exist yet
			_, err := guest.CoreV1().Pods("default").Create(t.Context(), standInPod(name, node.Name), metav1.CreateOptions{})
			return err
		}).Should(gomega.Succeed())
		pods = append(pods, nil)
		g.Eventually(func(g gomega.Gomega) {
			pod, err := guest.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
			g.Expect(err).NotTo(gomega.HaveOccurred())
			g.Expect(pod.Status.Conditions).To(gomega.ContainElement(gomega.And(
				gomega.HaveField("Type", corev1.PodReady), gomega.HaveField("Status", corev1.ConditionTrue))))
			g.Expect(pod.Status.HostIP).To(gomega.Equal(node.Address.String()))
			pods[len(pods)-1] = pod
		}).Should(gomega.Succeed())
	}
	return pods
}

func standInPod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "stand-in"}},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: node}, // so that the scheduler has to find the node
			Containers: []corev1.Container{{
				Name: "stand-in", Image: standInImage,
				ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
					HTTPGet: &corev1.HTTPGetAction{Path: "/healthz/ready", Port: intstr.FromInt32(readyPort)},
				}},
			}},
		},
	}
}

// loadBalancer returns a Service of the pods when it has an address.
func loadBalancer(t *testing.T, g gomega.Gomega, guest kubernetes.Interface) *corev1.Service {
	t.Helper()
	service, err := guest.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "stand-in"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": "stand-in"},
			Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(readyPort)}},
		},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Eventually(func(g gomega.Gomega) {
		service, err = guest.CoreV1().Services("default").Get(t.Context(), "stand-in", metav1.GetOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(service.Status.LoadBalancer.Ingress).To(gomega.HaveLen(1))
	}).Should(gomega.Succeed())
	return service
}

func get(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return nil
}
