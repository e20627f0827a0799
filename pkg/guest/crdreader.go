package guest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/hypergate/hypergate/pkg/answer"
	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/throttle"
	"github.com/hypergate/hypergate/pkg/watch"
)

// Times of the reader. An installation causes three events for each CRD. Reading must not compete with these writes.
const (
	// quietTime is how long no CRD has changed before one is read, and maxQuietTime the longest wait for that.
	quietTime    = 250 * time.Millisecond
	maxQuietTime = 2 * time.Second
	// readTimeout is for one CRD of up to 2 MiB.
	readTimeout = 15 * time.Second
	// firstReadDelay and maxReadDelay are the delays before a CRD that could not be read is read again. Most causes end
	// within seconds. While one lasts, each CRD costs two requests a minute.
	firstReadDelay = time.Second
	maxReadDelay   = 30 * time.Second
)

// Rate limit of reads: the burst, and the interval after it. Without it, a CRD that the guest changes all the time
// would be read all the time, which takes a whole CPU. An installation or an upgrade reads each of 20 CRDs two or
// three times.
const (
	readBurst = 128
	readEvery = time.Second
)

// Rate limit of the bytes of all reads: at once, and per second on average. The 20 CRDs of a plan have 4 MiB.
const (
	readBytesBurst = 64 << 20
	readBytesRate  = 256 << 10
)

// crdReader reads whole CRDs, one after another, when they have changed. It keeps only the facts that decisions
// depend on: some hundred bytes for each CRD, and a few kilobytes for one that differs from hypergate's. It sends no
// requests while nothing changes.
type crdReader struct {
	client dynamic.NamespaceableResourceInterface
	budget *watch.Budget
	source desired.ChartSource
	crds   *crdView
	// changed is called after a CRD was read.
	changed func()
	kick    chan struct{}
	turns   throttle.Limiter
	// bytes limits the bytes of all reads together. A read takes what it has read, and the next one waits.
	bytes *rate.Limiter
	// ours has the CRDs that hypergate would install, as far as they were needed. Only the reader's goroutine uses
	// it.
	ours map[string]crds.Definition

	// mu guards the fields below.
	mu       sync.Mutex
	readings map[string]reading
	// last is the time of the last change of a CRD. first is the time of the first change that has not been read yet.
	// retries has the CRDs that could not be read.
	last, first time.Time
	retries     map[string]retry
}

// reading is the result of reading a CRD.
type reading struct {
	uid        types.UID
	generation int64
	// version is the resourceVersion of the CRD that was read. asked is the resourceVersion that caused the read.
	version, asked string
	content        crds.Content
	definition     crds.Definition
	difference     crds.Difference
	why            string
	// searches are the searches for content that istiod ignores. They are found once, because a CRD can have many
	// versions and fields. Use searchesOf.
	searches []search
}

// searchesOf returns the searches that a reading of a CRD requires.
func (r reading) searchesOf(item crdItem) []search {
	out := slices.Clone(r.searches)
	for i := range out {
		out[i].at = item.ResourceVersion
	}
	return out
}

// retry is the next attempt to read a CRD.
type retry struct {
	backoff throttle.Backoff
	// text is the cause that was logged last.
	text string
}

func newCRDReader(client dynamic.Interface, budget *watch.Budget, source desired.ChartSource, view *crdView, changed func()) *crdReader {
	return &crdReader{
		client: client.Resource(crdResource()), budget: budget, source: source, crds: view, changed: changed, kick: make(chan struct{}, 1),
		turns: throttle.NewLimiter(throttle.Rate{Burst: readBurst, Every: readEvery}),
		bytes: rate.NewLimiter(readBytesRate, readBytesBurst),
		ours:  map[string]crds.Definition{}, readings: map[string]reading{}, retries: map[string]retry{},
	}
}

// reading returns the result for the current spec of a CRD, and whether it is known. The metadata can have changed
// since the read; the spec has not.
func (r *crdReader) reading(item crdItem) (reading, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	got, known := r.readings[item.Name]
	return got, known && got.uid == item.UID && got.generation == item.Generation
}

// latest returns the last result for a CRD. The spec can have changed since.
func (r *crdReader) latest(item crdItem) (reading, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	got, known := r.readings[item.Name]
	return got, known && got.uid == item.UID
}

