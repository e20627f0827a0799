package tunnel

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/hypergate/hypergate/pkg/throttle"
)

// Sidecar connects gateways of a guest to istiod. It runs in istiod's pod, and keeps a tunnel to each relay.
type Sidecar struct {
	// Log gets one line for each tunnel and each failed attempt. The guest decides how often these occur.
	Log *slog.Logger
	// Credential is for the guest's API server.
	Credential Credential
	// Identity is what the relays verify.
	Identity Identity
	// Namespace has the relay pods.
	Namespace string
	// Target is istiod's address: see the function Target.
	Target netip.AddrPort
	// MaxAge is the age at which a tunnel is replaced by a new one with the current token. Zero stands for an hour.
	MaxAge time.Duration

	limits   limits
	versions []Version
	counts   sidecarCounts
	spare    buffers
	relays   []*link
}

// link is what a sidecar knows of one relay. A relay can end its tunnel and get another one at once, so its limits are
// those of all of its tunnels.
type link struct {
	relay   string
	current atomic.Pointer[session]
	// open is the number of streams. pace limits new ones, inbound what is read, and unread what istiod does not
	// accept.
	open    atomic.Int64
	pace    throttle.Limiter
	inbound *rate.Limiter
	unread  unread
}

// NewSidecar returns a sidecar for relay pods. The exported fields are the caller's to set before Run.
func NewSidecar(relays ...string) *Sidecar {
	s := &Sidecar{limits: defaultLimits(), versions: supportedVersions(), spare: newBuffers()}
	s.counts.reconnects = newReconnects()
	for _, relay := range relays {
		s.relays = append(s.relays, &link{relay: relay})
	}
	return s
}

// Run keeps the tunnels until the context ends. Then it accepts no more streams, and returns when the open ones have
// ended, after stopTime at the latest.
func (s *Sidecar) Run(ctx context.Context) {
	if s.MaxAge > 0 {
		s.limits = s.limits.replacing(s.MaxAge)
	}
	var links sync.WaitGroup
	for _, one := range s.relays {
		links.Go(func() { s.keep(ctx, one) })
	}
	links.Go(func() { s.watch(ctx) })
	links.Wait()
}

// keep keeps a tunnel to one relay. Every failure is tried again, whatever the status: an API server that has just
// started answers 403, and a permission that was taken may come back.
func (s *Sidecar) keep(ctx context.Context, to *link) {
	var old sync.WaitGroup
	defer old.Wait()
	var pause throttle.Backoff
	log := s.Log.With("relay", to.relay)
	to.pace, to.inbound = throttle.NewLimiter(s.limits.newStreams), rate.NewLimiter(s.limits.inbound, inboundBurst)
	to.unread.most, to.unread.streams = s.limits.unread, 2*s.limits.heldStreams
	for ctx.Err() == nil {
		one, err := s.dial(ctx, to)
		if err != nil {
			s.failed(ctx, log, &pause, err)
			continue
		}
		if replaced := to.current.Swap(one); replaced != nil {
			old.Go(func() { s.retire(ctx, replaced) })
		}
		log.Info("The tunnel is up", "version", int(one.version))
		begin := time.Now()
		old.Go(func() { s.serve(ctx, to, one) })
		select {
		case <-ctx.Done():
		case <-time.After(s.limits.redial):
			s.counts.reconnect(Aged)
			pause.Reset()
		case <-one.refused:
			s.lost(ctx, log, &pause, begin, errRefused)
		case <-one.done:
			to.current.CompareAndSwap(one, nil)
			s.lost(ctx, log, &pause, begin, one.cause)
		}
	}
	if one := to.current.Load(); one != nil {
		s.stop(one)
	}
}

// lost reports the end of a tunnel that is up since begin, and waits before the next attempt.
func (s *Sidecar) lost(ctx context.Context, log *slog.Logger, pause *throttle.Backoff, begin time.Time, err error) {
	if time.Since(begin) >= s.limits.proven {
		pause.Reset()
	}
	s.failed(ctx, log, pause, err)
}

