package integration_test

import (
	"context"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/model"
)

// TestWithoutPermissionGatewaysRollAtOnce checks that istiod is changed although hypergate is not allowed to patch
// Gateways, and that a condition names the missing role. hypergate has all permissions except that one.
func TestWithoutPermissionGatewaysRollAtOnce(t *testing.T) {
	w, stop := newGatewayWorld(t, "a", "b")
	stop()
	user := "limited-" + w.cfg.Revision
	w.allowInGuest(user, rulesWithoutPatchOfGateways())
	w.guestConfig = rest.CopyConfig(w.guestConfig)
	w.guestConfig.Impersonate = rest.ImpersonationConfig{UserName: user}
	w.cfg.ProxyImage = "registry.example.com/proxyv2:new"
	w.run()
	w.Eventually(w.templates).Should(gomega.Equal(w.cfg.InjectorConfigMap(model.SlotB)))
	w.Expect(w.held()).To(gomega.BeEmpty())
	w.playIstiod(corev1.ConditionTrue)
	w.Eventually(func() string { return w.installedMessage("demo") }).Should(gomega.And(
		gomega.ContainSubstring("all Gateways roll at once: hypergate is not allowed to hold them"),
		gomega.ContainSubstring("apply deploy/hosted/guest in the guest")))
	w.settle()
}

// rulesWithoutPatchOfGateways allows everything in the guest except to change Gateways.
func rulesWithoutPatchOfGateways() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{
			APIGroups: []string{
				"", "apps", "apiextensions.k8s.io", rbacv1.GroupName, "admissionregistration.k8s.io", "coordination.k8s.io",
				"discovery.k8s.io", "autoscaling", "policy", "authentication.k8s.io", "networking.istio.io", "security.istio.io",
				"telemetry.istio.io", "extensions.istio.io", "networking.k8s.io",
			},
			Resources: []string{"*"}, Verbs: []string{"*"},
		},
		{
			APIGroups: []string{"gateway.networking.k8s.io"}, Resources: []string{"gatewayclasses", "gatewayclasses/status"},
			Verbs: []string{"*"},
		},
		{APIGroups: []string{"gateway.networking.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}},
	}
}

// TestTheGuestDeniesPatchesOfAGateway lets an admission policy of the guest deny the hold of one Gateway, with the
// code that a missing permission has, too. istiod waits until that Gateway is held, and no condition names a role. Then
// the policy denies its release. The other Gateway rolls, and a condition has the cause, until the denied one is
// deleted.
func TestTheGuestDeniesPatchesOfAGateway(t *testing.T) {
	w, stop := newGatewayWorld(t, "a", "b")
	stop()
	remove := w.freeze("a")
	w.cfg.ProxyImage = "registry.example.com/proxyv2:new"
	w.run()
	w.Eventually(w.held).Should(gomega.Equal([]string{"b"}))
	w.looksAgain()
	w.Expect(w.templates()).To(gomega.Equal(w.cfg.InjectorConfigMap(model.SlotA)), "istiod waits for the hold")
	w.Expect(w.installedMessage("demo")).NotTo(gomega.ContainSubstring("not allowed"))
	remove()
	w.Eventually(w.templates).Should(gomega.Equal(w.cfg.InjectorConfigMap(model.SlotB)))
	w.Expect(w.held()).To(gomega.Equal([]string{"a", "b"}))

	remove = w.freeze("a")
	defer remove()
	w.playIstiod(corev1.ConditionTrue)
	w.Eventually(w.held).Should(gomega.Equal([]string{"a"}), "the other Gateway is released")
	w.playGateway("b", w.cfg.ProxyImage, 1)
	w.Eventually(func() string { return w.installedMessage("demo") }).Should(gomega.ContainSubstring(
		"rolling gateways: Gateway " + w.namespace + "/a cannot be released, and keeps its pods: denied by the admission policy " +
			w.cfg.Revision + "-frozen"))
	w.settle()
	w.Expect(w.held()).To(gomega.Equal([]string{"a"}))
	w.Expect(w.gateway.Gateways(w.namespace).Delete(t.Context(), "a", metav1.DeleteOptions{})).To(gomega.Succeed())
	w.Eventually(func() string { return w.installedMessage("demo") }).ShouldNot(gomega.Or(
		gomega.ContainSubstring("rolling gateways"), gomega.ContainSubstring("being rolled")))
}

// TestTheGuestRevertsTheReleaseOfAGateway lets a mutating policy of the guest put the hold of one Gateway back. The API
// server answers such a release without an error. The other Gateway rolls, hypergate does not repeat the release in
// each pass, and a condition has the cause.
func TestTheGuestRevertsTheReleaseOfAGateway(t *testing.T) {
	h, clock := newHarness(t), &movedClock{}
	h.clock = clock
	w, stop := newGatewayWorldOn(h, "a", "b")
	stop()
	w.cfg.ProxyImage = "registry.example.com/proxyv2:new"
	w.run()
	w.Eventually(w.templates).Should(gomega.Equal(w.cfg.InjectorConfigMap(model.SlotB)))
	defer w.keepHeld("a")()
	w.playIstiod(corev1.ConditionTrue)
	w.Eventually(w.held).Should(gomega.Equal([]string{"a"}), "the other Gateway is released")
	w.playGateway("b", w.cfg.ProxyImage, 1)
	w.Eventually(func() string { return w.installedMessage("demo") }).Should(gomega.ContainSubstring(
		"rolling gateways: Gateway " + w.namespace + "/a cannot be released, and keeps its pods: " +
			"a mutating webhook or policy reverts the change"))
	clock.stop() // a release follows after a minute
	before := w.guestRequests.count()
	w.looksAgain()
	w.Expect(w.gatewayPatches(before)).To(gomega.BeEmpty())
	w.Expect(w.held()).To(gomega.Equal([]string{"a"}))
}

