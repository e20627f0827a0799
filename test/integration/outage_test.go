//go:build chaos

package integration_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/hang"
)

// TestGuestAPIOutageOfTwentyMinutes stops the guest's API until istiod's token is due. hypergate still manages
// the management side. When the API is back, hypergate renews the token once, and the guest is as planned within half
// a minute. The mesh CA and istiod do not change.
func TestGuestAPIOutageOfTwentyMinutes(t *testing.T) {
	w := newHarness(t)
	clock := clocktesting.NewFakePassiveClock(time.Now())
	w.clock = clock
	w.run()
	w.install("demo")
	token, ca, generation := w.token(), w.caSecret(), w.istiod().Generation
	clock.SetTime(clock.Now().Add(35 * time.Minute))
	mgmt := w.mgmtRequests.count()

	w.pair.Guest.StopAPI()
	services, name := w.mgmt.CoreV1().Services(w.cfg.MgmtNamespace), w.cfg.IstiodName()
	const steps = 4
	for range steps {
		clock.SetTime(clock.Now().Add(20 * time.Minute / steps))
		w.Expect(services.Delete(t.Context(), name, metav1.DeleteOptions{})).To(gomega.Succeed())
		w.Eventually(func() error {
			_, err := services.Get(t.Context(), name, metav1.GetOptions{})
			return err
		}).Should(gomega.Succeed())
	}
	w.Expect(w.token()).To(gomega.Equal(token), "there is no server that could issue another one")
	repair := "PATCH /api/v1/namespaces/" + w.cfg.MgmtNamespace + "/services/" + name
	w.Expect(paths(writes(w.mgmtRequests.since(mgmt)))).To(gomega.Equal(slices.Repeat([]string{repair}, steps)))

	mgmt = w.mgmtRequests.count()
	w.Expect(w.pair.Guest.StartAPI(t.Context())).To(gomega.Succeed())
	roles, role := w.guest.RbacV1().ClusterRoles(), w.cfg.GuestIstiodName()
	w.Expect(roles.Delete(t.Context(), role, metav1.DeleteOptions{})).To(gomega.Succeed())
	back := func() error {
		_, err := roles.Get(t.Context(), role, metav1.GetOptions{})
		return err
	}
	hang.Within(w.Gomega, 30*time.Second, w.work, back, gomega.Succeed())
	w.Eventually(w.token).ShouldNot(gomega.Equal(token))
	w.Eventually(func() *metav1.Condition {
		return w.condition("demo", "ControllerInstalled")
	}).Should(haveStatus(metav1.ConditionTrue, "Installed"))
	w.settle()
	w.Expect(back()).NotTo(gomega.Satisfy(apierrors.IsNotFound))
	// Requests for a token that got no answer are tried again. One token is issued, and written once.
	secret := "PATCH /api/v1/namespaces/" + w.cfg.MgmtNamespace + "/secrets/" + model.CredentialSecretName
	if diff := cmp.Diff([]string{secret}, paths(writes(w.mgmtRequests.since(mgmt)))); diff != "" {
		t.Errorf("writes on the management side after the return, -want +got:\n%s", diff)
	}
	w.Expect(w.caSecret().Data).To(gomega.Equal(ca.Data))
	w.Expect(w.istiod().Generation).To(gomega.Equal(generation))
}

// TestNoGatewayIsReleasedRightAfterAnOutage stops the guest's API during a rollout of gateways. The pods of the
// released Gateway become ready right after it is back. The next Gateway is released two minutes later.
func TestNoGatewayIsReleasedRightAfterAnOutage(t *testing.T) {
	h := newHarness(t)
	clock := clocktesting.NewFakePassiveClock(time.Now())
	h.clock = clock
	w, stop := newGatewayWorldOn(h, "a", "b")
	stop()
	w.cfg.ProxyImage = "registry.example.com/proxyv2:new"
	w.run()
	w.Eventually(w.templates).Should(gomega.Equal(w.cfg.InjectorConfigMap(model.SlotB)))
	clock.SetTime(clock.Now().Add(10 * time.Second)) // no earlier process can have released one
	w.playIstiod(corev1.ConditionTrue)
	w.Eventually(w.held).Should(gomega.Equal([]string{"b"}))
	w.playGateway("a", w.cfg.ProxyImage, 0)
	w.settle()

	w.pair.Guest.StopAPI()
	services, name := w.mgmt.CoreV1().Services(w.cfg.MgmtNamespace), w.cfg.IstiodName()
	for range 4 { // each repair needs a pass
		w.Expect(services.Delete(t.Context(), name, metav1.DeleteOptions{})).To(gomega.Succeed())
		w.Eventually(func() error {
			_, err := services.Get(t.Context(), name, metav1.GetOptions{})
			return err
		}).Should(gomega.Succeed())
		clock.SetTime(clock.Now().Add(10 * time.Second))
	}
	w.Expect(w.pair.Guest.StartAPI(t.Context())).To(gomega.Succeed())
	w.playGateway("a", "", 1)
	w.settle()
	w.Expect(w.installedMessage("demo")).To(gomega.ContainSubstring("gateways are being rolled"))
	w.Expect(w.held()).To(gomega.Equal([]string{"b"}))

	clock.SetTime(clock.Now().Add(2 * time.Minute))
	t.Log("no event follows: hypergate decides again after two minutes of real time")
	w.Eventually(w.held).Should(gomega.BeEmpty())
}
