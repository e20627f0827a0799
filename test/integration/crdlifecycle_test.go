package integration_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
)

// TestCRDLifecycle gives each subtest its own guest, because a subtest's changes of CRDs affect the whole cluster.
func TestCRDLifecycle(t *testing.T) {
	t.Parallel()
	for name, story := range map[string]func(*crdWorld){
		"third party, identical":                        theSameIsKept,
		"third party, different":                        anotherIsBlockedUntilConsent,
		"ours, and older":                               oursOlderIsUpdated,
		"ours, and newer":                               oursNewerIsLeftAlone,
		"OLM's, until OLM is gone":                      olmOwnsUntilItIsGone,
		"perhaps OLM's":                                 forbiddenOLMIsUnknown,
		"each is removed while hypergate runs":          eachIsRemovedAtRunTime,
		"each is missing when hypergate starts":         eachIsMissingAtStart,
		"unmanaged, and back":                           unmanagedAndBack,
		"an object uses an unsupported field":           deadFieldsAreReported,
		"a class's CRD without the version that counts": classCRDOfAnotherVersion,
	} {
		t.Run(name, func(t *testing.T) { story(newCRDWorld(t)) })
	}
}

func theSameIsKept(w *crdWorld) {
	for _, name := range w.all() {
		w.create(w.wanted(name), "helm")
	}
	w.run()
	for _, name := range w.all() {
		w.Eventually(w.decision(name)).Should(decided(crds.Keep, crds.IsIdentical), name)
	}
	before := w.versionsOfCRDs(w.all()...)
	w.install("demo")
	w.Expect(w.versionsOfCRDs(w.all()...)).To(gomega.Equal(before))
	asked := w.guestRequests.count()
	w.looksAgain()
	w.Expect(requestsFor(w.guestRequests.since(asked), "/customresourcedefinitions")).To(gomega.BeEmpty(), "at rest no CRD is read")
}

func anotherIsBlockedUntilConsent(w *crdWorld) {
	w.Log("an additional field, and a conversion webhook that a third party manages")
	theirs := plusField(w.wanted(httpCRD), "secretSauce")
	theirs.SetLabels(map[string]string{"team": "blue"})
	annotations := theirs.GetAnnotations()
	annotations["note"] = "keep me"
	theirs.SetAnnotations(annotations)
	ca, err := pki.New(time.Now())
	w.Expect(err).NotTo(gomega.HaveOccurred())
	conversion := map[string]any{"strategy": "Webhook", "webhook": map[string]any{
		"clientConfig": map[string]any{
			"url":      "https://conversion.example.com/",
			"caBundle": base64.StdEncoding.EncodeToString(ca.Root),
		},
		"conversionReviewVersions": []any{"v1"},
	}}
	w.Expect(unstructured.SetNestedMap(theirs.Object, conversion, "spec", "conversion")).To(gomega.Succeed())
	w.create(theirs, "helm")
	w.run()
	w.Eventually(w.decision(httpCRD)).Should(decided(crds.Blocked, crds.NeedsConsent))
	w.Eventually(func() types.UID { return w.uid(classCRD) }).ShouldNot(gomega.BeEmpty(), "the others are installed")
	before := w.versionsOfCRDs(httpCRD)
	w.install("demo")
	w.Expect(w.versionsOfCRDs(httpCRD)).To(gomega.Equal(before))

	w.Log("consent")
	w.patch(httpCRD, `{"metadata":{"annotations":{"`+crds.ManageAnnotation+`":"true"}}}`)
	w.Eventually(w.isOurs(httpCRD)).Should(gomega.Succeed())
	w.settle()
	now := w.get(httpCRD)
	w.Expect(now.GetLabels()).To(gomega.HaveKeyWithValue("team", "blue"))
	w.Expect(now.GetAnnotations()).
		To(gomega.And(gomega.HaveKeyWithValue("note", "keep me"), gomega.HaveKeyWithValue(crds.ManageAnnotation, "true")))
	kept, _, err := unstructured.NestedMap(now.Object, "spec", "conversion")
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(kept).To(gomega.Equal(conversion))

	w.Log("the consent is withdrawn")
	w.patch(httpCRD, `{"metadata":{"annotations":{"`+crds.ManageAnnotation+`":"false"}},"spec":{"preserveUnknownFields":false}}`)
	w.Eventually(w.decision(httpCRD)).Should(decided(crds.Keep, crds.IsReleased))
}

