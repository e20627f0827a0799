package integration_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/model"
)

// TestCRDsThatNeedAnAction checks problems that only a person can solve. The two parts share a guest.
func TestCRDsThatNeedAnAction(t *testing.T) {
	w := newCRDWorld(t)
	writesThatAreRefusedForEver(w)
	theConversionWebhookIsDead(w)
}

const (
	refCRD  = "referencegrants.gateway.networking.k8s.io"
	grpcCRD = "grpcroutes.gateway.networking.k8s.io"
)

// writesThatAreRefusedForEver checks three CRDs: one that hypergate is not allowed to write, one that is invalid, and
// one whose names belong to another CRD. hypergate reports each with its cause and retries with increasing intervals.
// Nothing else waits for them. When the causes are gone, it corrects all three.
func writesThatAreRefusedForEver(w *crdWorld) {
	w.Log("a CRD to adopt, with annotations that leave no room for another annotation")
	full := minusField(w.wanted(httpCRD), "hostnames")
	room := 256<<10 - len("filler") - len(crds.ManageAnnotation) - len("true")
	for key, value := range full.GetAnnotations() {
		if !strings.HasPrefix(key, "api-approved") {
			continue
		}
		room -= len(key) + len(value)
		full.SetAnnotations(map[string]string{key: value, crds.ManageAnnotation: "true"})
	}
	annotations := full.GetAnnotations()
	annotations["filler"] = strings.Repeat("x", room)
	full.SetAnnotations(annotations)
	w.create(full, "helm")
	w.Log("a CRD with another name that has the kind GRPCRoute")
	other := minimalCRD("calls.gateway.networking.k8s.io", "GRPCRoute", "v1", "Namespaced")
	other.SetAnnotations(map[string]string{"api-approved.kubernetes.io": "unapproved, it is a test"})
	w.create(other, "third-party")
	w.Log("and a user who can write all CRDs except one")
	user := "limited-" + w.cfg.Revision
	w.allowInGuest(user, rulesBut(refCRD, w.all()))
	unlimited := w.guestConfig
	w.guestConfig = rest.CopyConfig(unlimited)
	w.guestConfig.Impersonate = rest.ImpersonationConfig{UserName: user}
	stop := w.run()
	w.createClass("demo")
	w.playIstiod(corev1.ConditionTrue)
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "CRDsReady") }).Should(gomega.And(
		haveStatus(metav1.ConditionFalse, "NotReady"), gomega.HaveField("Message", gomega.And(
			gomega.ContainSubstring(
				refCRD+": cannot be written: not allowed to patch customresourcedefinitions.apiextensions.k8s.io (RBAC)",
			),
			gomega.ContainSubstring(httpCRD+": cannot be written: rejected as invalid: metadata.annotations"),
			gomega.ContainSubstring(grpcCRD+": the API server rejects its names: ")))))
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "ControllerInstalled") }).
		Should(haveStatus(metav1.ConditionTrue, "Installed"))
	w.retriesRarely(refCRD)

	w.allowInGuest(user, rulesBut("", w.all()))
	w.remove(other.GetName())
	w.patch(httpCRD, `{"metadata":{"annotations":{"filler":null}}}`)
	for _, name := range []string{httpCRD, refCRD, grpcCRD} {
		w.Eventually(w.isOurs(name)).Should(gomega.Succeed(), name)
		w.established(name)
	}
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "CRDsReady") }).Should(haveStatus(metav1.ConditionTrue, "Managed"))
	stop()
	w.guestConfig = unlimited
}

// rulesBut returns rules for everything that hypergate needs in the guest, except writing one CRD.
func rulesBut(one string, all []string) []rbacv1.PolicyRule {
	names := []string{}
	for _, name := range all {
		if name != one {
			names = append(names, name)
		}
	}
	const group = "apiextensions.k8s.io"
	return []rbacv1.PolicyRule{
		{APIGroups: []string{group}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"get", "list", "watch"}},
		{
			APIGroups: []string{group}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"create", "patch"},
			ResourceNames: names,
		},
		{
			APIGroups: []string{
				"", rbacv1.GroupName, "gateway.networking.k8s.io", "admissionregistration.k8s.io", "networking.istio.io",
				"security.istio.io", "telemetry.istio.io",
				"extensions.istio.io", "coordination.k8s.io", "discovery.k8s.io", "apps", "autoscaling", "policy", "authentication.k8s.io",
				"operator.openshift.io",
			},
			Resources: []string{"*"}, Verbs: []string{"*"},
		},
	}
}

