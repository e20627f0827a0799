package tunnel

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/hypergate/hypergate/pkg/throttle"
)

// Frames of yamux (spec.md of hashicorp/yamux): version, type, flags (2 bytes), stream (4), length (4).
const (
	frameHeader = 12
	frameData   = 0
	frameWindow = 1
	framePing   = 2
	flagSYN     = 1
)

var errPings = errors.New("the other end sends too many pings")

// guard watches the frames that arrive on a tunnel. yamux starts a goroutine for each ping, so an end that sends pings
// and reads no answers would exhaust the memory. So would one that fills the buffers of all streams. yamux checks
// everything else itself.
type guard struct {
	header [frameHeader]byte
	have   int   // bytes in header
	skip   int64 // bytes of data until the next frame
	pings  throttle.Limiter
	inbox  *inbox // nil at a relay, whose other end is hypergate's
}

func newGuard(inbox *inbox) *guard {
	return &guard{pings: throttle.NewLimiter(throttle.Rate{Burst: pingBurst, Every: pingEvery}), inbox: inbox}
}

// see examines bytes that arrived at a time. It returns an error if the tunnel must end. Frames can be split anywhere.
func (g *guard) see(data []byte, now time.Time) error {
	for len(data) > 0 {
		if g.skip > 0 {
			n := min(g.skip, int64(len(data)))
			g.skip -= n
			data = data[n:]
			continue
		}
		n := copy(g.header[g.have:], data)
		g.have += n
		data = data[n:]
		if g.have < frameHeader {
			return nil
		}
		g.have = 0
		if err := g.frame(now); err != nil {
			return err
		}
	}
	return nil
}

// frame examines a complete header.
func (g *guard) frame(now time.Time) error {
	kind, flags := g.header[1], binary.BigEndian.Uint16(g.header[2:])
	stream, length := binary.BigEndian.Uint32(g.header[4:]), binary.BigEndian.Uint32(g.header[8:])
	if kind <= frameWindow && flags&flagSYN != 0 {
		if err := g.inbox.opened(stream); err != nil {
			return err
		}
	}
	switch kind {
	case frameData:
		g.skip = int64(length)
		return g.inbox.arrived(stream, g.skip)
	case framePing:
		if flags&flagSYN == 0 {
			return nil // an answer
		}
		if g.pings.Wait(now) > 0 {
			return errPings
		}
		g.pings.Take(now)
	}
	return nil
}
