package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
	"github.com/onsi/gomega"
	"golang.org/x/time/rate"

	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/throttle"
	"github.com/hypergate/hypergate/test/hang"
)

// TestHostilePods: whatever a pod sends to the port for tunnels, it gets no gateway, and the open tunnel stays.
func TestHostilePods(t *testing.T) {
	t.Parallel()
	b := newBench(t, defaultLimits(), supportedVersions())
	b.sidecar(slowMachine(), supportedVersions())
	conn := b.talks()
	pair := func(ca pki.CA, name string) tls.Certificate {
		serving, err := ca.Serving(time.Now(), name)
		b.must(err)
		certificate, err := tls.X509KeyPair(serving.Cert, serving.Key)
		b.must(err)
		return certificate
	}
	for name, certificate := range map[string]tls.Certificate{
		"another CA":                pair(b.newCA(), tunnelName),
		"a workload of the mesh":    b.workload(b.ca),
		"istiod's own certificate":  pair(b.ca, "istiod.istio-system.svc"),
		"a name below the tunnel's": pair(b.ca, "x."+tunnelName),
		"a name above the tunnel's": pair(b.ca, tunnelName+".example"),
	} {
		server := tls.Server(b.upgraded(), &tls.Config{
			Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13, NextProtos: alpn(supportedVersions()),
		})
		_, err := server.Read(make([]byte, 1)) // with TLS 1.3 the server learns of the refusal at its first read
		if err == nil {
			err = server.HandshakeContext(t.Context())
		}
		if alert, is := errors.AsType[*net.OpError](err); err == nil || is && alert.Timeout() {
			t.Errorf("%s: accepted: %v", name, err)
		}
	}
	for name, bytes := range map[string]string{
		"garbage": strings.Repeat("\x00\xff", 4<<10), "a plain session": string(frame(framePing, flagSYN, 1)), "HTTP": goodRequest,
	} {
		plain := b.upgraded()
		_, _ = io.WriteString(plain, bytes) // the relay may close the connection before
		b.ends(plain)
		direct := b.dial(b.tunnels)
		_, _ = io.WriteString(direct, "\x16\x03"+bytes)
		_ = direct.CloseWrite() // fails if the relay has closed the connection
		if answer, err := io.ReadAll(direct); err == nil && !strings.HasPrefix(string(answer), "HTTP/1.1 4") {
			t.Errorf("%s: the answer is %q", name, answer)
		}
	}
	b.must(talk(conn, "still here"))
	if got := metric(b.relay.Handler(), "hypergate_relay_tunnels_total"); got != "1" {
		t.Errorf("%s tunnels were accepted", got)
	}
}

// TestAPodFillsTheSlots: connections that prove nothing do not keep a sidecar out, and end.
func TestAPodFillsTheSlots(t *testing.T) {
	t.Parallel()
	l := defaultLimits()
	l.unproven, l.proof = 4, time.Hour
	b := newBench(t, l, supportedVersions())
	var idle []net.Conn
	for i := range 20 {
		if i%2 == 0 {
			idle = append(idle, b.dial(b.tunnels))
		} else {
			idle = append(idle, b.upgraded())
		}
	}
	b.sidecar(defaultLimits(), supportedVersions())
	b.talks()
	var ended atomic.Int64
	for _, conn := range idle {
		go func() {
			if _, err := io.Copy(io.Discard, conn); !isTimeout(err) {
				ended.Add(1)
			}
		}()
	}
	// There are 4 slots, and the order in which they were taken is not known.
	b.g.Eventually(ended.Load).Should(gomega.BeNumerically(">=", len(idle)-4))
	b.g.Eventually(func() (int, error) { return strconv.Atoi(metric(b.relay.Handler(), "hypergate_relay_evicted_total")) }).
		Should(gomega.BeNumerically(">=", len(idle)-4), "connections that lost their slots")
}

// TestProofTime: a connection that proves nothing ends after a time, at every stage.
func TestProofTime(t *testing.T) {
	t.Parallel()
	l := defaultLimits()
	l.proof = 100 * time.Millisecond
	b := newBench(t, l, supportedVersions())
	b.ends(b.dial(b.tunnels))
	half := b.dial(b.tunnels)
	_, err := io.WriteString(half, goodRequest[:30])
	b.must(err)
	b.ends(half)
	handshake := b.dial(b.tunnels)
	_, err = io.WriteString(handshake, goodRequest)
	b.must(err)
	b.ends(handshake) // the relay has answered, and its handshake gets no answer
}

