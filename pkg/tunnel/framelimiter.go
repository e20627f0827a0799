package tunnel

import (
	"encoding/binary"
	"errors"
	"sync/atomic"
	"time"

	"github.com/hypergate/hypergate/pkg/throttle"
)

// Frames of yamux (spec.md of hashicorp/yamux): version, type, flags (2 bytes), stream (4), length (4).
const (
	frameHeader = 12
	frameData   = 0
	frameWindow = 1
	framePing   = 2
	frameGoAway = 3
	flagSYN     = 1
)

var errPings = errors.New("the other end sends too many pings")

// frameLimiter limits what the frames that arrive on a tunnel cost. yamux starts a goroutine for each ping, so an end
// that sends pings and reads no answers would exhaust the memory. So would one that fills the buffers of all streams.
// yamux checks everything else itself.
type frameLimiter struct {
	header [frameHeader]byte
	have   int   // bytes in header
	skip   int64 // bytes of data until the next frame
	pings  throttle.Limiter
	inbox  *inbox // nil at a relay, whose other end is hypergate's
	// exceeded is the error with which check ended the tunnel. Callers of yamux can get an error of yamux instead.
	exceeded atomic.Pointer[error]
	// left is when the other end asked for no more streams. Nil: it did not.
	left atomic.Pointer[time.Time]
}

func newFrameLimiter(inbox *inbox) *frameLimiter {
	return &frameLimiter{pings: throttle.NewLimiter(throttle.Rate{Burst: pingBurst, Every: pingEvery}), inbox: inbox}
}

// dataFollow reports whether what yamux writes is the header of a frame whose data it writes next.
func dataFollow(written []byte) bool {
	return len(written) == frameHeader && written[1] == frameData && binary.BigEndian.Uint32(written[8:]) > 0
}

// check examines bytes that arrived at a time. It returns an error if the tunnel must end. Frames can be split
// anywhere.
func (f *frameLimiter) check(data []byte, now time.Time) error {
	for len(data) > 0 {
		if f.skip > 0 {
			n := min(f.skip, int64(len(data)))
			f.skip -= n
			data = data[n:]
			continue
		}
		n := copy(f.header[f.have:], data)
		f.have += n
		data = data[n:]
		if f.have < frameHeader {
			return nil
		}
		f.have = 0
		if err := f.frame(now); err != nil {
			f.exceeded.Store(&err)
			return err
		}
	}
	return nil
}

// frame examines a complete header.
func (f *frameLimiter) frame(now time.Time) error {
	kind, flags := f.header[1], binary.BigEndian.Uint16(f.header[2:])
	stream, length := binary.BigEndian.Uint32(f.header[4:]), binary.BigEndian.Uint32(f.header[8:])
	if kind <= frameWindow && flags&flagSYN != 0 {
		if err := f.inbox.opened(stream); err != nil {
			return err
		}
	}
	switch kind {
	case frameData:
		f.skip = int64(length)
		return f.inbox.arrived(stream, f.skip)
	case framePing:
		if flags&flagSYN == 0 {
			return nil // an answer
		}
		if f.pings.Wait(now) > 0 {
			return errPings
		}
		f.pings.Take(now)
	case frameGoAway:
		f.left.CompareAndSwap(nil, &now)
	}
	return nil
}
