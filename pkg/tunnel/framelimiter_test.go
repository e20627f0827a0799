package tunnel

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"
	"time"
)

// frame returns a header of yamux, and data if it is a data frame.
func frame(kind byte, flags uint16, length uint32) []byte {
	f := make([]byte, frameHeader)
	f[1] = kind
	binary.BigEndian.PutUint16(f[2:], flags)
	binary.BigEndian.PutUint32(f[8:], length)
	if kind == frameData {
		f = append(f, make([]byte, length)...)
	}
	return f
}

// TestFrameLimiterCountsPings: whatever is between them, and however the bytes are split.
func TestFrameLimiterCountsPings(t *testing.T) {
	t.Parallel()
	now := time.Unix(1, 0)
	for name, tc := range map[string]struct {
		pings, answers int
		want           error
	}{
		"as many as allowed": {pingBurst, 0, nil},
		"one more":           {pingBurst + 1, 0, errPings},
		"answers":            {pingBurst, 1000, nil},
	} {
		for seed := range uint64(50) {
			random := rand.New(rand.NewPCG(seed, 0))
			var stream []byte
			for range tc.pings {
				data := frame(frameData, 0, random.Uint32N(100))
				for i := frameHeader; i < len(data); i++ {
					data[i] = framePing // data that looks like pings
				}
				stream = append(stream, data...)
				stream = append(stream, frame(framePing, flagSYN, random.Uint32())...)
				stream = append(stream, frame(1, flagSYN, random.Uint32())...) // a window update has no data
			}
			for range tc.answers {
				stream = append(stream, frame(framePing, 2, 1)...)
			}
			f := newFrameLimiter(nil)
			var err error
			for len(stream) > 0 && err == nil {
				n := 1 + random.IntN(min(len(stream), 40))
				err = f.check(stream[:n], now)
				stream = stream[n:]
			}
			if !errors.Is(err, tc.want) {
				t.Fatalf("%s, seed %d: %v", name, seed, err)
			}
		}
	}
}

// TestFrameLimiterAllowsKeepalives checks that keepalives pass. A release that sends them from this end is N-1 or N+1.
func TestFrameLimiterAllowsKeepalives(t *testing.T) {
	t.Parallel()
	f := newFrameLimiter(nil)
	for i := range 100_000 {
		if err := f.check(frame(framePing, flagSYN, uint32(i)), time.Unix(0, 0).Add(time.Duration(i)*pingEvery)); err != nil {
			t.Fatalf("after %d keepalives: %v", i, err)
		}
	}
}

// FuzzFrameLimiter checks that how the bytes are split changes nothing.
func FuzzFrameLimiter(f *testing.F) {
	f.Add(append(frame(frameData, 0, 3), frame(framePing, flagSYN, 1)...), 5)
	f.Add(frame(frameData, 0, 1<<20), 13)
	f.Fuzz(func(t *testing.T, data []byte, at int) {
		if at < 0 || at > len(data) {
			t.Skip()
		}
		now := time.Unix(1, 0)
		whole, split := newFrameLimiter(nil), newFrameLimiter(nil)
		want := whole.check(data, now)
		got := split.check(data[:at], now)
		if got == nil {
			got = split.check(data[at:], now)
		}
		if !errors.Is(got, want) || got == nil && (whole.have != split.have || whole.skip != split.skip) {
			t.Errorf("whole: %v, split at %d: %v", want, at, got)
		}
	})
}