// TestTooManyGateways: connections beyond the limit are closed, and the others stay.
func TestTooManyGateways(t *testing.T) {
	t.Parallel()
	l := defaultLimits()
	l.gateways, l.firstByte = 3, time.Hour
	b := newBench(t, l, supportedVersions())
	b.sidecar(defaultLimits(), supportedVersions())
	first := b.talks()
	b.g.Eventually(func() string { return metric(b.relay.Handler(), "hypergate_relay_gateways") }).Should(gomega.Equal("1"))
	second, third := b.gateway(), b.gateway()
	b.must(errors.Join(talk(second, "two"), talk(third, "three")))
	b.ends(b.gateway())
	b.logs("Rejected a gateway: too many connections\" limit=3")
	b.must(talk(first, "still here"))
	b.must(third.Close())
	b.talks()
}

// TestOneSource: a pod that opens many connections keeps no other pod out.
func TestOneSource(t *testing.T) {
	t.Parallel()
	l := defaultLimits()
	l.perSource, l.firstByte = 2, time.Hour
	b := newBench(t, l, supportedVersions())
	sidecar, _ := b.sidecar(defaultLimits(), supportedVersions())
	b.connected(sidecar)
	first, second := b.gateway(), b.gateway()
	b.must(errors.Join(talk(first, "one"), talk(second, "two")))
	b.ends(b.gateway())
	b.must(talk(b.dialFrom("127.0.0.2", b.gateways), "another pod"))
	b.must(talk(first, "still here"))
	b.logs("too many connections from its address")
}

// TestSourcesLeave: a place that is given back is free, but not before its time. Nothing else is kept of a source.
func TestSourcesLeave(t *testing.T) {
	t.Parallel()
	source := netip.MustParseAddr("10.0.0.1")
	s := sources{most: 1, count: map[netip.Addr]int{}}
	for range 2 {
		leave, ok := s.take(source)
		if _, more := s.take(source); !ok || more {
			t.Fatalf("first %v, second %v", ok, more)
		}
		leave()
	}
	if len(s.count) > 0 {
		t.Errorf("it keeps %v", s.count)
	}
	s.least = time.Hour
	leave, ok := s.take(source)
	if !ok {
		t.Fatal("the place is not free")
	}
	leave()
	if _, ok := s.take(source); ok {
		t.Error("a connection that ended at once left its place at once")
	}
}

// TestARelayPacesItself: a relay opens streams at a pace, whatever pods do, and the tunnel stays.
func TestARelayPacesItself(t *testing.T) {
	t.Parallel()
	l := defaultLimits()
	l.opens, l.wait = throttle.Rate{Burst: 2, Every: time.Hour}, time.Minute
	l.firstByte = time.Hour
	b := newBench(t, l, supportedVersions())
	strict := defaultLimits()
	strict.newStreams = l.opens
	sidecar, _ := b.sidecar(strict, supportedVersions())
	b.connected(sidecar)
	first, second := b.gateway(), b.gateway()
	b.must(errors.Join(talk(first, "one"), talk(second, "two")))
	b.ends(b.gateway())
	b.must(talk(first, "still here"))
	b.logs("too many new connections of gateways")
	if n := sidecar.counts.reconnects[Abused].Load(); n != 0 {
		t.Errorf("%d tunnels were ended", n)
	}
}

// TestStreamsThatComeAndGo: a sidecar ends a tunnel on which streams are opened too fast, though few are open.
func TestStreamsThatComeAndGo(t *testing.T) {
	t.Parallel()
	l := defaultLimits()
	l.newStreams = throttle.Rate{Burst: 20, Every: time.Second}
	b := newBench(t, defaultLimits(), supportedVersions())
	var opened atomic.Int64
	b.hostileRelay(func(conn *tls.Conn) {
		config := yamux.DefaultConfig()
		config.LogOutput, config.Logger = nil, silent{}
		mux, err := yamux.Client(conn, config)
		for err == nil {
			var stream *yamux.Stream
			opened.Add(1) // before: the sidecar can end the tunnel before OpenStream has returned
			if stream, err = mux.OpenStream(); err == nil {
				err = errors.Join(talk(stream, "x"), stream.Close())
			}
		}
	})
	sidecar, _ := b.sidecar(l, supportedVersions())
	b.logs(errPace.Error())
	b.upstream.Store(b.tunnels)
	b.talks()
	if n := opened.Load(); n <= 20 || sidecar.counts.reconnects[Abused].Load() == 0 {
		t.Errorf("%d streams were opened, and the reasons are %v", n, sidecar.counts.reconnects)
	}
}

