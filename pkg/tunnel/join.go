package tunnel

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// halfCloser is a connection whose two directions end independently: TCP, and streamEnd.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// joint copies between a TCP connection and a stream, in both directions, until both have ended.
type joint struct {
	conn   halfCloser
	stream streamEnd
	limits limits
	spare  buffers
	// first is the time to the first byte from conn; 0 means limits.idle.
	first time.Duration

	// begin is when the joint was made. It has the monotonic clock, so that setting the clock of a node ends nothing.
	begin time.Time

	last    atomic.Int64 // when the last bytes arrived in any direction, as a time.Duration since begin
	started atomic.Bool  // whether any arrived
	over    atomic.Bool
	done    chan struct{} // closed when both directions have ended
}

func newJoint(conn halfCloser, stream streamEnd, l limits, spare buffers) *joint {
	return &joint{
		conn: conn, stream: stream, limits: l, spare: spare, begin: time.Now(), done: make(chan struct{}),
	}
}

var errIdle = errors.New("no data for too long")

// run copies until both directions have ended, and closes both ends. fromConn and fromStream count the bytes.
func (j *joint) run(fromConn, fromStream *atomic.Int64) {
	defer close(j.done)
	j.last.Store(int64(time.Since(j.begin)))
	other := make(chan struct{})
	go func() {
		defer close(other)
		j.half(j.stream, j.conn, fromConn)
	}()
	j.half(j.conn, j.stream, fromStream)
	<-other
	j.end()
}

// half copies one direction. When the source ends, it passes the end on, and gives the other direction closeTime.
func (j *joint) half(to, from halfCloser, count *atomic.Int64) {
	if err := j.copy(to, from, count); err != nil || to.CloseWrite() != nil {
		j.end()
		return
	}
	time.AfterFunc(j.limits.closing, j.end)
}

// end closes both ends. A stream's Close does not end its Read, but a deadline does.
func (j *joint) end() {
	j.over.Store(true)
	past := time.Unix(1, 0)
	_ = j.stream.SetDeadline(past) // cannot fail
	_ = j.stream.Close()
	_ = j.conn.Close()
}

// copy copies until the source ends, which is nil, or until something fails.
func (j *joint) copy(to, from halfCloser, count *atomic.Int64) error {
	b := buffer{small: make([]byte, smallBuffer), spare: j.spare}
	defer b.shrink()
	for active := false; ; {
		n, err := j.read(from, b.bytes(), active)
		if n > 0 {
			if err := j.pass(to, b.bytes()[:n], count); err != nil {
				return err
			}
			b.used(n)
			active = true
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return nil
		case !isTimeout(err):
			return err
		case active: // no data for quietTime: give back the buffers
			j.stream.Shrink()
			b.shrink()
			active = false
		case j.remaining() <= 0:
			return errIdle
		}
	}
}

// read reads with a deadline that depends on whether data arrived just now.
func (j *joint) read(from net.Conn, into []byte, active bool) (int, error) {
	wait := j.remaining()
	if active {
		wait = min(wait, j.limits.quiet)
	}
	if err := from.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return 0, err
	}
	if j.over.Load() { // end sets the deadline after over, so that one of both is seen
		return 0, net.ErrClosed
	}
	return from.Read(into)
}

// pass writes bytes, which the receiver must accept within stallTime.
func (j *joint) pass(to net.Conn, data []byte, count *atomic.Int64) error {
	j.last.Store(int64(time.Since(j.begin)))
	j.started.Store(true)
	if err := to.SetWriteDeadline(time.Now().Add(j.limits.stall)); err != nil {
		return err
	}
	if j.over.Load() {
		return net.ErrClosed
	}
	n, err := to.Write(data)
	count.Add(int64(n))
	return err
}

// remaining returns the time until the connection counts as idle.
func (j *joint) remaining() time.Duration {
	allowed := j.limits.idle
	if j.first > 0 && !j.started.Load() {
		allowed = j.first
	}
	return allowed - (time.Since(j.begin) - time.Duration(j.last.Load()))
}

func isTimeout(err error) bool {
	timeout, is := errors.AsType[net.Error](err)
	return is && timeout.Timeout()
}

// buffers limits the number of large buffers of all streams.
type buffers chan struct{}

func newBuffers() buffers { return make(buffers, largeBuffers) }

// buffer is the buffer of one direction. It becomes large when data fill it, and small again at rest.
type buffer struct {
	small, large []byte
	spare        buffers
}

func (b *buffer) bytes() []byte {
	if b.large != nil {
		return b.large
	}
	return b.small
}

// used notes that n bytes were in the buffer. A full buffer grows, unless there are too many large ones.
func (b *buffer) used(n int) {
	if n < len(b.bytes()) || b.large != nil {
		return
	}
	select {
	case b.spare <- struct{}{}:
		b.large = make([]byte, largeBuffer)
	default:
	}
}

// shrink frees the large buffer.
func (b *buffer) shrink() {
	if b.large != nil {
		b.large = nil
		<-b.spare
	}
}
