package watch

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/hypergate/hypergate/pkg/throttle"
)

// Budget limits what all watches of one API server can read and keep. It is safe for concurrent use.
type Budget struct {
	limits Limits
	// large is held by the one request that can read a large message.
	large chan struct{}
	now   func() time.Time
	// reopenings limits how often the streams that this side ended are opened again.
	reopenings throttle.Limiter

	mu sync.Mutex
	// kept is the estimated memory, in bytes, of what all watches keep. While a watch lists, the larger one counts of
	// its previous content and of the new list. twice is the sum of the smaller ones.
	kept, twice int64
}

// NewBudget returns an unused budget.
func NewBudget(limits Limits) *Budget {
	return &Budget{
		limits: limits, large: make(chan struct{}, 1), now: time.Now,
		reopenings: throttle.NewLimiter(throttle.Rate{Burst: reopenBurst, Every: reopenEvery}),
	}
}

// Meter applies the limits of a budget to one watch. A nil Meter has no limits.
//
// The requests of an attempt carry the meter in their context. The transport calls LimitBody, which counts their
// bytes. The code that keeps the objects reports each one to the meter.
//
// An attempt that exceeds a limit ends. Until its pause is over, List and Watch fail without a request.
type Meter struct {
	budget *Budget
	name   string

	// allowance limits the bytes of lists and events, and has the pause.
	allowance *Allowance

	mu sync.Mutex
	// bytes and objects count the current list. listing is the memory of what is kept of that list.
	bytes, listing int64
	objects        int
	// kept is the memory of what the watch keeps of the last list and the events after it. own is how much the watch
	// can keep although others have filled the total.
	kept, own int64
	// over is the limit that the last attempt exceeded. settled means that a list was complete since then.
	over    *LimitError
	settled bool
	// current is the current request.
	current *charge
	// drained is when this side ended the last stream. Zero means that it did not.
	drained time.Time
}

// Meter returns the meter of one watch. resource is the watched resource, for errors. A nil Budget returns a nil
// Meter.
func (b *Budget) Meter(resource string) *Meter { return b.MeterOf(resource, b.Allowance()) }

// Over returns the limit that the watch exceeded, until a list is complete again. Otherwise it returns nil.
func (m *Meter) Over() error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.settled {
		return nil
	}
	return m.over
}

// Watch opens a watch within the limits.
func (m *Meter) Watch(ctx context.Context, o metav1.ListOptions, open OpenFunc) (apiwatch.Interface, error) {
	if m == nil {
		return open(ctx, o)
	}
	lists := o.SendInitialEvents != nil && *o.SendInitialEvents
	ctx, c, err := m.begin(ctx, lists)
	if err != nil {
		return nil, err
	}
	stream, err := open(ctx, o)
	if err != nil {
		return nil, c.end(err)
	}
	if err := c.opened(stream.Stop); err != nil {
		return nil, err
	}
	return limitedStream{stream, c}, nil
}

// Drained reports whether this side ended the last stream shortly before now, to free its buffers. If so, the next
// stream can open after wait, which is within resumeLate. Call it once for each stream, because it counts the next one.
func (m *Meter) Drained(now time.Time) (wait time.Duration, drained bool) {
	if m == nil {
		return 0, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.drained
	m.drained = time.Time{}
	if at.IsZero() || now.Sub(at) > resumeLate {
		return 0, false
	}
	return m.budget.reopenings.Reserve(now, resumeLate-now.Sub(at))
}

// drain records that this side ends the stream now.
func (m *Meter) drain() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drained = m.budget.now()
}

// limitedStream is a stream that ends its request when it is stopped.
type limitedStream struct {
	apiwatch.Interface
	charge *charge
}

// Stop ends the stream.
func (s limitedStream) Stop() {
	_ = s.charge.end(nil)
	s.Interface.Stop()
}

// begin starts a request. lists means that the request is a list. Then the counts of the previous list are dropped.
func (m *Meter) begin(ctx context.Context, lists bool) (context.Context, *charge, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if over := m.allowance.paused(m.budget.now()); over != nil {
		return nil, nil, over
	}
	c := &charge{meter: m, lists: lists}
	ctx, c.cancel = context.WithCancel(context.WithValue(ctx, chargeKey{}, c))
	m.current = c
	if lists {
		m.release()
		m.bytes, m.objects = 0, 0
	}
	return ctx, c, nil
}

// answered starts the time of a list. The transport has the header of the response. Without a deadline, a list without
// any bytes would last until the transport ends the request, and the watch would know nothing for all that time.
func (m *Meter) answered(c *charge) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.lists && c.timer == nil {
		c.timer = time.AfterFunc(m.budget.limits.ListTime, func() { m.overdue(c) })
	}
}

// overdue ends a list that takes too long.
func (m *Meter) overdue(c *charge) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.lists {
		m.trip(c, "a list does not end within "+m.budget.limits.ListTime.String())
	}
}

// waits records that a request waits for its turn to read a large message. That time does not count for the request.
func (m *Meter) waits(c *charge) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
	}
}

