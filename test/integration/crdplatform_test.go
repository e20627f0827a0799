package integration_test

import (
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/crds"
)

// TestCRDsAndThePlatform checks the effects of OpenShift's ingress operator: its changes of CRDs, and its admission
// policy.
func TestCRDsAndThePlatform(t *testing.T) {
	t.Parallel()
	for name, story := range map[string]func(*crdWorld){
		"its policy refuses us":       deniedByPolicy,
		"it writes over what is ours": yieldToIngressOperator,
		"it has fewer CRDs":           besideFewerCRDs,
	} {
		t.Run(name, func(t *testing.T) { story(newCRDWorld(t)) })
	}
}

// ingressOperatorPolicy creates a policy by which only the ingress operator can write CRDs of the Gateway API.
func (w *crdWorld) ingressOperatorPolicy() (remove func()) {
	w.Helper()
	remove = w.enforce(guestPolicy{
		name: "ingress-operator-crds",
		operations: []admissionregistrationv1.OperationType{
			admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete,
		},
		rule: admissionregistrationv1.Rule{
			APIGroups: []string{"apiextensions.k8s.io"}, APIVersions: []string{"*"}, Resources: []string{"customresourcedefinitions"},
		},
		conditions: []admissionregistrationv1.MatchCondition{{
			Name: "gateway-api", Expression: `(request.operation == 'DELETE' ? oldObject : object).spec.group == ` +
				`'gateway.networking.k8s.io'`,
		}},
		validation: admissionregistrationv1.Validation{
			Expression: `request.userInfo.username == 'system:serviceaccount:openshift-ingress-operator:ingress-operator'`,
			Message:    "Gateway API CRDs are managed by the ingress operator",
		},
	})
	w.Eventually(func() error {
		_, err := w.crds().Patch(w.Context(), httpCRD, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}).Should(gomega.MatchError(gomega.ContainSubstring("managed by the ingress operator")))
	return remove
}

// deniedByPolicy checks that a policy refuses writes although there is consent for all CRDs. The installation
// continues, hypergate reports the refusal, and retries rarely.
func deniedByPolicy(w *crdWorld) {
	for _, name := range crds.GatewayAPI().Names() {
		u := w.wanted(name)
		if name == httpCRD {
			u = minusField(u, "hostnames")
		}
		w.create(u, "ingress-operator")
	}
	remove := w.ingressOperatorPolicy()
	before := w.versionsOfCRDs(crds.GatewayAPI().Names()...)
	w.cfg.CRDs.Consent = crds.Given
	w.run()
	w.createClass("demo")
	w.playIstiod(corev1.ConditionTrue)
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "CRDsReady") }).
		Should(gomega.And(haveStatus(metav1.ConditionFalse, "DeniedByAdmissionPolicy"),
			gomega.HaveField("Message", gomega.ContainSubstring("managed by the ingress operator"))))
	w.Eventually(func() *metav1.Condition {
		return w.condition("demo", "ControllerInstalled")
	}).Should(haveStatus(metav1.ConditionTrue, "Installed"))
	w.Expect(w.versionsOfCRDs(crds.GatewayAPI().Names()...)).To(gomega.Equal(before))
	w.retriesRarely(httpCRD)

	w.Log("the policy is removed, and hypergate adopts the CRDs")
	remove()
	for _, name := range crds.GatewayAPI().Names() {
		w.Eventually(w.isOurs(name)).Should(gomega.Succeed(), name)
	}
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "CRDsReady") }).Should(haveStatus(metav1.ConditionTrue, "Managed"))
}

// retriesRarely checks that hypergate retries a refused write of a CRD with increasing intervals. The first one is a
// second. Without an increase, there would never be five seconds between two writes.
func (w *crdWorld) retriesRarely(name string) {
	w.Helper()
	patch := http.MethodPatch + " /apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + name + "?"
	before := w.guestRequests.count()
	w.Eventually(func() time.Duration { return w.guestRequests.longestPause(before, patch) }).
		Should(gomega.BeNumerically(">=", 5*time.Second))
}

