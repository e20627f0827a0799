package integration_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/hypergate/hypergate/pkg/model"
)

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
