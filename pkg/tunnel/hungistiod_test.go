package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/onsi/gomega"
)

// TestAHungIstiod checks that one of two istiods serves all gateways while the other one hangs: the kernel accepts its
// connections, and the process answers none. Its tunnel has the fewest streams, so each gateway would try that one.
func TestAHungIstiod(t *testing.T) {
	t.Parallel()
	b := newBench(t, defaultLimits(), supportedVersions())
	first, _ := b.sidecar(defaultLimits(), supportedVersions())
	b.connected(first)
	b.gatewaysStay(3)
	second := b.istiod()
	second.listen()
	target, l := b.target, defaultLimits()
	b.target, l.check, l.target = second.address, 20*time.Millisecond, 10*time.Second
	sidecar, _ := b.sidecar(l, supportedVersions())
	b.target = target
	b.upAgain(sidecar)
	b.allReach(2)
	up := func() string { return metric(sidecar.Handler(), `hypergate_tunnel_up{relay="istiod-relay-0"}`) }
	if failed := sidecar.counts.reconnects[NoIstiod].Load(); failed > 0 {
		t.Errorf("an istiod that answers was taken for a hung one %d times", failed)
	}

	t.Log("the second istiod hangs, and no gateway has connected since")
	wake := second.hang()
	b.g.Eventually(up).Should(gomega.Equal("0"))
	b.logs("reason=" + string(NoIstiod))
	b.g.Eventually(b.accepting).Should(gomega.Equal(1)) // a stream before that is closed
	b.allReach(5)

	t.Log("the sidecar offers no tunnel to it")
	failed := sidecar.counts.reconnects[NoIstiod].Load()
	b.g.Eventually(sidecar.counts.reconnects[NoIstiod].Load).Should(gomega.BeNumerically(">", failed))
	if got := up(); got != "0" {
		t.Error("there is a tunnel to an istiod that hangs")
	}

	t.Log("it continues")
	wake()
	b.upAgain(sidecar)
	before := second.count()
	b.allReach(3)
	b.g.Eventually(second.count).Should(gomega.BeNumerically(">=", before+3))
}

// TestARelayWhoseTunnelsAcceptNothingIsNotReady checks a relay with one tunnel, whose istiod hangs. It stays ready for
// as long as a gateway waits, and its tunnel stays longer. It is ready again with a tunnel that accepts streams.
func TestARelayWhoseTunnelsAcceptNothingIsNotReady(t *testing.T) {
	t.Parallel()
	l := defaultLimits()
	l.wait = 500 * time.Millisecond
	b := newBench(t, l, supportedVersions())
	istiod := b.istiod()
	istiod.listen()
	b.target = istiod.address
	l.check, l.target = 20*time.Millisecond, 10*time.Second
	sidecar, _ := b.sidecar(l, supportedVersions())
	b.upAgain(sidecar)
	b.g.Eventually(b.relay.Ready).Should(gomega.BeTrue())
	<-time.After(2 * l.wait)
	if !b.relay.Ready() {
		t.Error("a relay with a tunnel that accepts streams is not ready")
	}
	wake := istiod.hang()
	b.g.Eventually(b.accepting).Should(gomega.Equal(0))
	left := b.leftAt()
	b.g.Eventually(b.relay.Ready).Should(gomega.BeFalse())
	if waited := time.Since(left); waited < l.wait {
		t.Errorf("it is not ready after %s", waited)
	}
	if n := metric(b.relay.Handler(), "hypergate_relay_tunnels"); n != "1" {
		t.Errorf("the relay has %s tunnels, want 1", n)
	}
	wake()
	b.g.Eventually(b.relay.Ready).Should(gomega.BeTrue())
}

// leftAt returns when the only tunnel of the relay ceased to accept streams.
func (b *bench) leftAt() time.Time {
	b.relay.mu.Lock()
	defer b.relay.mu.Unlock()
	return *b.relay.sessions[0].frames.left.Load()
}

