package e2e_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/test/cluster"
)

// fenced tries connections to and from istiod's pod, for which the node enforces the network policy.
func fenced(t *fixture) {
	t.installed()
	istiod, kubeAPIServer, other := t.istiodPod(), t.podOf("app=kube-apiserver"), t.podOf("app=kube-controller-manager")
	outcome := func(from *corev1.Pod, to string) string {
		err := t.ConnectFrom(t.ctx, from.UID, to)
		switch {
		case err == nil:
			return "open"
		case errors.Is(err, cluster.ErrForbidden):
			return "forbidden"
		}
		return err.Error()
	}
	t.Log("ingress: the webhook for the guest's API server, xDS for the publisher (here this machine), and nothing else")
	for _, port := range []string{"8080", "15010", "15012", "15014", "15017"} {
		address := net.JoinHostPort(istiod.Status.PodIP, port)
		for who, from := range map[string]*corev1.Pod{"kube-apiserver": kubeAPIServer, "another pod of the namespace": other} {
			want := "forbidden"
			if who == "kube-apiserver" && port == "15017" {
				want = "open"
			}
			t.Expect(outcome(from, address)).To(gomega.Equal(want), "from %s to istiod's port %s", who, port)
		}
		connection, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(t.ctx, "tcp", address)
		if port == "15012" {
			t.Expect(err).NotTo(gomega.HaveOccurred(), "from this machine to istiod's port %s", port)
			t.Expect(connection.Close()).To(gomega.Succeed())
			continue
		}
		t.Expect(err).To(gomega.MatchError(syscall.EHOSTUNREACH), "from this machine to istiod's port %s", port)
	}

	t.Log("hypergate's own pod: this machine has a policy for health checks; others have none")
	hypergate := t.podOf("app=hypergate")
	for _, port := range []string{"8080", "8081"} {
		t.Expect(outcome(istiod, net.JoinHostPort(hypergate.Status.PodIP, port))).
			To(gomega.Equal("forbidden"), "from istiod to port %s", port)
		t.Expect(outcome(other, net.JoinHostPort(hypergate.Status.PodIP, port))).To(gomega.Equal("forbidden"), "to port %s", port)
	}

	t.Log("egress: the guest's API server and DNS, but not the management API or any other address")
	listener, err := (&net.ListenConfig{}).Listen(t.ctx, "tcp", net.JoinHostPort(t.HostAddress().String(), "0"))
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(func() { _ = listener.Close() })
	kubernetesService, err := t.MgmtClient.CoreV1().Services("default").Get(t.step(), "kubernetes", metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	for address, want := range map[string]string{
		strings.TrimPrefix(t.Guest.Host, "https://"):               "open", // its Service
		net.JoinHostPort(kubeAPIServer.Status.PodIP, "6443"):       "open",
		net.JoinHostPort(t.DNSAddress().String(), "53"):            "open",
		strings.TrimPrefix(t.Mgmt.Host, "https://"):                "forbidden",
		net.JoinHostPort(kubernetesService.Spec.ClusterIP, "443"):  "forbidden",
		net.JoinHostPort(other.Status.PodIP, "10257"):              "forbidden",
		listener.Addr().String():                                   "forbidden",
		net.JoinHostPort(t.podOf("app=etcd").Status.PodIP, "2379"): "forbidden",
	} {
		t.Expect(outcome(istiod, address)).To(gomega.Equal(want), "from istiod to %s", address)
	}
	t.Log("the addresses are right: they answer to another pod")
	for _, address := range []string{strings.TrimPrefix(t.Mgmt.Host, "https://"), listener.Addr().String()} {
		t.Expect(outcome(other, address)).To(gomega.Equal("open"), "from another pod to %s", address)
	}
}

// podOf returns the only pod in the management namespace with these labels.
func (t *fixture) podOf(labels string) *corev1.Pod {
	t.Helper()
	pods, err := t.MgmtClient.CoreV1().Pods(t.MgmtNamespace).List(t.step(), metav1.ListOptions{LabelSelector: labels})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(pods.Items).To(gomega.HaveLen(1), fmt.Sprint("pods with ", labels))
	return &pods.Items[0]
}