// look records that a CRD has changed, and wakes the reader.
func (r *crdReader) look() {
	r.mu.Lock()
	r.last = time.Now()
	if r.first.IsZero() {
		r.first = r.last
	}
	r.mu.Unlock()
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// run reads CRDs until ctx ends.
func (r *crdReader) run(ctx context.Context) {
	rested := true
	for {
		item, wait, due := r.next()
		switch {
		case due && wait <= 0:
			rested = false
			r.read(ctx, item)
			if ctx.Err() != nil {
				return
			}
			continue
		case !due && !rested:
			rested = true
			debug.FreeOSMemory() // a CRD has up to a megabyte, and many times that when it is parsed
		}
		if !r.sleep(ctx, wait, due) {
			return
		}
	}
}

// sleep waits for a change, or until a read is due. It returns false when ctx has ended.
func (r *crdReader) sleep(ctx context.Context, wait time.Duration, due bool) bool {
	var alarm <-chan time.Time
	if due {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		alarm = timer.C
	}
	select {
	case <-r.kick:
	case <-alarm:
	case <-ctx.Done():
		return false
	}
	return true
}

// next returns the CRD to read next, and how long to wait before that. due is false if there is none.
func (r *crdReader) next() (item crdItem, wait time.Duration, due bool) {
	return r.dueOf(r.crds.readable(), time.Now())
}

// dueOf is next for the given CRDs and time.
func (r *crdReader) dueOf(all []crdItem, now time.Time) (item crdItem, wait time.Duration, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(all)
	quiet := min(r.last.Add(quietTime).Sub(now), r.first.Add(maxQuietTime).Sub(now))
	for _, candidate := range all {
		got := r.readings[candidate.Name]
		if got.uid == candidate.UID && (got.version == candidate.ResourceVersion || got.asked == candidate.ResourceVersion) {
			continue
		}
		w := max(quiet, r.waitFor(candidate.Name, now))
		if !due || w < wait {
			item, wait, due = candidate, w, true
		}
	}
	if !due {
		r.first = time.Time{}
	}
	return item, max(wait, r.turn(now)), due
}

// turn returns the time until the rate limits allow a read. It consumes no token of the limits.
func (r *crdReader) turn(now time.Time) time.Duration {
	bytes := r.bytes.ReserveN(now, 1)
	defer bytes.CancelAt(now)
	return max(r.turns.Wait(now), bytes.DelayFrom(now))
}

// waitFor returns the time until a CRD that could not be read is tried again. The caller holds r.mu.
func (r *crdReader) waitFor(name string, now time.Time) time.Duration {
	failed := r.retries[name]
	return failed.backoff.Wait(now)
}

// forget removes the results of CRDs that no longer exist.
func (r *crdReader) forget(there []crdItem) {
	gone := func(name string) bool {
		return !slices.ContainsFunc(there, func(item crdItem) bool { return item.Name == name })
	}
	maps.DeleteFunc(r.readings, func(name string, _ reading) bool { return gone(name) })
	maps.DeleteFunc(r.retries, func(name string, _ retry) bool { return gone(name) })
}

// read reads one CRD and stores the result.
func (r *crdReader) read(ctx context.Context, item crdItem) {
	r.turns.Take(time.Now())
	u, err := r.fetch(ctx, item.Name)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		r.later(ctx, item, err)
		return
	case u == nil:
		r.later(ctx, item, nil) // it is gone, and the watch is about to show that
		return
	}
	got := r.weigh(u)
	got.asked = item.ResourceVersion
	r.mu.Lock()
	r.readings[item.Name] = got
	delete(r.retries, item.Name)
	r.mu.Unlock()
	r.changed()
}

// errManyCRDs refuses an answer that no API server gives. Its further pages would be read without an end.
var errManyCRDs = errors.New("the API server answers a list of one CRD by name with several objects or pages")

// fetch returns the current CRD, or nil if it does not exist. It lists by name, because that needs no permission
// besides the one to list CRDs.
func (r *crdReader) fetch(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var out *unstructured.Unstructured
	meter := r.budget.Meter("CRD " + name)
	defer meter.Close()
	defer func() { r.bytes.ReserveN(time.Now(), int(min(meter.ListBytes(), readBytesBurst))) }()
	one := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(), Limit: 1}
	_, err := meter.List(ctx, one,
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := r.client.List(ctx, o)
			if err == nil && (list.GetContinue() != "" || len(list.Items) > 1) {
				return nil, errManyCRDs
			}
			return list, err
		},
		func(obj any) (watch.Small, error) {
			u, is := obj.(*unstructured.Unstructured)
			if !is {
				return watch.Small{}, fmt.Errorf("a list of CRDs contains a %T", obj)
			}
			if u.GetName() != name {
				return watch.Small{}, nil
			}
			out = u
			return watch.Small{}, checkIdentity(u) // the UID and the version are kept
		})
	if err != nil {
		return nil, fmt.Errorf("reading CRD %s: %w", name, err)
	}
	return out, nil
}

