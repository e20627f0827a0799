// Package watch keeps a local copy of what one list-and-watch shows, and says when it changes.
//
// It is client-go's Reflector with three things that a SharedInformer does not offer: a bound on how long it waits before it tries again
// after an outage (a SharedInformer's grows to a minute, which is longer than a cluster that came back should go unnoticed), the last error
// (a watch that is forbidden must be named in a condition, not only logged), and one copy with one listener instead of queues for many.
//
// A watch with a Budget reads and keeps no more than its bounds allow: client-go streams lists through watches, which have no end that a
// transport could wait for. See Meter.
package watch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/hypergate/hypergate/pkg/answer"
)

// Waits between attempts while the API server does not answer. With jitter the longest is twice the maximum.
const (
	firstDelay = 200 * time.Millisecond
	maxDelay   = 4 * time.Second
	resetAfter = 30 * time.Second
)

// Event is one change of the copy.
type Event struct {
	// Object is the object as it is now, or as it last was. After a deletion its resourceVersion is the deletion's, unless Unseen.
	Object any
	// Before is the object as the copy had it; nil where it had none.
	Before any
	// Gone: the object is no longer there, or no longer selected.
	Gone bool
	// Unseen: the deletion itself was missed, a new list just does not have the object; Object may be old.
	Unseen bool
}

// Options say what to watch.
type Options struct {
	// Name is what is watched, for errors: a resource.
	Name string
	// List and Watch are the requests. Their context ends with Run's.
	List  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	Watch func(context.Context, metav1.ListOptions) (apiwatch.Interface, error)
	// Example is an object of the type that is listed.
	Example runtime.Object
	// Client is what List and Watch use: it tells whether watch-list streaming is supported.
	Client any
	// Transform makes objects small before they are kept; each is transformed once. It may be nil. It must not fail: client-go only logs that, and leaves the object out.
	Transform cache.TransformFunc
	// OnEvent is told of every change, after it was made, from the watch's goroutine. It may be nil.
	OnEvent func(Event)
	// OnSynced is called when the copy is complete for the first time in a session, after OnEvent was for each object. It may be nil.
	OnSynced func()
	// OnListing is called before each list that the copy is made from, streamed or not. It may be nil.
	OnListing func()
	// OnListed is called with the version of each list that the copy was made from, after OnEvent was for each object: that something which the copy never
	// had came and went while nothing was watched shows in no event. It may be nil.
	OnListed func(version string)
	// OnTrouble is called when attempts begin to fail, fail for another reason, or work again. It may be nil.
	OnTrouble func()
	// Patience is for how long what the API server does not know at all (404) is asked for: the objects of a CRD that it has just got, or that has
	// just gone. Then Run ends. Zero: for ever.
	Patience time.Duration
	// Budget bounds what is read and kept; nil: nothing does. The transport of List and Watch must call LimitBody.
	Budget *Budget
	// Futile says which other errors count as that; nil: none. It is for what may be forbidden for ever, and what nobody waits for.
	Futile func(error) bool
}

// Watch is the local copy. It is safe for concurrent use.
type Watch struct {
	opts      Options
	store     cache.Store
	reflector *cache.Reflector
	meter     *Meter

	// mu guards what the watch's goroutine writes and others read.
	mu sync.Mutex
	// session is the present session. begun is the one that the last list began in, and synced whether a list that began in it was taken.
	session func() uint64
	begun   uint64
	synced  bool
	err     error
	log     logr.Logger
}

