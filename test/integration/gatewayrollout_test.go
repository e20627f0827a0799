package integration_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hypergate/hypergate/pkg/model"
)

// gatewayWorld is a guest with Gateways, whose Deployments the test plays.
type gatewayWorld struct {
	*harness
	namespace string
}

// newGatewayWorld returns an installation with Gateways of one class, each with a Deployment of one pod.
func newGatewayWorld(t *testing.T, names ...string) (w *gatewayWorld, stop func()) {
	t.Helper()
	return newGatewayWorldOn(newHarness(t), names...)
}

// newGatewayWorldOn does the same with a harness.
func newGatewayWorldOn(h *harness, names ...string) (w *gatewayWorld, stop func()) {
	h.Helper()
	w = &gatewayWorld{harness: h}
	w.cfg.IstioResources = nil // nothing here could answer the probe of the webhook
	w.namespace = "shop-" + w.cfg.Revision
	stop = w.run()
	w.install("demo")
	w.createNamespace(w.guest, w.namespace)
	for _, name := range names {
		w.createGateway(name)
	}
	return w, stop
}

func (w *gatewayWorld) createGateway(name string) {
	w.Helper()
	g, err := w.gateway.Gateways(w.namespace).Create(w.Context(), &gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: gatewayv1.GatewaySpec{
			GatewayClassName: "demo",
			Listeners:        []gatewayv1.Listener{{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType}},
		},
	}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	// A later story in this guest can have a class with the same name.
	w.Cleanup(func() { _ = w.gateway.Gateways(w.namespace).Delete(context.Background(), name, metav1.DeleteOptions{}) })
	labels := map[string]string{"gateway.networking.k8s.io/gateway-name": name}
	_, err = w.guest.AppsV1().Deployments(w.namespace).Create(w.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-demo", Labels: labels, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "gateway.networking.k8s.io/v1", Kind: "Gateway", Name: name, UID: g.UID,
		}}},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "istio-proxy", Image: "registry.example.com/proxyv2:old",
				}}},
			},
		},
	}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.playGateway(name, "", 1)
}

