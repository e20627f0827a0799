package tunnel

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/onsi/gomega"
)

// TestTwoIstiods checks that one of two istiods serves all gateways while the other one does not listen: before it is
// ready, and while its container starts again. A relay opens a stream on the tunnel with the fewest streams, which
// otherwise is always that of the istiod that does not listen.
func TestTwoIstiods(t *testing.T) {
	b := newBench(t, defaultLimits(), supportedVersions())
	first, _ := b.sidecar(defaultLimits(), supportedVersions())
	b.connected(first)
	b.allReach(3)

	t.Log("the pod of the second istiod starts")
	second := b.istiod()
	target := b.target
	b.target = second.address
	sidecar, _ := b.sidecar(defaultLimits(), supportedVersions())
	b.target = target
	b.logs("reason=" + string(NoIstiod))
	b.allReach(5)
	if n := metric(b.relay.Handler(), "hypergate_relay_tunnels"); n != "1" {
		t.Errorf("the relay has %s tunnels, want 1", n)
	}

	t.Log("the second istiod listens")
	stop := second.listen()
	b.upAgain(sidecar)
	before := second.count() // the sidecar has connected, too
	b.allReach(8)
	b.g.Eventually(second.count).Should(gomega.BeNumerically(">=", before+4))

	t.Log("its container ends, and the sidecar stays")
	stop()
	b.g.Eventually(func() string {
		_ = talk(b.gateway(), "hello") // it can be the one that shows that istiod does not listen
		return metric(sidecar.Handler(), `hypergate_tunnel_up{relay="istiod-relay-0"}`)
	}).Should(gomega.Equal("0"))
	b.allReach(8)
	if !b.relay.Ready() {
		t.Error("the relay is not ready")
	}

	t.Log("its container is back")
	second.listen()
	b.upAgain(sidecar)
	before = second.count()
	b.allReach(20)
	b.g.Eventually(second.count).Should(gomega.BeNumerically(">=", before+10))
}

// upAgain waits until a sidecar has a tunnel that accepts streams.
func (b *bench) upAgain(sidecar *Sidecar) {
	b.t.Helper()
	b.g.Eventually(func() string {
		return metric(sidecar.Handler(), `hypergate_tunnel_up{relay="istiod-relay-0"}`)
	}).Should(gomega.Equal("1"), b.log.String)
}

// allReach expects that each of n new connections reaches an istiod at once.
func (b *bench) allReach(n int) {
	b.t.Helper()
	for i := range n {
		if err := talk(b.gateway(), "hello"); err != nil {
			b.t.Errorf("connection %d of %d: %v", i+1, n, err)
		}
	}
}

// istiod is an istiod that a test starts and ends. Its address stays.
type istiod struct {
	b       *bench
	address netip.AddrPort
	// serving is its TLS. Nil: it has none.
	serving *tls.Config

	mu   sync.Mutex
	took int
	// wakes is closed when it accepts connections again. Nil: it does not hang.
	wakes chan struct{}
}

// istiod returns an istiod that does not listen yet. No other test uses its address, so that its port stays free.
func (b *bench) istiod() *istiod {
	b.t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(b.t.Context(), "tcp", "127.0.0.77:0")
	b.must(err)
	out := &istiod{b: b, address: netip.MustParseAddrPort(listener.Addr().String())}
	b.must(listener.Close())
	return out
}

// listen makes it accept connections until stop is called or the test ends. Then all of them end.
func (i *istiod) listen() (stop func()) {
	i.b.t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(i.b.t.Context(), "tcp", i.address.String())
	i.b.must(err)
	ctx, cancel := context.WithCancel(i.b.t.Context())
	var running sync.WaitGroup
	accepts := net.Listener(counting{listener, i})
	if i.serving != nil {
		accepts = tls.NewListener(accepts, i.serving)
	}
	running.Go(func() { _ = echo(ctx, accepts) })
	stop = func() {
		cancel()
		running.Wait()
	}
	i.b.t.Cleanup(stop)
	return stop
}

// count returns how many connections it accepted.
func (i *istiod) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.took
}

// hang makes it keep new connections, and do nothing with them, until wake is called or the test ends. So it does not
// accept further ones, but its kernel does.
func (i *istiod) hang() (wake func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	wakes := make(chan struct{})
	i.wakes = wakes
	wake = sync.OnceFunc(func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.wakes = nil
		close(wakes)
	})
	i.b.t.Cleanup(wake)
	return wake
}

// counting is a listener that counts what it accepts.
type counting struct {
	net.Listener
	of *istiod
}

// Accept accepts a connection.
func (c counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c.of.mu.Lock()
	c.of.took++
	wakes := c.of.wakes
	c.of.mu.Unlock()
	if wakes != nil {
		<-wakes
	}
	return conn, nil
}