// asHypergate applies a CRD as another release of hypergate did.
func (w *crdWorld) asHypergate(u *unstructured.Unstructured, version string) {
	w.Helper()
	u.SetLabels(map[string]string{model.OwnerLabel: w.cfg.OwnerValue(model.SideGuest)})
	annotations := u.GetAnnotations()
	for key := range annotations {
		if strings.HasSuffix(key, "version") {
			annotations[key] = version
		}
	}
	u.SetAnnotations(annotations)
	_, err := w.crds().Apply(w.Context(), u.GetName(), u, metav1.ApplyOptions{FieldManager: model.FieldManager})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.established(u.GetName())
}

func oursOlderIsUpdated(w *crdWorld) {
	w.asHypergate(minusField(w.wanted(httpCRD), "hostnames"), "v1.3.0")
	w.asHypergate(minusField(w.wanted(ruleCRD), "exportTo"), "1.28.2")
	w.Log("an object from the time of the old CRD")
	routes := w.dynamic.Resource(schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"}).
		Namespace("default")
	route := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": map[string]any{"name": "old"},
		"spec": map[string]any{"parentRefs": []any{map[string]any{"name": "gw"}}},
	}}
	_, err := routes.Create(w.Context(), route, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	uid := w.uid(httpCRD)
	w.run()
	w.install("demo")
	for _, name := range []string{httpCRD, ruleCRD} {
		w.Eventually(w.isOurs(name)).Should(gomega.Succeed())
	}
	w.Expect(w.uid(httpCRD)).To(gomega.Equal(uid), "it was updated, not recreated")
	kept, err := routes.Get(w.Context(), "old", metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	parents, _, _ := unstructured.NestedSlice(kept.Object, "spec", "parentRefs")
	w.Expect(parents).To(gomega.HaveLen(1))
}

func oursNewerIsLeftAlone(w *crdWorld) {
	w.asHypergate(plusField(w.wanted(httpCRD), "tomorrow"), "v9.9.9")
	before := w.versionsOfCRDs(httpCRD)
	w.run()
	w.Eventually(w.decision(httpCRD)).Should(decided(crds.Keep, crds.IsLater))
	w.install("demo")
	w.Expect(w.versionsOfCRDs(httpCRD)).To(gomega.Equal(before))
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "CRDsReady") }).Should(gomega.And(
		haveStatus(metav1.ConditionTrue, "Managed"), gomega.HaveField("Message",
			gomega.ContainSubstring("written by hypergate, in version v9.9.9, which is newer than this hypergate's "))))

	w.Log("an upgrade by another client is a problem")
	_, err := w.crds().Update(w.Context(), plusField(w.get(httpCRD), "later"), metav1.UpdateOptions{FieldManager: "helm"})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Eventually(w.decision(httpCRD)).Should(decided(crds.Blocked, crds.WouldDowngrade))
}

