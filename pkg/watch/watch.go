// Package watch keeps a local copy of the objects that one list-and-watch shows, and reports its changes.
//
// It uses the Reflector of client-go, and adds three things that a SharedInformer does not offer:
//
//   - A limit on the delay between attempts after an outage. The delay of a SharedInformer grows to one minute, which
//     is too long after a cluster is back.
//   - The last error. A condition must name a forbidden watch; a log line is not enough.
//   - One copy with one listener, instead of queues for many listeners.
//
// # Workflow
//
// Run lists, streams events and lists again after each lost stream (see Consistent). The Reflector writes to the
// copy, and OnEvent reports each change after the copy has it. OnSynced reports the first complete copy of a session.
// After a failed attempt, Run records the error, calls OnProblem if it is new, and tries again with backoff.
//
// # Invariants
//
//   - The copy survives outages. A failed list never empties it.
//   - A list is at least as new as everything that was answered before it began.
//   - After a new session begins, the copy is not synced until a list that began in that session.
//   - A watch with a Budget reads and keeps no more than its limits allow. client-go streams lists through watches,
//     which have no end that a transport could wait for. See Meter.
package watch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/hypergate/hypergate/pkg/answer"
)

// Delays between attempts while the API server does not respond. With jitter, the longest delay is twice the maximum.
const (
	// firstDelay and maxDelay limit the delay, which doubles with each attempt. The maximum is short: after an outage,
	// a cluster is managed again within seconds.
	firstDelay = 200 * time.Millisecond
	maxDelay   = 4 * time.Second
	// resetAfter is the time without a failure after which the delay is firstDelay again.
	resetAfter = 30 * time.Second
)

// Event is one change of the copy.
type Event struct {
	// Object is the current object, or its last known state. After a deletion, its resourceVersion is that of the
	// deletion, unless Unseen is set.
	Object any
	// Before is the object as it was in the copy, or nil if the copy did not have it.
	Before any
	// Gone means that the object no longer exists or is no longer selected.
	Gone bool
	// Unseen means that the watch missed the deletion: only a new list showed that the object is gone. Object can be
	// old.
	Unseen bool
}

// Options define what to watch and how.
type Options struct {
	// Name is the watched resource, for errors.
	Name string
	// List and Watch are the requests. Their context ends with that of Run.
	List  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	Watch func(context.Context, metav1.ListOptions) (apiwatch.Interface, error)
	// Example is an object of the listed type.
	Example runtime.Object
	// Client is the client that List and Watch use. It shows whether streaming lists are supported.
	Client any
	// Transform makes objects small before they are kept. Each object is transformed once. It can be nil. It must not
	// fail, because client-go only logs the error and leaves the object out.
	Transform cache.TransformFunc
	// OnEvent is called after every change, from the goroutine of the watch. It can be nil.
	OnEvent func(Event)
	// OnSynced is called when the copy is complete for the first time in a session, after OnEvent for each object. It
	// can be nil.
	OnSynced func()
	// OnListing is called before each list that replaces the copy, streamed or not. It can be nil.
	OnListing func()
	// OnListed is called with the version of each list that replaced the copy, after OnEvent for each object. An
	// object that the copy never had can appear and disappear while nothing is watched. Such an object causes no
	// event. OnListed can be nil.
	OnListed func(version string)
	// OnProblem is called when attempts begin to fail, fail for another reason, or work again. It can be nil.
	OnProblem func()
	// Patience is how long to retry requests for what the API server does not know at all (404). Examples are the
	// objects of a CRD that was just created or deleted. Afterwards, Run ends. Zero means forever.
	Patience time.Duration
	// Budget limits what is read and kept. Nil means no limit. The transport of List and Watch must call LimitBody.
	Budget *Budget
	// Allowance is the byte rate and the pause, if the watch shares them with others. Nil means that it does not.
	Allowance *Allowance
	// Many means that the guest decides how many such watches there are. They have no part of their own (OwnKept).
	Many bool
	// Futile reports which other errors count as a 404 for Patience. Nil means none. It is for requests that can stay
	// forbidden forever, and whose result is not needed.
	Futile func(error) bool
}

// Watch is the local copy. It is safe for concurrent use.
type Watch struct {
	opts      Options
	store     cache.Store
	reflector func() *cache.Reflector
	meter     *Meter

	// mu guards the fields that the goroutine of the watch writes and that others read.
	mu sync.Mutex
	// session returns the current session. begun is the session in which the last list began. synced means that a
	// list that began in it was stored.
	session func() uint64
	begun   uint64
	synced  bool
	err     error
	log     logr.Logger
	lines   *Lines
}

// meter returns the meter of a watch, or nil if it has no limits.
func (o Options) meter() *Meter {
	m := o.Budget.MeterOf(o.Name, o.Allowance)
	if m != nil && o.Many {
		m.own = 0
	}
	return m
}

