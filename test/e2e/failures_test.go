package e2e_test

import (
	"context"

	"github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/world"
)

// killedUninstalling kills hypergate twice during an uninstallation: when the webhook is gone but istiod is not, and
// when istiod is gone.
func killedUninstalling(t *fixture) {
	h := t.installed()
	t.Expect(t.webhooks()).NotTo(gomega.BeNil())
	t.Expect(t.DeleteClass(t.ctx, class)).To(gomega.Succeed())
	t.Eventually(t.webhooks).WithPolling(pollOften).Should(gomega.BeNil())
	h.Kill()
	// Only one quick request is possible here, because the kubelet starts the next container within one or two
	// seconds.
	_, err := t.MgmtClient.AppsV1().Deployments(t.MgmtNamespace).Get(t.ctx, "istiod-"+world.Revision, metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred(), "the kill was too late: istiod's Deployment is already gone")

	t.Log("the next hypergate continues, and is killed when istiod's Deployment is gone")
	h = t.start()
	t.Eventually(func() bool {
		_, err := t.MgmtClient.AppsV1().Deployments(t.MgmtNamespace).Get(t.ctx, "istiod-"+world.Revision, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}).WithPolling(pollOften).Should(gomega.BeTrue())
	h.Kill()

	t.Log("the next hypergate removes the rest")
	t.start()
	t.Eventually(t.members).Should(gomega.BeEmpty())
	t.Log("CRDs stay, and so do the users' objects")
	for _, name := range []string{"gatewayclasses.gateway.networking.k8s.io", "destinationrules.networking.istio.io"} {
		_, err := t.crds().Get(t.ctx, name, metav1.GetOptions{})
		t.Expect(err).NotTo(gomega.HaveOccurred())
	}
	_, err = t.Gateways.Gateways(world.GuestNamespace).Get(t.ctx, "gw", metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
}

// newToken replaces istiod's account in the guest, which invalidates all of its tokens. istiod reads the new token
// from its file.
func newToken(t *fixture) {
	t.installed()
	before, old := t.istiodPod(), t.istiodToken()
	t.Expect(t.authenticated(old)).To(gomega.BeTrue())
	name := world.GuestIstiod
	t.Expect(t.GuestClient.CoreV1().ServiceAccounts(world.GuestNamespace).Delete(t.ctx, name, metav1.DeleteOptions{})).To(gomega.Succeed())
	t.Eventually(t.istiodToken).ShouldNot(gomega.Equal(old))
	t.Expect(t.authenticated(t.istiodToken())).To(gomega.BeTrue())
	// The API server may cache the result of a token review for some time.
	t.Eventually(func() bool { return t.authenticated(old) }).Should(gomega.BeFalse())

	t.Log("istiod continues to work in the same process: it deploys a gateway and writes status")
	t.Expect(t.Apply(t.step(), "gateway.yaml",
		map[string]string{"name": "after-token", "namespace": world.GuestNamespace, "class": class})).To(gomega.Succeed())
	t.Cleanup(func() {
		_ = t.Gateways.Gateways(world.GuestNamespace).Delete(context.Background(), "after-token", metav1.DeleteOptions{})
	})
	// istiod's kubelet updates the token file within a minute, its client reads it within another minute, and then
	// the class triggers istiod.
	taken, cancel := context.WithTimeout(t.ctx, 2*stepTimeout)
	defer cancel()
	t.Expect(t.Programmed(taken, world.GuestNamespace, "after-token")).To(gomega.Succeed())
	after := t.istiodPod()
	t.Expect(after.UID).To(gomega.Equal(before.UID))
	t.Expect(after.Status.ContainerStatuses[0].RestartCount).To(gomega.Equal(before.Status.ContainerStatuses[0].RestartCount))
}

// istiodToken returns the guest token that istiod's pod mounts.
func (t *fixture) istiodToken() string {
	t.Helper()
	secret, err := t.MgmtClient.CoreV1().Secrets(t.MgmtNamespace).Get(t.ctx, "istio-kubeconfig", metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	return string(secret.Data["token"])
}

// authenticated reports whether the guest's API server accepts a token.
func (t *fixture) authenticated(token string) bool {
	t.Helper()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	got, err := t.GuestClient.AuthenticationV1().TokenReviews().Create(t.ctx, review, metav1.CreateOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	return got.Status.Authenticated
}

// forbiddenKind removes hypergate's permission to patch RoleBindings in the guest. Then a RoleBinding drifts, and
// after that another object.
func forbiddenKind(t *fixture) {
	t.installed()
	restore, err := t.Forbid(t.step(), "patch", "rolebindings")
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(func() { _ = restore(context.Background()) })
	name := world.GuestIstiod
	// Only a label is removed, so istiod does not lose permissions.
	unlabel := []byte(`{"metadata":{"labels":{"` + model.OwnerLabel + `":null}}}`)
	bindings, clusterBindings := t.GuestClient.RbacV1().RoleBindings(world.GuestNamespace), t.GuestClient.RbacV1().ClusterRoleBindings()
	_, err = bindings.Patch(t.ctx, name, types.MergePatchType, unlabel, metav1.PatchOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	const named = "guest side: not allowed to patch rolebindings"
	t.Eventually(t.installedMessage).Should(gomega.ContainSubstring(named))
	_, err = clusterBindings.Patch(t.ctx, name, types.MergePatchType, unlabel, metav1.PatchOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Eventually(func() (map[string]string, error) {
		got, err := clusterBindings.Get(t.ctx, name, metav1.GetOptions{})
		return got.Labels, err
	}).Should(gomega.HaveKey(model.OwnerLabel), "the rest converges")

	t.Log("once it is allowed, hypergate continues")
	t.Expect(restore(t.step())).To(gomega.Succeed())
	t.Eventually(func() (map[string]string, error) {
		got, err := bindings.Get(t.ctx, name, metav1.GetOptions{})
		return got.Labels, err
	}).Should(gomega.HaveKey(model.OwnerLabel))
	t.Eventually(t.installedMessage).ShouldNot(gomega.ContainSubstring(named))
	t.Expect(t.ClassCondition(t.step(), class, "ControllerInstalled", metav1.ConditionTrue)).To(gomega.Succeed())
}

// installedMessage returns the message of the class's condition ControllerInstalled. While istiod serves, the
// condition stays True, whatever drifts.
func (t *fixture) installedMessage() string {
	t.Helper()
	got, err := t.Gateways.GatewayClasses().Get(t.ctx, class, metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	c := meta.FindStatusCondition(got.Status.Conditions, "ControllerInstalled")
	t.Expect(c).NotTo(gomega.BeNil())
	return c.Message
}