// theConversionWebhookIsDead checks a failed conversion webhook at the start of hypergate. It concerns the object
// that decides if anything is installed. hypergate changes nothing, and istiod keeps its token.
func theConversionWebhookIsDead(w *crdWorld) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	w.clock = clock
	role := schema.GroupVersionResource{Group: rbacv1.GroupName, Version: "v1", Resource: "clusterroles"}
	mode := minimalCRD(openshift, "Ingress", "v1alpha1", "Cluster")
	w.Expect(unstructured.SetNestedSlice(mode.Object, append(versionsOf(mode), renamed(versionsOf(mode)[0], "v1")), "spec", "versions")).
		To(gomega.Succeed())
	w.create(mode, "openshift")

	w.Log("an object is stored in another version than hypergate reads, and nothing converts it")
	w.storeIn(openshift, "v1")
	group := schema.GroupResource{Group: "operator.openshift.io", Resource: "ingresses"}
	w.storeUnreadable(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "operator.openshift.io/v1", "kind": "Ingress", "metadata": map[string]any{"name": "cluster"},
	}}, w.dynamic.Resource(group.WithVersion("v1")), w.dynamic.Resource(group.WithVersion("v1alpha1")))
	w.Expect(w.dynamic.Resource(role).Delete(w.Context(), w.cfg.GuestIstiodName(), metav1.DeleteOptions{})).To(gomega.Succeed())

	before, mgmt, guest := w.token(), w.mgmtRequests.count(), w.guestRequests.count()
	clock.SetTime(time.Now().Add(49 * time.Minute))
	w.run()
	w.Eventually(w.token).ShouldNot(gomega.Equal(before))
	w.Expect(paths(writes(w.mgmtRequests.since(mgmt)))).To(gomega.Equal(
		[]string{"PATCH /api/v1/namespaces/" + w.cfg.MgmtNamespace + "/secrets/" + model.CredentialSecretName}))
	w.Expect(paths(writes(w.guestRequests.since(guest)))).To(gomega.Equal(
		[]string{"POST /api/v1/namespaces/" + w.cfg.GuestNamespace + "/serviceaccounts/" + w.cfg.GuestIstiodName() + "/token"}))
	missing := func() int {
		return strings.Count(w.log.String(), "The guest answers, but some required lists are missing")
	}
	w.Eventually(missing).Should(gomega.Equal(1))
	w.settle()
	w.Expect(missing()).To(gomega.Equal(1))

	w.Log("the conversion works again")
	w.patch(openshift, `{"spec":{"conversion":{"strategy":"None","webhook":null}}}`)
	w.Eventually(func() error {
		_, err := w.dynamic.Resource(role).Get(w.Context(), w.cfg.GuestIstiodName(), metav1.GetOptions{})
		return err
	}).Should(gomega.Succeed(), "hypergate continues without help")
}

// storeIn makes a version of a CRD the storage version and serves it, with a conversion webhook at which nothing
// listens.
func (w *crdWorld) storeIn(name, version string) {
	w.Helper()
	w.Eventually(func() error {
		u := w.get(name)
		all := versionsOf(u)
		for _, v := range all {
			v := v.(map[string]any)
			if v["storage"] = v["name"] == version; v["storage"] == true {
				v["served"] = true
			}
		}
		if err := unstructured.SetNestedSlice(u.Object, all, "spec", "versions"); err != nil {
			return fmt.Errorf("changing the versions: %w", err)
		}
		dead := map[string]any{"strategy": "Webhook", "webhook": map[string]any{
			"clientConfig": map[string]any{"url": "https://127.0.0.1:1/"}, "conversionReviewVersions": []any{"v1"},
		}}
		if err := unstructured.SetNestedMap(u.Object, dead, "spec", "conversion"); err != nil {
			return fmt.Errorf("changing the conversion: %w", err)
		}
		_, err := w.crds().Update(w.Context(), u, metav1.UpdateOptions{FieldManager: "third-party"})
		return err
	}).Should(gomega.Succeed())
}

func versionsOf(u *unstructured.Unstructured) []any {
	all, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
	return all
}

// renamed returns a version of a CRD with another name, which is not the storage version.
func renamed(version any, name string) any {
	out := maps.Clone(version.(map[string]any))
	out["name"], out["storage"] = name, false
	return out
}

// storeUnreadable creates an object repeatedly until it is stored in a version from which nothing can convert it. The
// API server needs some time to see the change of the CRD.
func (w *crdWorld) storeUnreadable(u *unstructured.Unstructured, stored, read dynamic.ResourceInterface) {
	w.Helper()
	w.Eventually(func() error {
		for _, objects := range []dynamic.ResourceInterface{stored, read} {
			_ = objects.Delete(w.Context(), u.GetName(), metav1.DeleteOptions{})
		}
		if _, err := stored.Create(w.Context(), u, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating it: %w", err)
		}
		if _, err := read.List(w.Context(), metav1.ListOptions{}); err == nil {
			return errors.New("it can be read")
		}
		return nil
	}).Should(gomega.Succeed())
}
