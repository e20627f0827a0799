package integration_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hypergate/hypergate/pkg/desired"
)

// TestARenewalCostsOneTokenAndOneWrite, and istiod's pod stays as it is. It comes after four fifths of the token's life, and not before.
func TestARenewalCostsOneTokenAndOneWrite(t *testing.T) {
	w := newWorld(t)
	clock := clocktesting.NewFakePassiveClock(time.Now())
	w.clock = clock
	w.run()
	w.install("demo")
	before, generation := w.token(), w.istiod().Generation
	mgmt, guest := w.mgmtRequests.count(), w.guestRequests.count()

	clock.SetTime(time.Now().Add(47 * time.Minute))
	w.stir("early")
	w.settle()
	w.Expect(paths(append(w.mgmtRequests.since(mgmt), w.guestRequests.since(guest)...))).To(gomega.BeEmpty())

	clock.SetTime(time.Now().Add(49 * time.Minute))
	w.stir("due")
	w.Eventually(w.token).ShouldNot(gomega.Equal(before))
	w.settle()
	if diff := cmp.Diff([]string{"POST /api/v1/namespaces/" + w.cfg.GuestNamespace + "/serviceaccounts/" + w.cfg.IstiodName() + "/token"}, paths(w.guestRequests.since(guest))); diff != "" {
		t.Errorf("requests to the guest, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"PATCH /api/v1/namespaces/" + w.cfg.MgmtNamespace + "/secrets/" + desired.CredentialSecretName}, paths(w.mgmtRequests.since(mgmt))); diff != "" {
		t.Errorf("requests to the management side, -want +got:\n%s", diff)
	}
	w.Expect(w.istiod().Generation).To(gomega.Equal(generation))
}

// stir makes an event in the guest that asks for nothing.
func (w *world) stir(name string) {
	w.Helper()
	_, err := w.gateway.GatewayClasses().Create(w.Context(), &gatewayv1.GatewayClass{
		ObjectMeta: metav1.ObjectMeta{Name: w.cfg.Revision + "-" + name}, Spec: gatewayv1.GatewayClassSpec{ControllerName: "example.com/somebody-else"},
	}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
}

// paths are requests without their parameters; the tries to prove a webhook that nobody answers here are left out.
func paths(requests []string) []string {
	out := make([]string, 0, len(requests))
	for _, r := range requests {
		if path, parameters, _ := strings.Cut(r, "?"); !strings.Contains(parameters, "dryRun=All") {
			out = append(out, path)
		}
	}
	return out
}