// playGateway plays istiod, which sets the image of a gateway's pods if image is not empty, and the Deployment
// controller, which reports that many new pods as ready.
func (w *gatewayWorld) playGateway(name, image string, ready int32, conditions ...appsv1.DeploymentCondition) {
	w.Helper()
	deployments := w.guest.AppsV1().Deployments(w.namespace)
	w.Eventually(func() error {
		d, err := deployments.Get(w.Context(), name+"-demo", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if image != "" {
			d.Spec.Template.Spec.Containers[0].Image = image
			if d, err = deployments.Update(w.Context(), d, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		d.Status = appsv1.DeploymentStatus{
			ObservedGeneration: d.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: ready, AvailableReplicas: ready,
			Conditions: conditions,
		}
		_, err = deployments.UpdateStatus(w.Context(), d, metav1.UpdateOptions{})
		return err
	}).Should(gomega.Succeed())
}

// held returns the names of the Gateways that hypergate holds.
func (w *gatewayWorld) held() []string {
	list, err := w.gateway.Gateways(w.namespace).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	for _, g := range list.Items {
		if g.Annotations[model.HoldAnnotation] == model.HoldValue(w.cfg.Revision) {
			out = append(out, g.Name)
		}
	}
	slices.Sort(out)
	return out
}

// heldMoving returns a function that returns the held Gateways. While there are n, it moves a clock that the test has
// stopped. hypergate waits for a released Gateway for five seconds. By the system's clock, a busy machine could need
// more until it shows the new pods, and the next Gateway would be released.
func (w *gatewayWorld) heldMoving(clock *movedClock, n int) func() []string {
	return func() []string {
		held := w.held()
		if len(held) == n {
			clock.move(time.Second)
		}
		return held
	}
}

// messageMoving returns a function that moves a stopped clock, and returns the message of class demo. hypergate delays
// some writes of a status.
func (w *gatewayWorld) messageMoving(clock *movedClock) func() string {
	return func() string {
		clock.move(time.Second)
		return w.installedMessage("demo")
	}
}

// templates returns the name of the ConfigMap with the templates of gateways that istiod's Deployment mounts.
func (w *gatewayWorld) templates() string {
	d := w.istiod()
	if d == nil {
		return ""
	}
	for _, v := range d.Spec.Template.Spec.Volumes {
		if v.Name == "inject" && v.ConfigMap != nil {
			return v.ConfigMap.Name
		}
	}
	return ""
}

// slotWrites returns how often each ConfigMap of a slot was written since a number of requests, also in vain.
func (w *gatewayWorld) slotWrites(since int) map[string]int {
	w.Helper()
	out := map[string]int{}
	for _, request := range writes(w.mgmtRequests.since(since)) {
		for _, slot := range []model.ConfigSlot{model.SlotA, model.SlotB} {
			for _, name := range []string{w.cfg.InjectorConfigMap(slot), w.cfg.MeshConfigMap(slot)} {
				if strings.Contains(request+"?", "/configmaps/"+name+"?") {
					out[name]++
				}
			}
		}
	}
	return out
}

// TestGatewaysRollOneByOne upgrades istiod with three Gateways. The test plays istiod and the Deployment controller. It
// also moves the clock.
func TestGatewaysRollOneByOne(t *testing.T) {
	h, clock := newHarness(t), &movedClock{}
	h.clock = clock
	w, stop := newGatewayWorldOn(h, "a", "b", "c")
	w.Expect(w.held()).To(gomega.BeEmpty(), "nothing is held before a change")
	w.Expect(w.templates()).To(gomega.Equal(w.cfg.InjectorConfigMap(model.SlotA)))
	maps := w.mgmt.CoreV1().ConfigMaps(w.cfg.MgmtNamespace)
	before, err := maps.Get(t.Context(), w.cfg.InjectorConfigMap(model.SlotA), metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	stop()

	t.Log("all Gateways are held before istiod changes, and its configuration goes to the other slot")
	w.cfg.ProxyImage = "registry.example.com/proxyv2:new"
	requests := w.mgmtRequests.count()
	stop = w.run()
	w.Eventually(w.templates).Should(gomega.Equal(w.cfg.InjectorConfigMap(model.SlotB)))
	w.Expect(w.held()).To(gomega.Equal([]string{"a", "b", "c"}))
	w.settle()
	// HyperShift wakes upon each change of a ConfigMap. A process that starts applies each of its objects once.
	w.Expect(w.slotWrites(requests)).To(gomega.Equal(map[string]int{
		w.cfg.InjectorConfigMap(model.SlotB): 1, w.cfg.MeshConfigMap(model.SlotA): 1,
	}))
	written, err := maps.Get(t.Context(), w.cfg.InjectorConfigMap(model.SlotB), metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(w.held()).To(gomega.Equal([]string{"a", "b", "c"}), "the new istiod is not available yet")
	after, err := maps.Get(t.Context(), w.cfg.InjectorConfigMap(model.SlotA), metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(after.ResourceVersion).To(gomega.Equal(before.ResourceVersion), "what the istiod before reads")
	_, err = maps.Get(t.Context(), w.cfg.MeshConfigMap(model.SlotB), metav1.GetOptions{})
	w.Expect(apierrors.IsNotFound(err)).To(gomega.BeTrue(), "the mesh configuration did not change, and costs no write")

	t.Log("one Gateway is released, and the next one after its pods are ready")
	clock.stop()
	w.playIstiod(corev1.ConditionTrue)
	w.Eventually(w.heldMoving(clock, 3)).WithPolling(time.Second).Should(gomega.Equal([]string{"b", "c"}))
	w.playGateway("a", w.cfg.ProxyImage, 0)
	w.settle()
	w.Expect(w.held()).To(gomega.Equal([]string{"b", "c"}), "a's new pod is not ready")
	t.Log("hypergate restarts meanwhile")
	stop()
	requests = w.mgmtRequests.count()
	w.run()
	w.settle()
	w.Expect(w.held()).To(gomega.Equal([]string{"b", "c"}), "a's new pod is not ready")
	w.playGateway("a", "", 1)
	w.Eventually(w.heldMoving(clock, 2)).WithPolling(time.Second).Should(gomega.Equal([]string{"c"}))

	t.Log("a Gateway whose pods do not become ready stops the rest, and a condition names it")
	w.playGateway("b", w.cfg.ProxyImage, 0, appsv1.DeploymentCondition{
		Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded",
	})
	w.settle() // hypergate has seen the new pods
	w.Eventually(w.messageMoving(clock)).WithPolling(time.Second).Should(gomega.ContainSubstring(
		fmt.Sprintf("the new pods of Gateway %s/b are not becoming ready (0 of 1); 1 of 3 Gateways have rolled", w.namespace)))
	w.settle()
	w.Expect(w.held()).To(gomega.Equal([]string{"c"}))

	t.Log("after the repair, the rollout ends, and hypergate is at rest")
	w.playGateway("b", "", 1)
	w.Eventually(w.heldMoving(clock, 1)).WithPolling(time.Second).Should(gomega.BeEmpty())
	w.playGateway("c", w.cfg.ProxyImage, 1)
	w.Eventually(w.messageMoving(clock)).WithPolling(time.Second).ShouldNot(gomega.ContainSubstring("gateways"))
	w.settle()
	w.Expect(w.slotWrites(requests)).To(gomega.HaveEach(1), "of the second process")
	end, err := maps.Get(t.Context(), w.cfg.InjectorConfigMap(model.SlotB), metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(end.ResourceVersion).To(gomega.Equal(written.ResourceVersion), "one change of content costs one write")
	mgmt, guest := w.mgmtRequests.count(), w.guestRequests.count()
	w.rests(50)
	w.Expect(append(w.mgmtRequests.since(mgmt), w.guestRequests.since(guest)...)).To(gomega.BeEmpty())
}

// TestForeignHoldsStay checks that hypergate does not touch a Gateway that another client holds, and that a rollout
// ends without it.
func TestForeignHoldsStay(t *testing.T) {
	w, stop := newGatewayWorld(t, "a", "theirs")
	stop()
	_, err := w.gateway.Gateways(w.namespace).Patch(t.Context(), "theirs", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+model.HoldAnnotation+`":"1000"}}}`), metav1.PatchOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	before, err := w.gateway.Gateways(w.namespace).Get(t.Context(), "theirs", metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())

	w.cfg.ProxyImage = "registry.example.com/proxyv2:new"
	w.run()
	w.Eventually(w.templates).Should(gomega.Equal(w.cfg.InjectorConfigMap(model.SlotB)))
	w.Expect(w.held()).To(gomega.Equal([]string{"a"}))
	w.playIstiod(corev1.ConditionTrue)
	w.Eventually(w.held).Should(gomega.BeEmpty())
	w.playGateway("a", w.cfg.ProxyImage, 1)
	w.settle()
	after, err := w.gateway.Gateways(w.namespace).Get(t.Context(), "theirs", metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(after.ResourceVersion).To(gomega.Equal(before.ResourceVersion))
}