func olmOwnsUntilItIsGone(w *crdWorld) {
	w.installOLM()
	theirs := minusField(w.wanted(ruleCRD), "exportTo")
	theirs.SetLabels(map[string]string{meshPackage: "", "olm.managed": "true"})
	theirs.SetAnnotations(nil)
	w.create(theirs, "olm")
	before := w.versionsOfCRDs(ruleCRD)
	w.run()
	w.install("demo")
	w.Eventually(w.decision(ruleCRD)).Should(decided(crds.Keep, crds.IsOLMs))
	w.Eventually(func() crds.Owner {
		return w.seen().CRDs[ruleCRD].Owner
	}).Should(gomega.Equal(crds.Owner{Kind: crds.LiveOLM, Name: "Subscription mesh", Namespace: "default"}))
	for _, resource := range []string{"subscriptions", "installplans"} {
		w.Expect(w.olm(resource).Delete(w.Context(), "mesh", metav1.DeleteOptions{})).To(gomega.Succeed())
	}
	w.Eventually(func() string { return w.seen().CRDs[ruleCRD].Owner.Name }).Should(gomega.Equal("ClusterServiceVersion mesh"))
	w.settle()
	w.Expect(w.versionsOfCRDs(ruleCRD)).To(gomega.Equal(before), "one OLM object is left")

	w.Expect(w.olm("clusterserviceversions").Delete(w.Context(), "mesh", metav1.DeleteOptions{})).To(gomega.Succeed())
	w.Eventually(w.isOurs(ruleCRD)).Should(gomega.Succeed())
	w.Expect(w.get(ruleCRD).GetLabels()).To(gomega.HaveKey(meshPackage), "labels of others stay")
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "CRDsReady") }).Should(haveStatus(metav1.ConditionTrue, "Managed"))

	w.Log("OLM is back, and hypergate yields")
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription"}}
	u.SetName("again")
	u.SetLabels(map[string]string{meshPackage: ""})
	_, err := w.olm("subscriptions").Create(w.Context(), u, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Eventually(w.decision(ruleCRD)).Should(decided(crds.Keep, crds.IsOLMs))
	// hypergate itself has observed it, too.
	w.Eventually(func() *metav1.Condition {
		return w.condition("demo", "CRDsReady")
	}).Should(haveStatus(metav1.ConditionTrue, "MixedOwnership"))
	w.settle()
	w.patch(ruleCRD, `{"spec":{"names":{"shortNames":["drx"]}}}`)
	changed := w.get(ruleCRD).GetGeneration() // after this, the API server still writes the status
	w.settle()
	w.Expect(w.get(ruleCRD).GetGeneration()).To(gomega.Equal(changed), "OLM's change stays")
}

func forbiddenOLMIsUnknown(w *crdWorld) {
	w.installOLM()
	theirs := minusField(w.wanted(ruleCRD), "exportTo")
	theirs.SetLabels(map[string]string{meshPackage: ""})
	w.create(theirs, "olm")
	before := w.versionsOfCRDs(ruleCRD)
	user := "limited-" + w.cfg.Revision
	all := []string{"*"}
	w.allowInGuest(user, []rbacv1.PolicyRule{{APIGroups: []string{
		"", "apiextensions.k8s.io", "gateway.networking.k8s.io", "gateway.networking.x-k8s.io", "admissionregistration.k8s.io",
		"networking.istio.io", "rbac.authorization.k8s.io",
		"coordination.k8s.io", "discovery.k8s.io", "apps", "autoscaling", "policy", "extensions.istio.io", "authentication.k8s.io",
		"security.istio.io", "telemetry.istio.io", "authorization.k8s.io",
	}, Resources: all, Verbs: all}})
	w.guestConfig = rest.CopyConfig(w.guestConfig)
	w.guestConfig.Impersonate = rest.ImpersonationConfig{UserName: user}
	stop := w.run()
	w.Eventually(func() string { return w.seen().CRDs[ruleCRD].Owner.String() }).
		Should(gomega.Equal("unknown: whether OLM's mesh.operators is installed: " +
			"not allowed to list subscriptions.operators.coreos.com (RBAC)"))
	w.Eventually(w.decision(ruleCRD)).Should(decided(crds.Undetermined, crds.IsUnknown))
	w.createClass("demo")
	w.Eventually(w.istiod).ShouldNot(gomega.BeNil())
	w.Expect(w.versionsOfCRDs(ruleCRD)).To(gomega.Equal(before))
	stop()
}

