package watch_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/watch"
	"github.com/hypergate/hypergate/test/hang"
)

func notFound() error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, "")
}

func TestANewSessionStartsEmpty(t *testing.T) {
	g, s := hang.Gomega(t), newServer(true)
	s.put("a", "1")
	w := watch.NewSwitch(s.options())
	g.Expect(w.Synced()).To(gomega.BeFalse())
	g.Expect(w.List()).To(gomega.BeEmpty())
	g.Expect(s.count()).To(gomega.BeZero())

	w.Set(t.Context(), "first", "1")
	g.Eventually(w.Synced).Should(gomega.BeTrue())
	g.Eventually(s.open).Should(gomega.Equal(1))
	_, found := w.Get("ns/a")
	g.Expect(found).To(gomega.BeTrue())
	on := w.On()
	w.Set(t.Context(), "first", "2")
	g.Expect(w.On()).To(gomega.BeIdenticalTo(on), "a change alone does not start a new list")

	s.fail(forbidden("list"), forbidden("watch"))
	w.Set(t.Context(), "second", "3")
	g.Expect(w.Synced()).To(gomega.BeFalse(), "what was seen of the one before does not count")
	g.Expect(w.List()).To(gomega.BeEmpty())
	g.Eventually(s.open).Should(gomega.BeZero(), "the watch before has ended")
	g.Eventually(w.Err).Should(gomega.MatchError(gomega.ContainSubstring("forbidden")))

	w.Set(t.Context(), "", "")
	g.Expect(w.Err()).NotTo(gomega.HaveOccurred())
	g.Expect(w.On()).To(gomega.BeNil())
	w.Set(t.Context(), "", "4")
	g.Expect(w.On()).To(gomega.BeNil())
}

// TestAnUnknownResourceIsRequestedForALimitedTime checks that an unknown resource is requested until patience ends, and
// again after a new version.
func TestAnUnknownResourceIsRequestedForALimitedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := gomega.NewWithT(t), newServer(false)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s.fail(notFound(), notFound())
		options := s.options()
		options.Patience = time.Second
		var problems atomic.Int32
		options.OnProblem = func() { problems.Add(1) }
		w := watch.NewSwitch(options)
		w.Set(ctx, "crd", "1")
		// asks returns the number of requests within a minute.
		asks := func() int {
			before := s.count()
			<-time.After(time.Minute)
			synctest.Wait()
			return s.count() - before
		}
		g.Expect(asks()).To(gomega.BeNumerically(">", 1), "it was tried again before")
		g.Expect(asks()).To(gomega.BeZero(), "patience has ended")
		watch.New(options).Run(ctx) // ends, although its context does not
		g.Expect(apierrors.IsNotFound(w.Err())).To(gomega.BeTrue())
		w.Set(ctx, "crd", "1")
		g.Expect(asks()).To(gomega.BeZero(), "nothing is new")

		s.fail(nil, nil)
		w.Set(ctx, "crd", "2")
		g.Expect(asks()).NotTo(gomega.BeZero())
		g.Expect(w.Synced()).To(gomega.BeTrue())
		g.Expect(w.Err()).NotTo(gomega.HaveOccurred())
		g.Expect(problems.Load()).To(gomega.BeNumerically(">", 0))
	})
}

// TestOnly404EndsTheRequests checks that only a 404 ends the attempts.
func TestOnly404EndsTheRequests(t *testing.T) {
	g, s := hang.Gomega(t), newServer(false)
	s.fail(errors.New("out of order"), nil)
	options := s.options()
	options.Patience = time.Nanosecond
	w := watch.New(options)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	g.Eventually(s.count).Should(gomega.BeNumerically(">", 6))
	g.Expect(ended).NotTo(gomega.BeClosed())
	cancel()
	g.Eventually(ended).Should(gomega.BeClosed())
}

func TestWatchFailuresAreReported(t *testing.T) {
	g, s := hang.Gomega(t), newServer(true)
	options := s.options()
	var problems atomic.Int32
	options.OnProblem = func() { problems.Add(1) }
	s.fail(forbidden("list"), forbidden("watch"))
	w := watch.New(options)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go w.Run(ctx)
	g.Eventually(problems.Load).Should(gomega.Equal(int32(1)))
	before := s.count()
	g.Eventually(s.count).Should(gomega.BeNumerically(">", before+2))
	g.Expect(problems.Load()).To(gomega.Equal(int32(1)), "the same failure is reported once")
	s.fail(nil, nil)
	g.Eventually(problems.Load).Should(gomega.Equal(int32(2)))
	g.Eventually(w.Synced).Should(gomega.BeTrue())
}
