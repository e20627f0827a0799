package guest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/test/fakeapi"
	"github.com/hypergate/hypergate/test/hang"
)

// TestTheGuestIsUnknownAfterAKubeconfigChange checks that the guest is unknown after a change of the kubeconfig until
// each watch that decisions depend on has listed with it. Each subtest delays another list.
func TestTheGuestIsUnknownAfterAKubeconfigChange(t *testing.T) {
	for _, missing := range []string{"customresourcedefinitions", "namespaces", "leases", "deployments", "configmaps"} {
		t.Run(missing, func(t *testing.T) {
			t.Parallel()
			g := hang.Gomega(t)
			api := fakeapi.New(t)
			api.Put(theLeases)
			api.Put(theIstiods)
			emptyGuest(api)
			first := api.Config()
			second := api.Config()
			second.BearerToken = "another"
			listed := make(chan struct{})
			release := sync.OnceFunc(func() { close(listed) })
			t.Cleanup(release)
			var asked atomic.Bool
			second.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return answering(func(r *http.Request) (*http.Response, error) {
					if path.Base(r.URL.Path) == missing {
						asked.Store(true)
						select {
						case <-listed:
						case <-r.Context().Done():
							return nil, r.Context().Err()
						}
					}
					return next.RoundTrip(r)
				})
			})
			var replaced atomic.Bool
			conn, err := guestconn.New(guestconn.Options{
				Config: first,
				Load: func() (*rest.Config, error) {
					if replaced.Load() {
						return second, nil
					}
					return first, nil
				},
				Verify: func(context.Context, guestconn.Candidate) (string, error) { return "the same guest", nil },
			})
			g.Expect(err).NotTo(gomega.HaveOccurred())
			cluster, err := guest.New(conn, config(), embedded(t))
			g.Expect(err).NotTo(gomega.HaveOccurred())
			notified := make(chan struct{}, 1000)
			g.Expect(cluster.Start(klog.NewContext(t.Context(), logr.Discard()), func() { notified <- struct{}{} })).To(gomega.Succeed())
			known := func() error {
				_, err := cluster.Observe()
				return err
			}
			g.Eventually(known).Should(gomega.Succeed())

			replaced.Store(true)
			conn.Look()
			g.Eventually(asked.Load).Should(gomega.BeTrue(), "it lists with the new kubeconfig")
			notSynced, is := errors.AsType[guest.NotSyncedError](known())
			g.Expect(is).To(gomega.BeTrue(), "what the kubeconfig before showed is still taken for known")
			g.Expect(notSynced.Missing).NotTo(gomega.BeEmpty())
			for len(notified) > 0 {
				<-notified
			}
			release()
			g.Eventually(notified).Should(gomega.Receive(), func() string {
				return fmt.Sprint("nothing wakes the next pass; the guest: ", known())
			})
			g.Eventually(known).Should(gomega.Succeed())
		})
	}
}

// TestALookAtNamespacesIsKeptForItsSession checks a kubeconfig that leads to the management cluster: the guest gets one
// request, however often it is asked. The kubeconfig that replaces it gets a request of its own at once, and another
// answer.
func TestALookAtNamespacesIsKeptForItsSession(t *testing.T) {
	t.Parallel()
	g := hang.Gomega(t)
	management, other := fakeapi.New(t), fakeapi.New(t)
	management.Put(theNamespaces, "{metadata: {name: clusters-guest1, uid: 5f0b}}")
	other.Put(theNamespaces, "{metadata: {name: kube-system, uid: 61c9}}")
	var replaced atomic.Bool
	conn, err := guestconn.New(guestconn.Options{
		Config: management.Config(),
		Load: func() (*rest.Config, error) {
			if replaced.Load() {
				return other.Config(), nil
			}
			return management.Config(), nil
		},
		Verify: func(context.Context, guestconn.Candidate) (string, error) { return "61c9", nil },
	})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	cluster, err := guest.New(conn, config(), embedded(t))
	g.Expect(err).NotTo(gomega.HaveOccurred())
	for range 5 {
		g.Expect(cluster.HasNamespace(t.Context(), "5f0b")).To(gomega.BeTrue())
	}
	g.Expect(management.Requests(theNamespaces)).To(gomega.HaveLen(1))

	replaced.Store(true)
	go conn.Run(t.Context(), func() {})
	g.Eventually(conn.Session).ShouldNot(gomega.BeZero())
	g.Expect(cluster.HasNamespace(t.Context(), "5f0b")).To(gomega.BeFalse())
	g.Expect(other.Requests(theNamespaces)).To(gomega.HaveLen(1))
}
