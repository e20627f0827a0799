package watch

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/hypergate/hypergate/pkg/answer"
)

// chargeKey is the key of the charge in the context of a request.
type chargeKey struct{}

// charge is one request of a metered watch.
type charge struct {
	meter  *Meter
	cancel context.CancelFunc
	// page is the maximum number of objects in a page of a list. It is 0 for a stream.
	page int64

	// The mu of the meter guards the next fields.
	//
	// lists means that the list is not complete yet. failed is the limit that the request exceeded. timer ends a list
	// that takes too long. turn ends a large message that takes too long.
	lists       bool
	failed      *LimitError
	timer, turn *time.Timer
	// stop ends the stream. It is nil for a list in pages, and when the stream is not open. It also keeps the buffers
	// of the stream's decoder, which can have 4 MiB, and the meter keeps the charge until the next request.
	stop func()

	mu sync.Mutex
	// large means that the request can read large messages, and no other request can. done means that the request has
	// ended. drains means that the stream ends before the next message.
	large, done, drains bool
}

// LimitBody returns a body that counts and limits the bytes of a JSON response, if the request belongs to a metered
// watch. Otherwise it returns body. The time of a list starts here. The transport calls it when it has the header of
// the response.
func LimitBody(r *http.Request, body io.ReadCloser) io.ReadCloser {
	ctx := r.Context()
	c, metered := ctx.Value(chargeKey{}).(*charge)
	if !metered {
		return body
	}
	c.meter.answered(c)
	return &limitedBody{ReadCloser: body, ctx: ctx, charge: c}
}

// end ends the request. It returns the limit that the request exceeded, or err if it exceeded none.
func (c *charge) end(err error) error {
	c.cancel()
	c.meter.mu.Lock()
	for _, timer := range []*time.Timer{c.timer, c.turn} {
		if timer != nil {
			timer.Stop()
		}
	}
	failed := c.failed
	c.stop = nil
	c.meter.mu.Unlock()
	c.leave()
	if failed != nil {
		return failed
	}
	return err
}

// opened records how to end the stream. If the request exceeded a limit meanwhile, it ends the stream, and returns the
// limit.
func (c *charge) opened(stop func()) error {
	c.meter.mu.Lock()
	failed := c.failed
	if failed == nil {
		c.stop = stop
	}
	c.meter.mu.Unlock()
	if failed == nil {
		return nil
	}
	stop()
	return c.end(failed)
}

// abandon ends a request that its caller might not end, and its stream.
func (c *charge) abandon() {
	c.meter.mu.Lock()
	stop := c.stop
	c.stop = nil
	c.meter.mu.Unlock()
	if stop != nil {
		stop()
	}
	c.leave()
}

// leave gives the turn to read large messages to another request. This request never gets one again.
func (c *charge) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done = true
	if c.large {
		c.large = false
		<-c.meter.budget.large
	}
}

// listed records that the list is complete and that events follow. If the stream had a large message, it is opened
// again later, so that the decoder has smaller buffers. The caller holds the mu of the meter.
func (c *charge) listed() {
	c.lists = false
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.large && c.page == 0 {
		time.AfterFunc(drainDelay, c.drain)
	}
}

// drain ends the stream in the same way as an API server.
func (c *charge) drain() {
	c.mu.Lock()
	c.drains = true
	c.mu.Unlock()
	c.cancel()
}

// enlarge waits until the request can read a large message.
func (c *charge) enlarge(ctx context.Context) error {
	c.mu.Lock()
	has := c.large
	c.mu.Unlock()
	if has {
		return nil
	}
	c.meter.waits(c)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case c.meter.budget.large <- struct{}{}:
	}
	c.meter.goesOn(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		<-c.meter.budget.large
		return context.Canceled
	}
	c.large = true
	return nil
}

// delivered records the end of a message.
func (c *charge) delivered() {
	c.meter.mu.Lock()
	lists := c.lists
	c.meter.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drains = c.drains || c.large && !lists
}

func (c *charge) draining() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.drains
}

// limitedBody is the body of a response: a sequence of JSON messages. One goroutine reads it.
type limitedBody struct {
	io.ReadCloser
	ctx    context.Context //nolint:containedctx // it is the request's, and Read has none
	charge *charge
	// message is the message that is being read.
	message answer.Scanner
}

// Read reads within the limits.
func (b *limitedBody) Read(p []byte) (int, error) {
	if b.charge.draining() {
		b.charge.meter.drain()
		return 0, io.EOF
	}
	n, err := b.ReadCloser.Read(p)
	if bound := b.charge.meter.read(b.charge, int64(n)); bound != nil {
		return 0, bound
	}
	if bound := b.scan(p[:n]); bound != nil {
		return 0, bound
	}
	if err != nil && b.charge.draining() {
		b.charge.meter.drain()
		err = io.EOF
	}
	return n, err
}

// scan counts the bytes of each message, and estimates the memory that the message needs.
func (b *limitedBody) scan(p []byte) error {
	l := b.charge.meter.budget.limits
	for len(p) > 0 {
		n, ended := b.message.Scan(p)
		p = p[n:]
		switch {
		case b.message.Size > l.Message:
			return b.charge.meter.tooLarge(b.charge, "one message has more than "+size(l.Message))
		case b.message.Memory() > l.MessageCost:
			return b.charge.meter.tooLarge(b.charge, "one message takes more than "+size(l.MessageCost)+" when it is decoded")
		case b.message.Size > l.LargeMessage || b.message.Memory() > l.LargeCost:
			if err := b.charge.enlarge(b.ctx); err != nil {
				return err
			}
		}
		if ended {
			b.message = answer.Scanner{}
			b.charge.delivered()
		}
	}
	return nil
}