// New prepares a watch. It sends nothing before Run.
func New(opts Options) *Watch {
	if opts.OnEvent == nil {
		opts.OnEvent = func(Event) {}
	}
	if opts.OnSynced == nil {
		opts.OnSynced = func() {}
	}
	if opts.OnListing == nil {
		opts.OnListing = func() {}
	}
	if opts.OnListed == nil {
		opts.OnListed = func(string) {}
	}
	if opts.OnProblem == nil {
		opts.OnProblem = func() {}
	}
	if opts.Allowance == nil {
		opts.Allowance = opts.Budget.Allowance()
	}
	w := &Watch{
		opts: opts, session: oneSession, lines: new(Outage).Lines(), store: cache.NewStore(cache.MetaNamespaceKeyFunc),
		meter: opts.meter(),
	}
	lw := Consistent(Requests{
		Begin:   w.begin,
		Session: w.present,
		Drained: w.meter.Drained,
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := w.meter.List(ctx, o, opts.List, events{w}.shrink)
			if err != nil { // a successful list proves nothing: the watch follows it
				w.record(err)
			}
			return list, err
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			stream, err := w.meter.Watch(ctx, o, opts.Watch)
			over := err == nil && w.meter.Over() != nil // after an exceeded limit, only a complete list is a proof
			if !over && !refusesStream(o, err) {
				w.record(err)
			}
			return stream, err
		},
	})
	w.reflector = func() *cache.Reflector {
		return cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, opts.Client), opts.Example, events{w},
			cache.ReflectorOptions{Name: opts.Name, Backoff: new(backoff()), Logger: new(logr.Discard())})
	}
	return w
}

func backoff() wait.Backoff {
	return wait.Backoff{Duration: firstDelay, Cap: maxDelay, Steps: 10, Factor: 2, Jitter: 1}
}

// Run watches until ctx ends. Errors do not end it, except after Patience; see Err.
//
// client-go does not log each failed attempt here. Run logs one line to the logger in ctx when attempts begin to
// fail, and one when an attempt works again. If the API server does not answer, all watches of the context log one line
// (see WithOutage).
func (w *Watch) Run(ctx context.Context) {
	w.runsIn(ctx)
	ctx = klog.NewContext(ctx, logr.Discard())
	defer func() {
		if ctx.Err() != nil {
			w.meter.Close()
		}
	}()
	unknown := patience{most: w.opts.Patience, futile: w.opts.Futile}
	Repeat(ctx, backoff(), w.reflector, func(err error) bool {
		if err != nil && !errors.Is(err, ErrNotResumed) {
			w.record(err)
		}
		return unknown.ends(err)
	})
}

// Repeat lists and watches until ctx ends, or until ended returns true for the result of an attempt. Each attempt has a
// new Reflector, because a Reflector keeps the last resourceVersion, of any length, and no attempt here needs that of
// another.
func Repeat(ctx context.Context, delay wait.Backoff, reflector func() *cache.Reflector, ended func(error) bool) {
	_ = delay.DelayWithReset(clock.RealClock{}, resetAfter).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		return ended(reflector().ListAndWatchWithContext(ctx)), nil
	})
}

// patience measures how long something is not found.
type patience struct {
	most   time.Duration
	futile func(error) bool
	since  time.Time
}

func (p *patience) ends(err error) bool {
	switch {
	case p.most == 0:
		return false
	case !apierrors.IsNotFound(err) && (p.futile == nil || !p.futile(err)):
		p.since = time.Time{}
	case p.since.IsZero():
		p.since = time.Now()
	}
	return !p.since.IsZero() && time.Since(p.since) >= p.most
}

// Synced reports whether the copy was complete at least once in the current session.
func (w *Watch) Synced() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.synced && w.begun == w.session()
}

// Err returns why the last attempt to list and watch failed. It returns nil if that attempt opened a watch, or if it
// belongs to an earlier session.
func (w *Watch) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil || w.begun != w.session() {
		return nil
	}
	return fmt.Errorf("watching %s: %w", w.opts.Name, w.err)
}

// Get returns the object with the key (namespace/name, or name).
func (w *Watch) Get(key string) (any, bool) {
	obj, found, _ := w.store.GetByKey(key) // GetByKey of cache.Store has no error to return
	return obj, found
}

// List returns all objects, in no order.
func (w *Watch) List() []any { return w.store.List() }

func (w *Watch) runsIn(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log, w.session = logr.FromContextOrDiscard(ctx).WithValues("resource", w.opts.Name), SessionFrom(ctx)
	w.lines = OutageFrom(ctx).Lines()
}

// record stores the result of an attempt. If it differs from the previous result, record logs it and calls OnProblem.
func (w *Watch) record(err error) {
	over, isOver := errors.AsType[*LimitError](err)
	if isOver {
		err = over // without the text of client-go, which depends on the request
	} else {
		err = answer.Brief(err)
	}
	w.mu.Lock()
	before, log, lines := w.err, w.log, w.lines
	w.err = err
	w.mu.Unlock()
	if errors.Is(err, context.Canceled) {
		return
	}
	if w.isTrouble(err) {
		lines.Log(log, StateOf(err), "A watch failed, retrying; until it works, its objects can be out of date", "err", err.Error())
	} else {
		lines.Log(log, Works, "")
	}
	_, wasOver := errors.AsType[*LimitError](before)
	if (before == nil) != (err == nil) || wasOver != isOver || apierrors.ReasonForError(before) != apierrors.ReasonForError(err) {
		w.opts.OnProblem()
	}
}

// isTrouble reports whether an error is unexpected.
func (w *Watch) isTrouble(err error) bool {
	return err != nil && (w.opts.Patience == 0 || !apierrors.IsNotFound(err))
}

// refusesStream reports whether an API server does not serve streamed lists, as those of older versions of Kubernetes.
// The reflector lists without a stream then.
func refusesStream(o metav1.ListOptions, err error) bool {
	return o.SendInitialEvents != nil && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err))
}

// setSynced marks the copy as synced. It reports whether this was the first time in the session.
func (w *Watch) setSynced() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := !w.synced
	w.synced = true
	return first
}