// TestStreamsOfManyTunnels: a relay that ends its tunnel gets another one, and no other limits. Each tunnel has eight
// streams.
func TestStreamsOfManyTunnels(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change          func(*limits)
		served, refused int64 // served is the most that may be served, and refused the least
	}{
		"new streams":  {func(l *limits) { l.newStreams = throttle.Rate{Burst: 20, Every: time.Hour} }, 20, 0},
		"open streams": {func(l *limits) { l.relayStreams = 4 }, 1 << 30, 8 * 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := defaultLimits()
			l.firstPause, l.longestPause = time.Millisecond, time.Millisecond
			test.change(&l)
			b := newBench(t, defaultLimits(), supportedVersions())
			var tunnels atomic.Int64
			b.hostileRelay(func(conn *tls.Conn) {
				defer tunnels.Add(1)
				openEight(conn)
			})
			sidecar, _ := b.sidecar(l, supportedVersions())
			b.g.Eventually(tunnels.Load).Should(gomega.BeNumerically(">=", 8))
			served, refused := sidecar.counts.streams.Load(), sidecar.counts.refused.Load()
			if served < 8 || served > test.served || refused < test.refused {
				t.Errorf("%d streams were served, and %d refused", served, refused)
			}
		})
	}
}

// openEight opens eight streams of a hostile relay. All are open at the end, except those that the sidecar refuses.
func openEight(conn *tls.Conn) {
	config := yamux.DefaultConfig()
	config.LogOutput, config.Logger = nil, silent{}
	mux, err := yamux.Client(conn, config)
	if err != nil {
		return
	}
	for range 8 {
		stream, err := mux.OpenStream()
		if err != nil {
			return
		}
		_ = talk(stream, "x") // it is an error for a stream that is refused
	}
}

// TestUnreadData: istiod reads nothing, and a relay fills the buffers of many streams, on one tunnel after the other.
// The sidecar ends these tunnels before the buffers are full.
func TestUnreadData(t *testing.T) {
	t.Parallel()
	const streams, most = 100, 1 << 20
	b := newBench(t, defaultLimits(), supportedVersions())
	accepted := b.serve(func(ctx context.Context, listener net.Listener) error {
		return serve(ctx, listener, func(ctx context.Context, conn net.Conn) {
			defer func() { _ = conn.Close() }()
			if tcp, is := conn.(*net.TCPConn); is {
				_ = tcp.SetReadBuffer(4 << 10)
			}
			_, _ = io.WriteString(conn, "it answers")
			<-ctx.Done()
		})
	})
	good := b.target
	b.target = netip.MustParseAddrPort(accepted)
	var sent atomic.Int64
	b.hostileRelay(func(conn *tls.Conn) {
		config := yamux.DefaultConfig()
		config.LogOutput, config.Logger = nil, silent{}
		mux, err := yamux.Client(conn, config)
		if err != nil {
			return
		}
		var writers sync.WaitGroup
		for range streams {
			writers.Go(func() {
				stream, err := mux.OpenStream()
				for block := make([]byte, 16<<10); err == nil; {
					var n int
					n, err = stream.Write(block)
					sent.Add(int64(n))
				}
			})
		}
		writers.Wait()
	})
	l := defaultLimits()
	l.unread, l.inbound = most, rate.Inf
	sidecar, stop := b.sidecar(l, supportedVersions())
	b.g.Eventually(func() int64 { return sidecar.counts.reconnects[Abused].Load() }).Should(gomega.BeNumerically(">=", 2))
	b.logs(errUnread.Error())
	stop()
	if left := sidecar.relays[0].unread.total.Load(); left != 0 {
		t.Errorf("%d bytes count as unread after the end of all tunnels", left)
	}
	t.Logf("the relay sent %d KiB", sent.Load()>>10)
	b.target = good
	b.upstream.Store(b.tunnels)
	b.sidecar(defaultLimits(), supportedVersions())
	b.talks()
}

// TestSilentGateways: a connection without a first byte ends soon, and one without any byte later.
func TestSilentGateways(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*limits){
		"no first byte": func(l *limits) { l.firstByte = 100 * time.Millisecond },
		"idle":          func(l *limits) { l.idle, l.quiet, l.firstByte = 100*time.Millisecond, 10*time.Millisecond, 0 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := defaultLimits()
			change(&l)
			b := newBench(t, l, supportedVersions())
			b.sidecar(defaultLimits(), supportedVersions())
			spoken := b.talks()
			b.ends(b.gateway())
			if name == "no first byte" {
				b.must(talk(spoken, "still here"))
			} else {
				b.ends(spoken)
			}
		})
	}
}

