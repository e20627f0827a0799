package tunnel

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/pkg/throttle"
	"github.com/hypergate/hypergate/test/hang"
)

// TestBytesArriveUnchanged: many connections at the same time, with little and much data, in both directions.
func TestBytesArriveUnchanged(t *testing.T) {
	t.Parallel()
	b := newBench(t, defaultLimits(), supportedVersions())
	sidecar, _ := b.sidecar(defaultLimits(), supportedVersions())
	b.talks()
	var all sync.WaitGroup
	for i := range 20 {
		conn := b.gateway()
		all.Go(func() {
			for _, size := range []int{1, smallBuffer, 3 << 20, 7} { // 3 MiB is more than the window
				if err := talk(conn, strings.Repeat(string(rune('a'+i)), size)); err != nil {
					t.Errorf("connection %d, %d bytes: %v", i, size, err)
					return
				}
			}
		})
	}
	all.Wait()
	if got := metric(sidecar.Handler(), "hypergate_tunnel_streams_total"); got != "21" {
		t.Errorf("%s streams", got)
	}
	want := fmt.Sprintf("%g", float64(len("hello")+20*(1+smallBuffer+3<<20+7)))
	b.g.Eventually(func() string { return metric(sidecar.Handler(), `hypergate_tunnel_bytes_total{direction="to_istiod"}`) }).
		Should(gomega.Equal(want))
	b.g.Eventually(func() string {
		return metric(b.relay.Handler(), `hypergate_relay_bytes_total{direction="to_gateways"}`)
	}).
		Should(gomega.Equal(want))
}

// slowMachine returns limits for tests that are not about the time of an attempt, or of a connection that closes. On a
// busy machine, the first attempt must succeed, too.
func slowMachine() limits {
	l := defaultLimits()
	l.proof, l.dial, l.target, l.open, l.firstByte, l.closing = hang.Deadline, hang.Deadline, hang.Deadline, hang.Deadline,
		hang.Deadline, hang.Deadline
	return l
}

// TestHalfClose: a gateway that has sent everything still gets the answer, and then the end.
func TestHalfClose(t *testing.T) {
	t.Parallel()
	b := newBench(t, slowMachine(), supportedVersions())
	b.sidecar(slowMachine(), supportedVersions())
	conn := b.talks()
	if _, err := io.WriteString(conn, "last words"); err != nil {
		t.Fatal(err)
	}
	b.must(conn.CloseWrite())
	if got, err := io.ReadAll(conn); string(got) != "last words" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	b.g.Eventually(func() string { return metric(b.relay.Handler(), "hypergate_relay_gateways") }).Should(gomega.Equal("0"))
}

// TestVersions: releases that are one version apart work together, both ways.
func TestVersions(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		relay, sidecar []Version
		want           Version // 0: there is no tunnel
	}{
		{[]Version{1}, []Version{1}, 1},
		{[]Version{2, 1}, []Version{1}, 1},
		{[]Version{1}, []Version{2, 1}, 1},
		{[]Version{2, 1}, []Version{2, 1}, 2},
		{[]Version{3, 2}, []Version{2, 1}, 2},
		{[]Version{3, 2}, []Version{1}, 0},
		{[]Version{1}, []Version{3, 2}, 0},
	} {
		t.Run(fmt.Sprint(tc.relay, tc.sidecar), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, defaultLimits(), tc.relay)
			sidecar, _ := b.sidecar(defaultLimits(), tc.sidecar)
			if tc.want > 0 {
				b.talks()
				b.logs(fmt.Sprintf("version=%d", tc.want))
				return
			}
			b.g.Eventually(func() string {
				return metric(sidecar.Handler(), `hypergate_tunnel_reconnects_total{reason="unproven"}`)
			}).ShouldNot(gomega.Equal("0"))
			b.logs("application protocol")
		})
	}
}

// TestTheMeshRootIsReplaced: the relay's root and the sidecar's certificate are read for each tunnel.
func TestTheMeshRootIsReplaced(t *testing.T) {
	t.Parallel()
	b := newBench(t, defaultLimits(), supportedVersions())
	next := b.newCA()
	b.identity(next, tunnelName)
	b.sidecar(defaultLimits(), supportedVersions())
	b.logs("did not prove that it is istiod's sidecar")
	b.write("root.pem", slices.Concat(b.ca.Root, next.Root)) // the overlap of a rotation
	b.talks()
}

