package guest_test

import (
	"net/http"
	"path"
	"sync"
	"testing"

	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/pkg/desired"
)

const claimLease = "hypergate-claim-revision-openshift-gateway"

// unwatched is a guest whose Leases can be claimed and given back while the watches of them are down.
type unwatched struct {
	*fixture
	// down is locked while they are.
	down sync.RWMutex
	// answered is called when a claim was taken, before its answer comes.
	answered func()
}

func startUnwatched(t *testing.T) *unwatched {
	t.Helper()
	u := &unwatched{answered: func() {}}
	u.fixture = startWith(t, nobody, func(next http.RoundTripper) http.RoundTripper {
		return answering(func(r *http.Request) (*http.Response, error) {
			look := r.Clone(r.Context())
			look.Method, look.Body, look.ContentLength, look.URL.RawQuery = http.MethodGet, nil, 0, ""
			switch {
			case r.Method == http.MethodPatch:
				u.down.Lock()
				u.api.Put(theLeases, `{metadata: {name: `+claimLease+`, namespace: openshift-ingress, uid: u1}, spec: {holderIdentity: me}}`)
				defer u.answered()
				return next.RoundTrip(look)
			case r.Method == http.MethodDelete:
				u.api.Put(theLeases)
				return next.RoundTrip(look)
			case path.Base(r.URL.Path) == "leases":
				u.down.RLock()
				defer u.down.RUnlock()
			}
			return next.RoundTrip(r)
		})
	})
	u.observed()
	return u
}

func (u *unwatched) claim() {
	u.Helper()
	u.Expect(u.guest.Acquire(u.Context(), desired.OwnershipLease{Name: claimLease, Purpose: "the revision"}, "me")).To(gomega.Succeed())
}

func (u *unwatched) held() []desired.HeldLease { return u.observed().Leases.Held }

// listedAnew lets the watches work again. Whoever looks whenever he is told to then finds that nothing is held.
func (u *unwatched) listedAnew() {
	u.Helper()
	for len(u.notified) > 0 {
		<-u.notified
	}
	u.down.Unlock()
	for looks := 0; looks == 0 || len(u.held()) > 0; looks++ {
		u.Eventually(u.notified).Should(gomega.Receive(), "nobody looks again")
	}
}

// TestAClaimThatCameAndWentUnwatched: no event tells of a Lease that was not there before the watch broke, nor when it began anew.
func TestAClaimThatCameAndWentUnwatched(t *testing.T) {
	t.Run("before the answer", func(t *testing.T) {
		u := startUnwatched(t)
		u.answered = func() {
			u.api.Put(theLeases)
			u.listedAnew()
		}
		u.claim()
		u.Eventually(u.held).Should(gomega.BeEmpty())
	})
	t.Run("after it", func(t *testing.T) {
		u := startUnwatched(t)
		u.claim()
		u.Expect(u.held()).To(gomega.HaveLen(1), "what was answered is believed until the watch comes to it")
		u.api.Put(theLeases)
		u.listedAnew()
	})
}

// TestAClaimIsGivenBackOnce: also while the watch cannot tell that it is gone.
func TestAClaimIsGivenBackOnce(t *testing.T) {
	u := startUnwatched(t)
	u.claim()
	defer u.down.Unlock()
	held := u.held()
	u.Expect(held).To(gomega.HaveLen(1))
	other := held[0]
	other.UID = "u0"
	u.Expect(u.guest.Release(t.Context(), other)).To(gomega.Succeed())
	u.Expect(u.held()).To(gomega.Equal(held), "that was another one")
	u.Expect(u.guest.Release(t.Context(), held[0])).To(gomega.Succeed())
	u.Expect(u.held()).To(gomega.BeEmpty())
}
