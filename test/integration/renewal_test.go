package integration_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/hypergate/hypergate/pkg/model"
)

// TestARenewalCostsOneTokenAndOneWrite checks that a renewal does not change istiod's pod, and occurs after four
// fifths of the token's lifetime.
func TestARenewalCostsOneTokenAndOneWrite(t *testing.T) {
	w := newHarness(t)
	clock := clocktesting.NewFakePassiveClock(time.Now())
	w.clock = clock
	w.run()
	w.install("demo")
	before, generation := w.token(), w.istiod().Generation
	mgmt, guest := w.mgmtRequests.count(), w.guestRequests.count()

	clock.SetTime(time.Now().Add(40 * time.Minute)) // the token was issued some time ago
	w.stir("early")
	w.settle()
	w.Expect(paths(append(w.mgmtRequests.since(mgmt), w.guestRequests.since(guest)...))).To(gomega.BeEmpty())

	clock.SetTime(time.Now().Add(49 * time.Minute))
	w.stir("due")
	w.Eventually(w.token).ShouldNot(gomega.Equal(before))
	w.settle()
	account := "/api/v1/namespaces/" + w.cfg.GuestNamespace + "/serviceaccounts/" + w.cfg.GuestIstiodName()
	if diff := cmp.Diff([]string{"POST " + account + "/token"},
		paths(w.guestRequests.since(guest))); diff != "" {
		t.Errorf("requests to the guest, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"PATCH /api/v1/namespaces/" + w.cfg.MgmtNamespace + "/secrets/" + model.CredentialSecretName},
		paths(w.mgmtRequests.since(mgmt))); diff != "" {
		t.Errorf("requests to the management side, -want +got:\n%s", diff)
	}
	w.Expect(w.istiod().Generation).To(gomega.Equal(generation))
}

// TestARenewalDespiteAForbiddenList checks a Role without the permission to list istiod's Deployment. Everything
// else stops, but istiod's token is renewed.
func TestARenewalDespiteAForbiddenList(t *testing.T) {
	all := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets", "configmaps", "serviceaccounts", "services"}, Verbs: []string{"*"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"*"}},
		{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"networkpolicies"}, Verbs: []string{"*"}},
	}
	w := newHarness(t)
	clock := clocktesting.NewFakePassiveClock(time.Now())
	w.clock = clock
	stop := w.run()
	w.install("demo")
	stop()
	before, generation := w.token(), w.istiod().Generation

	user := "limited-" + w.cfg.Revision
	w.allow(user, slices.Concat(all[:2], all[3:])) // without Deployments
	w.mgmtConfig = rest.CopyConfig(w.mgmtConfig)
	w.mgmtConfig.Impersonate = rest.ImpersonationConfig{UserName: user}
	clock.SetTime(time.Now().Add(49 * time.Minute))
	count := w.mgmtRequests.count()
	w.run()
	w.Eventually(w.token).ShouldNot(gomega.Equal(before))
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "ControllerInstalled") }).Should(gomega.And(
		haveStatus(metav1.ConditionFalse, "InstallFailed"),
		gomega.HaveField("Message", gomega.ContainSubstring("management side: not allowed to list deployments.apps (RBAC)"))))
	w.Expect(paths(writes(w.mgmtRequests.since(count)))).To(gomega.Equal(
		[]string{"PATCH /api/v1/namespaces/" + w.cfg.MgmtNamespace + "/secrets/" + model.CredentialSecretName}),
		"nothing else is written")

	t.Log("once it is allowed, hypergate continues")
	w.allow(user, all)
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "ControllerInstalled") }).
		Should(haveStatus(metav1.ConditionTrue, "Installed"))
	w.Expect(w.istiod().Generation).To(gomega.Equal(generation))
}

// stir creates an event in the guest that requires no change: another annotation of istiod's namespace. If there is no
// such namespace, it creates it. A GatewayClass of another controller would cause no pass.
func (w *harness) stir(name string) {
	w.Helper()
	namespaces, key := w.guest.CoreV1().Namespaces(), w.cfg.GuestNamespace
	_, err := namespaces.Patch(w.Context(), key, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{"stirred":%q}}}`, name), metav1.PatchOptions{FieldManager: "third-party"})
	if apierrors.IsNotFound(err) {
		_, err = namespaces.Create(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key}}, metav1.CreateOptions{})
	}
	w.Expect(err).NotTo(gomega.HaveOccurred())
}

// paths returns requests without their parameters. It leaves out the webhook probes, because nothing here answers
// them.
func paths(requests []string) []string {
	out := make([]string, 0, len(requests))
	for _, r := range requests {
		if path, parameters, _ := strings.Cut(r, "?"); !strings.Contains(parameters, "dryRun=All") {
			out = append(out, path)
		}
	}
	return out
}
