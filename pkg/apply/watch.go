package apply

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/hypergate/hypergate/pkg/answer"
	"github.com/hypergate/hypergate/pkg/watch"
)

// WatchProblem is why the watch of one kind does not work. While it does not work, drift of that kind is not
// detected.
type WatchProblem struct {
	GVK   schema.GroupVersionKind
	Cause Cause
	err   error
}

// Err returns the whole error, for logs.
func (p WatchProblem) Err() error { return p.err }

// Start starts the watches of every kind and returns at once. The watches end with ctx. Call Start once. If ctx comes
// from watch.WithSession, the session reports when the server can have become another one. If it comes from
// watch.WithOutage, an API server that does not answer is one line in the log.
//
// notify is called whenever Apply or Prune can have something to do: an object drifted, disappeared or appeared, a
// kind was listed for the first time, a watch failed or works again. It is called from several goroutines and must
// return at once.
func (c *Cluster) Start(ctx context.Context, notify func()) error {
	if !c.tracker.start(notify, watch.SessionFrom(ctx)) {
		return fmt.Errorf("watching the %s cluster: the watches were already started", c.opts.Name)
	}
	log, outage := klog.FromContext(ctx).WithValues("cluster", c.opts.Name), watch.OutageFrom(ctx)
	// The reflector would log each failed attempt. Instead, reporter logs each change.
	quiet := klog.NewContext(ctx, logr.Discard())
	for i, k := range c.opts.Kinds {
		for n, f := range feedsOf(k) {
			from := source{i, n}
			kept := store{c.tracker, from, c.fields(), c.opts.Budget.Meter(k.Resource), c.reporter(log, outage.Lines(), from, k, f)}
			listWatch := c.listWatch(kept, k, f)
			go watch.Repeat(quiet, backoff(), func() *cache.Reflector {
				return cache.NewReflectorWithOptions(listWatch, &metav1.PartialObjectMetadata{}, kept, cache.ReflectorOptions{
					Name: c.opts.Name, TypeDescription: k.Resource, Logger: new(logr.Discard()), Backoff: new(backoff()),
				})
			}, func(error) bool { return false }) // listWatch reports the errors
		}
	}
	return nil
}

const (
	// relistFirst is the delay after the first failure of a watch. Each further one is twice as long, up to
	// relistLongest.
	relistFirst = 500 * time.Millisecond
	// relistLongest is the longest delay between two attempts to watch. That of client-go is one minute. hypergate must
	// manage a cluster again within 30 seconds after it is back.
	relistLongest = 8 * time.Second
)

// backoff returns the delays between attempts to watch.
func backoff() wait.Backoff {
	return wait.Backoff{Duration: relistFirst, Factor: 2, Jitter: 0.5, Steps: 6, Cap: relistLongest}
}

// Synced reports whether the watches of all kinds have shown their objects at least once in the current session.
func (c *Cluster) Synced() bool {
	for i := range c.opts.Kinds {
		if !c.tracker.synced(i) {
			return false
		}
	}
	return true
}

// Known reports whether waiting brings no new knowledge. Each kind is then known in one of two ways: its watch has
// shown its objects, or had a problem that is not transient, such as a missing permission.
//
// An API server that cannot be reached or that rejects the credentials leaves a kind unknown. A kind that is known
// stays known during the session.
func (c *Cluster) Known() bool {
	for i := range c.opts.Kinds {
		if !c.tracker.known(i) {
			return false
		}
	}
	return true
}

// WatchProblems returns the problems of the kinds whose watch does not work now, in the order of Kinds. A kind in its
// first list has no problem. A kind that is watched by name has at most one problem: that of the first name with one.
func (c *Cluster) WatchProblems() []WatchProblem {
	var out []WatchProblem
	for i := range c.opts.Kinds {
		if p := c.tracker.problem(i); p != nil {
			out = append(out, *p)
		}
	}
	return out
}