// yieldToIngressOperator checks the upgrade of a cluster to a release whose ingress operator manages these CRDs.
func yieldToIngressOperator(w *crdWorld) {
	w.run()
	w.install("demo")
	theirs := plusField(w.get(httpCRD), "another")
	updated, err := w.crds().Update(w.Context(), theirs, metav1.UpdateOptions{FieldManager: "ingress-operator"})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Eventually(w.decision(httpCRD)).Should(decided(crds.Blocked, crds.NeedsConsent))
	w.settle()
	w.Expect(w.get(httpCRD).GetResourceVersion()).To(gomega.Equal(updated.GetResourceVersion()))
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "CRDsReady") }).
		Should(gomega.And(haveStatus(metav1.ConditionFalse, "TakeoverBlocked"),
			gomega.HaveField("Message", gomega.ContainSubstring(httpCRD))))
	w.Log("with consent, hypergate adopts it again")
	w.patch(httpCRD, `{"metadata":{"annotations":{"`+crds.ManageAnnotation+`":"true"}}}`)
	w.Eventually(w.isOurs(httpCRD)).Should(gomega.Succeed())
}

// policyCRD is the CRD that the ingress operator does not have until 4.21.
const policyCRD = "backendtlspolicies.gateway.networking.k8s.io"

// besideFewerCRDs checks hypergate beside the CRDs of an ingress operator, in a guest without the operator's policy.
// The operator installs them after hypergate. Most have another content. One has only another version, as with 4.23.
// There is none of BackendTLSPolicies, as until 4.21: hypergate does not add it, because the operator would report
// itself as degraded. Neither side writes over what the other wrote.
func besideFewerCRDs(w *crdWorld) {
	w.create(minimalCRD("dnsrecords.ingress.operator.openshift.io", "DNSRecord", "v1", "Namespaced"), "cluster-version-operator")
	stop := w.run()
	names := slices.DeleteFunc(crds.GatewayAPI().Names(), func(name string) bool { return name == policyCRD })
	for _, name := range names {
		w.Eventually(w.isOurs(name)).Should(gomega.Succeed(), name)
	}
	w.settle()
	w.Expect(w.uid(policyCRD)).To(gomega.BeEmpty(), "it waits for a class")

	w.Log("the operator writes its CRDs")
	theirs := map[string]*unstructured.Unstructured{}
	for _, name := range names {
		u := w.wanted(name)
		if name != classCRD {
			u = plusField(u, "another")
		}
		annotations := u.GetAnnotations()
		annotations["gateway.networking.k8s.io/bundle-version"] = "v1.5.1"
		u.SetAnnotations(annotations)
		theirs[name] = u
		w.Eventually(func() error { return w.writeOver(u) }).Should(gomega.Succeed())
	}
	w.install("demo")
	w.Eventually(w.decision(policyCRD)).Should(decided(crds.Keep, crds.IsLeftAbsent))
	w.Eventually(w.decision(classCRD)).Should(decided(crds.Keep, crds.IsIdentical))
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "CRDsReady") }).
		Should(gomega.And(haveStatus(metav1.ConditionFalse, "TakeoverBlocked"), gomega.HaveField("Message", gomega.And(
			gomega.ContainSubstring(httpCRD), gomega.Not(gomega.ContainSubstring(policyCRD))))))
	w.settle()
	w.Expect(w.uid(policyCRD)).To(gomega.BeEmpty())
	before := w.versionsOfCRDs(names...)
	for _, name := range names {
		w.Expect(w.writeOver(theirs[name])).To(gomega.Succeed())
	}
	w.Expect(w.versionsOfCRDs(names...)).To(gomega.Equal(before), "the operator has to restore something")

	w.Log("the administrator accepts the other content")
	for _, name := range names {
		w.patch(name, `{"metadata":{"annotations":{"`+crds.ManageAnnotation+`":"false"}}}`)
	}
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "CRDsReady") }).
		Should(gomega.And(haveStatus(metav1.ConditionTrue, "MixedOwnership"),
			gomega.HaveField("Message", gomega.ContainSubstring(policyCRD+": not installed, because the guest's ingress operator"))))
	stop()

	w.Log("consent for all CRDs installs it")
	w.cfg.CRDs.Consent = crds.Given
	w.run()
	w.Eventually(w.isOurs(policyCRD)).Should(gomega.Succeed())
}

// writeOver writes a CRD as the ingress operator does (its pkg/operator/controller/gatewayapi, updateCRD): if the
// specification, or one of its annotations, is another one.
func (w *crdWorld) writeOver(want *unstructured.Unstructured) error {
	got, err := w.crds().Get(w.Context(), want.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	annotations := got.GetAnnotations()
	maps.Copy(annotations, want.GetAnnotations())
	got.SetAnnotations(annotations)
	for _, field := range []string{"versions", "names", "group", "scope"} {
		got.Object["spec"].(map[string]any)[field] = want.Object["spec"].(map[string]any)[field]
	}
	_, err = w.crds().Update(w.Context(), got, metav1.UpdateOptions{FieldManager: "ingress-operator"})
	return err
}
