package integration_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/fromyaml"
)

// inferencePoolCRD returns the CRD of InferencePools of the module with which istiod was built. Its version v1 gets
// another name if version is not v1.
func (w *harness) inferencePoolCRD(version string) *unstructured.Unstructured {
	w.Helper()
	root, err := servers.ModuleRoot()
	w.Expect(err).NotTo(gomega.HaveOccurred())
	istiod := filepath.Join(root, "hack/servers/istiod")
	dir, err := servers.ModuleDir(w.Context(), istiod, "sigs.k8s.io/gateway-api-inference-extension")
	w.Expect(err).NotTo(gomega.HaveOccurred())
	file := filepath.Join(dir, "config/crd/bases/inference.networking.k8s.io_inferencepools.yaml")
	text, err := os.ReadFile(file)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	crd := fromyaml.Object(w.T, string(text))
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(versions).To(gomega.HaveLen(1))
	w.Expect(versions[0]).To(gomega.HaveKeyWithValue("name", "v1"))
	versions[0].(map[string]any)["name"] = version
	w.Expect(unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions")).To(gomega.Succeed())
	return crd
}

// servesPools returns what istiod's Deployment says about InferencePools.
func (w *harness) servesPools() string {
	d := w.istiod()
	if d == nil {
		return "no istiod"
	}
	env := d.Spec.Template.Spec.Containers[0].Env
	i := slices.IndexFunc(env, func(v corev1.EnvVar) bool { return v.Name == "ENABLE_GATEWAY_API_INFERENCE_EXTENSION" })
	return env[i].Value
}

// TestAnInferencePoolCRDOfAnotherVersion installs istiod in a guest whose CRD of InferencePools is the real one with
// another version. Both sides name it, istiod does without InferencePools, and all else is installed. The condition
// stays, whatever istiod does, and across a restart. When the CRD serves v1, istiod serves InferencePools. A guest that
// changes the CRD again waits.
func TestAnInferencePoolCRDOfAnotherVersion(t *testing.T) {
	w := ownGuest(t)
	definitions := w.dynamic.Resource(crdsResource)
	replace := func(version string) {
		w.Helper()
		_ = definitions.Delete(t.Context(), model.InferencePoolCRD, metav1.DeleteOptions{}) // the first time, there is none
		w.Eventually(func() error {
			_, err := definitions.Create(t.Context(), w.inferencePoolCRD(version), metav1.CreateOptions{})
			return err
		}).Should(gomega.Succeed())
	}
	applied := func() *metav1.Condition { return w.condition("demo", status.SettingsApplied) }
	named := gomega.And(haveStatus(metav1.ConditionFalse, status.ReasonUnsupportedCRDVersion),
		gomega.HaveField("Message", gomega.ContainSubstring(model.InferencePoolCRD+" does not serve version v1 [install a version")))
	replace("v2")
	w.cfg.IstioResources = nil // nothing here could answer the probe of the webhook
	stop := w.run()
	w.install("demo")
	w.Eventually(applied).Should(named)
	w.Eventually(w.servesPools).Should(gomega.Equal("false"))

	t.Log("istiod rolls, and is not available")
	w.playIstiod(corev1.ConditionFalse)
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "ControllerInstalled") }).
		ShouldNot(haveStatus(metav1.ConditionTrue, "Installed"))
	w.Expect(applied()).To(named)
	w.playIstiod(corev1.ConditionTrue)

	t.Log("a restart changes nothing")
	w.settle()
	generation := func(d *appsv1.Deployment) int64 { return d.Generation }
	before := generation(w.istiod())
	stop()
	stop = w.run()
	w.settle()
	w.Expect(generation(w.istiod())).To(gomega.Equal(before))
	w.Expect(applied()).To(named)

	t.Log("the CRD serves v1, then another version, then v1")
	replace("v1")
	w.Eventually(w.servesPools).Should(gomega.Equal("true"))
	w.Eventually(applied).Should(gomega.BeNil())
	replace("v2")
	w.Eventually(w.servesPools).Should(gomega.Equal("false"))
	w.Eventually(applied).Should(named)
	replace("v1")
	w.Eventually(applied).Should(gomega.HaveField("Message", gomega.ContainSubstring("istiod serves InferencePools again from ")))
	w.Expect(w.servesPools()).To(gomega.Equal("false"), "at most one change in ten minutes")
	w.settle()
	before = generation(w.istiod())
	stop()

	t.Log("a restart does not shorten the time, and changes nothing")
	stop = w.restart()
	w.Eventually(applied).Should(gomega.HaveField("Message", gomega.ContainSubstring("istiod serves InferencePools again from ")))
	w.settle()
	w.Expect(generation(w.istiod())).To(gomega.Equal(before))
	w.Expect(applied()).To(gomega.HaveField("Message", gomega.ContainSubstring("istiod serves InferencePools again from ")))
	stop()
}
