package chaos_test

import (
	"fmt"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/hypershift"
)

// createControlPlane creates a HostedControlPlane with HyperShift's own CRD. After each fault, its conditions must be
// those of an undisturbed installation.
func (w *chaosRun) createControlPlane() {
	w.Helper()
	crd, err := hypershift.CRD(w.Context())
	w.Expect(err).NotTo(gomega.HaveOccurred())
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	_, err = w.mgmt.objects.Resource(crds).Create(w.Context(), crd, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	plane := fromyaml.Object(w.T, hypershift.ControlPlaneYAML("guest1", ""))
	w.Eventually(func() error { // the CRD is served a moment later
		_, err := w.mgmt.objects.Resource(hypershift.ControlPlanes()).Namespace(w.cfg.MgmtNamespace).
			Create(w.Context(), plane, metav1.CreateOptions{})
		return err
	}).Should(gomega.Succeed())
}

// reportedOnControlPlane waits until the HostedControlPlane's conditions say that hypergate is available, and that all
// is up to date. hypergate reports there later than on the class.
func (w *chaosRun) reportedOnControlPlane() {
	w.Helper()
	w.Eventually(func() (map[string]string, error) {
		plane, err := w.mgmt.objects.Resource(hypershift.ControlPlanes()).Namespace(w.cfg.MgmtNamespace).
			Get(w.Context(), "guest1", metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		out := map[string]string{}
		conditions, _, err := unstructured.NestedSlice(plane.Object, "status", "conditions")
		for _, one := range conditions {
			if condition, is := one.(map[string]any); is {
				kind, _ := condition["type"].(string)
				out[kind] = fmt.Sprint(condition["status"], " ", condition["reason"])
			}
		}
		return out, err
	}).Should(gomega.And(
		// Before the class is seen, istiod is not necessary, which is available, too.
		gomega.HaveKeyWithValue("gateway.hypergate.dev/Available",
			gomega.And(gomega.HavePrefix("True"), gomega.Not(gomega.HaveSuffix(status.ReasonNotRequested)))),
		gomega.HaveKeyWithValue("gateway.hypergate.dev/Progressing", gomega.HavePrefix("False")),
	))
}
