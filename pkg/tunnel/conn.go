package tunnel

import (
	"context"
	"crypto/tls"
	"io"
	"net"
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
	silence, write time.Duration
	frames         *frameLimiter
	// pace limits how much is read. nil means without a limit.
	pace   *rate.Limiter
	closed context.Context //nolint:containedctx // its end is that of the connection, and Read has no context
	end    context.CancelFunc
}

func newWire(secure *tls.Conn, raw io.Closer, l limits, pace *rate.Limiter, inbox *inbox) *wire {
	closed, end := context.WithCancel(context.Background())
	return &wire{
		Conn: secure, raw: raw, silence: l.silence, write: l.write, frames: newFrameLimiter(inbox), pace: pace, closed: closed, end: end,
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

// Write fails if the other end accepts nothing.
func (w *wire) Write(data []byte) (int, error) {
	if err := w.SetWriteDeadline(time.Now().Add(w.write)); err != nil {
		return 0, err
	}
	return w.Conn.Write(data)
}

// Close closes the TCP connection.
func (w *wire) Close() error {
	w.end()
	return w.raw.Close()
}

// behind is a connection whose first bytes were read already.
type behind struct {
	net.Conn
	from io.Reader
}

// Read reads what was read already, and then the connection.
func (b behind) Read(into []byte) (int, error) { return b.from.Read(into) }