// gatewayPatches returns hypergate's patches of Gateways after a number of requests.
func (w *gatewayWorld) gatewayPatches(after int) (patches []string) {
	for _, request := range w.guestRequests.since(after) {
		if strings.HasPrefix(request, "PATCH") && strings.Contains(request, "/gateways/") {
			patches = append(patches, request)
		}
	}
	return patches
}

// TestAnotherClientHoldsAGatewayAgain lets a client of the guest undo each release of the smaller Gateway, which is the
// first one. The other one rolls all the same, and the releases get rare. A condition names the way to find the client.
func TestAnotherClientHoldsAGatewayAgain(t *testing.T) {
	h, clock := newHarness(t), &movedClock{}
	h.clock = clock
	w, stop := newGatewayWorldOn(h, "a", "b")
	stop()
	w.cfg.ProxyImage = "registry.example.com/proxyv2:new"
	w.run()
	w.Eventually(w.templates).Should(gomega.Equal(w.cfg.InjectorConfigMap(model.SlotB)))
	before := w.guestRequests.count()
	ctx, end := context.WithCancel(t.Context())
	defer w.restoreHold(ctx, "a")()
	defer end()
	w.playIstiod(corev1.ConditionTrue)
	w.Eventually(w.held).Should(gomega.Equal([]string{"a"}), "the other Gateway is released")
	w.playGateway("b", w.cfg.ProxyImage, 1)
	w.Eventually(func() string { return w.installedMessage("demo") }).Should(gomega.ContainSubstring(
		"rolling gateways: Gateway " + w.namespace + "/a keeps its pods: another client in the guest sets the annotation"))
	clock.stop() // a release follows after a minute
	w.Expect(w.gatewayPatches(before)).To(gomega.HaveLen(4), "three releases of the first Gateway, and one of the other")
	w.looksAgain()
	w.Expect(w.gatewayPatches(before)).To(gomega.HaveLen(4))
	w.Expect(w.held()).To(gomega.Equal([]string{"a"}))
}

// restoreHold holds a Gateway again after each release, until a context ends. The returned function waits for its end.
func (w *gatewayWorld) restoreHold(ctx context.Context, name string) (wait func()) {
	w.Helper()
	hold := []byte(`{"metadata":{"annotations":{"` + model.HoldAnnotation + `":"` + model.HoldValue(w.cfg.Revision) + `"}}}`)
	changes, err := w.gateway.Gateways(w.namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range changes.ResultChan() {
			_, err := w.gateway.Gateways(w.namespace).Patch(ctx, name, types.MergePatchType, hold, metav1.PatchOptions{})
			if err != nil && ctx.Err() == nil {
				w.Errorf("holding %s again: %v", name, err)
			}
		}
	}()
	return func() { <-done }
}

// keepHeld puts the hold of a Gateway back whenever it is changed, and waits until that is in force. The returned
// function ends that.
func (w *gatewayWorld) keepHeld(name string) (remove func()) {
	w.Helper()
	hold := model.HoldValue(w.cfg.Revision)
	end := w.mutate(guestMutation{
		name: w.cfg.Revision + "-held",
		rule: admissionregistrationv1.Rule{
			APIGroups: []string{"gateway.networking.k8s.io"}, APIVersions: []string{"*"}, Resources: []string{"gateways"},
		},
		conditions: []admissionregistrationv1.MatchCondition{{
			Name: "one", Expression: "object.metadata.namespace == '" + w.namespace + "' && object.metadata.name == '" + name + "'",
		}},
		expression: `Object{metadata: Object.metadata{annotations: {"` + model.HoldAnnotation + `": "` + hold + `"}}}`,
	})
	released := func() (string, error) {
		release := []byte(`{"metadata":{"annotations":{"` + model.HoldAnnotation + `":null}}}`)
		g, err := w.gateway.Gateways(w.namespace).Patch(w.Context(), name, types.MergePatchType, release,
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return "", err
		}
		return g.Annotations[model.HoldAnnotation], nil
	}
	w.Eventually(released).Should(gomega.Equal(hold))
	return end
}

// freeze denies all changes of one Gateway, and waits until they are denied. The returned function ends that.
func (w *gatewayWorld) freeze(name string) (remove func()) {
	w.Helper()
	end := w.enforce(guestPolicy{
		name:       w.cfg.Revision + "-frozen",
		operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
		rule: admissionregistrationv1.Rule{
			APIGroups: []string{"gateway.networking.k8s.io"}, APIVersions: []string{"*"}, Resources: []string{"gateways"},
		},
		conditions: []admissionregistrationv1.MatchCondition{{
			Name: "one", Expression: "object.metadata.namespace == '" + w.namespace + "' && object.metadata.name == '" + name + "'",
		}},
		validation: admissionregistrationv1.Validation{
			Expression: "false", Reason: new(metav1.StatusReasonForbidden), Message: "a change freeze",
		},
	})
	change := func() error {
		_, err := w.gateway.Gateways(w.namespace).Patch(w.Context(), name, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	w.Eventually(change).Should(gomega.MatchError(gomega.ContainSubstring("a change freeze")))
	return end
}
