package tunnel

import (
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
)

// TestIdleStreamsGiveBackTheirBuffers checks that streams whose buffers were full need little memory once they are at
// rest. It does not run beside other tests, because it measures the heap of the process, which has both ends.
//
//nolint:paralleltest // see above
func TestIdleStreamsGiveBackTheirBuffers(t *testing.T) {
	const gateways, size, most = 60, 1 << 20, 3 << 20
	fast := defaultLimits()
	fast.inbound = rate.Inf
	b := newBench(t, defaultLimits(), supportedVersions())
	b.sidecar(fast, supportedVersions())
	b.talks()
	payload := strings.Repeat("x", size)
	before := heap()
	conns := make([]*net.TCPConn, gateways)
	var writers errgroup.Group
	for i := range conns {
		conns[i] = b.gateway()
		b.must(conns[i].SetReadBuffer(32 << 10))
		writers.Go(func() error {
			_, err := io.WriteString(conns[i], payload)
			return err
		})
	}
	// The gateways do not read, so that all buffers on the way fill up.
	b.g.Eventually(heap).Should(gomega.BeNumerically(">", before+3*most))
	full := heap()
	var readers errgroup.Group
	for _, conn := range conns {
		readers.Go(func() error {
			_, err := io.CopyN(io.Discard, conn, size)
			return err
		})
	}
	b.must(errors.Join(writers.Wait(), readers.Wait()))
	b.g.Eventually(func() uint64 { return heap() - min(before, heap()) }).Should(gomega.BeNumerically("<", most))
	t.Logf("heap: %d KiB before, %d KiB with full buffers, %d KiB at rest", before>>10, full>>10, heap()>>10)
	for _, conn := range conns {
		b.must(talk(conn, "still here"))
	}
}

// heap returns the size of the objects that are in use.
func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