// New prepares a watch. Nothing happens before Run.
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
	if opts.OnTrouble == nil {
		opts.OnTrouble = func() {}
	}
	w := &Watch{opts: opts, session: oneSession, store: cache.NewStore(cache.MetaNamespaceKeyFunc), meter: opts.Budget.Meter(opts.Name)}
	lw := Consistent(Requests{
		Begin:   w.begin,
		Session: w.present,
		Drained: w.meter.Drained,
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := w.meter.List(ctx, o, opts.List, events{w}.shrink)
			if err != nil { // a list that works proves nothing: the watch comes after it
				w.record(err)
			}
			return list, err
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			stream, err := w.meter.Watch(ctx, o, opts.Watch)
			if err != nil || w.meter.Over() == nil { // beyond a bound, only a complete list proves something
				w.record(err)
			}
			return stream, err
		},
	})
	w.reflector = cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, opts.Client), opts.Example, events{w},
		cache.ReflectorOptions{Name: opts.Name, Backoff: new(backoff()), Logger: new(logr.Discard())})
	return w
}

func backoff() wait.Backoff {
	return wait.Backoff{Duration: firstDelay, Cap: maxDelay, Steps: 10, Factor: 2, Jitter: 1}
}

// Run watches until ctx ends. Errors do not end it, but for what goes beyond Patience; see Err. client-go's own logging of every failed attempt is switched off: there is a line,
// to the logger in ctx, when attempts begin to fail and when one works again.
func (w *Watch) Run(ctx context.Context) {
	w.runsIn(ctx)
	ctx = klog.NewContext(ctx, logr.Discard())
	defer func() {
		if ctx.Err() != nil {
			w.meter.Close()
		}
	}()
	delay, unknown := backoff(), patience{most: w.opts.Patience, futile: w.opts.Futile}
	_ = delay.DelayWithReset(clock.RealClock{}, resetAfter).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		err := w.reflector.ListAndWatchWithContext(ctx)
		if err != nil && !errors.Is(err, ErrNotResumed) {
			w.record(err)
		}
		return unknown.ends(err), nil
	})
}

// patience counts for how long something is not found.
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

// Synced reports whether the copy was complete at least once in the present session.
func (w *Watch) Synced() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.synced && w.begun == w.session()
}

// Err is why the last attempt to list and watch failed, or nil if it did not: then a watch was opened. An attempt of an earlier session does not count.
func (w *Watch) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil || w.begun != w.session() {
		return nil
	}
	return fmt.Errorf("watching %s: %w", w.opts.Name, w.err)
}

// Get is the object with that key (namespace/name, or name).
func (w *Watch) Get(key string) (any, bool) {
	obj, found, _ := w.store.GetByKey(key) // cache.Store's GetByKey has no error to return
	return obj, found
}

// List is all objects, in no order.
func (w *Watch) List() []any { return w.store.List() }

func (w *Watch) runsIn(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log, w.session = logr.FromContextOrDiscard(ctx).WithValues("resource", w.opts.Name), SessionFrom(ctx)
}

// record keeps how an attempt ended, and tells of it if it ended otherwise than the one before.
func (w *Watch) record(err error) {
	over, isOver := errors.AsType[*LimitError](err)
	if isOver {
		err = over // without what client-go says beside it, which depends on the request
	} else {
		err = answer.Brief(err)
	}
	w.mu.Lock()
	before, log := w.err, w.log
	w.err = err
	w.mu.Unlock()
	if errors.Is(err, context.Canceled) {
		return
	}
	switch told, tell := w.isTrouble(before), w.isTrouble(err); {
	case tell && !told:
		log.Info("A watch fails and is tried again; until it works, what it shows is old", "err", err.Error())
	case told && !tell:
		log.Info("The watch works again")
	}
	_, wasOver := errors.AsType[*LimitError](before)
	if (before == nil) != (err == nil) || wasOver != isOver || apierrors.ReasonForError(before) != apierrors.ReasonForError(err) {
		w.opts.OnTrouble()
	}
}

// isTrouble says whether an error should not have been expected.
func (w *Watch) isTrouble(err error) bool {
	return err != nil && (w.opts.Patience == 0 || !apierrors.IsNotFound(err))
}

// setSynced reports whether this was the first time in its session.
func (w *Watch) setSynced() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := !w.synced
	w.synced = true
	return first
}

// events is the store that the reflector writes to: it keeps the copy and tells of each change.
type events struct{ *Watch }

