package integration_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/tunnel"
	"github.com/hypergate/hypergate/test/audit"
)

// TestAForbiddenTunnelIsNamed checks a guest whose API server answers 403 to each request for a relay, although
// hypergate's Role grants it: an admission policy of the guest refuses them. A condition names it. hypergate tries
// again only when it is due by its clock. Without a restart, it sees that the policy has gone. Here there are no relay
// pods, so the answer is 404 then.
func TestAForbiddenTunnelIsNamed(t *testing.T) {
	w := newHarness(t)
	clock := clocktesting.NewFakePassiveClock(time.Now())
	w.clock, w.probe = clock, controller.Probe{}
	w.byTunnel()
	allow := w.refuseProxies()
	w.run()
	w.createClass("demo")
	w.playIstiod(corev1.ConditionTrue)
	w.Eventually(w.istiod).ShouldNot(gomega.BeNil())
	w.Eventually(w.installedText("demo")).Should(gomega.MatchRegexp("^Unknown Pending: .*it has not been reached"))
	w.relaysAreReady()

	t.Log("one attempt asks for both relays; the next ones follow the clock, and nothing else")
	const patience, longest = 4, 30 * time.Second
	relays := len(model.RelayPodNames())
	for attempt := 1; attempt <= patience+2; attempt++ {
		w.Eventually(w.proxied(http.StatusForbidden)).Should(gomega.Equal(attempt * relays))
		if attempt >= patience {
			w.Eventually(w.installedText("demo")).
				Should(gomega.ContainSubstring("no relay of the tunnel can be reached: " + string(tunnel.Forbidden)))
		}
		w.settle()
		w.stir(fmt.Sprint("early-", attempt))
		w.settle()
		w.Expect(w.proxied(http.StatusForbidden)()).To(gomega.Equal(attempt*relays), "it was asked too early")
		clock.SetTime(clock.Now().Add(longest))
		w.stir(fmt.Sprint("due-", attempt))
	}
	w.Eventually(w.proxied(http.StatusForbidden)).Should(gomega.Equal((patience + 3) * relays))
	w.settle()

	t.Log("the policy goes, and the next attempt sees it")
	allow()
	clock.SetTime(clock.Now().Add(longest))
	w.stir("allowed")
	w.Eventually(w.proxied(http.StatusNotFound)).Should(gomega.Equal(relays))
	w.Eventually(w.installedText("demo")).Should(
		gomega.ContainSubstring("no relay of the tunnel can be reached: " + string(tunnel.NoRelay)))
	w.Expect(w.proxied(http.StatusForbidden)()).To(gomega.Equal((patience + 3) * relays))
}

// proxied returns a function that returns how often the guest's API server gave the sidecar's account an answer for a
// relay.
func (w *harness) proxied(code int32) func() int {
	user := "system:serviceaccount:" + w.cfg.GuestNamespace + ":" + model.TunnelAccountName
	return func() (n int) {
		requests, err := audit.Read(w.pair.Guest.AuditLog, user)
		w.Expect(err).NotTo(gomega.HaveOccurred())
		for _, r := range requests {
			if r.Subresource == "proxy" && r.Code == code {
				n++
			}
		}
		return n
	}
}

