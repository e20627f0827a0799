package integration_test

import (
	"testing"
	"time"

	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/model"
)

// TestARejectedPlanKeepsIstiodsToken checks that istiod continues to serve, although hypergate does nothing else for
// it.
func TestARejectedPlanKeepsIstiodsToken(t *testing.T) {
	w := newHarness(t)
	stop := w.run()
	w.install("demo")
	stop()

	t.Log("the CA is damaged while hypergate does not run, and the token is due")
	before, generation := w.token(), w.istiod().Generation
	long := metav1.Now().Add(-55 * time.Minute)
	w.patchSecret(model.CASecretName, `{"data":{"ca-key.pem":null}}`)
	w.patchSecret(model.CredentialSecretName, `{"metadata":{"annotations":{"`+model.IssuedAnnotation+`":"`+long.UTC().
		Format(time.RFC3339)+
		`","`+model.ExpiresAnnotation+`":"`+long.Add(time.Hour).UTC().Format(time.RFC3339)+`"}}}`)
	w.run()
	w.Eventually(w.token).ShouldNot(gomega.Equal(before))
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "ControllerInstalled") }).Should(gomega.And(
		haveStatus(metav1.ConditionTrue, "Installed"),
		gomega.HaveField("Message", gomega.ContainSubstring("but hypergate changes nothing until this is resolved"))))
	damaged, err := w.mgmt.CoreV1().Secrets(w.cfg.MgmtNamespace).Get(t.Context(), model.CASecretName, metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(damaged.Data).NotTo(gomega.HaveKey("ca-key.pem"), "it is not replaced")
	w.Expect(w.istiod().Generation).To(gomega.Equal(generation), "istiod is not rolled out")
}

func (w *harness) patchSecret(name, patch string) {
	w.Helper()
	_, err := w.mgmt.CoreV1().Secrets(w.cfg.MgmtNamespace).
		Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "third-party"})
	w.Expect(err).NotTo(gomega.HaveOccurred())
}

// TestAnotherGuestAPIRollsIstiodOnce checks that istiod's kubeconfig has the new address before its pod
// restarts.
func TestAnotherGuestAPIRollsIstiodOnce(t *testing.T) {
	w := newHarness(t)
	stop := w.run()
	w.install("demo")
	stop()
	generation := w.istiod().Generation
	deployments, err := w.mgmt.AppsV1().Deployments(w.cfg.MgmtNamespace).Watch(t.Context(), metav1.SingleObject(w.istiod().ObjectMeta))
	w.Expect(err).NotTo(gomega.HaveOccurred())
	defer deployments.Stop()

	w.cfg.GuestServer = "https://another:6443"
	w.run()
	for change := range deployments.ResultChan() {
		if d, ok := change.Object.(*appsv1.Deployment); ok && d.Generation > generation {
			break
		}
	}
	secret, err := w.mgmt.CoreV1().Secrets(w.cfg.MgmtNamespace).Get(t.Context(), model.CredentialSecretName, metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(string(secret.Data["config"])).To(gomega.ContainSubstring("https://another:6443"))
	w.settle()
	w.Expect(w.istiod().Generation).To(gomega.Equal(generation + 1))
}

// TestIstiodWaitsForItsGuestPermissions checks that istiod is not installed without its permissions in the guest. It
// would report ready and observe nothing.
func TestIstiodWaitsForItsGuestPermissions(t *testing.T) {
	w := newHarness(t)
	user := "limited-" + w.cfg.Revision
	all := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
	limited := []rbacv1.PolicyRule{
		{APIGroups: []string{
			"", "apiextensions.k8s.io", "gateway.networking.k8s.io", "admissionregistration.k8s.io",
			"networking.istio.io",
		}, Resources: []string{"*"}, Verbs: []string{"*"}},
		{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles", "roles", "clusterrolebindings"}, Verbs: []string{"*"}},
		{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"rolebindings"}, Verbs: []string{"get", "list", "watch"}},
		// A user can write a role only with permissions that the user has.
		{APIGroups: []string{
			"coordination.k8s.io", "discovery.k8s.io", "apps", "autoscaling", "policy", "extensions.istio.io",
			"authentication.k8s.io",
		}, Resources: []string{"*"}, Verbs: []string{"*"}},
	}
	w.allowInGuest(user, limited)
	w.guestConfig = rest.CopyConfig(w.guestConfig)
	w.guestConfig.Impersonate = rest.ImpersonationConfig{UserName: user}
	w.run()
	w.createClass("demo")
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "ControllerInstalled") }).Should(gomega.And(
		haveStatus(metav1.ConditionFalse, "InstallFailed"),
		gomega.HaveField("Message", gomega.ContainSubstring(
			"guest side: not allowed to patch rolebindings.rbac.authorization.k8s.io (RBAC)",
		))))
	_, err := w.guest.RbacV1().ClusterRoles().Get(t.Context(), w.cfg.GuestIstiodName(), metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred(), "the rest converges")
	w.Expect(w.istiod()).To(gomega.BeNil())

	w.allowInGuest(user, all)
	w.Eventually(w.istiod).ShouldNot(gomega.BeNil(), "once it is allowed, hypergate continues")
	w.playIstiod(corev1.ConditionTrue)
	w.Eventually(func() *metav1.Condition {
		return w.condition("demo", "ControllerInstalled")
	}).Should(haveStatus(metav1.ConditionTrue, "Installed"))
}

// allowInGuest gives a user these permissions in the guest, and removes all others.
func (w *harness) allowInGuest(user string, rules []rbacv1.PolicyRule) {
	w.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules}
	if _, err := w.guest.RbacV1().ClusterRoles().Create(w.Context(), role, metav1.CreateOptions{}); err != nil {
		_, err := w.guest.RbacV1().ClusterRoles().Update(w.Context(), role, metav1.UpdateOptions{})
		w.Expect(err).NotTo(gomega.HaveOccurred())
		return
	}
	_, err := w.guest.RbacV1().ClusterRoleBindings().Create(w.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
}