// TestRedial: before a tunnel ends, a new one with the current token replaces it. Its streams are closed one by one.
func TestRedial(t *testing.T) {
	t.Parallel()
	l := defaultLimits()
	l.redial, l.end, l.drain, l.target = 50*time.Millisecond, 5*time.Millisecond, 10*time.Millisecond, time.Second
	b := newBench(t, defaultLimits(), supportedVersions())
	b.sidecar(l, supportedVersions())
	conn := b.talks()
	b.write("guest/"+TokenFile, []byte("token-2"))
	b.g.Eventually(func() []string {
		b.seen.mu.Lock()
		defer b.seen.mu.Unlock()
		return slices.Clone(b.seen.tokens)
	}).Should(gomega.ContainElement("Bearer token-2"))
	b.ends(conn)
	// The relay is never without a tunnel.
	before, _ := strconv.Atoi(metric(b.relay.Handler(), "hypergate_relay_tunnels_total"))
	b.g.Eventually(func() int {
		if !b.relay.Ready() {
			t.Error("the relay is without a tunnel")
		}
		now, _ := strconv.Atoi(metric(b.relay.Handler(), "hypergate_relay_tunnels_total"))
		return now
	}).Should(gomega.BeNumerically(">=", before+5))
}

// TestAReplacedTunnelKeepsItsStreams: they have endTime to end by themselves. The short drainTime counts only after it.
func TestAReplacedTunnelKeepsItsStreams(t *testing.T) {
	t.Parallel()
	l := defaultLimits()
	l.redial, l.drain, l.target = 50*time.Millisecond, time.Millisecond, time.Second
	many := defaultLimits()
	many.tunnels = 10_000 // a second has more tunnels than a relay allows
	b := newBench(t, many, supportedVersions())
	sidecar, _ := b.sidecar(l, supportedVersions())
	conn := b.talks()
	first := sidecar.relays[0].current.Load()
	for range 3 { // each replaced tunnel has ended, except the one with the stream
		now := sidecar.relays[0].current.Load()
		b.g.Eventually(sidecar.relays[0].current.Load).ShouldNot(gomega.BeIdenticalTo(now))
		if now != first {
			<-now.done
		}
	}
	b.must(talk(conn, "still here"))
	if got := sidecar.counts.reconnects[Ended].Load(); got > 0 {
		t.Errorf("%d tunnels ended by themselves", got)
	}
}

// TestAFailedRedialCutsNothing: the old tunnel stays until there is a new one.
func TestAFailedRedialCutsNothing(t *testing.T) {
	t.Parallel()
	l := defaultLimits()
	l.redial = 50 * time.Millisecond
	b := newBench(t, defaultLimits(), supportedVersions())
	b.write("guest/"+TokenFile, []byte("token-1"))
	sidecar, _ := b.sidecar(l, supportedVersions())
	conn := b.talks()
	b.write("guest/"+TokenFile, nil) // no token can be read
	b.g.Eventually(func() string {
		return metric(sidecar.Handler(), `hypergate_tunnel_reconnects_total{reason="unconfigured"}`)
	}).ShouldNot(gomega.Equal("0"))
	if metric(sidecar.Handler(), `hypergate_tunnel_up{relay="istiod-relay-0"}`) != "1" || !b.relay.Ready() {
		t.Error("the old tunnel counts as down")
	}
	b.must(talk(conn, "still here"))
}

// TestStop: a sidecar that stops lets streams end by themselves, and then ends the tunnel.
func TestStop(t *testing.T) {
	t.Parallel()
	b := newBench(t, defaultLimits(), supportedVersions())
	_, stop := b.sidecar(defaultLimits(), supportedVersions())
	conn := b.talks()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	b.must(talk(conn, "while it stops"))
	b.must(conn.Close())
	<-stopped
	b.g.Eventually(b.relay.Ready).Should(gomega.BeFalse())
}