// reporter returns a function that stores and logs the result of an attempt of one feed.
func (c *Cluster) reporter(log logr.Logger, lines *watch.Lines, from source, k Kind, f feed) func(verb string, err error) {
	log = log.WithValues("resource", k.Resource)
	if f.name != "" {
		log = log.WithValues("name", f.name)
	}
	return func(verb string, err error) {
		problem := watchProblem(k, verb, err)
		switch changed := c.tracker.setProblem(from, problem); {
		case changed && problem != nil:
			lines.Log(log, stateOf(problem.Cause),
				"A watch failed, retrying; until it works, changes of these objects are not detected",
				"cause", problem.Cause.String(), "err", problem.err)
		case changed:
			lines.Log(log, watch.Works, "")
		}
	}
}

// stateOf returns the state that a problem of a watch shows.
func stateOf(cause Cause) watch.State {
	if cause.Class() == Unreachable {
		return watch.NoAnswer
	}
	return watch.Fails
}

// listWatch returns how the reflector of one feed lists and watches. It handles each error before the reflector does,
// because the reflector has no hook for errors.
func (c *Cluster) listWatch(kept store, k Kind, f feed) *cache.ListWatch {
	return watch.Consistent(watch.Requests{
		Begin:   func() { c.tracker.begins(kept.from) },
		Session: c.tracker.present,
		Drained: kept.meter.Drained,
		List: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			opts.LabelSelector, opts.FieldSelector = c.selector(), f.selector()
			list, err := kept.meter.List(ctx, opts, func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
				return c.resource(k, c.opts.Namespace).List(ctx, opts)
			}, kept.shrink)
			if err != nil { // a successful list proves nothing: the watch follows it
				kept.report("list", err)
			}
			return list, err
		},
		Watch: func(ctx context.Context, opts metav1.ListOptions) (apiwatch.Interface, error) {
			opts.LabelSelector, opts.FieldSelector = c.selector(), f.selector()
			w, err := kept.meter.Watch(ctx, opts, c.resource(k, c.opts.Namespace).Watch)
			// If the API server refuses a streaming list, the reflector falls back to list and watch. These report
			// the problem.
			if proves(kept.meter, err, opts.SendInitialEvents != nil, k) {
				kept.report("watch", err)
			}
			return w, err
		},
	})
}

// proves reports whether the result of a watch request shows the state of the kind. After a limit of the meter was
// exceeded, only a complete list proves that the watch works. An error of a streaming list is a proof only if no list
// without a stream follows it.
func proves(m *watch.Meter, err error, streaming bool, k Kind) bool {
	if err == nil {
		return m.Over() == nil
	}
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		return true
	}
	class := Classify(err, "watch", k.resource()).Class()
	return !streaming || class == Unreachable || class == Oversized
}

func watchProblem(k Kind, verb string, err error) *WatchProblem {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) {
		return nil
	}
	cause := Classify(err, verb, k.resource())
	if inURL, ok := errors.AsType[*url.Error](err); ok {
		err = inURL.Err // the URL of a watch is three lines long and does not help
	}
	return &WatchProblem{GVK: k.GVK, Cause: cause, err: fmt.Errorf("watching %s: %w", k.Resource, answer.Brief(err))}
}

// start sets the notify function and the function that returns the current session. It returns false if it was called
// before.
func (t *tracker) start(notify func(), session func() uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.started {
		return false
	}
	t.started, t.notify, t.session = true, notify, session
	return true
}

// store receives what the reflector of one feed reads. It replaces the queue, the store and the listeners of an
// informer. The tracker needs only a few words per object, without delay, and the resource version of every list.
type store struct {
	tracker *tracker
	from    source
	fields  fieldsOf
	meter   *watch.Meter
	// report receives the result of an attempt.
	report func(verb string, err error)
}

var (
	_ cache.TransformingStore      = store{}
	_ cache.ResourceVersionUpdater = store{}
)

// Add stores an object that appeared.
func (s store) Add(obj any) error { return s.saw(obj, false) }

// Update stores an object that changed.
func (s store) Update(obj any) error { return s.saw(obj, false) }

// Delete stores that an object was deleted or lost the owner label. Its resourceVersion is that of the event.
func (s store) Delete(obj any) error { return s.saw(obj, true) }

// Resync does nothing.
func (s store) Resync() error { return nil }

