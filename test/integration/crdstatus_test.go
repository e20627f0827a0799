package integration_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/hypergate/hypergate/pkg/crds"
)

// TestCRDsAreReported checks the report about CRDs in the status of a class, and in the metrics without a class.
// hypergate removes a condition that no longer applies, and keeps the conditions of others.
func TestCRDsAreReported(t *testing.T) {
	w := newWorldOn(t, takePairAlone(t)) // all hypergates in a process share one metrics registry
	guest := dynamic.NewForConfigOrDie(w.pair.Guest.Config)
	w.removeCRDs(guest)
	w.Cleanup(func() { w.removeCRDs(guest) })
	w.run()

	t.Log("without a class")
	w.Eventually(func() string { return shownMetrics(t) }).Should(gomega.And(
		gomega.ContainSubstring(`hypergate_guest_management_mode mode="Managed" 1`),
		gomega.ContainSubstring(`hypergate_guest_crd_info crd="httproutes.gateway.networking.k8s.io" installed_version="v1.4.1" `+
			`owner="hypergate" reason="Ours" verdict="UpToDate" wanted_version="v1.4.1" 1`)))

	w.createClass("demo")
	w.playIstiod(corev1.ConditionTrue)
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "CRDsReady") }).Should(haveStatus(metav1.ConditionTrue, "Managed"))
	w.Eventually(func() *metav1.Condition {
		return w.condition("demo", "SupportedVersion")
	}).Should(haveStatus(metav1.ConditionTrue, "SupportedVersion"))
	_, err := w.gateway.GatewayClasses().
		Patch(t.Context(), "demo", types.MergePatchType, []byte(`{"status":{"conditions":[{"type":"Accepted","status":"True",`+
			`"reason":"Accepted","message":"","lastTransitionTime":"2026-11-21T12:00:00Z"},{"type":"ControllerInstalled",`+
			`"status":"True","reason":"a","message":"",`+
			`"lastTransitionTime":"2026-11-21T12:00:00Z"}]}}`), metav1.PatchOptions{FieldManager: "pilot-discovery"}, "status")
	w.Expect(err).NotTo(gomega.HaveOccurred())

	t.Log("an object that istiod ignores is created and deleted")
	w.installCRD(guest, mesh())
	w.createObject(guest, "xmeshes",
		map[string]any{"apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XMesh", "metadata": map[string]any{"name": "mesh"}})
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "UnsupportedFieldsInUse") }).Should(gomega.And(
		haveStatus(metav1.ConditionTrue, "FieldsIgnored"),
		gomega.HaveField("Message", gomega.ContainSubstring(meshCRD+" mesh: the whole object"))))
	w.Eventually(func() string {
		return shownMetrics(t)
	}).Should(gomega.ContainSubstring(`hypergate_guest_unsupported_objects crd="` + meshCRD + `" 1`))
	meshes := guest.Resource(schema.GroupVersionResource{Group: "gateway.networking.x-k8s.io", Version: "v1alpha1", Resource: "xmeshes"})
	w.Expect(meshes.Delete(t.Context(), "mesh", metav1.DeleteOptions{})).To(gomega.Succeed())
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "UnsupportedFieldsInUse") }).Should(gomega.BeNil())
	w.Expect(w.condition("demo", "Accepted")).NotTo(gomega.BeNil())
	w.Expect(shownMetrics(t)).NotTo(gomega.ContainSubstring("unsupported_objects"))
	w.settle()
	count := w.guestRequests.count()
	_ = shownMetrics(t)
	w.Expect(w.guestRequests.count()).To(gomega.Equal(count), "a request for metrics causes no request to the guest")

	t.Log("the reported command works")
	_, err = guest.Resource(crdsResource).
		Patch(t.Context(), alteredCRD, types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+crds.ManageAnnotation+`":"false"}}}`),
			metav1.PatchOptions{FieldManager: "kubectl-annotate"})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "CRDsReady") }).Should(gomega.And(
		haveStatus(metav1.ConditionTrue, "MixedOwnership"),
		gomega.HaveField("Message", gomega.ContainSubstring(alteredCRD+": left unchanged"))))
}

// shownMetrics returns hypergate's metrics, one per line.
func shownMetrics(t *testing.T) string {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "hypergate_") {
			continue
		}
		for _, metric := range family.GetMetric() {
			out.WriteString(family.GetName())
			for _, pair := range metric.GetLabel() {
				out.WriteString(" " + pair.GetName() + `="` + pair.GetValue() + `"`)
			}
			out.WriteString(" " + strconv.FormatFloat(metric.GetGauge().GetValue(), 'g', -1, 64) + "\n")
		}
	}
	return out.String()
}
