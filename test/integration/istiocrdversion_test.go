package integration_test

import (
	"slices"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
)

// oldMesh is a guest with a mesh of its own, whose CRD of DestinationRules is Istio's and belongs to another client.
type oldMesh struct{ *lonely }

// serveRules creates or changes the CRD, so that it serves v1, or does not, as before Istio 1.22.
func (w *oldMesh) serveRules(v1 bool) {
	w.Helper()
	definitions := w.dynamic.Resource(crdsResource)
	w.Eventually(func() error {
		crd, err := definitions.Get(w.Context(), istioCRD, metav1.GetOptions{})
		if err != nil {
			crd = w.ruleCRD()
		}
		versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
		w.Expect(err).NotTo(gomega.HaveOccurred())
		w.Expect(versions).To(gomega.ContainElement(gomega.HaveKeyWithValue("name", "v1")))
		for _, version := range versions {
			if version := version.(map[string]any); version["name"] == "v1" {
				version["served"] = v1
			}
		}
		w.Expect(unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions")).To(gomega.Succeed())
		if crd.GetResourceVersion() == "" {
			_, err = definitions.Create(w.Context(), crd, metav1.CreateOptions{FieldManager: "mesh-operator"})
		} else {
			_, err = definitions.Update(w.Context(), crd, metav1.UpdateOptions{FieldManager: "mesh-operator"})
		}
		return err
	}).Should(gomega.Succeed())
}

// ruleCRD returns Istio's CRD of DestinationRules without an annotation of hypergate.
func (w *oldMesh) ruleCRD() *unstructured.Unstructured {
	w.Helper()
	source, err := charts.Embedded()
	w.Expect(err).NotTo(gomega.HaveOccurred())
	list, err := desired.IstioCRDs(source, []string{istioCRD})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	list[0].SetAnnotations(nil)
	return list[0]
}

// consent lets hypergate take over the CRD.
func (w *oldMesh) consent() {
	w.Helper()
	_, err := w.dynamic.Resource(crdsResource).Patch(w.Context(), istioCRD, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+crds.ManageAnnotation+`":"true"}}}`), metav1.PatchOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
}

// included returns which CRDs of Istio istiod serves by its Deployment.
func (w *oldMesh) included() string {
	d := w.istiod()
	if d == nil {
		return "no istiod"
	}
	env := d.Spec.Template.Spec.Containers[0].Env
	i := slices.IndexFunc(env, func(v corev1.EnvVar) bool { return v.Name == "PILOT_INCLUDE_RESOURCES" })
	return env[i].Value
}

// stoppedBefore makes istiod's Deployment say that istiod stopped serving a kind before now.
func (w *oldMesh) stoppedBefore(now time.Time) {
	w.Helper()
	_, err := w.mgmt.AppsV1().Deployments(w.cfg.MgmtNamespace).Patch(w.Context(), w.cfg.IstiodName(), types.MergePatchType,
		[]byte(`{"spec":{"template":{"metadata":{"annotations":{"`+model.IgnoredSinceAnnotation+`":"`+
			now.UTC().Add(-time.Hour).Format(time.RFC3339)+`"}}}}}`), metav1.PatchOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
}

// TestAnIstioCRDOfAnotherVersion installs istiod in a guest with an older mesh, whose CRD of DestinationRules does not
// serve v1. istiod does without DestinationRules, and the condition names the CRD. When the CRD serves v1, istiod
// serves DestinationRules. A guest that changes the CRD again waits. So does one in which hypergate then replaces it.
func TestAnIstioCRDOfAnotherVersion(t *testing.T) {
	w := &oldMesh{ownGuest(t)}
	w.cfg.Webhooks = model.WebhooksExternal // nothing here could answer the probe of the webhook
	const others = "wasmplugins.extensions.istio.io,envoyfilters.networking.istio.io"
	const all = "wasmplugins.extensions.istio.io,destinationrules.networking.istio.io,envoyfilters.networking.istio.io"
	applied := func() *metav1.Condition { return w.condition("demo", status.SettingsApplied) }
	const ignored = "istiod ignores DestinationRules, because the guest's CRD " + istioCRD + " does not serve version v1 [upgrade"
	named := gomega.And(haveStatus(metav1.ConditionFalse, status.ReasonUnsupportedCRDVersion),
		gomega.HaveField("Message", gomega.ContainSubstring(ignored)))
	waits := gomega.HaveField("Message", gomega.ContainSubstring("istiod serves DestinationRules again from "))
	w.serveRules(false)
	stop := w.run()
	w.install("demo")
	w.Expect(w.included()).To(gomega.Equal(others))
	w.Expect(applied()).To(named)
	w.Expect(w.condition("demo", "CRDsReady")).To(haveStatus(metav1.ConditionFalse, "TakeoverBlocked"))

	t.Log("a restart changes nothing")
	before := w.istiod().Generation
	stop()
	stop = w.run()
	w.settle()
	w.Expect(w.istiod().Generation).To(gomega.Equal(before))

	t.Log("the CRD serves v1, then not, then v1")
	w.serveRules(true)
	w.Eventually(w.included).Should(gomega.Equal(all))
	w.Eventually(applied).Should(gomega.BeNil())
	w.serveRules(false)
	w.Eventually(w.included).Should(gomega.Equal(others))
	w.Eventually(applied).Should(named)
	w.serveRules(true)
	w.Eventually(applied).Should(waits)
	w.Expect(w.included()).To(gomega.Equal(others), "at most one change in ten minutes")

	t.Log("later")
	stop()
	w.stoppedBefore(time.Now())
	stop = w.run()
	w.Eventually(w.included).Should(gomega.Equal(all))
	w.Eventually(applied).Should(gomega.BeNil())

	t.Log("hypergate replaces the CRD")
	w.serveRules(false)
	w.Eventually(applied).Should(named)
	w.consent()
	w.Eventually(applied).Should(waits)
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "CRDsReady") }).Should(haveStatus(metav1.ConditionTrue, "Managed"))
	stop()
}