func eachIsRemovedAtRunTime(w *crdWorld) {
	w.create(minimalCRD(openshift, "Ingress", "v1alpha1", "Cluster"), "cvo")
	w.installOLM()
	w.create(minimalCRD("xmeshes.gateway.networking.x-k8s.io", "XMesh", "v1alpha1", "Namespaced"), "third-party")
	w.run()
	w.install("demo")
	w.patch(ruleCRD, `{"metadata":{"labels":{"`+meshPackage+`":""}}}`)
	w.settle()
	for _, name := range w.all() {
		w.Log(name)
		before := w.uid(name)
		w.remove(name)
		w.Eventually(func() types.UID { return w.uid(name) }).ShouldNot(gomega.BeElementOf(before, types.UID("")))
		w.established(name)
		w.ensureClass("demo")
	}
	for _, name := range []string{
		openshift, "xmeshes.gateway.networking.x-k8s.io", "subscriptions.operators.coreos.com", "installplans.operators.coreos.com",
		"clusterserviceversions.operators.coreos.com",
	} {
		w.remove(name)
	}
	w.serves("demo")
	w.settle()
	// A list may be under way when its CRD is deleted. Soon after it, there are no more.
	w.Eventually(func(g gomega.Gomega) {
		asked := w.guestRequests.count()
		g.Consistently(func() []string {
			return requestsFor(w.guestRequests.since(asked), "operators.coreos.com", "openshift.io", "x-k8s.io")
		}, "6s").Should(gomega.BeEmpty(), "no request for objects of a deleted CRD")
	}).Should(gomega.Succeed())
}

// requestsFor returns the requests that contain one of the words.
func requestsFor(all []string, words ...string) []string {
	var out []string
	for _, r := range all {
		for _, word := range words {
			if strings.Contains(r, word) {
				out = append(out, r)
			}
		}
	}
	return out
}

func eachIsMissingAtStart(w *crdWorld) {
	stop := w.run()
	w.install("demo")
	stop()
	for _, name := range w.all() {
		w.Log(name)
		before := w.uid(name)
		w.remove(name)
		w.Eventually(func() types.UID { return w.uid(name) }).Should(gomega.BeEmpty())
		stop := w.run()
		w.Eventually(func() types.UID { return w.uid(name) }).ShouldNot(gomega.BeElementOf(before, types.UID("")))
		w.established(name)
		w.ensureClass("demo")
		w.serves("demo")
		w.settle() // the condition may be of the previous run: wait, so that this run is not stopped during its first writes
		w.serves("demo")
		stop()
	}
}

func unmanagedAndBack(w *crdWorld) {
	w.create(minimalCRD(openshift, "Ingress", "v1alpha1", "Cluster"), "cvo")
	modes := w.dynamic.Resource(schema.GroupVersionResource{Group: "operator.openshift.io", Version: "v1alpha1", Resource: "ingresses"})
	w.run()
	w.install("demo")
	before := w.versionsOfCRDs(w.all()...)
	say := func(mode string) {
		w.Helper()
		body, err := json.Marshal(map[string]any{
			"apiVersion": "operator.openshift.io/v1alpha1", "kind": "Ingress", "metadata": map[string]any{"name": "cluster"},
			"spec": map[string]any{"gatewayAPI": map[string]any{"managementMode": mode}},
		})
		w.Expect(err).NotTo(gomega.HaveOccurred())
		_, err = modes.Patch(w.Context(), "cluster", types.ApplyPatchType, body,
			metav1.PatchOptions{FieldManager: "admin", Force: new(true)})
		w.Expect(err).NotTo(gomega.HaveOccurred())
	}
	say("Unmanaged")
	w.Eventually(w.istiod).Should(gomega.BeNil())
	w.settle()
	secrets, err := w.mgmt.CoreV1().Secrets(w.cfg.MgmtNamespace).List(w.Context(), metav1.ListOptions{LabelSelector: model.OwnerLabel})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(secrets.Items).To(gomega.ConsistOf(gomega.HaveField("Name", model.CASecretName)), "the CA stays, istiod's token goes")
	w.Eventually(func() crds.Mode { return w.seen().Mode }).Should(gomega.Equal(crds.Unmanaged))
	w.Expect(w.versionsOfCRDs(w.all()...)).To(gomega.Equal(before))
	_, err = w.gateway.GatewayClasses().Get(w.Context(), "demo", metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred(), "the class stays")
	w.remove(ruleCRD)
	w.settle()
	w.Expect(w.uid(ruleCRD)).To(gomega.BeEmpty(), "a CRD that was deleted in mode Unmanaged is not restored")

	say("Managed")
	w.Eventually(w.istiod).ShouldNot(gomega.BeNil())
	w.Eventually(func() types.UID { return w.uid(ruleCRD) }).ShouldNot(gomega.BeEmpty())
	w.Log("without the object, the flags decide, and they have the same value")
	w.Expect(modes.Delete(w.Context(), "cluster", metav1.DeleteOptions{})).To(gomega.Succeed())
	w.Eventually(func() crds.Mode { return w.seen().Mode }).Should(gomega.BeEmpty())
	w.settle()
	w.Expect(w.istiod()).NotTo(gomega.BeNil())
}

