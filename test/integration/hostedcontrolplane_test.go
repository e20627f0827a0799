package integration_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/hypershift"
)

var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// serveHyperShift installs HyperShift's own CRD on the management cluster until the end of the test.
func (w *harness) serveHyperShift() {
	w.Helper()
	crd, err := hypershift.CRD(w.Context())
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.serve(crd)
	w.Eventually(func() error {
		_, err := w.controlPlanes().List(w.Context(), metav1.ListOptions{})
		return err
	}).Should(gomega.Succeed())
}

func (w *harness) controlPlanes() dynamic.ResourceInterface {
	return dynamic.NewForConfigOrDie(w.mgmtAdmin()).Resource(hypershift.ControlPlanes()).Namespace(w.cfg.MgmtNamespace)
}

// mgmtAdmin returns the configuration with which the test itself uses the management cluster.
func (w *harness) mgmtAdmin() *rest.Config {
	if w.ownMgmt != nil {
		return w.ownMgmt
	}
	return w.pair.Mgmt.Config
}

// createControlPlane creates a HostedControlPlane. more adds fields to its spec.
func (w *harness) createControlPlane(name, more string) {
	w.Helper()
	w.createPlane(controlPlane(w.T, name, more))
}

// createPlane creates a HostedControlPlane until the end of the test.
func (w *harness) createPlane(plane *unstructured.Unstructured) {
	w.Helper()
	name := plane.GetName()
	_, err := w.controlPlanes().Create(w.Context(), plane, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Cleanup(func() {
		_, _ = w.controlPlanes().
			Patch(context.Background(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		_ = w.controlPlanes().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
}

// controlPlane returns a HostedControlPlane that HyperShift's CRD accepts. more adds fields to its spec.
func controlPlane(t *testing.T, name, more string) *unstructured.Unstructured {
	t.Helper()
	return fromyaml.Object(t, hypershift.ControlPlaneYAML(name, more))
}

func (w *harness) patchControlPlane(name, patch string) {
	w.Helper()
	_, err := w.controlPlanes().Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
}

// spoil deletes an object on each side, which hypergate would restore.
func (w *harness) spoil() {
	w.Helper()
	w.Expect(w.mgmt.CoreV1().Services(w.cfg.MgmtNamespace).Delete(w.Context(), w.cfg.WebhookService(), metav1.DeleteOptions{})).
		To(gomega.Succeed())
	w.Expect(w.guest.RbacV1().ClusterRoleBindings().Delete(w.Context(), w.cfg.GuestIstiodName(), metav1.DeleteOptions{})).
		To(gomega.Succeed())
}

// repaired reports whether the objects that spoil deleted exist again.
func (w *harness) repaired() bool {
	_, mgmtErr := w.mgmt.CoreV1().Services(w.cfg.MgmtNamespace).Get(w.Context(), w.cfg.WebhookService(), metav1.GetOptions{})
	_, guestErr := w.guest.RbacV1().ClusterRoleBindings().Get(w.Context(), w.cfg.GuestIstiodName(), metav1.GetOptions{})
	return mgmtErr == nil && guestErr == nil
}

// owners returns the owner references of istiod.
func (w *harness) owners() []metav1.OwnerReference {
	if d := w.istiod(); d != nil {
		return d.OwnerReferences
	}
	return nil
}

// writesNothing checks that hypergate writes nothing on either side in its next passes, but reports to a
// HostedControlPlane.
func (w *harness) writesNothing(why string) {
	w.Helper()
	w.writesOnly(why, isReport)
}

// writesOnly checks that hypergate sends no other writes than these in its next passes.
func (w *harness) writesOnly(why string, these func(request string) bool) {
	w.Helper()
	mgmt, guest := w.mgmtRequests.count(), w.guestRequests.count()
	w.looksAgain()
	w.Expect(slices.DeleteFunc(writes(append(w.mgmtRequests.since(mgmt), w.guestRequests.since(guest)...)), these)).
		To(gomega.BeEmpty(), why)
}

// isReport reports whether a request is part of a report to a HostedControlPlane.
func isReport(request string) bool { return strings.Contains(request, "/hostedcontrolplanes/") }

// isReportOrStatus reports the same, or whether it writes the status of a class. The webhook probe continues, and on a
// busy machine its failure can have another cause, which the status names.
func isReportOrStatus(request string) bool {
	return isReport(request) || strings.Contains(request, "/gatewayclasses/demo/status?")
}

// TestHyperShiftComesLater checks a management cluster without HyperShift. hypergate must not ask for
// HostedControlPlanes repeatedly, and must notice when HyperShift is installed.
func TestHyperShiftComesLater(t *testing.T) {
	w := newHarness(t)
	w.run()
	w.install("demo")
	w.Expect(w.istiod().OwnerReferences).To(gomega.BeEmpty())
	asked := func() (n int) {
		for _, r := range w.mgmtRequests.since(0) {
			if strings.Contains(r, "/hostedcontrolplanes") && !isReport(r) {
				n++
			}
		}
		return n
	}
	w.Expect(asked()).To(gomega.BeNumerically("<=", 1), "hypergate asks only once for a kind that is not served")

	generation := w.istiod().Generation
	w.serveHyperShift()
	w.createControlPlane("guest1", "")
	w.Eventually(w.owners).Should(gomega.HaveLen(1))
	w.settle()
	w.Expect(w.istiod().Generation).To(gomega.Equal(generation+1), "it rolls istiod out once")
	w.Expect(w.istiod().Spec.Template.Labels).
		To(gomega.HaveKeyWithValue("hypershift.openshift.io/hosted-control-plane", w.cfg.MgmtNamespace))
	at := asked()
	w.Consistently(asked, "2s").Should(gomega.Equal(at), "then hypergate watches it")
}

// TestTheLifeOfAHostedControlPlane checks the life of a HostedControlPlane from its creation.
func TestTheLifeOfAHostedControlPlane(t *testing.T) {
	w := newHarness(t)
	w.serveHyperShift()
	w.createControlPlane("guest1", "")
	w.patchControlPlane("guest1", `{"metadata":{"finalizers":["hypershift.openshift.io/finalizer"]}}`)
	w.run()
	w.install("demo")
	hcp, err := w.controlPlanes().Get(t.Context(), "guest1", metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(w.istiod().Generation).To(gomega.BeEquivalentTo(1), "it is created correctly at once")
	for _, name := range []string{model.CASecretName, model.CredentialSecretName} {
		secret, err := w.mgmt.CoreV1().Secrets(w.cfg.MgmtNamespace).Get(t.Context(), name, metav1.GetOptions{})
		w.Expect(err).NotTo(gomega.HaveOccurred())
		w.Expect(secret.OwnerReferences).To(gomega.ConsistOf(gomega.HaveField("UID", hcp.GetUID())), name)
	}

	t.Log("a restart is requested")
	w.patchControlPlane("guest1", `{"metadata":{"annotations":{"hypershift.openshift.io/restart-date":"2026-11-21"}}}`)
	w.Eventually(func() map[string]string {
		return w.istiod().Spec.Template.Annotations
	}).Should(gomega.HaveKeyWithValue("hypershift.openshift.io/restart-date", "2026-11-21"))
	w.playIstiod(corev1.ConditionTrue)
	// Here no webhook answers. The status says so after some probes.
	w.Eventually(func() string { return w.installedMessage("demo") }).Should(gomega.ContainSubstring("waits for istiod's webhook"))
	w.settle()
	w.Expect(w.istiod().Generation).To(gomega.BeEquivalentTo(2))

	t.Log("an irrelevant change has no effect")
	w.patchControlPlane("guest1", `{"spec":{"channel":"stable-4.21"}}`)
	w.writesOnly("another channel", isReportOrStatus)

	t.Log("it is paused without an end")
	w.patchControlPlane("guest1", `{"spec":{"pausedUntil":"true"}}`)
	w.Eventually(w.log.String).Should(gomega.ContainSubstring("it is paused, without an end"))
	w.settle()
	w.spoil()
	w.writesNothing("it is paused")
	w.Expect(w.repaired()).To(gomega.BeFalse())

	t.Log("then it is paused until a time, and only the time ends the pause")
	until, mgmt, guest := time.Now().Add(4*time.Second), w.mgmtRequests.count(), w.guestRequests.count()
	w.patchControlPlane("guest1", `{"spec":{"pausedUntil":"`+until.UTC().Format(time.RFC3339)+`"}}`)
	w.Eventually(w.repaired).Should(gomega.BeTrue())
	for _, first := range []time.Time{w.mgmtRequests.firstWrite(mgmt), w.guestRequests.firstWrite(guest)} {
		w.Expect(first).To(gomega.BeTemporally(">=", until.Truncate(time.Second)), "nothing was written before")
	}
	w.settle()

	t.Log("an unreadable value is not a pause")
	w.patchControlPlane("guest1", `{"spec":{"pausedUntil":"tomorrow"}}`)
	w.spoil()
	w.Eventually(w.repaired).Should(gomega.BeTrue())
	w.settle()

	t.Log("it is deleted and waits for its finalizer, then it is gone")
	w.Expect(w.controlPlanes().Delete(t.Context(), "guest1", metav1.DeleteOptions{})).To(gomega.Succeed())
	w.Eventually(w.log.String).Should(gomega.ContainSubstring("it is being deleted"))
	w.settle()
	w.spoil()
	w.writesNothing("it is being deleted")
	w.patchControlPlane("guest1", `{"metadata":{"finalizers":null}}`)
	w.Eventually(func() bool {
		_, err := w.controlPlanes().Get(t.Context(), "guest1", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}).Should(gomega.BeTrue())
	w.deleteClass("demo")
	w.writesNothing("what it owned goes with it")
	w.Expect(w.istiod()).NotTo(gomega.BeNil(), "there is no garbage collector here")

	t.Log("it is restored from a backup with another UID")
	w.createClass("demo")
	w.createControlPlane("guest1", "")
	restored, err := w.controlPlanes().Get(t.Context(), "guest1", metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Eventually(w.owners).Should(gomega.ConsistOf(gomega.HaveField("UID", restored.GetUID())))
	w.Eventually(w.repaired).Should(gomega.BeTrue())
	w.Expect(w.istiod().Generation).To(gomega.BeNumerically("<=", 4), "far from ten, which HyperShift's tests allow")
}

// TestTwoHostedControlPlanes checks that hypergate, which supports only one, chooses neither of the two.
func TestTwoHostedControlPlanes(t *testing.T) {
	w := newHarness(t)
	w.serveHyperShift()
	w.createControlPlane("guest1", "")
	w.run()
	w.install("demo")
	generation := w.istiod().Generation
	w.createControlPlane("guest2", "")
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "ControllerInstalled") }).Should(gomega.And(
		haveStatus(metav1.ConditionTrue, "Installed"),
		gomega.HaveField("Message", gomega.ContainSubstring("hypergate changes nothing until this is resolved"))))
	w.spoil()
	w.looksAgain()
	w.Expect(w.repaired()).To(gomega.BeFalse())
	w.Expect(w.istiod().Generation).To(gomega.Equal(generation))

	w.Expect(w.controlPlanes().Delete(t.Context(), "guest2", metav1.DeleteOptions{})).To(gomega.Succeed())
	w.Eventually(w.repaired).Should(gomega.BeTrue())
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "ControllerInstalled") }).Should(
		gomega.HaveField("Message", gomega.Not(gomega.ContainSubstring("nothing more"))))
}

// TestAGuestWithoutIngress checks that hypergate installs nothing and removes an existing installation.
func TestAGuestWithoutIngress(t *testing.T) {
	w := newHarness(t)
	w.serveHyperShift()
	w.run()
	w.install("demo")
	w.createControlPlane("guest1", `, capabilities: {disabled: [Console, Ingress]}`)
	w.Eventually(w.istiod).Should(gomega.BeNil())
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "ControllerInstalled") }).Should(gomega.And(
		haveStatus(metav1.ConditionUnknown, "Pending"),
		gomega.HaveField("Message", gomega.ContainSubstring("capability Ingress is disabled in this cluster"))))
	w.Eventually(w.repaired).Should(gomega.BeFalse())
	w.settle()
	w.writesNothing("nothing is asked for")
	_, err := w.mgmt.CoreV1().Secrets(w.cfg.MgmtNamespace).Get(t.Context(), model.CASecretName, metav1.GetOptions{})
	w.Expect(apierrors.IsNotFound(err)).To(gomega.BeTrue())
}