// goesOn records that a request has its turn. Other requests wait for it, so the message must end in time.
func (m *Meter) goesOn(c *charge) {
	m.mu.Lock()
	defer m.mu.Unlock()
	most := m.budget.limits.ListTime
	if c.lists && c.timer != nil {
		c.timer.Reset(most)
		return
	}
	c.turn = time.AfterFunc(most, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.current == c {
			m.trip(c, "a message does not end within "+most.String())
		}
	})
}

// release forgets what was kept of a list that did not end. The caller holds mu.
func (m *Meter) release() {
	m.hold(m.kept, 0)
}

// read counts n bytes of a request. It returns the limit that the request exceeded, or nil.
func (m *Meter) read(c *charge, n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.budget.limits
	if c.lists {
		m.bytes += n
	}
	switch {
	case c.failed != nil:
	case c.lists && m.bytes > l.ListBytes:
		m.trip(c, "a list has more than "+size(l.ListBytes))
	case !m.allowance.rate.AllowN(m.budget.now(), int(n)):
		m.trip(c, fmt.Sprintf("more than %s at once, and then more than %s per second", size(int64(l.Burst)), size(int64(l.Rate))))
	}
	if c.failed != nil {
		return c.failed
	}
	return nil
}

// tooLarge ends a request because of one message. A page of a list can be requested again with fewer objects.
func (m *Meter) tooLarge(c *charge, bound string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.page > 1 {
		c.failed = &LimitError{Resource: m.name, Bound: bound, message: true}
	} else {
		m.trip(c, bound)
	}
	return c.failed
}

// trip ends an attempt and starts the pause before the next one. The caller holds mu.
func (m *Meter) trip(c *charge, bound string) {
	if c == nil || c.failed != nil {
		return
	}
	c.failed = &LimitError{Resource: m.name, Bound: bound}
	m.over, m.settled = c.failed, false
	m.allowance.trip(c.failed, m.budget.now(), m.budget.limits)
	m.release()
	c.cancel()
	// The caller may never end the request: a reflector does not stop the stream of a list that its store rejects
	// (client-go tools/cache/reflector.go, watchList). Without this, no other request could read a large message. It
	// happens later, so that the error arrives first, and the buffers of this request are free before the next one's.
	time.AfterFunc(drainDelay, c.abandon)
}

// Adding counts an object of a list before the list is complete. small is what is kept of the object.
func (m *Meter) Adding(small any) {
	if m == nil {
		return
	}
	n := SizeOf(small)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current == nil || m.current.failed != nil {
		return
	}
	m.objects++
	m.weigh(n, m.hold(m.kept, m.listing+n))
}

// Changed counts an event. before is what was kept of the object, and after is what will be kept. Nil means none.
// version is the resourceVersion of the event. It returns an error if the watch has exceeded a limit. Then the caller
// must keep what it kept before.
func (m *Meter) Changed(before, after any, version string) error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.measure(version)
	var object, size int64
	objects := 0
	if before != nil {
		size -= SizeOf(before)
		objects--
	}
	if after != nil {
		object = SizeOf(after)
		size += object
		objects++
	}
	m.objects += objects
	m.weigh(object, m.hold(m.kept+size, m.listing))
	if c := m.current; c != nil && c.failed != nil {
		m.objects -= objects
		m.hold(m.kept-size, m.listing)
		return c.failed
	}
	return nil
}

// Version compares the length of a resourceVersion, of an event or of a bookmark, with its limit.
func (m *Meter) Version(version string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.measure(version)
}

// measure is Version for a caller that holds mu.
func (m *Meter) measure(version string) {
	if most := m.budget.limits.Version; len(version) > most {
		m.trip(m.current, fmt.Sprintf("a resourceVersion has more than %d bytes", most))
	}
}

// weigh compares what is kept with the limits of one object and of the watch. bound is the limit of all watches that is
// exceeded, or empty. The caller holds mu.
//
// During a list, the objects that the watch kept before do not count. The new list replaces them, and so the watch
// can recover after it exceeded a limit.
func (m *Meter) weigh(object int64, bound string) {
	kept := m.kept
	if c := m.current; c != nil && c.lists {
		kept = m.listing
	}
	switch l := m.budget.limits; {
	case object > l.KeptObject:
		m.trip(m.current, "what is kept of one object has more than "+size(l.KeptObject))
	case m.objects > l.Objects:
		m.trip(m.current, fmt.Sprintf("there are more than %d objects", l.Objects))
	case kept > l.Kept:
		m.trip(m.current, "what is kept of the objects has more than "+size(l.Kept))
	case bound != "":
		m.trip(m.current, bound)
	}
}

// Listed ends a list with the given resourceVersion. From now on, the added objects are kept, and the objects kept
// before are not. It returns an error if the list exceeded a limit. The caller must not use such a list.
func (m *Meter) Listed(version string) error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.measure(version)
	c := m.current
	if c != nil && c.failed != nil {
		return c.failed
	}
	m.hold(m.listing, 0)
	m.settled = true
	if c != nil {
		c.listed()
	}
	return nil
}

// ListBytes returns the number of bytes of the current or the last list.
func (m *Meter) ListBytes() int64 {
	if m == nil {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bytes
}

// Close gives back the budget of a watch that has ended and no longer keeps its objects.
func (m *Meter) Close() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hold(0, 0)
	m.objects = 0
}
