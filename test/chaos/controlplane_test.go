package chaos_test

import (
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/hypershift"
)

// hostedControlPlanes is HyperShift's resource on the management cluster.
func hostedControlPlanes() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "hypershift.openshift.io", Version: "v1beta1", Resource: "hostedcontrolplanes"}
}

// createControlPlane creates a HostedControlPlane with HyperShift's own CRD. After each fault, its conditions must be
// those of an undisturbed installation.
func (w *chaosRun) createControlPlane() {
	w.Helper()
	crd, err := hypershift.CRD(w.Context())
	w.Expect(err).NotTo(gomega.HaveOccurred())
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	_, err = w.mgmt.objects.Resource(crds).Create(w.Context(), crd, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	plane := fromyaml.Object(w.T, `{apiVersion: hypershift.openshift.io/v1beta1, kind: HostedControlPlane, metadata: {name: guest1},
		spec: {releaseImage: "quay.io/r:4.21", issuerURL: "https://kubernetes.default.svc",
		pullSecret: {name: pull-secret}, sshKey: {name: ssh-key},
		etcd: {managementType: Managed, managed: {storage: {type: PersistentVolume, persistentVolume: {size: 8Gi}}}},
		dns: {baseDomain: example.com}, infraID: guest1-abcde, clusterID: 5f7c0000-0000-4000-8000-000000000000,
		controllerAvailabilityPolicy: SingleReplica, platform: {type: None},
		services: [{service: APIServer, servicePublishingStrategy: {type: LoadBalancer}},
			{service: OAuthServer, servicePublishingStrategy: {type: Route}},
			{service: Konnectivity, servicePublishingStrategy: {type: Route}},
			{service: Ignition, servicePublishingStrategy: {type: Route}}]}}`)
	w.Eventually(func() error { // the CRD is served a moment later
		_, err := w.mgmt.objects.Resource(hostedControlPlanes()).Namespace(w.cfg.MgmtNamespace).
			Create(w.Context(), plane, metav1.CreateOptions{})
		return err
	}).Should(gomega.Succeed())
}

// reportedOnControlPlane waits until the HostedControlPlane's conditions say that hypergate is available, and that all
// is up to date. hypergate reports there later than on the class.
func (w *chaosRun) reportedOnControlPlane() {
	w.Helper()
	w.Eventually(func() (map[string]string, error) {
		plane, err := w.mgmt.objects.Resource(hostedControlPlanes()).Namespace(w.cfg.MgmtNamespace).
			Get(w.Context(), "guest1", metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		out := map[string]string{}
		conditions, _, err := unstructured.NestedSlice(plane.Object, "status", "conditions")
		for _, one := range conditions {
			if condition, is := one.(map[string]any); is {
				kind, _ := condition["type"].(string)
				out[kind], _ = condition["status"].(string)
			}
		}
		return out, err
	}).Should(gomega.And(
		gomega.HaveKeyWithValue("gateway.hypergate.dev/Available", "True"),
		gomega.HaveKeyWithValue("gateway.hypergate.dev/Progressing", "False"),
	))
}
