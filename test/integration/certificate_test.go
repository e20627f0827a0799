package integration_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/test/freeport"
	"github.com/hypergate/hypergate/test/hang"
)

// usedUp is the shortest lifetime of a certificate that expires during a test. Before the expiry, hypergate reads a
// kubeconfig up to two times, every ten seconds.
const usedUp = 45 * time.Second

// TestAClientCertificateIsReplaced replaces a client certificate before it expires, as HyperShift and Cluster API do.
// hypergate does not restart, and the guest refuses no request.
func TestAClientCertificateIsReplaced(t *testing.T) {
	w := newHarness(t)
	w.health = freeport.Address(w.T)
	kubeconfig := w.kubeconfig()
	kubeconfig.installed()
	w.restart()
	generation := w.istiod().Generation

	var second *requests
	short, first := kubeconfig.usesInTime(func(func() bool) {
		before := kubeconfig.replaced()
		second = kubeconfig.replace(w.guestCertificate("second", time.Hour))
		w.Eventually(kubeconfig.replaced).Should(gomega.BeNumerically(">", before))
	})
	w.Expect(second.count()).To(gomega.BeNumerically(">", 0), "it was verified")
	w.expires(short)
	w.settle()
	mgmtCount, guestCount, before := w.mgmtRequests.count(), w.guestRequests.count(), second.count()
	w.repairsDrift()
	w.Expect(writes(second.since(before))).To(gomega.HaveLen(1), "the repair, with the new certificate")
	w.Expect(writes(w.guestRequests.since(guestCount))).To(gomega.HaveLen(1))
	w.Expect(writes(w.mgmtRequests.since(mgmtCount))).To(gomega.BeEmpty())
	w.Expect(first.unauthorized()+second.unauthorized()).To(gomega.BeZero(), "the guest never answered 401")

	t.Log("an expired certificate is not used, and this is reported")
	expired := kubeconfig.replace(w.guestCertificate("expired", -time.Minute))
	w.Eventually(func() string {
		return w.healthOf("readyz/guest")
	}).Should(gomega.ContainSubstring("the new guest kubeconfig is not used; the previous one stays in use"))
	w.Expect(w.log.String()).To(gomega.ContainSubstring("The new guest kubeconfig is not used; the previous one stays in use"))
	w.Expect(expired.unauthorized()).To(gomega.BeNumerically(">", 0))
	before = second.count()
	w.repairsDrift()
	w.Expect(writes(second.since(before))).To(gomega.HaveLen(1), "the repair, with the certificate that was in use")

	t.Log("a good certificate in its place ends the problem")
	good := kubeconfig.replace(w.guestCertificate("third", time.Hour))
	w.Eventually(func() string { return w.healthOf("readyz/guest") }).Should(gomega.Equal("ok"))
	before = good.count()
	w.repairsDrift()
	w.Expect(writes(good.since(before))).To(gomega.HaveLen(1))
	w.Expect(good.unauthorized()).To(gomega.BeZero())
	w.Expect(w.istiod().Generation).To(gomega.Equal(generation), "istiod has its own credentials and was never rolled out")
}

