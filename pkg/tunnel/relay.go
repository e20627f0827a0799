package tunnel

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/hypergate/hypergate/pkg/throttle"
)

// Relay gives connections of gateways to the sidecar of istiod's pod, through tunnels that the sidecar opens. It runs
// in the guest.
type Relay struct {
	// Log gets one line for each tunnel and each rejected attempt. The other end decides how often these occur.
	Log *slog.Logger
	// Roots is the file with the root certificates of the mesh, in PEM. It is read for each tunnel.
	Roots string
	// Name is the DNS name in the certificate of the sidecar.
	Name string

	limits   limits
	versions []Version
	counts   relayCounts
	slots    slots
	sources  sources
	pace     throttle.Limiter // of new streams
	spare    buffers

	mu       sync.Mutex
	sessions []*session    // the oldest first
	changed  chan struct{} // closed and replaced when sessions changes
	turn     int           // the tunnel that got the last connection of hypergate
}

// NewRelay returns a relay without tunnels.
func NewRelay(log *slog.Logger, roots, name string) *Relay {
	return newRelay(log, roots, name, defaultLimits(), supportedVersions())
}

func newRelay(log *slog.Logger, roots, name string, l limits, versions []Version) *Relay {
	return &Relay{
		Log: log, Roots: roots, Name: name, limits: l, versions: versions,
		slots: slots{most: l.unproven}, spare: newBuffers(), changed: make(chan struct{}),
		sources: sources{most: l.perSource, least: l.place, count: map[netip.Addr]int{}},
		pace:    throttle.NewLimiter(l.opens),
	}
}

// Ready reports whether the relay holds a tunnel that accepts streams, or one that did until a short time ago: the
// sidecar of an istiod that starts again has another one soon. A gateway that connects waits equally long.
func (r *Relay) Ready() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.sessions, func(s *session) bool {
		left := s.frames.left.Load()
		return left == nil || time.Since(*left) < r.limits.wait
	})
}

// ServeTunnels accepts tunnels from a listener until the context ends. It closes the listener and all tunnels, and
// returns the reason if it could not continue.
func (r *Relay) ServeTunnels(ctx context.Context, listener net.Listener) error {
	if err := apiBuffers().listen(listener); err != nil {
		return err
	}
	return serve(ctx, listener, r.tunnel)
}

// tunnel serves one connection on the port for tunnels.
func (r *Relay) tunnel(ctx context.Context, conn net.Conn) {
	_ = conn.SetDeadline(time.Now().Add(r.limits.proof)) // fails only on a closed connection
	slot, evicted := r.slots.take(sourceOf(conn), func() { _ = conn.Close() })
	if evicted {
		r.counts.evicted.Add(1)
	}
	secure, err := r.prove(ctx, conn)
	kept := r.slots.release(slot)
	if err == nil && !kept {
		err = errors.New("a newer connection took its slot")
	}
	if err == nil && secure.ConnectionState().NegotiatedProtocol == gatewayProtocol {
		r.connection(ctx, secure, r.inTurn)
		return
	}
	var one *session
	if err == nil {
		one, err = r.session(secure, conn)
	}
	if err != nil {
		_ = conn.Close()
		r.counts.rejected.Add(1)
		r.Log.Info("Rejected a connection on the port for tunnels", "source", sourceOf(conn).String(), "reason", err.Error())
		return
	}
	r.hold(ctx, one)
}

// prove returns a connection whose other end has proven that it has the identity of istiod's sidecar.
func (r *Relay) prove(ctx context.Context, conn net.Conn) (*proven, error) {
	if err := readUpgrade(conn); err != nil {
		if no, is := errors.AsType[refusal](err); is {
			_, _ = conn.Write(no.bytes()) // the reason is logged, whether or not the client gets it
		}
		return nil, err
	}
	roots, err := rootsIn(r.Roots)
	if err != nil {
		_, _ = conn.Write(refusal{503, "the relay cannot verify a tunnel: see its log"}.bytes())
		return nil, err
	}
	if _, err := conn.Write(upgradeAnswer()); err != nil {
		return nil, err
	}
	below := &gatherer{Conn: conn}
	secure := tls.Client(below, &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: r.Name, NextProtos: append(alpn(r.versions), gatewayProtocol),
		DynamicRecordSizingDisabled: true,
	})
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("the other end did not prove that it is istiod's sidecar: %w", err)
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	return &proven{secure, layers{below}}, nil
}

// session returns the tunnel on a proven connection.
func (r *Relay) session(secure *proven, conn net.Conn) (*session, error) {
	version, err := agreed(r.versions, secure.ConnectionState().NegotiatedProtocol)
	if err != nil {
		return nil, err
	}
	return newSession(newWire(secure, conn, r.limits, nil, nil), version, r.limits, opens)
}

// hold keeps a tunnel until it ends.
func (r *Relay) hold(ctx context.Context, one *session) {
	r.add(one)
	defer context.AfterFunc(ctx, func() { one.finish(errStopped) })()
	r.counts.tunnels.Add(1)
	r.Log.Info("A tunnel is up", "version", int(one.version))
	_, err := one.mux.AcceptStream()
	if err == nil {
		err = errors.New("the sidecar opened a stream, which only a relay does")
	}
	one.finish(err)
	r.remove(one)
	r.Log.Info("A tunnel ended", "reason", one.cause.Error())
}

// add adds a tunnel. Beyond the limit, another one ends.
func (r *Relay) add(one *session) {
	r.mu.Lock()
	var extra *session
	if len(r.sessions) >= r.limits.tunnels {
		extra = leastUseful(r.sessions)
	}
	r.sessions = append(r.sessions, one)
	r.announce()
	r.mu.Unlock()
	if extra != nil {
		extra.finish(errReplaced)
	}
}