// later schedules a retry with backoff. If the error is not transient, the CRD counts as unreadable, with the cause. A
// cause is logged when it changes.
func (r *crdReader) later(ctx context.Context, item crdItem, err error) {
	r.mu.Lock()
	before := r.retries[item.Name]
	now := retry{backoff: before.backoff}
	now.backoff.Failed(time.Now(), firstReadDelay, maxReadDelay)
	var isNew, changed bool
	if err != nil {
		cause := apply.Classify(err, "list", crdResource().GroupResource())
		now.text = cause.String()
		isNew = now.text != before.text
		if !cause.Class().IsTransient() {
			changed = r.setUnreadable(item, now.text)
		}
	}
	r.retries[item.Name] = now
	r.mu.Unlock()
	if isNew {
		logr.FromContextOrDiscard(ctx).Info("Reading a CRD failed, retrying with backoff", "crd", item.Name, "err", err.Error())
	}
	if isNew || changed {
		r.changed()
	}
}

// setUnreadable records that a CRD cannot be read, and reports whether that is new for this generation of it. The
// caller holds r.mu.
func (r *crdReader) setUnreadable(item crdItem, why string) bool {
	known := r.readings[item.Name]
	if known.content == crds.Unreadable && known.uid == item.UID && known.generation == item.Generation && known.why == why {
		return false
	}
	r.readings[item.Name] = reading{uid: item.UID, generation: item.Generation, content: crds.Unreadable, why: why}
	return true
}

// weigh returns the facts about a CRD that are kept.
func (r *crdReader) weigh(u *unstructured.Unstructured) reading {
	got := reading{uid: u.GetUID(), generation: u.GetGeneration(), version: u.GetResourceVersion(), content: crds.Read}
	var err error
	if got.definition, err = crds.DefinitionOf(u); err == nil {
		err = checkDefinition(got.definition)
	}
	if err == nil && r.crds.wanted[u.GetName()] {
		got.difference, err = r.compare(u, got.definition)
	}
	if err == nil {
		got.searches = searchesFor(u, got.definition, got.difference.Lost, r.crds.covers(u.GetName(), got.definition))
	}
	if err != nil {
		got.content, got.why = crds.Unreadable, answer.Brief(err).Error()
		got.definition, got.difference = crds.Definition{}, crds.Difference{}
	}
	return got
}

// compare compares a CRD with the one that hypergate would install. It parses the latter only if the two are not
// known to be equal.
func (r *crdReader) compare(u *unstructured.Unstructured, installed crds.Definition) (crds.Difference, error) {
	ours, known := r.ours[u.GetName()]
	var wanted *unstructured.Unstructured
	if !known {
		var err error
		if wanted, err = r.wantedCRD(u.GetName()); err != nil {
			return crds.Difference{}, err
		}
		if ours, err = crds.DefinitionOf(wanted); err != nil {
			return crds.Difference{}, err
		}
		r.ours[u.GetName()] = ours
	}
	strangeVersion := func(name string) bool { return !slices.Contains(ours.Served, name) }
	if installed.Hash == ours.Hash && !slices.ContainsFunc(installed.Stored, strangeVersion) {
		return crds.Difference{}, nil
	}
	if wanted == nil {
		var err error
		if wanted, err = r.wantedCRD(u.GetName()); err != nil {
			return crds.Difference{}, err
		}
	}
	return crds.Compare(u, wanted)
}

// wantedCRD returns the CRD that hypergate would install.
func (r *crdReader) wantedCRD(name string) (*unstructured.Unstructured, error) {
	if bundle := crds.GatewayAPI(); bundle.Has(name) {
		return bundle.Object(name)
	}
	list, err := desired.IstioCRDs(r.source, []string{name})
	if err != nil {
		return nil, err
	}
	return list[0], nil
}