// TestNamespacedPermissionsAreSufficient checks that namespaced permissions are sufficient to watch the
// HostedControlPlane and to make it the owner. Without permission to list, hypergate does nothing, because the
// control plane may be paused.
func TestNamespacedPermissionsAreSufficient(t *testing.T) {
	w := newHarness(t)
	w.serveHyperShift()
	w.createControlPlane("guest1", "")
	user := "limited-" + w.cfg.Revision
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"", "apps", "networking.k8s.io", "coordination.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"*"}},
	}}
	roles := w.mgmt.RbacV1().Roles(w.cfg.MgmtNamespace)
	role, err := roles.Create(t.Context(), role, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = w.mgmt.RbacV1().RoleBindings(w.cfg.MgmtNamespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.mgmtConfig = rest.CopyConfig(w.mgmtConfig)
	w.mgmtConfig.Impersonate = rest.ImpersonationConfig{UserName: user}
	w.haveCRDs()
	stop := w.run()
	w.Eventually(w.log.String).
		Should(gomega.ContainSubstring("Not allowed to read the object of the hosted control plane"))
	w.writesNothing("it may be paused")
	stop()

	role.Rules = append(role.Rules,
		rbacv1.PolicyRule{
			APIGroups: []string{"hypershift.openshift.io"}, Resources: []string{"hostedcontrolplanes"},
			Verbs: []string{"list", "watch"},
		})
	_, err = roles.Update(t.Context(), role, metav1.UpdateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.run()
	w.createClass("demo")
	w.playIstiod(corev1.ConditionTrue)
	w.Eventually(w.owners).Should(gomega.HaveLen(1))
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "ControllerInstalled") }).Should(gomega.And(
		haveStatus(metav1.ConditionTrue, "Installed"), gomega.HaveField("Message", gomega.Not(gomega.ContainSubstring("not allowed")))))
}