// TestStalledGateways: gateways that accept nothing are closed after stallTime, and slow no other.
func TestStalledGateways(t *testing.T) {
	t.Parallel()
	l := defaultLimits()
	l.stall = 3 * time.Second
	b := newBench(t, l, supportedVersions())
	// At the usual pace, what these gateways send delays the other one by a second, which is near the time of a stall.
	fast := defaultLimits()
	fast.inbound = rate.Inf
	b.sidecar(fast, supportedVersions())
	other := b.talks()
	var all sync.WaitGroup
	for range 8 {
		conn := b.gateway()
		b.must(conn.SetReadBuffer(4 << 10))
		all.Go(func() {
			// The echo comes back until every buffer on the way is full. Then the relay closes the connection.
			if _, err := io.Copy(conn, endless{}); isTimeout(err) {
				t.Errorf("a stalled connection stays: %v", err)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		all.Wait()
	}()
	for talking := true; talking; {
		b.must(talk(other, "no head-of-line blocking"))
		select {
		case <-done:
			talking = false
		default:
		}
	}
	b.g.Eventually(func() string { return metric(b.relay.Handler(), "hypergate_relay_gateways") }).Should(gomega.Equal("1"))
}

type endless struct{}

// Read returns zeros without an end.
func (endless) Read(into []byte) (int, error) { return len(into), nil }

// hostileRelay replaces the relay by one that does what a guest's admin wants, after the handshake of the tunnel.
func (b *bench) hostileRelay(act func(*tls.Conn)) {
	b.upstream.Store(b.serve(func(ctx context.Context, listener net.Listener) error {
		return serve(ctx, listener, func(ctx context.Context, conn net.Conn) {
			defer func() { _ = conn.Close() }()
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			if err := readUpgrade(conn); err != nil {
				if ctx.Err() == nil { // at the end of the test, a new connection may have sent nothing yet
					b.t.Errorf("the sidecar's request: %v", err)
				}
				return
			}
			_, _ = conn.Write(upgradeAnswer())
			act(tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: alpn(supportedVersions())}))
		})
	}))
}

// TestHostileRelays: whatever a relay sends, the sidecar ends that tunnel, and connects again to a good relay.
func TestHostileRelays(t *testing.T) {
	t.Parallel()
	flood := func(data []byte) func(*tls.Conn) {
		return func(conn *tls.Conn) {
			for {
				if _, err := conn.Write(data); err != nil {
					return
				}
			}
		}
	}
	garbage := make([]byte, 4<<10)
	for i := range garbage {
		garbage[i] = 0xff
	}
	for name, tc := range map[string]struct {
		act    func(*tls.Conn)
		reason Reason
	}{
		"garbage in the tunnel":  {flood(garbage), Ended},
		"a flood of pings":       {flood(frame(framePing, flagSYN, 1)), Abused},
		"garbage instead of TLS": {func(conn *tls.Conn) { flood(garbage)(tls.Client(conn.NetConn(), nil)) }, Unproven},
		"plain text instead of TLS": {func(conn *tls.Conn) {
			_, _ = conn.NetConn().Write(garbage) // the sidecar may have gone
		}, Unproven},
		"silence after the upgrade":   {func(conn *tls.Conn) { _, _ = io.Copy(io.Discard, conn.NetConn()) }, Unproven},
		"silence after the handshake": {func(conn *tls.Conn) { _, _ = io.Copy(io.Discard, conn) }, Silent},
		"more streams than a relay needs": {func(conn *tls.Conn) {
			mux, err := yamux.Client(conn, yamux.DefaultConfig())
			for err == nil {
				_, err = mux.Open()
			}
		}, Abused},
		"an end at once": {func(*tls.Conn) {}, Unproven},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := defaultLimits()
			l.ping, l.silence, l.dial, l.heldStreams, l.streams = 50*time.Millisecond, time.Second, 2*time.Second, 20, 10
			b := newBench(t, defaultLimits(), supportedVersions())
			b.hostileRelay(tc.act)
			sidecar, _ := b.sidecar(l, supportedVersions())
			b.g.Eventually(func() int64 { return sidecar.counts.reconnects[tc.reason].Load() }).
				Should(gomega.BeNumerically(">", 0), func() string { return b.log.String() })
			b.upstream.Store(b.tunnels)
			b.talks()
			b.g.Eventually(sidecar.counts.open.Load).Should(gomega.BeNumerically("<=", 1))
		})
	}
}