func (s store) saw(obj any, deleted bool) error {
	m, err := s.strip(obj)
	if err != nil {
		return err
	}
	seen, before := m.sighting(), s.tracker.shown(s.from.kind, m.key())
	var after any = m
	if deleted {
		seen, after = sighting{state: gone, rv: m.ResourceVersion}, nil
	}
	if err := s.meter.Changed(before, after, m.ResourceVersion); err != nil {
		return err
	}
	s.tracker.saw(s.from, m.key(), seen)
	return nil
}

// UpdateResourceVersion checks the version of each event, also of a bookmark, which has no object.
func (s store) UpdateResourceVersion(version string) { s.meter.Version(version) }

// Replace stores the whole list.
func (s store) Replace(objs []any, resourceVersion string) error {
	all := make(map[types.NamespacedName]sighting, len(objs))
	for _, obj := range objs {
		m, err := s.strip(obj)
		if err != nil {
			return err
		}
		all[m.key()] = m.sighting()
	}
	wasOver := s.meter.Over() != nil
	if err := s.meter.Listed(resourceVersion); err != nil {
		return err
	}
	if wasOver {
		s.report("watch", nil)
	}
	s.tracker.listed(s.from, all, resourceVersion)
	return nil
}

// Transformer returns the function that strips objects as they arrive, so that a streaming list never holds whole
// objects.
func (s store) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		small, err := s.shrink(obj)
		if err == nil {
			s.meter.Adding(small.Kept)
		}
		return small, err
	}
}

// shrink strips an object and marks it as stripped.
func (s store) shrink(obj any) (watch.Small, error) {
	m, err := s.strip(obj)
	return watch.Small{Object: m, Kept: m}, err
}

// member is the metadata of an object without the parts that the package does not need.
type member struct {
	metav1.ObjectMeta
	fields       uint64
	otherManager string
}

// KeptBytes returns the number of bytes that are kept in addition to the metadata.
func (m *member) KeptBytes() int { return len(m.otherManager) }

func (m *member) key() types.NamespacedName {
	return types.NamespacedName{Namespace: m.Namespace, Name: m.Name}
}

func (m *member) sighting() sighting {
	s := sighting{state: present, rv: m.ResourceVersion, uid: m.UID, fields: m.fields, otherManager: m.otherManager}
	if m.DeletionTimestamp != nil {
		s.state, s.deletion = terminating, m.DeletionTimestamp.Time
	}
	return s
}

func (s store) strip(obj any) (*member, error) {
	if small, is := obj.(watch.Small); is {
		obj = small.Kept
	}
	switch o := obj.(type) {
	case *member:
		return o, nil
	case *metav1.PartialObjectMetadata:
		return &member{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: o.Namespace, Name: o.Name, UID: o.UID,
				ResourceVersion: o.ResourceVersion, DeletionTimestamp: o.DeletionTimestamp,
			},
			fields:       s.fields.hash(o.ManagedFields),
			otherManager: otherManager(s.fields.manager, o.ManagedFields),
		}, nil
	default:
		return nil, fmt.Errorf("a watch showed a %T where object metadata was expected", obj)
	}
}

// fieldsOf finds the entry of a field manager in managedFields.
type fieldsOf struct {
	seed    maphash.Seed
	manager string
}

// hash returns a hash of the fields that the manager applied and of the time when it last changed one of them. It
// returns 0 if the manager applied none.
//
// The time detects a write with our field manager name that changes only the values of our fields. The API server
// updates the time if an apply changes something. It keeps the time if an apply changes nothing or if another manager
// writes.
func (f fieldsOf) hash(entries []metav1.ManagedFieldsEntry) uint64 {
	for _, e := range entries {
		if e.Manager != f.manager || e.Operation != metav1.ManagedFieldsOperationApply || e.Subresource != "" || e.FieldsV1 == nil {
			continue
		}
		var h maphash.Hash
		h.SetSeed(f.seed)
		_, _ = h.WriteString(e.APIVersion)
		if e.Time != nil {
			_, _ = h.WriteString(strconv.FormatInt(e.Time.Unix(), 10))
		}
		_, _ = h.Write(e.FieldsV1.GetRawBytes())
		return max(h.Sum64(), 1)
	}
	return 0
}
