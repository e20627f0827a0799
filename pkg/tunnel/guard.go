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
	framePing   = 2
	flagSYN     = 1
)

var errPings = errors.New("the other end sends too many pings")

// guard watches the frames that arrive on a tunnel. yamux starts a goroutine for each ping, so an end that sends pings
// and reads no answers would exhaust the memory. yamux checks everything else itself.
type guard struct {
	header [frameHeader]byte
	have   int   // bytes in header
	skip   int64 // bytes of data until the next frame
	pings  throttle.Limiter
}

func newGuard() *guard {
	return &guard{pings: throttle.NewLimiter(throttle.Rate{Burst: pingBurst, Every: pingEvery})}
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
	switch g.header[1] {
	case frameData:
		g.skip = int64(binary.BigEndian.Uint32(g.header[8:]))
	case framePing:
		if binary.BigEndian.Uint16(g.header[2:])&flagSYN == 0 {
			return nil // an answer
		}
		if g.pings.Wait(now) > 0 {
			return errPings
		}
		g.pings.Take(now)
	}
	return nil
}
