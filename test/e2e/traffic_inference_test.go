package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/test/world"
)

const poolHost = "models.guest1.example.com"

// inferencePool gives the guest the CRD of InferencePools, a pool, and an endpoint picker that speaks TLS. Requests go
// to the endpoint that the picker chooses. Without the DestinationRule for the picker, the gateway does not reach it,
// so that it answers 500: that control shows that gateways obey DestinationRules.
//
// At the end, the CRD is deleted, and istiod serves all else without a restart.
func inferencePool(t *fixture, edge *edgeOfTheGuest) {
	t.undisturbed(edge, func() {
		istiod := t.istiodPod()
		t.Expect(t.ServeInferencePools(t.step())).To(gomega.Succeed())
		t.Expect(t.Apply(t.step(), "inferencepool.yaml", map[string]string{
			"namespace": backends, "image": world.BackendImage, "gateway": trafficGateway, "gatewayNamespace": world.GuestNamespace,
			"host": poolHost,
		})).To(gomega.Succeed())
		t.available(backends, "picker")
		t.Eventually(func() string { return t.picked(edge, "") }).Should(gomega.HavePrefix("500 "))

		t.Expect(t.Apply(t.step(), "pickertls.yaml", map[string]string{"namespace": backends})).To(gomega.Succeed())
		t.Eventually(func() string { return t.picked(edge, "nowhere") }).Should(gomega.HavePrefix("200 backend-"))
		pods, err := t.GuestClient.CoreV1().Pods(backends).List(t.ctx, metav1.ListOptions{LabelSelector: "app=backend"})
		t.Expect(err).NotTo(gomega.HaveOccurred())
		t.Expect(len(pods.Items)).To(gomega.BeNumerically(">", 1), "with one endpoint, a picker decides nothing")
		for range 10 {
			for _, pod := range pods.Items {
				endpoint := net.JoinHostPort(pod.Status.PodIP, "8080")
				t.Expect(t.picked(edge, endpoint)).To(gomega.Equal(fmt.Sprintf("200 %s yes %s", pod.Name, endpoint)))
			}
		}

		crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
		t.Expect(t.GuestDynamic.Resource(crds).Delete(t.ctx, world.InferencePoolCRD, metav1.DeleteOptions{})).To(gomega.Succeed())
		t.Eventually(func() string { return t.picked(edge, "nowhere") }).Should(gomega.HavePrefix("500 "))
		after := t.istiodPod()
		t.Expect(after.UID).To(gomega.Equal(istiod.UID))
		t.Expect(after.Status.ContainerStatuses[0].RestartCount).To(gomega.Equal(istiod.Status.ContainerStatuses[0].RestartCount))
	})
}

// picked posts an endpoint to the route of the pool. It returns the status and the answer: the pod that got the
// request, "yes" if a picker had it, and the body.
func (t *fixture) picked(edge *edgeOfTheGuest, endpoint string) string {
	t.Helper()
	url := "http://" + net.JoinHostPort(edge.address, "80") + "/who"
	request, err := http.NewRequestWithContext(t.step(), http.MethodPost, url, strings.NewReader(endpoint))
	t.Expect(err).NotTo(gomega.HaveOccurred())
	request.Host = poolHost
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	body := &bytes.Buffer{}
	if _, err := io.Copy(body, io.LimitReader(response.Body, 1<<16)); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s", response.StatusCode, body)
}
