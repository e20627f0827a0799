package e2e_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// proxyPort is the port of a gateway's proxy for its statistics, on the pod's loopback.
const proxyPort = 15000

// nothingRejected checks that no proxy of a ready gateway pod has rejected an update. A proxy that rejects an update
// keeps what it has, so requests alone do not show it. It returns the number of pods.
func (t *fixture) nothingRejected() int {
	t.Helper()
	asked := 0
	t.Eventually(func(g gomega.Gomega) {
		pods, err := t.GuestClient.CoreV1().Pods(metav1.NamespaceAll).
			List(t.ctx, metav1.ListOptions{LabelSelector: "gateway.networking.k8s.io/gateway-name"})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		asked = 0
		for i := range pods.Items {
			if !servesRequests(&pods.Items[i]) {
				continue
			}
			rejected, err := t.rejectedBy(&pods.Items[i])
			g.Expect(err).NotTo(gomega.HaveOccurred())
			// Another try would not change it.
			t.Expect(rejected).To(gomega.BeEmpty(), "pod %s/%s has rejected updates", pods.Items[i].Namespace, pods.Items[i].Name)
			asked++
		}
	}).Should(gomega.Succeed())
	return asked
}

// rejectedBy returns the statistics of a pod's proxy about rejected updates that are not zero.
func (t *fixture) rejectedBy(pod *corev1.Pod) ([]string, error) {
	text, err := t.GetIn(t.ctx, pod.UID, proxyPort, "/stats?filter=update_")
	if err != nil {
		return nil, err
	}
	rejected, err := rejectedUpdates(text)
	if err != nil {
		return nil, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return rejected, nil
}

var (
	acceptedListeners = regexp.MustCompile(`(?m)^listener_manager\.lds\.update_success: [1-9]`)
	rejectedUpdate    = regexp.MustCompile(`(?m)^\S+\.update_rejected: (\d+)$`)
)

// rejectedUpdates returns the lines about rejected updates. A ready proxy has accepted listeners, so statistics without
// them are an error: they prove nothing.
func rejectedUpdates(text string) ([]string, error) {
	if !acceptedListeners.MatchString(text) {
		return nil, fmt.Errorf("the statistics have no accepted listeners: %q", text)
	}
	var out []string
	for _, found := range rejectedUpdate.FindAllStringSubmatch(text, -1) {
		if count, err := strconv.Atoi(found[1]); err != nil || count > 0 {
			out = append(out, found[0])
		}
	}
	return out, nil
}

// TestRejectedUpdates checks what is read from statistics.
func TestRejectedUpdates(t *testing.T) {
	t.Parallel()
	const accepted = "listener_manager.lds.update_attempt: 2\nlistener_manager.lds.update_success: 1\n"
	for name, c := range map[string]struct {
		text  string
		want  int
		fails bool
	}{
		"nothing rejected":      {text: accepted},
		"a rejection of zero":   {text: accepted + "cluster_manager.cds.update_rejected: 0\n"},
		"a rejected listener":   {text: accepted + "listener_manager.lds.update_rejected: 1\n", want: 1},
		"two kinds of updates":  {text: accepted + "xds.a.B.update_rejected: 12\nsds.default.update_rejected: 3\n", want: 2},
		"statistics of nothing": {text: "", fails: true},
		"no listeners yet":      {text: "listener_manager.lds.update_success: 0\n", fails: true},
	} {
		got, err := rejectedUpdates(c.text)
		if len(got) != c.want || (err != nil) != c.fails {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}
