package integration_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/test/hang"
)

// TestANewPodTakesTheLease starts hypergate while the evicted previous pod still holds the Lease. hypergate must take
// the Lease soon after that pod releases it. When hypergate ends, it releases the Lease.
func TestANewPodTakesTheLease(t *testing.T) {
	w := newHarness(t)
	w.elects = true
	leases, name := w.mgmt.CoordinationV1().Leases(w.cfg.MgmtNamespace), "hypergate-"+w.cfg.Revision
	_, err := leases.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("the-pod-before"), LeaseDurationSeconds: new(int32(137)),
			RenewTime: &metav1.MicroTime{Time: time.Now()},
		},
	}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	holder := func() string {
		lease, err := leases.Get(t.Context(), name, metav1.GetOptions{})
		w.Expect(err).NotTo(gomega.HaveOccurred())
		if lease.Spec.HolderIdentity == nil {
			return ""
		}
		return *lease.Spec.HolderIdentity
	}
	asked := func() (n int) {
		for _, r := range w.mgmtRequests.since(0) {
			if strings.Contains(r, "/leases/"+name) {
				n++
			}
		}
		return n
	}

	stop := w.run()
	w.Eventually(asked).Should(gomega.BeNumerically(">=", 2), "it waits and keeps checking the Lease")
	w.Expect(holder()).To(gomega.Equal("the-pod-before"))
	w.Expect(w.log.String()).
		To(gomega.And(gomega.ContainSubstring("Another pod holds the Lease"), gomega.ContainSubstring("holder=the-pod-before")))
	pod, err := os.Hostname()
	w.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = leases.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"holderIdentity":""}}`), metav1.PatchOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	// A candidate reads the Lease every two seconds. client-go's elector alone would wait for 26 to 57 s.
	took := hang.Within(w.Gomega, 4*time.Second, w.work, holder, gomega.Equal(pod))
	t.Logf("it was taken within %s after it was free", took)
	w.Eventually(w.log.String).Should(gomega.ContainSubstring("Starting Controller"))

	t.Log("the leader renews the Lease at once, and then sends no more requests than before")
	w.Eventually(func() bool {
		lease, err := leases.Get(t.Context(), name, metav1.GetOptions{})
		w.Expect(err).NotTo(gomega.HaveOccurred())
		return lease.Spec.RenewTime.After(lease.Spec.AcquireTime.Time)
	}).Should(gomega.BeTrue())
	n := asked()
	w.Consistently(asked, 5*time.Second).Should(gomega.Equal(n))

	ending := time.Now()
	stop()
	t.Logf("it ended in %s", time.Since(ending).Round(time.Millisecond))
	w.Expect(holder()).To(gomega.BeEmpty())
}