// leastUseful returns which of some tunnels ends beyond the limit. One that takes no more streams only waits until its
// streams end, so the one with the fewest of them costs least. Its sidecar opens no other one for it. If all take
// streams, it is the oldest: its sidecar has perhaps not noticed yet that it is cut.
func leastUseful(sessions []*session) *session {
	leaving := slices.DeleteFunc(slices.Clone(sessions), (*session).takesStreams)
	if len(leaving) == 0 {
		return sessions[0]
	}
	return fewestFirst(leaving)[0]
}

func (r *Relay) remove(one *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessions = slices.DeleteFunc(r.sessions, func(s *session) bool { return s == one })
	r.announce()
}

// announce wakes those that wait for a tunnel. The caller holds mu.
func (r *Relay) announce() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// order sorts tunnels that accept streams: open takes the first one.
type order func(sessions []*session) []*session

// fewestFirst begins with the tunnel that has the fewest streams, so that gateways spread over all istiods.
func fewestFirst(sessions []*session) []*session {
	return slices.SortedStableFunc(slices.Values(sessions), func(a, b *session) int {
		return cmp.Compare(a.mux.NumStreams(), b.mux.NumStreams())
	})
}

// inTurn begins with the tunnel after that of the last call. hypergate asks the same question several times, and wants
// the answers of all istiods. With fewestFirst, the one with the fewest gateways would get all of the questions.
func (r *Relay) inTurn(sessions []*session) []*session {
	if len(sessions) == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn = (r.turn + 1) % len(sessions)
	return slices.Concat(sessions[r.turn:], sessions[:r.turn])
}

// open opens a stream on a tunnel. It waits for a tunnel, and then for its turn among the new streams, as long as
// limits.wait. An honest relay opens no streams so fast that the sidecar ends the tunnel.
//
// Without a tunnel, a connection takes no turn. Otherwise the gateways that connect in vain during an outage would use
// up the turns, and wait for new ones after it.
func (r *Relay) open(ctx context.Context, sorted order) (*yamux.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, r.limits.wait)
	defer cancel()
	for turn := false; ; {
		r.mu.Lock()
		sessions, changed := slices.Clone(r.sessions), r.changed
		r.mu.Unlock()
		accepting := slices.DeleteFunc(sessions, func(s *session) bool { return !s.takesStreams() })
		if len(accepting) > 0 && !turn {
			if err := r.await(ctx); err != nil {
				return nil, err
			}
			turn = true
			continue // there may be other tunnels by now
		}
		for _, s := range sorted(accepting) {
			// A tunnel can end at this moment, or the sidecar can replace it.
			if stream, err := s.mux.OpenStream(); err == nil {
				return stream, nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("no tunnel to istiod: %w", ctx.Err())
		}
	}
}

// await takes a turn among the new streams, and waits for it. The context has a deadline.
func (r *Relay) await(ctx context.Context) error {
	now := time.Now()
	end, _ := ctx.Deadline()
	wait, reserved := r.pace.Reserve(now, max(end.Sub(now), 0))
	if !reserved {
		return errors.New("too many new connections of gateways")
	}
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ServeGateways accepts connections of gateways from a listener until the context ends. It closes the listener, and
// returns the reason if it could not continue.
func (r *Relay) ServeGateways(ctx context.Context, listener net.Listener) error {
	if err := gatewayBuffers().listen(listener); err != nil {
		return err
	}
	return serve(ctx, listener, r.gateway)
}

// gateway serves one connection of a gateway.
func (r *Relay) gateway(ctx context.Context, conn net.Conn) { r.connection(ctx, conn, fewestFirst) }

// connection serves one connection to istiod: of a gateway, or of hypergate.
func (r *Relay) connection(ctx context.Context, conn net.Conn, sorted order) {
	defer func() { _ = conn.Close() }()
	source := sourceOf(conn)
	leave, ok := r.sources.take(source)
	if !ok {
		r.counts.turnedAway.Add(1)
		r.Log.Info("Rejected a gateway: too many connections from its address", "source", source.String(), "limit", r.limits.perSource)
		return
	}
	defer leave()
	defer r.counts.gateways.Add(-1)
	if r.counts.gateways.Add(1) > int64(r.limits.gateways) {
		r.counts.turnedAway.Add(1)
		r.Log.Info("Rejected a gateway: too many connections", "limit", r.limits.gateways)
		return
	}
	tcp, is := conn.(halfCloser)
	if !is {
		return
	}
	stream, err := r.open(ctx, sorted)
	if err != nil {
		r.counts.turnedAway.Add(1)
		r.Log.Info("Closed a gateway's connection", "reason", err.Error())
		return
	}
	r.counts.streams.Add(1)
	pair := newJoint(tcp, streamEnd{Stream: stream}, r.limits, r.spare)
	pair.first = r.limits.firstByte
	pair.run(&r.counts.toIstiod, &r.counts.toGateways)
}

func sourceOf(conn net.Conn) netip.Addr {
	if address, is := conn.RemoteAddr().(*net.TCPAddr); is {
		return address.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// serve accepts connections until the context ends, and handles each in its own goroutine. It returns when all have
// ended. A failure to accept is tried again: it is usually a lack of file descriptors.
func serve(ctx context.Context, listener net.Listener, handle func(context.Context, net.Conn)) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		conn, err := listener.Accept()
		switch {
		case err == nil:
			running.Go(func() { handle(ctx, conn) })
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accepting connections: %w", err)
		default:
			select {
			case <-ctx.Done():
			case <-time.After(firstPause):
			}
		}
	}
}
