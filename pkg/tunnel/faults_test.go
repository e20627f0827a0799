package tunnel

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/test/hang"
)

// road is a network between two ends of a tunnel. A direction that is cut drops everything, and notifies neither end.
type road struct {
	// up is the direction from the sidecar to the relay.
	up, down direction
}

// direction counts the writes of its sender, which are records of TLS. A slow one accepts 16 bytes in each slow.
type direction struct {
	cut    atomic.Bool
	writes atomic.Int64
	slow   atomic.Int64 // a time.Duration
}

// carry passes bytes on, or drops them, until an end closes its connection.
func (d *direction) carry(to io.WriteCloser, from io.Reader) {
	defer func() { _ = to.Close() }()
	data := make([]byte, 64<<10)
	for {
		into := data
		if d.slow.Load() > 0 {
			into = data[:16]
		}
		n, err := from.Read(into)
		if err != nil {
			return
		}
		d.writes.Add(1)
		if d.cut.Load() {
			continue
		}
		if _, err := to.Write(data[:n]); err != nil {
			return
		}
		if slow := time.Duration(d.slow.Load()); slow > 0 {
			<-time.After(slow)
		}
	}
}

// newRoad returns the two ends of a tunnel with the default limits, in the bubble of the caller.
func newRoad(t *testing.T) (between *road, relay, sidecar *session) {
	t.Helper()
	between = &road{}
	ofSidecar, one := net.Pipe()
	ofRelay, other := net.Pipe()
	go between.up.carry(other, one)
	go between.down.carry(one, other)
	server, client := secured(t, ofSidecar, ofRelay)
	end := func(conn *tls.Conn, raw net.Conn, kind muxer) *session {
		out, err := newSession(newWire(&proven{Conn: conn}, raw, defaultLimits(), nil, nil), 1, defaultLimits(), kind)
		if err != nil {
			t.Fatal(err)
		}
		go func() { // both ends do this: see Relay.hold and Sidecar.serve
			var err error
			for err == nil {
				_, err = out.mux.AcceptStream()
			}
			out.finish(err)
		}()
		return out
	}
	relay, sidecar = end(client, ofRelay, opens), end(server, ofSidecar, accepts)
	go sidecar.keepAlive(pingEvery)
	t.Cleanup(func() {
		relay.finish(errStopped)
		sidecar.finish(errStopped)
	})
	return between, relay, sidecar
}

// inABubble runs a test with a clock of its own, in a process of its own. yamux keeps timers for all sessions of a
// process, and one that was made outside of the bubble must not be used inside.
func inABubble(t *testing.T, run func(*testing.T)) {
	t.Helper()
	const inside = "HYPERGATE_TEST_BUBBLE"
	if os.Getenv(inside) == t.Name() {
		synctest.Test(t, run)
		return
	}
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout="+hang.Deadline.String(), "-test.v")
	command.Env = append(os.Environ(), inside+"="+t.Name())
	if out, err := command.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestHalfOpenTunnels checks that both ends notice within 20 s that a tunnel carries nothing any more: in both
// directions or in one of them, and whenever it begins between two keepalives.
func TestHalfOpenTunnels(t *testing.T) {
	t.Parallel()
	inABubble(t, func(t *testing.T) {
		t.Helper()
		for name, cut := range map[string]func(*road){
			"both directions": func(r *road) { r.up.cut.Store(true); r.down.cut.Store(true) },
			"to the relay":    func(r *road) { r.up.cut.Store(true) },
			"to the sidecar":  func(r *road) { r.down.cut.Store(true) },
		} {
			for after := time.Minute; after <= time.Minute+pingEvery; after += pingEvery / 8 {
				between, relay, sidecar := newRoad(t)
				<-time.After(after)
				if relay.ended() || sidecar.ended() {
					t.Fatalf("it ended by itself: %v, %v", relay.cause, sidecar.cause)
				}
				cut(between)
				begin := time.Now()
				<-relay.done
				atRelay := time.Since(begin)
				<-sidecar.done
				atSidecar := time.Since(begin)
				t.Logf("%s, %s: noticed after %s by the relay, %s by the sidecar", name, after, atRelay, atSidecar)
				if max(atRelay, atSidecar) > 20*time.Second {
					t.Error("that is too late")
				}
			}
		}
	})
}

// TestAtRestThereIsOneKeepalive checks what a tunnel sends at rest, also with open streams: one keepalive and its
// answer in 10 s.
func TestAtRestThereIsOneKeepalive(t *testing.T) {
	t.Parallel()
	inABubble(t, func(t *testing.T) {
		t.Helper()
		for _, streams := range []int{0, 50} {
			between, relay, _ := newRoad(t)
			for range streams {
				if _, err := relay.mux.OpenStream(); err != nil {
					t.Fatal(err)
				}
			}
			<-time.After(time.Minute + pingEvery/2)
			up, down := between.up.writes.Load(), between.down.writes.Load()
			<-time.After(10 * time.Minute)
			up, down = between.up.writes.Load()-up, between.down.writes.Load()-down
			if up != 60 || down != 60 { // one write is one frame: a keepalive, or its answer
				t.Errorf("with %d streams, the sidecar sent %d frames in ten minutes, and the relay %d, want 60 each", streams, up, down)
			}
		}
	})
}

// TestRoundTrip checks that the round trip includes the time in which the keepalive is sent.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	inABubble(t, func(t *testing.T) {
		t.Helper()
		between, _, sidecar := newRoad(t)
		const slow = 50 * time.Millisecond
		between.up.slow.Store(int64(slow))
		<-time.After(3 * pingEvery)
		if got := time.Duration(sidecar.roundTrip.Load()); got < slow || got > time.Second {
			t.Errorf("the round trip is %s, and its keepalive takes more than %s to send", got, slow)
		}
	})
}

