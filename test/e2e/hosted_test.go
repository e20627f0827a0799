package e2e_test

import (
	"os"
	"strings"
	"time"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hypergate/hypergate/test/hang"
	"github.com/hypergate/hypergate/test/world"
)

func guestOutage(t *fixture) {
	h := t.installed()
	before := t.istiodPod()
	back := t.withoutGuestAPI()
	t.Log("hypergate still manages the management side, and does not change istiod")
	t.Expect(t.MgmtClient.CoreV1().Services(t.MgmtNamespace).Delete(t.ctx, "istiod-"+world.Revision, metav1.DeleteOptions{})).
		To(gomega.Succeed())
	t.Eventually(func() error {
		_, err := t.MgmtClient.CoreV1().Services(t.MgmtNamespace).Get(t.ctx, "istiod-"+world.Revision, metav1.GetOptions{})
		return err
	}).Should(gomega.Succeed())
	t.Consistently(h.Done(), "10s").ShouldNot(gomega.BeClosed())
	back()

	t.Log("after its return, drift in the guest is noticed within 30 s")
	t.Expect(t.GuestClient.RbacV1().ClusterRoles().Delete(t.step(), world.GuestIstiod, metav1.DeleteOptions{})).To(gomega.Succeed())
	hang.Within(t.Gomega, repairTime, t.work, func() error {
		_, err := t.GuestClient.RbacV1().ClusterRoles().Get(t.ctx, world.GuestIstiod, metav1.GetOptions{})
		return err
	}, gomega.Succeed())
	after := t.istiodPod()
	t.Expect(after.UID).To(gomega.Equal(before.UID), "istiod was not rolled out")
	t.Expect(after.Status.ContainerStatuses[0].RestartCount).To(gomega.Equal(before.Status.ContainerStatuses[0].RestartCount))
}

func mgmtOutage(t *fixture) {
	h := t.installed()
	before := t.istiodPod()
	back := t.withoutMgmtAPI()
	t.Consistently(h.Done(), "5s").ShouldNot(gomega.BeClosed())
	back()
	t.putsBackMgmtDrift(repairTime)
	t.Expect(h.Ready(t.step(), "readyz")).To(gomega.Succeed())

	t.Log("a hypergate that starts during the outage works after it")
	back = t.withoutMgmtAPI()
	h.Kill()
	late, err := t.Restarted(t.step(), h)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Consistently(late.Done(), "7s").ShouldNot(gomega.BeClosed())
	back()
	t.putsBackMgmtDrift(repairTime)
	t.Expect(t.istiodPod().UID).To(gomega.Equal(before.UID), "istiod was not rolled out")
}

const (
	// repairTime is the longest time in which hypergate repairs drift after an API server is back.
	repairTime = 30 * time.Second
	// startTime is that of a hypergate that has just been started: it reads charts and objects before it repairs drift.
	startTime = time.Minute
)

// work sends a request to each API server. It is the work of a round of hang.Within.
func (t *fixture) work() {
	for _, client := range []kubernetes.Interface{t.MgmtClient, t.GuestClient} {
		_, _ = client.CoreV1().Namespaces().Get(t.ctx, metav1.NamespaceDefault, metav1.GetOptions{}) // the answer does not matter
	}
}

// putsBackMgmtDrift deletes an object on the management side. hypergate must restore it in time.
func (t *fixture) putsBackMgmtDrift(limit time.Duration) {
	t.Helper()
	services, name := t.MgmtClient.CoreV1().Services(t.MgmtNamespace), "istiod-"+world.Revision
	t.Expect(services.Delete(t.step(), name, metav1.DeleteOptions{})).To(gomega.Succeed())
	hang.Within(t.Gomega, limit, t.work, func() error {
		_, err := services.Get(t.ctx, name, metav1.GetOptions{})
		return err
	}, gomega.Succeed())
}

func istiodAsksNoMgmt(t *fixture) {
	t.installed()
	log, err := os.ReadFile(t.MgmtAuditLog)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	asked, hypergates := 0, 0
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, `"userAgent":"pilot-discovery`) {
			asked++
		}
		if strings.Contains(line, `"userAgent":"hypergate`) {
			hypergates++
		}
	}
	t.Expect(asked).To(gomega.BeZero(), "requests of istiod in the management cluster's audit log")
	t.Expect(hypergates).NotTo(gomega.BeZero(), "the audit log contains the users")
	guestLog, err := os.ReadFile(t.GuestAuditLog)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(string(guestLog)).To(gomega.ContainSubstring(`"userAgent":"pilot-discovery`), "in the guest's it does")
}

// sameCluster gives hypergate an administrator's credential of the management cluster as its guest kubeconfig. It
// uses a process instead of the pod, because the kubelet would restart the pod repeatedly.
func sameCluster(t *fixture) {
	h, err := t.StartProcess(t.ctx, "--guest-kubeconfig", t.MgmtKubeconfig)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Eventually(h.Done()).Should(gomega.BeClosed())
	t.Expect(h.ExitCode()).To(gomega.Equal(1))
	log, err := os.ReadFile(h.Log())
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(string(log)).To(gomega.ContainSubstring("the guest kubeconfig leads to the management cluster itself"))
}
