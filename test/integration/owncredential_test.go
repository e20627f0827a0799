package integration_test

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	guestconfig "github.com/hypergate/hypergate/pkg/kubeconfig"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/test/audit"
	"github.com/hypergate/hypergate/test/deploy"
)

// renewedSecret is the Secret in the role of deploy/renewal.
const renewedSecret = "hypergate-service-account-kubeconfig"

// TestHypergateRenewsItsOwnCredential steps through days: hypergate renews the kubeconfig with which it reaches the
// guest after half of its life, with one request and one write, and works with the new one.
func TestHypergateRenewsItsOwnCredential(t *testing.T) {
	w := guestKubeconfig{newHarness(t), filepath.Join(t.TempDir(), "kubeconfig")}
	clock, now := clocktesting.NewFakePassiveClock(time.Now()), time.Now()
	w.clock, w.cfg.GuestKubeconfigSecret, w.cfg.RenewGuestKubeconfig = clock, renewedSecret, renewedSecret
	w.writeContexts()
	w.createAccount()
	w.stored(renewedSecret, guestconfig.KeyHyperShift)
	w.permitted()
	w.serveHyperShift()
	w.createControlPlane("guest1", "")
	w.harness.run()
	w.install("demo")

	for day, name := range []string{"one", "two", "three"} {
		before := w.ownToken()
		now = now.Add(11 * time.Hour)
		clock.SetTime(now)
		w.stir(name + "-early")
		w.settle()
		w.Expect(w.renewals()).To(gomega.Equal(day), "less than half of its life is over")

		now = now.Add(2 * time.Hour)
		clock.SetTime(now)
		w.stir(name)
		w.Eventually(w.ownToken).ShouldNot(gomega.Equal(before))
		w.settle()
		w.stir(name + "-again")
		w.settle()
		w.Expect(w.renewals()).To(gomega.Equal(day+1), "the new kubeconfig is in use")
	}
	t.Log("a renewal that fails is in a condition")
	secrets := w.mgmt.CoreV1().Secrets(w.cfg.MgmtNamespace)
	_, err := secrets.Patch(w.Context(), renewedSecret, types.MergePatchType, []byte(`{"immutable":true}`), metav1.PatchOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	now = now.Add(13 * time.Hour)
	clock.SetTime(now)
	minute := 0
	degraded := func() []metav1.Condition { // reports are limited in time
		minute++
		clock.SetTime(now.Add(time.Duration(minute) * time.Minute))
		w.stir("immutable-" + strconv.Itoa(minute))
		return w.conditionsOf("guest1")
	}
	w.Eventually(degraded).Should(gomega.ContainElement(gomega.And(
		gomega.HaveField("Type", status.ControlPlaneDegraded), gomega.HaveField("Status", metav1.ConditionTrue),
		gomega.HaveField("Message", gomega.And(
			gomega.ContainSubstring("renewing hypergate's own credential for the guest: "), gomega.ContainSubstring("immutable"))))))

	t.Log("another client replaces the Secret")
	w.Expect(secrets.Delete(w.Context(), renewedSecret, metav1.DeleteOptions{})).To(gomega.Succeed())
	w.stored(renewedSecret, guestconfig.KeyHyperShift)
	w.Eventually(degraded).Should(gomega.ContainElement(gomega.And(
		gomega.HaveField("Type", status.ControlPlaneDegraded), gomega.HaveField("Status", metav1.ConditionFalse))))

	t.Log("it works with the new one alone")
	w.repairsDrift()
	t.Log("the command replaces what hypergate has renewed")
	w.stored(renewedSecret, guestconfig.KeyHyperShift)
}

// createAccount creates hypergate's account in the guest.
func (w guestKubeconfig) createAccount() {
	w.Helper()
	namespace, name := w.cfg.GuestNamespace, w.cfg.Revision+"-own"
	w.createNamespace(w.guest, namespace)
	_, err := w.guest.CoreV1().ServiceAccounts(namespace).
		Create(w.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: deploy.Account}}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = w.guest.RbacV1().ClusterRoleBindings().Create(w.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: deploy.Account}},
	}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
}

// permitted checks that deploy/renewal permits what a renewal needs.
func (w guestKubeconfig) permitted() {
	w.Helper()
	for _, of := range []struct {
		folder, namespace string
		admin             *rest.Config
		permission        audit.Permission
	}{
		{"management", w.cfg.MgmtNamespace, w.pair.Mgmt.Config, audit.Permission{Verb: "patch", Resource: "secrets", Name: renewedSecret}},
		{
			"guest", w.cfg.GuestNamespace, w.pair.Guest.Config,
			audit.Permission{Verb: "create", Resource: "serviceaccounts/token", Name: deploy.Account},
		},
	} {
		objects, err := deploy.Render("renewal/" + of.folder)
		w.Expect(err).NotTo(gomega.HaveOccurred())
		for _, o := range objects {
			o.SetNamespace(of.namespace)
			if o.GetKind() == "RoleBinding" {
				subjects := []any{map[string]any{"kind": "ServiceAccount", "name": deploy.Account, "namespace": of.namespace}}
				w.Expect(unstructured.SetNestedSlice(o.Object, subjects, "subjects")).To(gomega.Succeed())
			}
		}
		w.Expect(deploy.Apply(w.Context(), of.admin, objects)).To(gomega.Succeed())
		of.permission.Namespace = of.namespace
		user := deploy.UserOf(of.namespace, deploy.Account)
		w.Expect(deploy.TakesEffect(w.Context(), of.admin, user, []audit.Permission{of.permission}, true)).To(gomega.Succeed())
	}
}

// ownToken returns the token in the Secret with the guest's kubeconfig.
func (w guestKubeconfig) ownToken() string {
	secret, err := w.mgmt.CoreV1().Secrets(w.cfg.MgmtNamespace).Get(w.Context(), renewedSecret, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	config, err := guestconfig.Parse(secret.Data[guestconfig.KeyHyperShift])
	if err != nil {
		return ""
	}
	return config.BearerToken
}

// renewals returns how often hypergate wrote the Secret.
func (w guestKubeconfig) renewals() (n int) {
	for _, request := range paths(writes(w.mgmtRequests.since(0))) {
		if strings.HasSuffix(request, "/secrets/"+renewedSecret) {
			n++
		}
	}
	return n
}
