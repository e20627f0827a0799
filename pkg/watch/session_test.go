package watch_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/hypergate/hypergate/pkg/watch"
	"github.com/hypergate/hypergate/test/hang"
)

// TestAServerRestoredFromABackup restores the server from a backup. The versions that the watch has seen then lie in
// the future, and a watch from such a version shows nothing.
func TestAServerRestoredFromABackup(t *testing.T) {
	eachWay(t, func(f *fixture) {
		f.server.put("a", "0")
		backup := map[string]*corev1.ConfigMap{"a": f.server.objects["a"].DeepCopy()}
		f.run()
		f.Eventually(f.server.open).Should(gomega.Equal(1))
		const later = 40 // fewer than a stream buffers
		for i := range later {
			f.server.put("later", strconv.Itoa(i))
		}
		f.Eventually(f.log.all).Should(gomega.ContainElement(gomega.ContainSubstring(`later v41 "39"`)))
		f.server.restore(1, backup)
		f.Eventually(f.names).Should(gomega.Equal([]string{"a"}))
		f.server.put("new", "1") // version 2
		f.Eventually(f.names).Should(gomega.Equal([]string{"a", "new"}))
		f.Expect(f.watch.Err()).NotTo(gomega.HaveOccurred())
	})
}

// TestAnEarlierSessionIsIgnored checks that lists and failures of an earlier session no longer count, and that a list
// that began in it does not count either.
func TestAnEarlierSessionIsIgnored(t *testing.T) {
	eachWay(t, func(f *fixture) {
		var session, during atomic.Uint64
		f.server.onWatch = func() { session.Add(during.Swap(0)) }
		f.server.put("a", "1")
		ctx, cancel := context.WithCancel(watch.WithSession(t.Context(), session.Load, func() <-chan struct{} { return nil }))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			f.watch.Run(ctx)
		}()
		defer func() {
			cancel()
			<-ended
		}()
		synced := func() int {
			n := 0
			for _, line := range f.log.all() {
				if line == "synced" {
					n++
				}
			}
			return n
		}
		f.Eventually(synced).Should(gomega.Equal(1))
		f.Eventually(f.server.open).Should(gomega.Equal(1))
		f.Expect(f.watch.Synced()).To(gomega.BeTrue())

		session.Add(1)
		f.Expect(f.watch.Synced()).To(gomega.BeFalse())
		f.Expect(f.names()).To(gomega.Equal([]string{"a"}), "what was seen stays")
		if f.server.streaming { // otherwise the hooked request comes before the list
			during.Store(1) // the session changes during the list
			f.server.hangUp()
			f.Eventually(session.Load).Should(gomega.Equal(uint64(2)))
			f.Eventually(f.watch.Synced).Should(gomega.BeTrue(), "the stream that began before does not go on")
		}

		f.server.fail(errors.New("no route"), errors.New("no route"))
		f.server.hangUp()
		f.Eventually(f.watch.Err).Should(gomega.HaveOccurred())
		f.Eventually(func() error { // the list of the new session fails, too, at any time
			session.Add(1)
			return f.watch.Err()
		}).Should(gomega.Succeed(), "that was in the session before")
		f.server.fail(nil, nil)
		f.Eventually(f.watch.Synced).Should(gomega.BeTrue())
		f.Eventually(synced).Should(gomega.BeNumerically(">=", 2), "waiters are notified")
	})
}

// TestTheFirstListOfASessionHasNoOldError checks that the error of an earlier session is gone while the first list of
// the next one runs.
func TestTheFirstListOfASessionHasNoOldError(t *testing.T) {
	t.Parallel()
	g := hang.Gomega(t)
	s := newServer(false)
	s.fail(errors.New("no route"), errors.New("no route"))
	var session atomic.Uint64
	var w *watch.Watch
	during := make(chan error, 1)
	options := s.options()
	options.OnListing = func() {
		if session.Load() > 0 {
			select {
			case during <- w.Err():
			default: // only the first list counts
			}
		}
	}
	w = watch.New(options)
	ctx := watch.WithSession(t.Context(), session.Load, func() <-chan struct{} { return nil })
	go w.Run(ctx)
	g.Eventually(w.Err).Should(gomega.HaveOccurred())
	session.Add(1)
	var err error
	g.Eventually(during).Should(gomega.Receive(&err))
	g.Expect(err).NotTo(gomega.HaveOccurred())
}
