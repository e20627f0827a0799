package tunnel

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

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
	fast.inbound, fast.unread = rate.Inf, gateways*streamWindow // as much as gateways that read nothing leave unread
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

// TestTheKernelKeepsLittleForIstiod checks how much of a stream the kernel keeps for an istiod that reads nothing. It
// needs memory of the sidecar's container, and limits.unread does not count it.
func TestTheKernelKeepsLittleForIstiod(t *testing.T) {
	t.Parallel()
	const most = 1 << 20 // with what istiod's own kernel accepts
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	sidecar := NewSidecar()
	sidecar.Target = netip.MustParseAddrPort(listener.Addr().String())
	conn, err := sidecar.target(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	kept, block := 0, make([]byte, smallBuffer)
	for kept <= most && err == nil {
		if err = conn.SetWriteDeadline(time.Now().Add(time.Second)); err == nil {
			var n int
			n, err = conn.Write(block)
			kept += n
		}
	}
	t.Logf("the kernel accepted %d KiB", kept>>10)
	if !isTimeout(err) {
		t.Errorf("the write after %d KiB: %v", kept>>10, err)
	}
}