// refuseProxies creates an admission policy of the guest that refuses all requests for pods/proxy, and waits until it
// is in force. The returned function removes it, and waits until it is not.
func (w *harness) refuseProxies() (remove func()) {
	w.Helper()
	name, policies := w.cfg.Revision+"-proxies", w.guest.AdmissionregistrationV1()
	_, err := policies.ValidatingAdmissionPolicies().Create(w.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Connect},
					Rule: admissionregistrationv1.Rule{
						APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/proxy"},
					},
				},
			}}},
			Validations: []admissionregistrationv1.Validation{{Expression: "false", Reason: new(metav1.StatusReasonForbidden)}},
		},
	}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = policies.ValidatingAdmissionPolicyBindings().Create(w.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	answer := func() int {
		var code int
		w.guest.CoreV1().RESTClient().Get().Namespace(metav1.NamespaceDefault).Resource("pods").Name("http:none:1").SubResource("proxy").
			Do(w.Context()).StatusCode(&code)
		return code
	}
	w.Eventually(answer).Should(gomega.Equal(http.StatusForbidden))
	return func() {
		w.Expect(policies.ValidatingAdmissionPolicyBindings().Delete(w.Context(), name, metav1.DeleteOptions{})).To(gomega.Succeed())
		w.Expect(policies.ValidatingAdmissionPolicies().Delete(w.Context(), name, metav1.DeleteOptions{})).To(gomega.Succeed())
		w.Eventually(answer).Should(gomega.Equal(http.StatusNotFound))
	}
}

// TestTokensDespiteClocksThatDiffer checks both tokens of istiod's pod if hypergate's clock and the guest's differ:
// each is requested once, the guest accepts it, and it is renewed after four fifths of its lifetime by hypergate's
// clock. Then a pod with the right clock takes over. It replaces a token that seems to be issued in the future, or to
// have expired.
func TestTokensDespiteClocksThatDiffer(t *testing.T) {
	for name, skew := range map[string]time.Duration{
		"hypergate is two hours ahead": 2 * time.Hour, "hypergate is two hours behind": -2 * time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			w := newHarness(t)
			begin := time.Now().Add(skew)
			clock := clocktesting.NewFakePassiveClock(begin)
			w.clock = clock
			w.byTunnel()
			stop := w.run()
			w.install("demo")
			w.Expect(w.tokenRequests()).To(gomega.Equal([]int{1, 1}))
			w.accepts(w.token(), w.tunnelSecret()["token"])

			t.Log("the tokens are renewed when they are due, and not before")
			clock.SetTime(begin.Add(47 * time.Minute))
			w.stir("early")
			w.settle()
			w.Expect(w.tokenRequests()).To(gomega.Equal([]int{1, 1}))
			clock.SetTime(begin.Add(49 * time.Minute))
			w.stir("due")
			w.Eventually(w.tokenRequests).Should(gomega.Equal([]int{2, 2}))
			w.settle()
			stop()

			t.Log("a pod with the guest's clock takes over")
			before := []string{w.token(), w.tunnelSecret()["token"]}
			w.clock = nil
			w.run()
			w.Eventually(w.tokenRequests).Should(gomega.Equal([]int{3, 3}))
			w.settle()
			after := []string{w.token(), w.tunnelSecret()["token"]}
			w.Expect(after[0]).NotTo(gomega.Equal(before[0]))
			w.Expect(after[1]).NotTo(gomega.Equal(before[1]))
			w.accepts(after...)
			w.Expect(w.tokenRequests()).To(gomega.Equal([]int{3, 3}))
		})
	}
}

// tokenRequests returns how many tokens hypergate requested for istiod, and for the tunnel's sidecar.
func (w *harness) tokenRequests() []int {
	out := make([]int, 2)
	for _, request := range w.guestRequests.since(0) {
		for i, account := range []string{w.cfg.GuestIstiodName(), model.TunnelAccountName} {
			if strings.HasPrefix(request, http.MethodPost) && strings.Contains(request, "/serviceaccounts/"+account+"/token?") {
				out[i]++
			}
		}
	}
	return out
}

// accepts checks that the guest accepts tokens.
func (w *harness) accepts(tokens ...string) {
	w.Helper()
	for _, token := range slices.Compact(tokens) {
		review, err := w.guest.AuthenticationV1().TokenReviews().Create(w.Context(), &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: token},
		}, metav1.CreateOptions{})
		w.Expect(err).NotTo(gomega.HaveOccurred())
		w.Expect(review.Status.Authenticated).To(gomega.BeTrue(), review.Status.Error)
	}
}
