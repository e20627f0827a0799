package tunnel

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/pkg/throttle"
)

// flagFIN is a part of frames that only these tests send.
const flagFIN = 4

// allStreams is the number of streams that a hostile relay opens.
const allStreams = 100_000

// flood is a hostile relay that opens streams and closes them again as fast as it can, allStreams in all. It waits for
// nothing, so yamux rejects most of them: its backlog is full. Then it sends garbage. So a tunnel that no limit ends
// has the reason Ended, once the sidecar has read all that came before.
type flood struct{ opened, tunnels, next atomic.Int64 }

func (f *flood) act(conn *tls.Conn) {
	f.tunnels.Add(1)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, conn)
	}()
	for f.opened.Load() < allStreams {
		var frames []byte
		for range 100 {
			id := uint32(2*f.next.Add(1) - 1)
			for _, flag := range []uint16{flagSYN, flagFIN} {
				header := frame(frameWindow, flag, 0)
				binary.BigEndian.PutUint32(header[4:], id)
				frames = append(frames, header...)
			}
		}
		if _, err := conn.Write(frames); err != nil {
			return
		}
		f.opened.Add(100)
	}
	_, _ = conn.Write(bytes.Repeat([]byte{0xff}, frameHeader)) // the sidecar may have gone
	<-drained
}

// ended reports whether a tunnel of the sidecar has ended, in whatever way.
func ended(sidecar *Sidecar) bool {
	return sidecar.counts.reconnects[Abused].Load()+sidecar.counts.reconnects[Ended].Load() > 0
}

// patient returns a hostile relay that opens n streams, as yamux does: it waits for acknowledgements, so that the
// sidecar's backlog is never full.
func patient(n int, closes bool) func(*tls.Conn) {
	return func(conn *tls.Conn) {
		config := yamux.DefaultConfig()
		config.LogOutput, config.Logger = nil, silent{}
		mux, err := yamux.Client(conn, config)
		if err != nil {
			return
		}
		for range n {
			stream, err := mux.OpenStream()
			if err != nil {
				return
			}
			if closes {
				_ = stream.Close() // fails only if the tunnel has ended
			}
		}
		<-mux.CloseChan()
	}
}

// TestAHundredThousandStreams: a relay opens streams and closes them again, a hundred thousand in all, as fast as it
// can. The sidecar ends its tunnels, and connects few of the streams to istiod. It serves a good relay afterwards.
func TestAHundredThousandStreams(t *testing.T) {
	t.Parallel()
	l := defaultLimits()
	l.firstPause, l.longestPause = time.Millisecond, time.Millisecond
	b := newBench(t, defaultLimits(), supportedVersions())
	var relay flood
	b.hostileRelay(relay.act)
	sidecar, _ := b.sidecar(l, supportedVersions())
	b.g.Eventually(func() bool { return ended(sidecar) && relay.opened.Load() >= allStreams }).Should(gomega.BeTrue())
	b.upstream.Store(b.tunnels)
	b.talks()
	got, most := sidecar.counts.streams.Load(), relay.tunnels.Load()*(streamBurst+500)
	abused := sidecar.counts.reconnects[Abused].Load()
	t.Logf("%d tunnels, of which the sidecar ended %d; it connected %d of %d streams to istiod",
		relay.tunnels.Load(), abused, got, relay.opened.Load())
	if got > most {
		t.Errorf("that is more than %d", most)
	}
	if abused == 0 {
		t.Error("the sidecar ended no tunnel")
	}
	b.g.Eventually(sidecar.counts.open.Load).Should(gomega.BeNumerically("<=", 1))
}

// TestEachLimitOfStreams: each limit ends the tunnel of a relay that keeps all other ones.
func TestEachLimitOfStreams(t *testing.T) {
	t.Parallel()
	const patientStreams = 190
	unlimited := throttle.Rate{Burst: 10 * allStreams, Every: time.Hour}
	for name, tc := range map[string]struct {
		change func(*limits)
		act    func(*flood) func(*tls.Conn)
		want   error
	}{
		"the pace": {
			func(l *limits) { l.newStreams = throttle.Rate{Burst: 100, Every: time.Hour} },
			func(*flood) func(*tls.Conn) { return patient(patientStreams, true) }, errPace,
		},
		"the streams that are held": {
			func(l *limits) { l.newStreams, l.heldStreams = unlimited, 100 }, // 200 count for their bytes
			func(*flood) func(*tls.Conn) { return patient(patientStreams, false) }, errTooMany,
		},
		"the streams that yamux rejects": {
			func(l *limits) { l.newStreams = unlimited },
			func(f *flood) func(*tls.Conn) { return f.act }, errRejected,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := defaultLimits()
			tc.change(&l)
			b := newBench(t, defaultLimits(), supportedVersions())
			var relay flood
			b.hostileRelay(tc.act(&relay))
			sidecar, _ := b.sidecar(l, supportedVersions())
			// Without the limit, the sidecar serves all of a patient relay's streams.
			b.g.Eventually(func() bool {
				return ended(sidecar) || relay.tunnels.Load() == 0 && sidecar.counts.streams.Load() >= patientStreams
			}).Should(gomega.BeTrue())
			if !ended(sidecar) {
				t.Fatal("the tunnel did not end")
			}
			b.logs("The tunnel is down") // it is logged after it is counted
			if !strings.Contains(b.log.String(), tc.want.Error()) {
				t.Errorf("the tunnel did not end with %q:\n%s", tc.want, b.log.String())
			}
		})
	}
}

// TestAStreamThatIsNeverClosed checks that an end forgets a stream which it has closed, and the other end has not,
// after closeTime. Otherwise such streams would add up to the limit, which ends the tunnel.
func TestAStreamThatIsNeverClosed(t *testing.T) {
	t.Parallel()
	inABubble(t, func(t *testing.T) {
		t.Helper()
		_, relay, sidecar := newRoad(t) // its ends accept streams, and leave them open
		for name, end := range map[string]*session{"relay": relay, "sidecar": sidecar} {
			stream, err := end.mux.OpenStream()
			if err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Second)
			if err := stream.Close(); err != nil {
				t.Fatal(err)
			}
			<-time.After(closeTime / 2)
			if n := end.mux.NumStreams(); n != 1 {
				t.Fatalf("the %s has %d streams before closeTime", name, n)
			}
			<-time.After(closeTime)
			if n := end.mux.NumStreams(); n != 0 {
				t.Errorf("the %s still has %d streams %s after it closed them", name, n, closeTime+closeTime/2)
			}
		}
	})
}
