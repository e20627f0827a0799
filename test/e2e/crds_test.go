package e2e_test

import (
	"context"
	"fmt"

	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/world"
	"github.com/hypergate/hypergate/test/xds"
)

const (
	httpRoutes       = "httproutes.gateway.networking.k8s.io"
	destinationRules = "destinationrules.networking.istio.io"
	manage           = "gateway.hypergate.dev/manage"
)

// platformCRD is a CRD of OpenShift or OLM that accepts any content. The tests need only the existence and the
// content of objects.
const platformCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.%[2]s}
spec:
  group: %[2]s
  names: {kind: %[3]s, listKind: %[3]sList, plural: %[1]s}
  scope: %[4]s
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// servePlatform makes the guest serve a resource of the platform until the story ends.
func (t *fixture) servePlatform(group, resource, kind, scope string) dynamic.NamespaceableResourceInterface {
	t.Helper()
	t.Expect(t.ApplyObject(t.step(), fromyaml.Object(t.T, fmt.Sprintf(platformCRD, resource, group, kind, scope)))).To(gomega.Succeed())
	t.Cleanup(func() { _ = t.crds().Delete(context.Background(), resource+"."+group, metav1.DeleteOptions{}) })
	return t.GuestDynamic.Resource(world.Resource(group, "v1alpha1", resource))
}

func (t *fixture) crds() dynamic.ResourceInterface {
	return t.GuestDynamic.Resource(world.Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions"))
}

// patchCRD sends a merge patch of a CRD as the guest's administrator.
func (t *fixture) patchCRD(name, patch string) error {
	_, err := t.crds().Patch(t.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "guest-admin"})
	return err
}

// addField adds a field to the schema of a CRD, as an administrator might.
func (t *fixture) addField(name string) error {
	patch := `[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/added","value":{"type":"string"}}]`
	_, err := t.crds().Patch(t.ctx, name, types.JSONPatchType, []byte(patch), metav1.PatchOptions{FieldManager: "guest-admin"})
	return err
}