// failed reports a failed attempt, or the end of a tunnel, and waits before the next attempt.
func (s *Sidecar) failed(ctx context.Context, log *slog.Logger, pause *throttle.Backoff, err error) {
	if ctx.Err() != nil {
		return
	}
	reason := reasonOf(err)
	s.counts.reconnect(reason)
	wait := pause.Failed(time.Now(), s.limits.firstPause, s.limits.longestPause)
	log.Info("The tunnel is down", "reason", string(reason), "err", err.Error(), "retryIn", wait.String())
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
}

// retire ends a tunnel that another one replaced. It accepts no more streams. Its streams end by themselves, because
// istiod ends each connection some time. Those that are left after endTime are closed one after the other until
// drainTime, so that not all gateways connect again at the same time.
func (s *Sidecar) retire(ctx context.Context, one *session) {
	_ = one.mux.GoAway() // fails only if the tunnel has ended
	defer one.finish(errReplaced)
	select { // streams that were accepted before are connected to istiod by then, or closed
	case <-time.After(s.limits.target):
	case <-one.done:
	case <-ctx.Done():
	}
	end := time.Now().Add(s.limits.drain)
	one.waitStreams(s.limits.end, ctx.Done())
	streams := one.streams()
	for i, stream := range streams {
		share := time.Until(end) / time.Duration(len(streams)-i)
		select {
		case <-stream.done:
		case <-time.After(share):
			stream.end()
		case <-one.done:
			return
		case <-ctx.Done():
			s.stop(one)
			return
		}
	}
}

// stop ends a tunnel when the sidecar stops. It accepts no more streams, and its streams can end by themselves within
// stopTime.
func (s *Sidecar) stop(one *session) {
	_ = one.mux.GoAway() // fails only if the tunnel has ended
	defer one.finish(errStopped)
	one.waitStreams(s.limits.stop, nil)
}

// serve accepts streams of a tunnel until it ends.
func (s *Sidecar) serve(ctx context.Context, of *link, one *session) {
	var streams sync.WaitGroup
	defer one.frames.inbox.end()
	defer streams.Wait()
	streams.Go(func() { one.keepAlive(s.limits.ping) })
	var open atomic.Int64
	for {
		stream, err := s.accept(one, of)
		switch {
		case err != nil:
			one.finish(err)
			return
		case open.Load() >= int64(s.limits.streams) || of.open.Load() >= int64(s.limits.relayStreams):
			s.counts.refused.Add(1)
			stream.release(s.limits.closing) // the relay sees the end of the stream
			continue
		}
		open.Add(1)
		of.open.Add(1)
		streams.Go(func() {
			defer func() { open.Add(-1); of.open.Add(-1) }()
			s.stream(ctx, one, stream)
		})
	}
}

// accept accepts a stream. It returns an error if the tunnel must end.
func (s *Sidecar) accept(one *session, of *link) (streamEnd, error) {
	stream, err := one.mux.AcceptStream()
	if err != nil {
		return streamEnd{}, err
	}
	inbox := one.frames.inbox
	return streamEnd{stream, inbox, inbox.stream(stream.StreamID())}, s.abuse(one, of.pace)
}

// abuse returns an error if the relay opens more streams, or opens them faster, than a relay does.
func (s *Sidecar) abuse(one *session, pace throttle.Limiter) error {
	now := time.Now()
	if pace.Wait(now) > 0 {
		return errPace
	}
	pace.Take(now)
	if one.mux.NumStreams() > s.limits.heldStreams {
		return errTooMany
	}
	return nil
}

// stream connects one stream to the target.
func (s *Sidecar) stream(ctx context.Context, of *session, stream streamEnd) {
	defer stream.release(s.limits.closing)
	s.counts.streams.Add(1)
	s.counts.open.Add(1)
	defer s.counts.open.Add(-1)
	conn, err := s.target(context.WithoutCancel(ctx))
	if err != nil {
		s.counts.failed.Add(1)
		s.Log.Info("A connection to istiod is not accepted", "err", err.Error())
		if refuses(err) {
			of.refuse()
		}
		return
	}
	pair := newJoint(conn, stream, s.limits, s.spare)
	of.add(pair)
	defer of.remove(pair)
	pair.run(&s.counts.toGateways, &s.counts.toIstiod)
}
