package tunnel

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// wire is the connection below yamux: TLS over what the upgrade request left.
//
// Close closes the TCP connection without a TLS close_notify. With close_notify, a peer that reads nothing would delay
// the end by 5 s, and yamux's readers would busy-wait meanwhile.
type wire struct {
	*tls.Conn
	raw            io.Closer
	out            layers
	dataNext       bool // whether the last write was a header whose data follow
	silence, write time.Duration
	frames         *frameLimiter
	// pace limits how much is read. nil means without a limit.
	pace   *rate.Limiter
	closed context.Context //nolint:containedctx // its end is that of the connection, and Read has no context
	end    context.CancelFunc
}

func newWire(proven *proven, raw io.Closer, l limits, pace *rate.Limiter, inbox *inbox) *wire {
	closed, end := context.WithCancel(context.Background())
	return &wire{
		Conn: proven.Conn, out: proven.out, raw: raw, silence: l.silence, write: l.write,
		frames: newFrameLimiter(inbox), pace: pace, closed: closed, end: end,
	}
}

// Read fails after a time without any byte, and if the frames exceed a limit.
func (w *wire) Read(into []byte) (int, error) {
	if err := w.SetReadDeadline(time.Now().Add(w.silence)); err != nil {
		return 0, err
	}
	n, err := w.Conn.Read(into)
	if abuse := w.frames.check(into[:n], time.Now()); abuse != nil {
		return 0, abuse
	}
	if w.pace != nil && n > 0 {
		if late := w.pace.WaitN(w.closed, n); late != nil {
			return 0, net.ErrClosed
		}
	}
	return n, err
}

// Write fails if the other end accepts nothing. yamux writes the header of a frame and its data separately, from one
// goroutine. They are sent together, since each part would otherwise wake every process on the way.
func (w *wire) Write(data []byte) (int, error) {
	if err := w.SetWriteDeadline(time.Now().Add(w.write)); err != nil {
		return 0, err
	}
	w.out.hold()
	n, err := w.Conn.Write(data)
	w.dataNext = !w.dataNext && dataFollow(data)
	if err != nil || w.dataNext {
		return n, err
	}
	return n, w.out.flush()
}

// Close closes the TCP connection.
func (w *wire) Close() error {
	w.end()
	return w.raw.Close()
}

// proven is a TLS connection whose other end has proven what it is, with the layers below it.
type proven struct {
	*tls.Conn
	out layers
}

// layers are the connections below each TLS connection, the innermost first.
type layers []*gatherer

// hold makes all layers keep what is written.
func (l layers) hold() {
	for _, layer := range l {
		layer.hold()
	}
}

// flush sends what all layers keep. The writes of a layer arrive at the next one.
func (l layers) flush() error {
	for _, layer := range l {
		if err := layer.flush(); err != nil {
			return err
		}
	}
	return nil
}

// gatherer is a connection that can keep what is written, to send it at once. TLS writes each of its records
// separately, and answers a message of the other end's TLS from the goroutine that reads.
type gatherer struct {
	net.Conn

	mu      sync.Mutex
	holding bool
	held    []byte
}

// Write writes at once, unless the connection keeps what is written.
func (g *gatherer) Write(data []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.holding {
		g.held = append(g.held, data...)
		return len(data), nil
	}
	return g.Conn.Write(data)
}

func (g *gatherer) hold() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holding = true
}

// flush sends what the connection keeps. Later writes are sent at once.
func (g *gatherer) flush() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holding = false
	if len(g.held) == 0 {
		return nil
	}
	_, err := g.Conn.Write(g.held)
	g.held = g.held[:0]
	return err
}

// behind is a connection whose first bytes were read already.
type behind struct {
	net.Conn
	from io.Reader
}

// Read reads what was read already, and then the connection.
func (b behind) Read(into []byte) (int, error) { return b.from.Read(into) }
