package tunnel

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestUnreadBytes compares the count with a model, for any order of what happens to the streams of two tunnels.
func TestUnreadBytes(t *testing.T) {
	t.Parallel()
	type stream struct {
		id     uint32
		of     *held
		inside int64
	}
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		all := unread{most: 1 << 40, streams: 1000}
		tunnels := []*inbox{newInbox(&all), newInbox(&all)}
		open := [2][]*stream{}
		for range 300 {
			at := random.IntN(2)
			in := tunnels[at]
			var one *stream
			if n := len(open[at]); n > 0 {
				one = open[at][random.IntN(n)]
			}
			switch what := random.IntN(20); {
			case what == 0:
				in.end()
				for _, of := range open[at] {
					in.taken(of.of, int(of.inside))
				}
				tunnels[at], open[at] = newInbox(&all), nil
			case what < 5 || one == nil:
				id := random.Uint32N(10) // numbers come again
				used := slices.ContainsFunc(open[at], func(s *stream) bool { return s.id == id && !s.of.closed })
				switch err := in.opened(id); {
				case used && errors.Is(err, errReused):
					continue
				case used || err != nil:
					t.Fatalf("seed %d: number %d, in use %t: %v", seed, id, used, err)
				}
				open[at] = append(open[at], &stream{id: id, of: in.stream(id)})
			case what < 12:
				n := random.Int64N(1000)
				if err := in.arrived(one.id, n); err != nil {
					t.Fatal(err)
				}
				for _, of := range open[at] { // the stream that has that number now gets it
					if of.of == in.stream(one.id) {
						of.inside += n
					}
				}
			case what < 17:
				n := random.Int64N(one.inside + 1)
				in.taken(one.of, int(n))
				one.inside -= n
			default:
				in.forget(one.id, one.of)
				one.inside = 0
			}
			want := int64(0)
			for _, of := range append(open[0], open[1]...) {
				if !of.of.closed {
					want += of.inside
				}
			}
			if got := all.total.Load(); got != want {
				t.Fatalf("seed %d: %d bytes are unread, and %d are counted", seed, want, got)
			}
		}
	}
}

// TestUnreadLimits checks that the limits hold for all tunnels of a relay together, and for no other stream.
func TestUnreadLimits(t *testing.T) {
	t.Parallel()
	all := unread{most: 100, streams: 2}
	one, other := newInbox(&all), newInbox(&all)
	for _, in := range []*inbox{one, other} {
		if err := errors.Join(in.opened(1), in.opened(3), in.arrived(1, 50), in.arrived(5, 1<<30)); err != nil {
			t.Fatal(err)
		}
	}
	if err := one.opened(5); !errors.Is(err, errRejected) {
		t.Errorf("one more stream: %v", err)
	}
	if err := other.arrived(3, 1); !errors.Is(err, errUnread) {
		t.Errorf("one more byte: %v", err)
	}
}

// TestReusedNumbers checks that a relay cannot make a sidecar count bytes that no stream holds. yamux discards the
// data of a stream that it rejects, so the relay can send its number again.
func TestReusedNumbers(t *testing.T) {
	t.Parallel()
	all := unread{most: 100, streams: 10}
	in := newInbox(&all)
	if err := errors.Join(in.opened(1), in.arrived(1, 50)); err != nil {
		t.Fatal(err)
	}
	if err := in.opened(1); !errors.Is(err, errReused) || reasonOf(err) != Abused {
		t.Errorf("the number again: %v", err)
	}
	in.end()
	if n := all.total.Load(); n != 0 {
		t.Errorf("%d bytes count after the end of the tunnel", n)
	}
	if err := in.opened(1); err != nil {
		t.Errorf("after the stream: %v", err)
	}
}