// Transformer lets the reflector make objects small before it buffers them. It does so while a list is streamed, and in no other case; what it
// made small is marked, so that no object is transformed twice.
func (e events) Transformer() cache.TransformFunc {
	if e.opts.Transform == nil && e.meter == nil {
		return nil
	}
	return func(obj any) (any, error) {
		small, err := e.shrink(obj)
		if err != nil {
			return nil, err
		}
		e.meter.Adding(small.Kept)
		return small, nil
	}
}

// shrink makes an object small, and marks it.
func (e events) shrink(obj any) (Small, error) {
	small, err := e.transform(obj)
	if err != nil {
		return Small{}, err
	}
	identity, err := meta.Accessor(small)
	return Small{identity, small}, err
}

func (e events) Add(obj any) error { return e.put(obj) }

func (e events) Update(obj any) error { return e.put(obj) }

func (e events) Resync() error { return nil }

func (e events) put(obj any) error {
	obj, err := e.transform(obj)
	if err != nil {
		return err
	}
	before := e.before(obj)
	if err := e.store.Update(obj); err != nil {
		return fmt.Errorf("keeping an object of %s: %w", e.opts.Name, err)
	}
	e.meter.Changed(before, obj)
	e.opts.OnEvent(Event{Object: obj, Before: before})
	return nil
}

func (e events) Delete(obj any) error {
	obj, err := e.transform(obj)
	if err != nil {
		return err
	}
	before := e.before(obj)
	if err := e.store.Delete(obj); err != nil {
		return fmt.Errorf("forgetting an object of %s: %w", e.opts.Name, err)
	}
	e.meter.Changed(before, nil)
	e.opts.OnEvent(Event{Object: obj, Before: before, Gone: true})
	return nil
}

// before is what was kept of an object until now; nil when that is nothing.
func (e events) before(obj any) any {
	before, _, _ := e.store.Get(obj)
	return before
}

// Replace takes a new list. What the old copy had and the list has not is gone, though nobody saw it go.
func (e events) Replace(list []any, resourceVersion string) error {
	kept, before := make([]any, 0, len(list)), make([]any, 0, len(list))
	names := map[string]bool{}
	for _, obj := range list {
		obj, err := e.transform(obj)
		if err != nil {
			return err
		}
		key, err := cache.MetaNamespaceKeyFunc(obj)
		if err != nil {
			return fmt.Errorf("keeping an object of %s: %w", e.opts.Name, err)
		}
		names[key] = true
		kept, before = append(kept, obj), append(before, e.before(obj))
	}
	gone := e.missing(names)
	wasOver := e.meter.Over() != nil
	if err := e.meter.Listed(); err != nil {
		return err
	}
	if wasOver {
		e.record(nil)
	}
	if err := e.store.Replace(kept, resourceVersion); err != nil {
		return fmt.Errorf("keeping a list of %s: %w", e.opts.Name, err)
	}
	first := e.setSynced()
	for _, obj := range gone {
		e.opts.OnEvent(Event{Object: obj, Before: obj, Gone: true, Unseen: true})
	}
	for i, obj := range kept {
		e.opts.OnEvent(Event{Object: obj, Before: before[i]})
	}
	if first {
		e.opts.OnSynced()
	}
	e.opts.OnListed(resourceVersion)
	return nil
}

// missing are the kept objects that a new list does not have.
func (e events) missing(names map[string]bool) []any {
	var gone []any
	for _, key := range e.store.ListKeys() {
		if old, found, _ := e.store.GetByKey(key); found && !names[key] {
			gone = append(gone, old)
		}
	}
	return gone
}

// transform makes an object small, once.
func (e events) transform(obj any) (any, error) {
	if done, ok := obj.(Small); ok {
		return done.Kept, nil
	}
	if e.opts.Transform == nil {
		return obj, nil
	}
	out, err := e.opts.Transform(obj)
	if err != nil {
		return nil, fmt.Errorf("making an object of %s small: %w", e.opts.Name, err)
	}
	return out, nil
}