// hasField reports whether a CRD has that field.
func (t *fixture) hasField(name string) (bool, error) {
	got, err := t.crds().Get(t.ctx, name, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	versions, _, err := unstructured.NestedSlice(got.Object, "spec", "versions")
	if err != nil || len(versions) == 0 {
		return false, err
	}
	first, _ := versions[0].(map[string]any)
	_, has, err := unstructured.NestedFieldNoCopy(first, "schema", "openAPIV3Schema", "properties", "added")
	return has, err
}

// crdsReady waits until the class's condition CRDsReady has this reason and this text.
func (t *fixture) crdsReady(reason, part string) {
	t.Helper()
	t.Eventually(func() *metav1.Condition { return t.condition("CRDsReady") }).
		Should(gomega.And(gomega.HaveField("Reason", reason), gomega.HaveField("Message", gomega.ContainSubstring(part))))
}

func (t *fixture) condition(kind string) *metav1.Condition {
	got, err := t.Gateways.GatewayClasses().Get(t.ctx, class, metav1.GetOptions{})
	if err != nil {
		return &metav1.Condition{Message: err.Error()}
	}
	for i := range got.Status.Conditions {
		if got.Status.Conditions[i].Type == kind {
			return &got.Status.Conditions[i]
		}
	}
	return &metav1.Condition{}
}

// protectedCRDs has the guest's administrator change and delete a CRD, by accident and on purpose.
func protectedCRDs(t *fixture) {
	t.installed()
	t.crdsReady("Managed", "")
	t.Log("by accident: refused, with the correct procedure in the message")
	t.Eventually(func() error { return t.addField(httpRoutes) }).
		Should(gomega.MatchError(gomega.And(gomega.ContainSubstring("hypergate"), gomega.ContainSubstring(manage+"=false"))))
	err := t.crds().Delete(t.ctx, httpRoutes, metav1.DeleteOptions{})
	t.Expect(err).To(gomega.MatchError(gomega.ContainSubstring(manage + "=false")))

	t.Log("on purpose: hypergate releases the CRD to the administrator")
	t.Expect(t.patchCRD(httpRoutes, `{"metadata":{"annotations":{"`+manage+`":"false"}}}`)).To(gomega.Succeed())
	t.crdsReady("MixedOwnership", httpRoutes)
	t.Eventually(func() error { return t.addField(httpRoutes) }).Should(gomega.Succeed())
	t.Consistently(func() (bool, error) { return t.hasField(httpRoutes) }, "2s").Should(gomega.BeTrue())

	t.Log("hypergate manages it again")
	t.Expect(t.patchCRD(httpRoutes, `{"metadata":{"annotations":{"`+manage+`":null}}}`)).To(gomega.Succeed())
	t.Eventually(func() (bool, error) { return t.hasField(httpRoutes) }).Should(gomega.BeFalse())
	t.crdsReady("Managed", "")
	t.Eventually(func() error { return t.addField(httpRoutes) }).ShouldNot(gomega.Succeed())
}

// unmanaged checks that OpenShift's switch turns the installation off and on again, and that gateways survive it.
func unmanaged(t *fixture) {
	t.installed()
	t.gateway("gw")
	t.Expect(t.Programmed(t.step(), world.GuestNamespace, "gw")).To(gomega.Succeed())
	root := t.trustBundle()
	ingresses := t.servePlatform("operator.openshift.io", "ingresses", "Ingress", "Cluster")
	mode := func(m string) *unstructured.Unstructured {
		return fromyaml.Object(t.T, "{apiVersion: operator.openshift.io/v1alpha1, kind: Ingress, metadata: {name: cluster}, spec: "+
			"{gatewayAPI: {managementMode: "+m+"}}}")
	}

	t.Log("Unmanaged: istiod is removed, and the gateways stay")
	t.Expect(t.ApplyObject(t.step(), mode("Unmanaged"))).To(gomega.Succeed())
	t.Expect(t.ClassCondition(t.step(), class, "ControllerInstalled", metav1.ConditionFalse)).To(gomega.Succeed())
	t.Expect(t.condition("ControllerInstalled").Reason).To(gomega.Equal("Unmanaged"))
	t.Eventually(func() bool {
		_, err := t.MgmtClient.AppsV1().Deployments(t.MgmtNamespace).Get(t.ctx, "istiod-"+world.Revision, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}).Should(gomega.BeTrue())
	t.Expect(t.webhooks()).To(gomega.BeNil())
	t.Eventually(func() error { return t.addField(httpRoutes) }).Should(gomega.Succeed(), "CRDs are not protected any more")
	_, err := t.GuestClient.AppsV1().Deployments(world.GuestNamespace).Get(t.ctx, "gw-"+class, metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = t.Gateways.Gateways(world.GuestNamespace).Get(t.ctx, "gw", metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(t.trustBundle()).To(gomega.Equal(root))

	t.Log("Managed again: istiod comes back with the same CA, and the CRD's drift is repaired")
	t.Expect(t.ApplyObject(t.step(), mode("Managed"))).To(gomega.Succeed())
	t.Expect(t.ClassCondition(t.step(), class, "ControllerInstalled", metav1.ConditionTrue)).To(gomega.Succeed())
	t.crdsReady("Managed", "")
	t.Expect(t.hasField(httpRoutes)).To(gomega.BeFalse())
	t.Expect(t.trustBundle()).To(gomega.Equal(root))
	var client *xds.Client
	t.Eventually(func() (err error) { // istiod's Service is also a new one
		client, err = t.Proxy(t.ctx, world.GuestNamespace, "gw")
		return err
	}).Should(gomega.Succeed())
	t.Cleanup(func() { _ = client.Close() })
	_, err = client.WaitFor(t.step(), reaches)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(ingresses.Delete(t.ctx, "cluster", metav1.DeleteOptions{})).To(gomega.Succeed())
}

// trustBundle returns the roots that gateways trust.
func (t *fixture) trustBundle() string {
	t.Helper()
	got, err := t.GuestClient.CoreV1().ConfigMaps(world.GuestNamespace).Get(t.ctx, world.Revision+"-ca-cert", metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	return got.Data["root-cert.pem"]
}

// olm has OLM install an operator that brings one of hypergate's CRDs, and remove it again.
func olm(t *fixture) {
	t.installed()
	t.crdsReady("Managed", "")
	const label = "operators.coreos.com/servicemeshoperator3.openshift-operators"
	subscriptions := t.servePlatform("operators.coreos.com", "subscriptions", "Subscription", "Namespaced")
	t.servePlatform("operators.coreos.com", "installplans", "InstallPlan", "Namespaced")
	t.servePlatform("operators.coreos.com", "clusterserviceversions", "ClusterServiceVersion", "Namespaced")
	t.Expect(t.ApplyObject(t.step(), fromyaml.Object(t.T, "{apiVersion: v1, kind: Namespace, metadata: {name: openshift-operators}}"))).
		To(gomega.Succeed())
	t.Expect(t.ApplyObject(t.step(), fromyaml.Object(t.T, `{apiVersion: operators.coreos.com/v1alpha1, kind: Subscription,
  metadata: {name: servicemesh, namespace: openshift-operators, labels: {`+label+`: ""}}}`))).To(gomega.Succeed())

	t.Log("OLM labels the CRD, and hypergate yields")
	t.Expect(t.patchCRD(destinationRules, `{"metadata":{"labels":{"`+label+`":"","olm.managed":"true"}}}`)).To(gomega.Succeed())
	t.crdsReady("MixedOwnership", "servicemesh in openshift-operators")
	t.Eventually(func() error { return t.addField(destinationRules) }).Should(gomega.Succeed())
	t.Consistently(func() (bool, error) { return t.hasField(destinationRules) }, "2s").Should(gomega.BeTrue())

	t.Log("the Subscription is deleted, and hypergate takes over, because the label alone does not mean that OLM owns the CRD")
	t.Expect(subscriptions.Namespace("openshift-operators").Delete(t.ctx, "servicemesh", metav1.DeleteOptions{})).To(gomega.Succeed())
	t.Eventually(func() (bool, error) { return t.hasField(destinationRules) }).Should(gomega.BeFalse())
	t.crdsReady("Managed", "")
	t.Expect(t.patchCRD(destinationRules, `{"metadata":{"labels":{"`+label+`":null,"olm.managed":null}}}`)).To(gomega.Succeed())
}
