package integration_test

import (
	"strings"
	"testing"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
)

// hasSecret returns a function that reports whether a Secret of hypergate exists on the management side.
func (w *harness) hasSecret(name string) func() bool {
	return func() bool {
		_, err := w.mgmt.CoreV1().Secrets(w.cfg.MgmtNamespace).Get(w.Context(), name, metav1.GetOptions{})
		return err == nil
	}
}

// TestAStandbyInstanceCleansUpItsManagementSide checks that a forged Lease in the guest cannot keep hypergate's objects
// on the management side, or istiod's token, alive. hypergate does not change the guest.
func TestAStandbyInstanceCleansUpItsManagementSide(t *testing.T) {
	w := newHarness(t)
	w.cfg.IstioResources = nil
	w.run()
	w.install("forged")
	_, err := w.guest.CoordinationV1().Leases(w.cfg.GuestNamespace).
		Patch(t.Context(), ownership.Leases(w.cfg)[0].Name, types.MergePatchType,
			[]byte(`{"spec":{"holderIdentity":"gone"}}`), metav1.PatchOptions{FieldManager: "gone"})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Eventually(w.log.String).Should(gomega.ContainSubstring(inUse))
	w.settle()
	w.Expect(w.mgmt.CoreV1().Secrets(w.cfg.MgmtNamespace).Delete(t.Context(), model.CredentialSecretName, metav1.DeleteOptions{})).
		To(gomega.Succeed())
	w.Consistently(w.hasSecret(model.CredentialSecretName), "2s").Should(gomega.BeFalse(), "istiod gets no token")
	w.Expect(w.istiod()).NotTo(gomega.BeNil())

	guest := w.guestRequests.count()
	w.deleteClass("forged")
	w.Eventually(w.istiod).Should(gomega.BeNil())
	w.Eventually(w.hasSecret(model.CASecretName)).Should(gomega.BeFalse())
	w.settle()
	w.Expect(writes(w.guestRequests.since(guest))).To(gomega.BeEmpty(), "objects in the guest may belong to the other hypergate")
	account := func() error {
		_, err := w.guest.CoreV1().ServiceAccounts(w.cfg.GuestNamespace).Get(t.Context(), w.cfg.GuestIstiodName(), metav1.GetOptions{})
		return err
	}
	w.Expect(account()).To(gomega.Succeed())
	w.writesNothing("with nothing left")

	t.Log("after the hand-over, it also clears the guest")
	w.handOver()
	w.Eventually(account).ShouldNot(gomega.Succeed())
}

// TestOwnershipLeaseWritesAreRateLimited checks that hypergate recreates a repeatedly deleted Lease ten times, and then
// at a limited rate.
func TestOwnershipLeaseWritesAreRateLimited(t *testing.T) {
	w := newHarness(t)
	w.cfg.IstioResources = nil
	w.run()
	w.install("looped")
	lease := ownership.Leases(w.cfg)[0].Name
	w.Eventually(func() string {
		_ = w.guest.CoordinationV1().Leases(w.cfg.GuestNamespace).Delete(t.Context(), lease, metav1.DeleteOptions{})
		return w.log.String()
	}).Should(gomega.ContainSubstring("deleted or released repeatedly"))
	w.Expect(strings.Count(w.log.String(), "Acquired ownership of this guest")).To(gomega.BeNumerically("<", 20))
	w.Eventually(w.holders).Should(gomega.HaveLen(2))
	w.Expect(w.istiod()).NotTo(gomega.BeNil())
}