// TestAGatewayWaitsForATunnel: while there is none, its connection is held.
func TestAGatewayWaitsForATunnel(t *testing.T) {
	t.Parallel()
	l := slowMachine()
	l.wait = time.Hour
	b := newBench(t, l, supportedVersions())
	conn := b.gateway()
	b.g.Eventually(func() string { return metric(b.relay.Handler(), "hypergate_relay_gateways") }).Should(gomega.Equal("1"))
	b.sidecar(slowMachine(), supportedVersions())
	b.must(talk(conn, "hello"))
}

// TestNoTunnelForTooLong: the wait ends after waitTime.
func TestNoTunnelForTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		relay := NewRelay(slog.New(slog.DiscardHandler), "", tunnelName)
		begin := time.Now()
		if _, err := relay.open(t.Context(), fewestFirst); err == nil || time.Since(begin) != waitTime {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
	})
}

// TestPauses: the pause between attempts grows to 2 s and no further, whatever the reason is.
func TestPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := NewSidecar("r")
		s.Log = slog.New(slog.DiscardHandler)
		var pause throttle.Backoff
		var got []time.Duration
		for range 8 {
			begin := time.Now()
			s.failed(t.Context(), s.Log, &pause, dialError{Forbidden, io.EOF})
			got = append(got, time.Since(begin))
		}
		ms := time.Millisecond
		want := []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 2000 * ms, 2000 * ms, 2000 * ms}
		if !slices.Equal(got, want) || s.counts.reconnects[Forbidden].Load() != 8 {
			t.Errorf("%v, want %v", got, want)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begin := time.Now()
		s.failed(ctx, s.Log, &pause, io.EOF)
		if time.Since(begin) > 0 {
			t.Error("a stopping sidecar waits")
		}
	})
}

// TestHandlers: health and readiness of both ends.
func TestHandlers(t *testing.T) {
	t.Parallel()
	b := newBench(t, defaultLimits(), supportedVersions())
	status := func(handler http.Handler, path string) int {
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		return recorder.Code
	}
	if got := status(b.relay.Handler(), "/readyz"); got != http.StatusServiceUnavailable {
		t.Errorf("a relay without a tunnel is ready: %d", got)
	}
	sidecar, _ := b.sidecar(defaultLimits(), supportedVersions())
	b.talks()
	for _, handler := range []http.Handler{b.relay.Handler(), sidecar.Handler()} {
		for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 200, "/": 404, "/debug/pprof/": 404} {
			if got := status(handler, path); got != want {
				t.Errorf("%s: %d, want %d", path, got, want)
			}
		}
	}
}

// TestCaller: a caller with the sidecar's identity talks to istiod through the relay, beside gateways. A caller with
// another identity does not, and its error has the reason.
func TestCaller(t *testing.T) {
	t.Parallel()
	b := newBench(t, slowMachine(), supportedVersions())
	b.sidecar(slowMachine(), supportedVersions())
	b.talks()
	caller := b.caller()
	conn, err := caller.Dial(t.Context(), "istiod-relay-0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := talk(conn, strings.Repeat("x", 1<<20)); err != nil {
		t.Fatal(err)
	}
	if got := metric(b.relay.Handler(), "hypergate_relay_tunnels"); got != "1" {
		t.Errorf("the caller counts as a tunnel: there are %s", got)
	}
	other, err := b.newCA().Serving(time.Now(), tunnelName)
	b.must(err)
	workload, err := b.ca.Serving(time.Now(), "istiod.istio-system.svc")
	b.must(err)
	for name, change := range map[string]func(*Caller){
		"another CA":   func(c *Caller) { c.Cert, c.Key = other.Cert, other.Key },
		"another name": func(c *Caller) { c.Cert, c.Key = workload.Cert, workload.Key },
	} {
		wrong := b.caller()
		change(&wrong)
		stranger, err := wrong.Dial(t.Context(), "istiod-relay-0")
		if err == nil { // in TLS 1.3, the client's verdict on the certificate arrives after the handshake
			err = talk(stranger, "hello")
			_ = stranger.Close()
		} else if reason, is := DialReason(err); !is || reason != Unproven {
			t.Errorf("%s: the reason is %q: %v", name, reason, err)
		}
		if err == nil {
			t.Errorf("%s: it talks to istiod", name)
		}
	}
	wrong := b.caller()
	wrong.CA = nil
	if _, err := wrong.Dial(t.Context(), "istiod-relay-0"); err == nil {
		t.Error("without a CA, the API server is trusted")
	}
}
