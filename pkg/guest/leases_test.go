package guest_test

import (
	"net/http"
	"path"
	"sync"
	"testing"

	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
)

const revisionLease = "hypergate-claim-revision-openshift-gateway"

// unwatched is a guest in which Leases can be acquired and released while their watches are down.
type unwatched struct {
	*fixture
	// down is locked while the watches are down.
	down sync.RWMutex
	// answered is called after a Lease was acquired, before the answer arrives.
	answered func()
}

func startUnwatched(t *testing.T) *unwatched {
	t.Helper()
	u := &unwatched{answered: func() {}}
	u.fixture = startWith(t, emptyGuest, func(next http.RoundTripper) http.RoundTripper {
		return answering(func(r *http.Request) (*http.Response, error) {
			look := r.Clone(r.Context())
			look.Method, look.Body, look.ContentLength, look.URL.RawQuery = http.MethodGet, nil, 0, ""
			switch {
			case r.Method == http.MethodPatch:
				u.down.Lock()
				u.api.Put(theLeases,
					`{metadata: {name: `+revisionLease+`, namespace: openshift-ingress, uid: u1}, spec: {holderIdentity: me}}`)
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

func (u *unwatched) acquire() {
	u.Helper()
	u.Expect(u.guest.Acquire(u.Context(), ownership.Lease{Name: revisionLease, Purpose: "the revision"}, "me")).To(gomega.Succeed())
}

func (u *unwatched) held() []model.HeldLease { return u.observed().Leases.Held }

// relist lets the watches work again. It then observes after each notification until no Lease is held.
func (u *unwatched) relist() {
	u.Helper()
	for len(u.notified) > 0 {
		<-u.notified
	}
	u.down.Unlock()
	for looks := 0; looks == 0 || len(u.held()) > 0; looks++ {
		u.Eventually(u.notified).Should(gomega.Receive(), "no further notification")
	}
}

// TestALeaseWithoutAWatch covers a Lease that did not exist when the watch failed, nor when it started
// again. No event shows such a Lease.
func TestALeaseWithoutAWatch(t *testing.T) {
	t.Run("before the answer", func(t *testing.T) {
		u := startUnwatched(t)
		u.answered = func() {
			u.api.Put(theLeases)
			u.relist()
		}
		u.acquire()
		u.Eventually(u.held).Should(gomega.BeEmpty())
	})
	t.Run("after it", func(t *testing.T) {
		u := startUnwatched(t)
		u.acquire()
		u.Expect(u.held()).To(gomega.HaveLen(1), "what was answered is believed until the watch comes to it")
		u.api.Put(theLeases)
		u.relist()
	})
}

// TestALeaseIsReleasedOnce checks that a released Lease is not held any more, even while the watch cannot show that.
func TestALeaseIsReleasedOnce(t *testing.T) {
	u := startUnwatched(t)
	u.acquire()
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
