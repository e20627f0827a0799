package tunnel

import (
	"errors"
	"sync"
	"sync/atomic"
)

var (
	errUnread = errors.New("the relay sends more than istiod reads")
	errReused = errors.New("the relay uses the number of a stream again")
)

// unread counts the bytes that a relay has sent on all of its tunnels and that istiod has not accepted. yamux limits
// each stream, but not their sum.
type unread struct {
	total atomic.Int64
	most  int64 // in bytes
	// streams is the maximum number of streams of one tunnel that count.
	streams int
}

// inbox counts the unread bytes of one tunnel. A nil inbox counts nothing.
type inbox struct {
	of *unread

	mu      sync.Mutex
	streams map[uint32]*held
}

// held is what one stream has of the unread bytes. n is protected by the mutex of the inbox.
type held struct {
	n      int64
	closed bool
}

func newInbox(of *unread) *inbox { return &inbox{of: of, streams: map[uint32]*held{}} }

// opened notes that the relay opened a stream. It returns an error if there are too many: yamux itself rejects streams
// beyond its backlog, and these never reach the sidecar. It also returns an error if the number belongs to a stream
// that still counts. yamux permits that once the stream has ended. A relay does not do it: its numbers rise.
func (i *inbox) opened(stream uint32) error {
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.streams) >= i.of.streams {
		return errRejected
	}
	if _, is := i.streams[stream]; is {
		return errReused
	}
	i.streams[stream] = &held{}
	return nil
}

// arrived notes data of a stream. yamux discards data for streams that do not exist, so these do not count. It returns
// an error if the tunnels of the relay have too many unread bytes.
func (i *inbox) arrived(stream uint32, n int64) error {
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	of, is := i.streams[stream]
	if !is {
		return nil
	}
	of.n += n
	if i.of.total.Add(n) > i.of.most {
		return errUnread
	}
	return nil
}

// stream returns what a stream holds.
func (i *inbox) stream(stream uint32) *held {
	i.mu.Lock()
	defer i.mu.Unlock()
	if of, is := i.streams[stream]; is {
		return of
	}
	return &held{closed: true}
}

// taken notes that bytes of a stream were read.
func (i *inbox) taken(of *held, n int) {
	if i == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if !of.closed {
		of.n -= int64(n)
		i.of.total.Add(-int64(n))
	}
}

// forget notes that yamux keeps no bytes of a stream any more.
func (i *inbox) forget(stream uint32, of *held) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.release(of)
	if i.streams[stream] == of {
		delete(i.streams, stream)
	}
}

// end notes that the tunnel has ended, with all its streams.
func (i *inbox) end() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, of := range i.streams {
		i.release(of)
	}
	clear(i.streams)
}

// release subtracts what a stream holds, once. The caller holds the mutex.
func (i *inbox) release(of *held) {
	if !of.closed {
		of.closed = true
		i.of.total.Add(-of.n)
	}
}