func deadFieldsAreReported(w *crdWorld) {
	w.create(w.experimental(httpCRD), "helm")
	w.create(w.experimental("tcproutes.gateway.networking.k8s.io"), "helm")
	before := w.versionsOfCRDs(httpCRD)
	w.run()
	w.install("demo")
	w.Eventually(w.decision(httpCRD)).Should(decided(crds.Blocked, crds.NeedsConsent))
	w.Eventually(func() crds.Use { return w.seen().CRDs[httpCRD].Use }).Should(gomega.Equal(crds.Unused))
	w.Eventually(func() []string { return w.seen().Unserved }).Should(gomega.Equal([]string{"tcproutes.gateway.networking.k8s.io"}))

	gvr := schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"}
	backend := []any{map[string]any{"name": "backend", "port": int64(80)}}
	route := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": map[string]any{"name": "retries"},
		"spec": map[string]any{"rules": []any{map[string]any{"backendRefs": backend, "retry": map[string]any{"attempts": int64(3)}}}},
	}}
	_, err := w.dynamic.Resource(gvr).Namespace("default").Create(w.Context(), route, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	route.SetName("plain")
	w.Expect(unstructured.SetNestedSlice(route.Object, []any{map[string]any{"backendRefs": backend}}, "spec", "rules")).To(gomega.Succeed())
	_, err = w.dynamic.Resource(gvr).Namespace("default").Create(w.Context(), route, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Eventually(func() crds.Use { return w.seen().CRDs[httpCRD].Use }).Should(gomega.Equal(crds.Used))
	w.Eventually(func() []crds.InUse { return w.seen().InUse }).Should(gomega.ConsistOf(gomega.And(
		gomega.HaveField("CRD", httpCRD), gomega.HaveField("Namespace", "default"), gomega.HaveField("Name", "retries"),
		gomega.HaveField("Fields", gomega.ContainElement(gomega.HaveField("Path", "spec.rules[].retry"))))))

	w.Log("even with consent it is not adopted, because the field would be lost")
	w.patch(httpCRD, `{"metadata":{"annotations":{"`+crds.ManageAnnotation+`":"true"}}}`)
	w.Eventually(w.decision(httpCRD)).Should(decided(crds.Blocked, crds.WouldLoseFields))
	w.settle()
	w.Expect(managers(w.get(httpCRD))).NotTo(gomega.ContainElement(model.FieldManager))
	w.Expect(before).NotTo(gomega.BeEmpty())

	w.Log("it is adopted when no object uses the field")
	w.Expect(w.dynamic.Resource(gvr).Namespace("default").Delete(w.Context(), "retries", metav1.DeleteOptions{})).To(gomega.Succeed())
	w.Eventually(w.isOurs(httpCRD)).Should(gomega.Succeed())
	w.Eventually(func() []crds.InUse { return w.seen().InUse }).Should(gomega.BeEmpty())
	_, err = w.dynamic.Resource(gvr).Namespace("default").Get(w.Context(), "plain", metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred(), "no object was deleted")
}

func classCRDOfAnotherVersion(w *crdWorld) {
	old := w.wanted(classCRD)
	versions, _, _ := unstructured.NestedSlice(old.Object, "spec", "versions")
	for _, v := range versions {
		if v := v.(map[string]any); v["name"] == "v1" {
			v["served"], v["storage"] = false, false
		} else {
			v["served"], v["storage"] = true, true
		}
	}
	w.Expect(unstructured.SetNestedSlice(old.Object, versions, "spec", "versions")).To(gomega.Succeed())
	w.create(old, "helm")
	w.run()
	w.Eventually(func() types.UID { return w.uid(httpCRD) }).ShouldNot(gomega.BeEmpty(), "the others are installed")
	w.Eventually(w.decision(classCRD)).Should(decided(crds.Blocked, crds.NeedsConsent))
}
