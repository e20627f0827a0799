package guestconn

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/test/hang"
)

// TestKubeconfigChangesDoNotLeak checks for leaks of goroutines, connections and memory. It does not run in
// parallel with other tests.
func TestKubeconfigChangesDoNotLeak(t *testing.T) {
	// golang.org/x/net/http2 keeps the remains of a connection while its timers run. The timer of the health check
	// has a default of 30 s. If a stream was open, the idle timer takes 90 s. The test therefore measures memory only
	// where no watch was open.
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "1")
	t.Run("memory", func(t *testing.T) {
		const slack = 256 << 10 // a thousandth of it for each
		r := newRotation(t)
		r.rotate(100, false)
		before := 0
		r.Eventually(func() int {
			last := before
			before = heap()
			return last - before
		}).WithPolling(2 * time.Second).Should(gomega.And(gomega.BeNumerically(">=", 0), gomega.BeNumerically("<", slack/4)))
		r.rotate(1000, false)
		r.Eventually(heap).WithPolling(time.Second).Should(gomega.BeNumerically("<=", before+slack))
		t.Logf("%d KiB before and %d KiB after", before>>10, heap()>>10)
	})
	t.Run("with a watch on each", func(t *testing.T) {
		r := newRotation(t)
		r.rotate(100, true)
		before := runtime.NumGoroutine()
		r.rotate(1000, true)
		r.Eventually(runtime.NumGoroutine).Should(gomega.BeNumerically("<=", before+2))
	})
}

func heap() int {
	runtime.GC()
	runtime.GC() // objects with a finalizer or a cleanup are freed by the second run
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// rotation is a connection that alternates between two servers.
type rotation struct {
	*fixture
	gomega.Gomega
	servers [2]*apiServer
	configs [2]*rest.Config
	count   int
}

func newRotation(t *testing.T) *rotation {
	t.Helper()
	r := &rotation{Gomega: hang.Gomega(t)}
	for i := range r.servers {
		r.servers[i] = newAPIServer(t)
		r.configs[i] = r.servers[i].withCertificate(t, fmt.Sprint(i))
	}
	r.fixture = follow(t, r.configs[0])
	return r
}

// rotate replaces the kubeconfig the given number of times and uses each one. It then waits until one connection is
// left.
func (r *rotation) rotate(times int, watched bool) {
	r.t.Helper()
	for range times {
		var ended <-chan error
		if watched {
			ended = r.watch()
		}
		r.count++
		r.replace(r.configs[r.count%2], nil)
		if !r.look(r.ctx) {
			r.t.Fatal(r.Problem())
		}
		r.expectWho(fmt.Sprint(r.count % 2))
		if watched {
			r.Expect(r.end(ended)).To(gomega.MatchError(errReplaced))
		}
	}
	r.Eventually(func() int { return r.servers[0].open() + r.servers[1].open() }).Should(gomega.Equal(1))
}