// TestAStartingAPIServer checks that a sidecar tries again whatever an API server answers that has just started, and
// needs no restart.
func TestAStartingAPIServer(t *testing.T) {
	t.Parallel()
	b := newBench(t, defaultLimits(), supportedVersions())
	answers := []int{
		http.StatusForbidden, http.StatusUnauthorized, http.StatusNotFound, http.StatusServiceUnavailable, http.StatusForbidden,
	}
	var asked atomic.Int64
	serves := b.api.Config.Handler
	b.api.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := int(asked.Add(1)); n <= len(answers) {
			w.WriteHeader(answers[n-1])
			return
		}
		serves.ServeHTTP(w, r)
	})
	sidecar, _ := b.sidecar(defaultLimits(), supportedVersions())
	b.talks()
	for reason, want := range map[Reason]int64{Forbidden: 3, NoRelay: 1, Unavailable: 1} {
		if got := sidecar.counts.reconnects[reason].Load(); got != want {
			t.Errorf("%s: %d attempts, want %d", reason, got, want)
		}
	}
}

// TestClockSkew checks that a tunnel comes up if the guest's clock is less than 5 minutes behind, and what happens if
// it is further behind: the reason says so, and the next attempt reads the files again. If the guest's clock is ahead,
// a tunnel comes up until the certificate has expired.
func TestClockSkew(t *testing.T) {
	t.Parallel()
	b := newBench(t, defaultLimits(), supportedVersions())
	b.identityAt(time.Now().Add(time.Hour), b.ca, tunnelName) // the management side's clock is an hour ahead of the guest's
	sidecar, _ := b.sidecar(defaultLimits(), supportedVersions())
	b.logs("is not yet valid")
	b.g.Eventually(sidecar.counts.reconnects[Unproven].Load).Should(gomega.BeNumerically(">", 0))
	b.identityAt(time.Now().Add(4*time.Minute), b.ca, tunnelName)
	before := sidecar.counts.reconnects[Unproven].Load()
	b.talks()
	if more := sidecar.counts.reconnects[Unproven].Load() - before; more > 1 { // one was under way
		t.Errorf("a difference of 4 minutes was refused %d times", more)
	}
	for ahead, want := range map[time.Duration]string{time.Hour: "The tunnel is up", 31 * 24 * time.Hour: "has expired"} {
		b := newBench(t, defaultLimits(), supportedVersions())
		b.identityAt(time.Now().Add(-ahead), b.ca, tunnelName)
		b.sidecar(defaultLimits(), supportedVersions())
		b.logs(want)
	}
}

// TestSettingTheClockEndsNothing checks that the times of a connection are by the monotonic clock. The clock of a node
// can be set, also by hours.
func TestSettingTheClockEndsNothing(t *testing.T) {
	t.Parallel()
	one := newJoint(nil, streamEnd{}, defaultLimits(), newBuffers())
	if !strings.Contains(one.begin.String(), " m=") {
		t.Errorf("%s has no monotonic clock", one.begin)
	}
	one.last.Store(int64(idleTime))
	if left := one.remaining(); left < idleTime || left > 2*idleTime {
		t.Errorf("%s after it began, %s remain, and bytes arrive after %s", time.Since(one.begin), left, idleTime)
	}
}
