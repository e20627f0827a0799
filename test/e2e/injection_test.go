package e2e_test

import (
	"github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/world"
)

// injection checks that pods are changed only if both a flag of hypergate and a label of the namespace request it.
func injection(t *fixture) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "meshed", Labels: map[string]string{"istio.io/rev": world.Revision}}}
	_, err := t.GuestClient.CoreV1().Namespaces().Create(t.ctx, namespace, metav1.CreateOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Log("without the flag, the label has no effect")
	h := t.installed()
	t.Expect(t.containersOfNewPod(namespace.Name)).To(gomega.ConsistOf("app"))
	h.Terminate()

	t.Log("with the flag, and the permission that it needs")
	t.Expect(t.AllowSidecarInjection(t.step())).To(gomega.Succeed())
	h = t.start("--sidecar-injection")
	var injector *admissionregistrationv1.MutatingWebhookConfiguration
	t.Eventually(func() any {
		injector = t.injector()
		return injector
	}).ShouldNot(gomega.BeNil())
	for _, w := range injector.Webhooks {
		t.Expect(w.ClientConfig.CABundle).NotTo(gomega.BeEmpty(), w.Name)
		if t.Topology == model.TopologyHosted {
			t.Expect(w.ClientConfig.Service).To(gomega.BeNil(), w.Name)
			t.Expect(w.ClientConfig.URL).To(gomega.HaveValue(gomega.HavePrefix("https://gw-webhook-"+world.Revision+":443/inject")), w.Name)
		}
	}
	// The API server needs some time to load a new webhook.
	t.Eventually(func() []string { return t.containersOfNewPod(namespace.Name) }).Should(gomega.ConsistOf("app", "istio-proxy"))
	t.Log("a namespace without the label is not affected")
	t.Expect(t.containersOfNewPod("default")).To(gomega.ConsistOf("app"))
	h.Terminate()

	t.Log("without the flag, the webhook is removed")
	t.start()
	t.Eventually(t.injector).Should(gomega.BeNil())
	t.Eventually(func() []string { return t.containersOfNewPod(namespace.Name) }).Should(gomega.ConsistOf("app"))
	t.Expect(t.ForbidSidecarInjection(t.step())).To(gomega.Succeed())
}

// injector returns hypergate's webhook for pods, or nil.
func (t *fixture) injector() *admissionregistrationv1.MutatingWebhookConfiguration {
	t.Helper()
	list, err := t.GuestClient.AdmissionregistrationV1().MutatingWebhookConfigurations().
		List(t.ctx, metav1.ListOptions{LabelSelector: model.OwnerLabel})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	if len(list.Items) == 0 {
		return nil
	}
	return &list.Items[0]
}

// containersOfNewPod returns the names of a pod's containers after admission. The pod has one container, app. The
// result includes init containers, because a sidecar may be one of them. It excludes the one that only prepares the
// network.
func (t *fixture) containersOfNewPod(namespace string) []string {
	t.Helper()
	var out []string
	t.Eventually(func() error { // the namespace's service account might not exist yet
		// The dry run is sufficient to test admission, and a real node need not run the pod.
		pod, err := t.GuestClient.CoreV1().Pods(namespace).Create(t.ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "app"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: world.ProxyImage}}},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		out = nil
		for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
			if c.Name != "istio-init" {
				out = append(out, c.Name)
			}
		}
		return nil
	}).Should(gomega.Succeed())
	return out
}
