package chaos_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// TestGatewaysRollOneByOne lets a real istiod deploy three Gateways, and changes the image of the proxies. The test
// plays the Deployment controller of the guest: the new pods of a gateway are ready when the test says so.
func TestGatewaysRollOneByOne(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real servers: run without -short")
	}
	const before, first, second = "registry.example.com/proxyv2:0", "registry.example.com/proxyv2:1", "registry.example.com/proxyv2:2"
	istio := embeddedIstio()
	istio.flags = []string{"--proxy-image", before}
	w := newChaosRun(t, istio)
	h := w.start(direct, "hypergate-before")
	w.ready(h)
	w.createClass()
	w.reported()
	names := []string{"a", "b", "c"}
	for _, name := range names {
		w.createNamedGateway(name)
	}
	w.Eventually(w.withImage(before)).Should(gomega.Equal(names))
	for _, name := range names {
		w.gatewayIsReady(name)
	}
	h.Terminate()

	t.Log("one by one: another one is deployed only after the pods of the one before are ready")
	w.istio.flags = []string{"--proxy-image", first}
	h = w.start(direct, "hypergate-first")
	for i := range names {
		var rolled []string
		w.Eventually(func() (int, error) {
			var err error
			rolled, err = w.withImage(first)()
			return len(rolled), err
		}).Should(gomega.BeNumerically(">", i))
		w.Expect(rolled).To(gomega.HaveLen(i+1), "rolled before the pods of the one before were ready")
		// Time for istiod, which compares all Gateways within a second, to show more than that.
		w.Consistently(w.withImage(first), "8s").Should(gomega.HaveLen(i + 1))
		for _, name := range rolled {
			w.gatewayIsReady(name)
		}
	}
	w.Eventually(w.annotated).Should(gomega.BeEmpty())
	h.Terminate()

	t.Log("the control: all at once")
	w.istio.flags = []string{"--proxy-image", second, "--gateway-rollout", "AllAtOnce"}
	w.start(direct, "hypergate-second")
	w.Eventually(w.withImage(second)).Should(gomega.Equal(names))
}

func (w *chaosRun) createNamedGateway(name string) {
	w.Helper()
	w.once(func(ctx context.Context) error {
		_, err := w.gateways.Gateways(w.cfg.GuestNamespace).Create(ctx, &gatewayv1.Gateway{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"istio.io/rev": w.cfg.Revision}},
			Spec: gatewayv1.GatewaySpec{
				GatewayClassName: className,
				Listeners:        []gatewayv1.Listener{{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType}},
			},
		}, metav1.CreateOptions{})
		return err
	})
}

// withImage returns a function that lists the Gateways whose Deployment has this image for its proxy.
func (w *chaosRun) withImage(image string) func() ([]string, error) {
	return func() ([]string, error) {
		list, err := w.guest.clients.AppsV1().Deployments(w.cfg.GuestNamespace).List(w.Context(), metav1.ListOptions{
			LabelSelector: "gateway.networking.k8s.io/gateway-name",
		})
		if err != nil {
			return nil, err
		}
		var out []string
		for _, d := range list.Items {
			if d.Spec.Template.Spec.Containers[0].Image == image {
				out = append(out, d.Labels["gateway.networking.k8s.io/gateway-name"])
			}
		}
		slices.Sort(out)
		return out, nil
	}
}

// gatewayIsReady plays the Deployment controller: all pods of a gateway are new and ready.
func (w *chaosRun) gatewayIsReady(name string) {
	w.Helper()
	deployments := w.guest.clients.AppsV1().Deployments(w.cfg.GuestNamespace)
	w.Eventually(func() error {
		d, err := deployments.Get(w.Context(), fmt.Sprintf("%s-%s", name, className), metav1.GetOptions{})
		if err != nil {
			return err
		}
		n := int32(1)
		if d.Spec.Replicas != nil {
			n = *d.Spec.Replicas
		}
		d.Status = appsv1.DeploymentStatus{
			ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n,
		}
		_, err = deployments.UpdateStatus(w.Context(), d, metav1.UpdateOptions{})
		return err
	}).Should(gomega.Succeed())
}

// annotated returns the Gateways that have istiod's annotation.
func (w *chaosRun) annotated() ([]string, error) {
	list, err := w.gateways.Gateways(w.cfg.GuestNamespace).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, g := range list.Items {
		if value, is := g.Annotations["gateway.istio.io/controller-version"]; is {
			out = append(out, g.Name+"="+value)
		}
	}
	return out, nil
}
