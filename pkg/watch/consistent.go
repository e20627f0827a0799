package watch

import (
	"context"
	"errors"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

const (
	// resumeEarly is how long before its own timeout a stream may end and still count as ended by that timeout: clocks
	// differ a little. A stream that ends sooner was lost, and the watch lists again.
	resumeEarly = time.Second
	// resumeLate is how long after its timeout a stream may be opened again without a list. client-go does it at once;
	// the rest is for a busy machine. An etcd cannot be restored and its API server started in this time. Beyond it the
	// watch lists again.
	resumeLate = 10 * time.Second
)

// ErrNotResumed ends a list-and-watch whose stream was lost. It is not a failure: the next attempt lists.
var ErrNotResumed = errors.New("the watch was lost, and is not resumed without a list")

// Requests are a list and a watch of one resource.
type Requests struct {
	List  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	Watch func(context.Context, metav1.ListOptions) (apiwatch.Interface, error)
	// Begin is called before each list, streamed or not. It may be nil.
	Begin func()
	// Session is the number of the present session, see WithSession. It may be nil: then there is one.
	Session func() uint64
	// Drained reports whether this side ended the last stream, at a time not long before now. It may be nil.
	Drained func(now time.Time) bool
}

// Consistent makes a Reflector list again after each stream that was lost.
//
// Without it a Reflector resumes at the version that it saw last. An API server whose etcd was restored from a backup
// may not have come to that version yet. It accepts such a watch and sends nothing until it has (kubernetes#107457), so
// that everything that happens until then goes unseen. A version number cannot prove the contrary: the server may have
// passed it by other changes. A list can.
//
// A stream that ends by its own timeout is resumed, as long as that happens at once. So there is no list at rest. The
// same holds for a stream that this side ended, see Meter.
//
// Lists ask for the newest version. A list of "at least the version that was seen last" waits in vain where that lies
// in the future, and one of any version may come from an API server that lags behind. So what a list shows is at least
// as new as everything that was answered before it began.
func Consistent(r Requests) *cache.ListWatch { return consistentBy(r, clock.RealClock{}) }

func consistentBy(r Requests, now clock.PassiveClock) *cache.ListWatch {
	if r.Begin == nil {
		r.Begin = func() {}
	}
	if r.Session == nil {
		r.Session = oneSession
	}
	if r.Drained == nil {
		r.Drained = func(time.Time) bool { return false }
	}
	c := &consistent{Requests: r, clock: now}
	return &cache.ListWatch{ListWithContextFunc: c.list, WatchFuncWithContext: c.watch}
}

type consistent struct {
	Requests
	clock clock.PassiveClock

	// mu guards what follows: client-go lists from a goroutine of its own.
	mu sync.Mutex
	// listed: the last request was a list that worked, and a stream may go on from it.
	listed bool
	// ends is when the timeout of the last stream ends it; zero without one.
	ends time.Time
	// in is the session that the last request began in. No stream goes on from another one.
	in uint64
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
	opened, in := c.clock.Now(), c.Session()
	switch lists := o.SendInitialEvents != nil && *o.SendInitialEvents; {
	case lists:
		c.Begin()
		o.ResourceVersion = ""
	case !c.resumes(opened, in):
		return nil, ErrNotResumed
	}
	stream, err := c.Watch(ctx, o)
	if err == nil && c.Session() != in {
		// It may have been opened in either, and would not end with the one that it counts for.
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

// next keeps how the next stream may begin.
func (c *consistent) next(listed bool, ends time.Time, in uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listed, c.ends, c.in = listed, ends, in
}

// resumes reports whether a stream may begin without a list now. It may once.
func (c *consistent) resumes(now time.Time, in uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	listed, late, drained := c.listed, now.Sub(c.ends), c.Drained(now)
	c.listed = false
	return in == c.in && (listed || drained || !c.ends.IsZero() && -resumeEarly <= late && late <= resumeLate)
}