// TestAClientCertificateExpiresWhileItIsUsed checks that hypergate reports the expiry, and uses a good certificate at
// once when it replaces the expired one.
func TestAClientCertificateExpiresWhileItIsUsed(t *testing.T) {
	w := newHarness(t)
	w.health = freeport.Address(w.T)
	kubeconfig := w.kubeconfig()
	kubeconfig.installed()
	w.restart()
	short, used := kubeconfig.usesInTime(func(expired func() bool) {
		w.Eventually(func() bool { return w.healthOf("readyz/guest") == "ok" || expired() }).Should(gomega.BeTrue())
	})
	w.expires(short)

	t.Log("a repair of drift that the watch reports is refused")
	role := w.cfg.GuestIstiodName()
	w.Expect(w.guest.RbacV1().ClusterRoles().Delete(t.Context(), role, metav1.DeleteOptions{})).To(gomega.Succeed())
	w.Eventually(used.unauthorized).Should(gomega.BeNumerically(">", 1), "it is tried again")
	w.Eventually(func() string {
		return w.healthOf("readyz/guest")
	}).Should(gomega.ContainSubstring("the guest does not accept the credentials in its kubeconfig (401)"))
	w.Eventually(w.log.String).Should(gomega.ContainSubstring("Unauthorized"))

	good := kubeconfig.replace(w.guestCertificate("good", time.Hour))
	w.Eventually(func() error {
		_, err := w.guest.RbacV1().ClusterRoles().Get(t.Context(), role, metav1.GetOptions{})
		return err
	}).Should(gomega.Succeed())
	w.settle()
	w.Expect(w.healthOf("readyz/guest")).To(gomega.Equal("ok"))
	w.Expect(good.unauthorized()).To(gomega.BeZero())
	refused := used.unauthorized()
	w.repairsDrift()
	w.Expect(used.unauthorized()).To(gomega.Equal(refused), "nothing is sent with the old certificate")
}

// replaced returns how often hypergate has replaced the kubeconfig that it uses.
func (k *kubeconfig) replaced() int {
	return strings.Count(k.world.log.String(), "The guest kubeconfig was replaced")
}

// usesInTime waits until hypergate uses a client certificate that expires soon, and calls then. If the certificate has
// expired after that, the machine is slow. Then usesInTime does the same with one that lives twice as long.
func (k *kubeconfig) usesInTime(then func(expired func() bool)) (short *rest.Config, by *requests) {
	w := k.world
	w.Helper()
	for life := usedUp; life < 2*hang.Deadline; life *= 2 {
		expires, before := time.Now().Add(life), k.replaced()
		expired := func() bool { return time.Now().After(expires) }
		short = w.guestCertificate("short-"+life.String(), life)
		by = k.replace(short)
		w.Eventually(func() bool { return k.replaced() > before || expired() }).Should(gomega.BeTrue())
		w.settle()
		then(expired)
		if !expired() {
			return short, by
		}
		w.Logf("the certificate expired after %s, before everything was done", life)
	}
	w.Fatal("hypergate uses no certificate in time")
	return nil, nil
}

// installed runs a hypergate with a long-lived certificate until the installation is complete. So the short-lived
// certificate is used only in the rest of the test.
func (k *kubeconfig) installed() {
	w := k.world
	w.Helper()
	k.replace(w.guestCertificate("lasting", time.Hour))
	stop := w.run()
	w.install("demo")
	stop()
}

// guestCertificate returns the configuration of a guest administrator with a client certificate of this lifetime.
func (w *harness) guestCertificate(name string, life time.Duration) *rest.Config {
	w.Helper()
	config, err := w.pair.Guest.ClientCertificate(w.cfg.Revision+"-"+name, "system:masters", time.Now().Add(life))
	w.Expect(err).NotTo(gomega.HaveOccurred())
	return config
}

// expires waits until the guest refuses a certificate.
func (w *harness) expires(config *rest.Config) {
	w.Helper()
	client := kubernetes.NewForConfigOrDie(config)
	w.Eventually(func() bool {
		_, err := client.CoreV1().Namespaces().Get(w.Context(), metav1.NamespaceDefault, metav1.GetOptions{})
		return apierrors.IsUnauthorized(err)
	}).Should(gomega.BeTrue())
}

// healthOf returns the answer of a health check.
func (w *harness) healthOf(check string) string {
	_, text := w.healthAnswer(check)
	return text
}

// healthAnswer returns the answer of a health check, or the reason why there is no answer.
func (w *harness) healthAnswer(check string) (status, text string) {
	request, err := http.NewRequestWithContext(w.Context(), http.MethodGet, "http://"+w.health+"/"+check, nil)
	if err != nil {
		return "", err.Error()
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err.Error()
	}
	return response.Status, string(body)
}
