package tunnel_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/test/hang"
)

// byHypergate is the protocol of a connection of hypergate, which is not a tunnel.
const byHypergate = "hypergate-gateway/1"

// relayAbuse is what the hostile relay does with one connection, after the TLS handshake of the tunnel. The next
// connection gets the next one.
type relayAbuse struct {
	name string
	data func() []byte // sent again and again
}

func relayAbuses() []relayAbuse {
	garbage := make([]byte, 16<<10)
	for i := range garbage {
		garbage[i] = byte(i * 7)
	}
	garbage[0] = 0xff // no version of yamux
	next := uint32(1)
	return []relayAbuse{
		{"garbage", func() []byte { return garbage }},
		{"pings", func() []byte { return yamuxFrame(2, 1, 0, 1) }},
		{"streams", func() []byte {
			var frames []byte
			for range 100 {
				frames = append(frames, yamuxFrame(1, 1, next, 0)...)
				next += 2
			}
			return frames
		}},
		{"data for streams that do not exist", func() []byte { return append(yamuxFrame(0, 0, 4, 16<<10), garbage...) }},
	}
}

// yamuxFrame returns a header: type, flags, stream, length.
func yamuxFrame(kind byte, flags uint16, stream, length uint32) []byte {
	frame := []byte{0, kind}
	frame = binary.BigEndian.AppendUint16(frame, flags)
	frame = binary.BigEndian.AppendUint32(frame, stream)
	return binary.BigEndian.AppendUint32(frame, length)
}

// hostileRelay is a pod that took the place of a relay.
type hostileRelay struct {
	mu   sync.Mutex
	seen []*http.Request
	// ofHypergate are those of seen that hypergate sent, and not a sidecar.
	ofHypergate []*http.Request
	abuse       int
}

// serve accepts tunnels of the sidecar and abuses each in another way.
func (h *hostileRelay) serve(listener net.Listener, abuses []relayAbuse) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go h.tunnel(conn, abuses)
	}
}

func (h *hostileRelay) tunnel(conn net.Conn, abuses []relayAbuse) {
	defer func() { _ = conn.Close() }()
	request, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	h.mu.Lock()
	h.seen = append(h.seen, request)
	abuse := abuses[h.abuse%len(abuses)]
	h.abuse++
	h.mu.Unlock()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: hypergate-tunnel\r\n\r\n")
	secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"hypergate-tunnel/1", byHypergate}})
	if err := secure.HandshakeContext(context.Background()); err != nil {
		return
	}
	if secure.ConnectionState().NegotiatedProtocol == byHypergate {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.ofHypergate = append(h.ofHypergate, request)
		return
	}
	go func() { _, _ = io.Copy(io.Discard, secure) }() // it also reads, so that nothing but the sidecar's limits stops it
	for err == nil {
		_, err = secure.Write(abuse.data())
	}
}

// requests returns what the API server passed on.
func (h *hostileRelay) requests() []*http.Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.seen)
}

// probes returns those that hypergate sent.
func (h *hostileRelay) probes() []*http.Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.ofHypergate)
}

// TestHostileRelay: one relay is replaced by a hostile pod. The tunnel to the other one works, the sidecar stays small,
// and the hostile pod learns nothing but addresses, as the API server sees them: of istiod's pod, of hypergate's, and
// of the machine on which `hypergate proxies` runs.
func TestHostileRelay(t *testing.T) {
	w := newHarness(t)
	w.pod("istiod-relay-0", relay0IP)
	w.pod("istiod-relay-1", relay1IP)
	w.relay("istiod-relay-0", relay0IP)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", relay1IP+":15443")
	w.must(err)
	t.Cleanup(func() { _ = listener.Close() })
	hostile := &hostileRelay{}
	abuses := relayAbuses()
	go hostile.serve(listener, abuses)
	sidecar := w.sidecar()

	conn := w.talks(relay0IP)
	rounds := len(abuses)
	w.g.Eventually(func() int {
		if err := talk(conn, "the other tunnel works"); err != nil {
			t.Error(err)
		}
		return len(hostile.requests())
	}).Should(gomega.BeNumerically(">=", rounds+1)) // one more: the last abuse was stopped
	anonymous, all := w.resident(sidecar)
	t.Logf("after %d hostile tunnels: sidecar %.1f MiB (anonymous %.1f)", rounds, all, anonymous)
	if all > 48 {
		t.Errorf("the sidecar has %.1f MiB", all)
	}
	w.grows(istiodIP, reconnects("abused"), 1) // pings and streams
	probe, err := w.hypergate().Dial(t.Context(), "istiod-relay-1")
	w.must(err)
	_ = probe.Close()
	w.g.Eventually(hostile.probes).Should(gomega.HaveLen(1))
	for _, request := range hostile.requests() {
		names := slices.Sorted(maps.Keys(request.Header))
		w.g.Expect(names).To(gomega.Equal([]string{"Connection", "Upgrade", "User-Agent", "X-Forwarded-For"}))
		w.g.Expect([]string{request.Host, request.UserAgent(), request.Header.Get("X-Forwarded-For")}).To(
			gomega.Equal([]string{"hypergate-tunnel", "hypergate-tunnel", "127.0.0.1"}),
			"the last one is the address of the sidecar, or of hypergate")
	}
	w.talks(relay0IP)
}

// TestHalfOpen: a relay whose node stops is noticed without any packet from it.
func TestHalfOpen(t *testing.T) {
	w := newHarness(t)
	w.pod("istiod-relay-0", relay0IP)
	relay := w.relay("istiod-relay-0", relay0IP)
	w.sidecar()
	w.talks(relay0IP)
	w.must(syscall.Kill(relay.PID(), syscall.SIGSTOP))
	begin := time.Now()
	// The reason differs: a stopped relay is silent, and on a slow machine a write to it can time out first.
	hang.Within(w.g, 20*time.Second, w.work, func() float64 { return w.value(istiodIP, up0) }, gomega.BeZero())
	t.Logf("the sidecar noticed after %s", time.Since(begin).Round(time.Millisecond))
	w.must(syscall.Kill(relay.PID(), syscall.SIGCONT))
	w.talks(relay0IP)
}