// TestThreeThousandStreams: a sidecar serves 1,000 of them and closes the others at once.
func TestThreeThousandStreams(t *testing.T) {
	t.Parallel()
	l := defaultLimits()
	l.heldStreams, l.newStreams.Burst = 5000, 5000 // else the tunnel ends
	l.dial, l.target = hang.Deadline, hang.Deadline
	b := newBench(t, defaultLimits(), supportedVersions())
	opened := make(chan struct{})
	b.hostileRelay(func(conn *tls.Conn) {
		config := yamux.DefaultConfig()
		config.LogOutput, config.Logger = nil, silent{}
		mux, err := yamux.Client(conn, config)
		b.must(err)
		for range 3000 {
			if _, err := mux.Open(); err != nil {
				t.Errorf("opening streams: %v", err)
			}
		}
		close(opened)
		<-mux.CloseChan()
	})
	sidecar, _ := b.sidecar(l, supportedVersions())
	<-opened
	b.g.Eventually(sidecar.counts.refused.Load).Should(gomega.BeNumerically("==", 2000))
	b.g.Eventually(sidecar.counts.open.Load).Should(gomega.BeNumerically("==", maxStreams))
}

// TestASilentSidecar: a relay ends a tunnel from which nothing arrives.
func TestASilentSidecar(t *testing.T) {
	t.Parallel()
	l := defaultLimits()
	l.silence = 100 * time.Millisecond
	b := newBench(t, l, supportedVersions())
	serving, err := b.ca.Serving(time.Now(), tunnelName)
	b.must(err)
	certificate, err := tls.X509KeyPair(serving.Cert, serving.Key)
	b.must(err)
	conn := tls.Server(b.upgraded(), &tls.Config{
		Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13, NextProtos: alpn(supportedVersions()),
	})
	b.must(conn.HandshakeContext(t.Context()))
	b.logs(errSilent.Error())
	b.g.Eventually(b.relay.Ready).Should(gomega.BeFalse())
}

// TestTooManyTunnels: beyond the limit the oldest ends, which may be one that its sidecar has lost.
func TestTooManyTunnels(t *testing.T) {
	t.Parallel()
	l := defaultLimits()
	l.tunnels = 2
	b := newBench(t, l, supportedVersions())
	for range 3 {
		s, _ := b.sidecar(defaultLimits(), supportedVersions())
		b.g.Eventually(func() bool { return s.relays[0].current.Load() != nil }).Should(gomega.BeTrue())
	}
	b.logs(errReplaced.Error())
	b.talks()
}

// TestATunnelWithStreamsOutlivesOneWithout checks which tunnel ends beyond the limit: of those that take no more
// streams, the one with the fewest. istiod's check fails again and again, and the sidecar replaces its tunnel.
func TestATunnelWithStreamsOutlivesOneWithout(t *testing.T) {
	t.Parallel()
	l, kept := defaultLimits(), defaultLimits()
	l.tunnels, kept.target = 2, hang.Deadline // the sidecar itself ends no tunnel meanwhile
	b := newBench(t, l, supportedVersions())
	sidecar, _ := b.sidecar(kept, supportedVersions())
	b.connected(sidecar)
	conn := b.talks()
	for range 2 {
		before := sidecar.relays[0].current.Load()
		before.refuse()
		b.g.Eventually(func() bool { return sidecar.relays[0].current.Load() != before && b.accepting() == 1 }).Should(gomega.BeTrue())
	}
	b.logs(errReplaced.Error())
	b.must(talk(conn, "still here"))
	b.talks()
}

// TestAnOutageUsesNoTurns checks that gateways which connect while no tunnel exists use no turns of the relay for new
// streams. When a tunnel exists again, they reach istiod at once.
func TestAnOutageUsesNoTurns(t *testing.T) {
	t.Parallel()
	l := defaultLimits()
	l.opens, l.wait = throttle.Rate{Burst: 2, Every: time.Hour}, time.Second
	b := newBench(t, l, supportedVersions())
	for _, inVain := range []net.Conn{b.gateway(), b.gateway(), b.gateway()} {
		b.ends(inVain)
	}
	b.logs("no tunnel to istiod")
	sidecar, _ := b.sidecar(defaultLimits(), supportedVersions())
	b.connected(sidecar)
	for range 2 {
		b.must(talk(b.gateway(), "hello"))
	}
	b.ends(b.gateway())
	b.logs("too many new connections of gateways")
}