// accepting returns the number of tunnels on which the relay can open streams, as far as the relay knows.
func (b *bench) accepting() int {
	b.relay.mu.Lock()
	defer b.relay.mu.Unlock()
	n := 0
	for _, one := range b.relay.sessions {
		if one.frames.left.Load() == nil {
			n++
		}
	}
	return n
}

// gatewaysStay opens n connections of gateways that stay.
func (b *bench) gatewaysStay(n int) {
	b.t.Helper()
	for range n {
		b.must(talk(b.gateway(), "hello"))
	}
}

// TestATimeoutOfIstiodCountsAsRefused checks a stream for which istiod's kernel does not accept a connection in time:
// the queue of a process that hangs is full some time.
func TestATimeoutOfIstiodCountsAsRefused(t *testing.T) {
	t.Parallel()
	inABubble(t, aTimeoutOfIstiod)
}

func aTimeoutOfIstiod(t *testing.T) {
	t.Helper()
	_, relay, sidecar := newRoad(t)
	stream, err := relay.mux.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	s := testSidecar(netip.MustParseAddrPort("127.0.0.1:1"))
	s.limits.target = -time.Nanosecond // it has passed
	s.stream(t.Context(), sidecar, streamEnd{Stream: stream})
	if sidecar.serves() {
		t.Error("the tunnel takes more streams")
	}
}

// TestWhetherIstiodAnswers checks what counts as an answer. A complete handshake ends without an error at istiod.
// Its verdict on the parameters of TLS is an answer, too: gateways can have others.
func TestWhetherIstiodAnswers(t *testing.T) {
	t.Parallel()
	b := newBench(t, defaultLimits(), supportedVersions())
	serving, err := b.ca.Serving(time.Now(), "istiod.istio-system.svc")
	b.must(err)
	pair, err := tls.X509KeyPair(serving.Cert, serving.Key)
	b.must(err)
	results := make(chan error, 1)
	secure := func(protocol string) func(net.Conn) {
		config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{protocol}}
		return func(conn net.Conn) {
			server := tls.Server(conn, config)
			_, err := server.Read(make([]byte, 1)) // after the handshake
			results <- err
		}
	}
	for name, tc := range map[string]struct {
		istiod  func(net.Conn) // nil: only the kernel accepts connections
		answers bool
		ends    string // the error at istiod
	}{
		"a handshake":     {secure("h2"), true, io.EOF.Error()},
		"a refusal of it": {secure("h3"), true, "unsupported application protocols"},
		"not TLS":         {func(conn net.Conn) { _, _ = io.WriteString(conn, "busy\r\n") }, true, ""},
		"silence":         {func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }, false, ""},
		"the end at once": {func(net.Conn) {}, false, ""},
		"the kernel only": {nil, false, ""},
	} {
		s := testSidecar(b.listens(tc.istiod))
		if s.limits.target = time.Minute; !tc.answers {
			s.limits.target = 300 * time.Millisecond
		}
		if err := s.check(t.Context()); (err == nil) != tc.answers {
			t.Errorf("%s: %v", name, err)
		}
		if tc.ends == "" {
			continue
		}
		if err := <-results; err == nil || !strings.Contains(err.Error(), tc.ends) {
			t.Errorf("%s: istiod has the error %v, want %s", name, err, tc.ends)
		}
	}
	s := testSidecar(b.istiod().address)
	if err := s.check(t.Context()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("it does not listen: %v", err)
	}
}

// listens returns the address of a listener. Without a function for its connections, it accepts none.
func (b *bench) listens(each func(net.Conn)) netip.AddrPort {
	b.t.Helper()
	return netip.MustParseAddrPort(b.serve(func(ctx context.Context, listener net.Listener) error {
		if each == nil {
			<-ctx.Done()
			return listener.Close()
		}
		return serve(ctx, listener, func(_ context.Context, conn net.Conn) {
			each(conn)
			_ = conn.Close()
		})
	}))
}

// testSidecar returns a sidecar without relays.
func testSidecar(target netip.AddrPort) *Sidecar {
	s := NewSidecar()
	s.Log, s.Target = slog.New(slog.DiscardHandler), target
	return s
}
