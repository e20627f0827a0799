package tunnel

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"
)

// Causes of the end of a tunnel.
var (
	errSilent   = errors.New("the other end sends no data any more")
	errReplaced = errors.New("a newer tunnel replaced it")
	errTooMany  = errors.New("the relay opens more streams than a relay needs")
	errRejected = errors.New("the relay opens more streams than the sidecar accepts")
	errPace     = errors.New("the relay opens streams faster than a relay does")
	errStopped  = errors.New("this end is stopping")
	errRefused  = errors.New("istiod refuses connections, or does not answer")
)

// session is one tunnel after all handshakes.
type session struct {
	mux     *yamux.Session
	version Version
	frames  *frameLimiter
	// roundTrip is the duration of the last keepalive. It is 0 before the first one, and at a relay.
	roundTrip atomic.Int64

	mu   sync.Mutex
	open []*joint // of a sidecar, the oldest first

	once  sync.Once
	cause error // why it ended; valid once done is closed
	done  chan struct{}

	// refused is closed at a sidecar when istiod refuses a connection, or does not answer. Then the tunnel accepts no
	// more streams.
	refused     chan struct{}
	refusedOnce sync.Once
}

type muxer func(conn *wire, config *yamux.Config) (*yamux.Session, error)

// opens is the end that opens streams: the relay. accepts is the end that accepts them: the sidecar.
func opens(conn *wire, config *yamux.Config) (*yamux.Session, error) {
	return yamux.Client(conn, config)
}

func accepts(conn *wire, config *yamux.Config) (*yamux.Session, error) {
	return yamux.Server(conn, config)
}

func newSession(conn *wire, version Version, l limits, end muxer) (*session, error) {
	mux, err := end(conn, &yamux.Config{
		AcceptBacklog: maxBacklog,
		// The sidecar sends the keepalives itself, so that they also measure the round trip.
		EnableKeepAlive: false, KeepAliveInterval: l.ping,
		ConnectionWriteTimeout: l.write, MaxStreamWindowSize: streamWindow,
		StreamOpenTimeout: l.open, StreamCloseTimeout: l.closing,
		Logger: silent{},
	})
	if err != nil {
		return nil, fmt.Errorf("starting yamux: %w", err)
	}
	return &session{mux: mux, version: version, frames: conn.frames, done: make(chan struct{}), refused: make(chan struct{})}, nil
}

// finish ends the tunnel and all its streams. Only the first cause counts. yamux can report an exceeded limit as the
// end of the session, so the limit itself has precedence.
func (s *session) finish(cause error) {
	s.once.Do(func() {
		if exceeded := s.frames.exceeded.Load(); exceeded != nil {
			cause = *exceeded
		}
		var timeout net.Error
		if errors.As(cause, &timeout) && timeout.Timeout() {
			cause = fmt.Errorf("%w: %w", errSilent, cause)
		}
		s.cause = cause
		_ = s.mux.Close() // closes the TCP connection, whose error would say nothing
		close(s.done)
	})
}

// ended reports whether the tunnel has ended.
func (s *session) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// serves reports whether a sidecar's tunnel accepts streams: it has not ended, and istiod answered so far.
func (s *session) serves() bool {
	select {
	case <-s.refused:
		return false
	default:
		return !s.ended()
	}
}

// takesStreams reports whether a relay's tunnel accepts streams: it has not ended, and the sidecar did not ask to
// stop.
func (s *session) takesStreams() bool { return !s.ended() && s.frames.left.Load() == nil }

// refuse makes the relay open no more streams on the tunnel. The relay keeps it, and so stays ready, until there is
// another one.
func (s *session) refuse() {
	s.refusedOnce.Do(func() {
		_ = s.mux.GoAway() // fails only if the tunnel has ended
		close(s.refused)
	})
}

// add notes a stream that is open.
func (s *session) add(one *joint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = append(s.open, one)
}

// remove notes that a stream has ended.
func (s *session) remove(one *joint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = slices.DeleteFunc(s.open, func(j *joint) bool { return j == one })
}

// streams returns the open streams, the oldest first.
func (s *session) streams() []*joint {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.open)
}

// waitStreams waits until all streams that are open now have ended, and not longer than a time. It returns earlier when
// the tunnel ends, or when the channel is closed.
func (s *session) waitStreams(longest time.Duration, canceled <-chan struct{}) {
	over := time.After(longest)
	for _, stream := range s.streams() {
		select {
		case <-stream.done:
		case <-s.done:
			return
		case <-canceled:
			return
		case <-over:
			return
		}
	}
}

// keepAlive sends a ping in each interval, and ends the tunnel if there is no answer. It returns when the tunnel ends.
// yamux measures from the moment in which the ping was sent, and on a busy machine the answer is there before.
func (s *session) keepAlive(every time.Duration) {
	for {
		begin := time.Now()
		if _, err := s.mux.Ping(); err != nil {
			if !errors.Is(err, yamux.ErrSessionShutdown) { // the loop that accepts streams has the cause
				s.finish(err)
			}
			return
		}
		s.roundTrip.Store(int64(time.Since(begin)))
		select {
		case <-s.done:
			return
		case <-time.After(every):
		}
	}
}

// streamEnd is a stream whose CloseWrite closes only this direction, like that of a TCP connection.
type streamEnd struct {
	*yamux.Stream
	// inbox and held count what was read. They are nil at a relay.
	inbox *inbox
	held  *held
}

// Read reads from the stream.
func (s streamEnd) Read(into []byte) (int, error) {
	n, err := s.Stream.Read(into)
	s.inbox.taken(s.held, n)
	return n, err
}

// release closes a stream of a sidecar. yamux can keep its bytes until the relay closes it, too, or until closeTime has
// passed. Twice this time also covers a timer that is late.
func (s streamEnd) release(closing time.Duration) {
	_ = s.Close()
	time.AfterFunc(2*closing, func() { s.inbox.forget(s.StreamID(), s.held) })
}

// CloseWrite ends the direction to the other end.
func (s streamEnd) CloseWrite() error { return s.Close() }

// silent is a yamux logger that logs nothing: the end of a session says why, and the other end decides how often the
// other lines would be logged.
type silent struct{}

// Print logs nothing.
func (silent) Print(...any) {}

// Printf logs nothing.
func (silent) Printf(string, ...any) {}

// Println logs nothing.
func (silent) Println(...any) {}
