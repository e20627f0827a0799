package watch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/hypergate/hypergate/pkg/throttle"
)

const (
	// resumeEarly is how long before its own timeout a stream can end and still count as ended by that timeout,
	// because clocks differ a little. A stream that ends earlier was lost, and the watch lists again.
	resumeEarly = time.Second
	// resumeLate is how long after its timeout a stream can be opened again without a list. client-go opens it at
	// once; the rest is a margin for a busy machine. This time is too short to restore an etcd and start its API
	// server. Beyond it, the watch lists again.
	resumeLate = 10 * time.Second
)

// ErrNotResumed ends a list-and-watch whose stream was lost. It is not a failure, because the next attempt lists.
var ErrNotResumed = errors.New("the watch was lost, and is not resumed without a list")

// errListedBefore ends a list-and-watch that requests a streamed list too soon after another one. client-go requests
// the next one at once after some answers: 410, 504 with the cause ResourceVersionTooLarge, and a stream that ends
// before its list is complete (tools/cache/reflector.go, watchList).
var errListedBefore = fmt.Errorf("a list was requested just now: %w", ErrNotResumed)

// Requests holds the list and the watch of one resource.
type Requests struct {
	List  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	Watch func(context.Context, metav1.ListOptions) (apiwatch.Interface, error)
	// Begin is called before each list, streamed or not. It can be nil.
	Begin func()
	// Session returns the number of the current session, see WithSession. Nil means that there is only one session.
	Session func() uint64
	// Drained reports whether this side ended the last stream shortly before now, and how long to wait before the next
	// one. It can be nil.
	Drained func(now time.Time) (wait time.Duration, drained bool)
}

// Consistent returns a ListWatch that makes a Reflector list again after each lost stream.
//
// Without it, a Reflector resumes at the version that it saw last. An API server whose etcd was restored from a
// backup might not have reached that version yet. It accepts such a watch, and sends nothing until it reaches the
// version (kubernetes#107457). Everything that happens until then is missed. A version number cannot prove that the
// history is the same, because the server can have passed it with other changes. A list can prove it.
//
// A stream that ends by its own timeout is resumed if the next one opens at once. So an idle cluster causes no lists.
// The same applies to a stream that this side ended, see Meter. After many such streams, the next one opens later.
//
// Lists request the newest version. A list of "at least the version that was seen last" waits in vain if that version
// lies in the future. A list of any version can come from an API server that lags behind. So a list is at least as
// new as everything that was answered before it began.
//
// A streamed list that does not complete is not requested again at once, but after the delays of the attempts.
func Consistent(r Requests) *cache.ListWatch { return consistentBy(r, clock.RealClock{}) }

func consistentBy(r Requests, now clock.Clock) *cache.ListWatch {
	if r.Begin == nil {
		r.Begin = func() {}
	}
	if r.Session == nil {
		r.Session = oneSession
	}
	if r.Drained == nil {
		r.Drained = func(time.Time) (time.Duration, bool) { return 0, false }
	}
	c := &consistent{Requests: r, clock: now}
	return &cache.ListWatch{ListWithContextFunc: c.list, WatchFuncWithContext: c.watch}
}

type consistent struct {
	Requests
	clock clock.Clock

	// mu guards the fields below, because client-go lists from its own goroutine.
	mu sync.Mutex
	// listed means that the last request was a successful list, so that a stream can start from it.
	listed bool
	// ends is when the timeout ends the last stream. It is zero without such a stream.
	ends time.Time
	// in is the session in which the last request began. No stream resumes a request of another session.
	in uint64
	// streamed is when the last streamed list was requested, and pause the delay until the next one.
	streamed time.Time
	pause    throttle.Backoff
}

func (c *consistent) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	in := c.Session()
	if o.Continue == "" {
		c.Begin()
	}
	o.ResourceVersion, o.ResourceVersionMatch = "", ""
	list, err := c.List(ctx, o)
	c.next(err == nil, time.Time{}, in)
	return list, err
}

func (c *consistent) watch(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	replaced := sessionReplaced(ctx) // before the session is read: each later change closes it
	in := c.Session()
	if o.SendInitialEvents != nil && *o.SendInitialEvents {
		if !c.mayStream(c.clock.Now(), in) {
			return nil, errListedBefore
		}
		c.Begin()
		o.ResourceVersion = ""
	} else if err := c.resume(ctx, in, replaced); err != nil {
		return nil, err
	}
	opened := c.clock.Now()
	stream, err := c.Watch(ctx, o)
	if err == nil && c.Session() != in {
		// The stream can belong to either session, and would not end with the session that it counts for.
		stream.Stop()
		stream, err = nil, ErrNotResumed
	}
	var ends time.Time
	if err == nil && o.TimeoutSeconds != nil {
		ends = opened.Add(time.Duration(*o.TimeoutSeconds) * time.Second)
	}
	c.next(false, ends, in)
	return stream, err
}

// next records how the next stream can begin.
func (c *consistent) next(listed bool, ends time.Time, in uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listed, c.ends, c.in = listed, ends, in
}

// mayStream reports whether a streamed list can be requested now. If so, it counts the request.
func (c *consistent) mayStream(now time.Time, in uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if in != c.in || now.Sub(c.streamed) > resetAfter {
		c.pause.Reset()
	}
	if c.pause.Wait(now) > 0 {
		return false
	}
	c.streamed = now
	c.pause.Failed(now, firstDelay, maxDelay)
	return true
}

// resume waits until a stream can begin without a list. It returns an error if none can. If replaced is closed
// meanwhile, the next stream needs a list.
func (c *consistent) resume(ctx context.Context, in uint64, replaced <-chan struct{}) error {
	wait, resumes := c.resumes(c.clock.Now(), in)
	if !resumes {
		return ErrNotResumed
	}
	if wait == 0 {
		return nil
	}
	timer := c.clock.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-replaced:
		return ErrNotResumed
	case <-timer.C():
		return nil
	}
}

// resumes reports whether a stream can begin without a list, after the wait. One list allows one stream.
func (c *consistent) resumes(now time.Time, in uint64) (wait time.Duration, resumes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	listed, late := c.listed, now.Sub(c.ends)
	c.listed = false
	wait, drained := c.Drained(now)
	return wait, in == c.in && (listed || drained || !c.ends.IsZero() && -resumeEarly <= late && late <= resumeLate)
}
