package guest

import (
	"context"
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
	"github.com/hypergate/hypergate/pkg/watch"
)

// Times of the reader. An installation makes three events for each CRD, and must not compete with the reading of what it writes.
const (
	quietTime      = 250 * time.Millisecond
	maxQuietTime   = 2 * time.Second
	readTimeout    = 15 * time.Second
	firstReadDelay = time.Second
	maxReadDelay   = 30 * time.Second
)

// How many CRDs are read in a row, and how often after that. A CRD that the guest changes all the time would otherwise be read all the time, which
// takes a whole processor. An installation or an upgrade reads each of 20 CRDs two or three times.
const (
	readBurst = 128
	readEvery = time.Second
)

// crdReader reads CRDs whole, one after another, when they have changed, and keeps what is weighed of them: some hundred bytes of each, and a few
// kilobytes of one that differs from ours. It makes no request while nothing changes.
type crdReader struct {
	client dynamic.NamespaceableResourceInterface
	budget *watch.Budget
	source desired.ChartSource
	crds   *crdView
	// changed is called when a CRD was read.
	changed func()
	kick    chan struct{}
	turns   *rate.Limiter
	// ours are the CRDs that we would install, as far as they were needed: only the reader's goroutine uses it.
	ours map[string]crds.Definition

	// mu guards what follows.
	mu       sync.Mutex
	readings map[string]reading
	// last is when a CRD changed last, first when one changed that was not read since. retries are the CRDs that could not be read.
	last, first time.Time
	retries     map[string]retry
}

// reading is what was read of a CRD.
type reading struct {
	uid        types.UID
	generation int64
	// version is the resourceVersion of what was read, asked the one for which it was.
	version, asked string
	content        crds.Content
	definition     crds.Definition
	difference     crds.Difference
	why            string
}

// retry is when to try again.
type retry struct {
	at    time.Time
	delay time.Duration
	// text is what was logged.
	text string
}

func newCRDReader(client dynamic.Interface, budget *watch.Budget, source desired.ChartSource, view *crdView, changed func()) *crdReader {
	return &crdReader{
		client: client.Resource(crdResource()), budget: budget, source: source, crds: view, changed: changed, kick: make(chan struct{}, 1),
		turns: rate.NewLimiter(rate.Every(readEvery), readBurst),
		ours:  map[string]crds.Definition{}, readings: map[string]reading{}, retries: map[string]retry{},
	}
}

// reading is what a CRD says, if that is known. Its metadata may have changed since it was read, its spec has not.
func (r *crdReader) reading(item crdItem) (reading, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	got, known := r.readings[item.Name]
	return got, known && got.uid == item.UID && got.generation == item.Generation
}

// latest is what was read last of a CRD; its spec may have changed since.
func (r *crdReader) latest(item crdItem) (reading, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	got, known := r.readings[item.Name]
	return got, known && got.uid == item.UID
}

// look says that a CRD has changed.
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

// run reads until ctx ends.
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

// sleep waits for a change, or until something is due. It says whether ctx goes on.
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

// next is the CRD that should be read next, and how long to wait before; false when there is none.
func (r *crdReader) next() (item crdItem, wait time.Duration, due bool) {
	return r.dueOf(r.crds.readable(), time.Now())
}

// dueOf is next, of the CRDs that are there.
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
		w := max(quiet, r.retries[candidate.Name].at.Sub(now))
		if !due || w < wait {
			item, wait, due = candidate, w, true
		}
	}
	if !due {
		r.first = time.Time{}
	}
	return item, max(wait, r.turn(now)), due
}

// turn is how long it is until a CRD may be read. To ask takes no turn.
func (r *crdReader) turn(now time.Time) time.Duration {
	turn := r.turns.ReserveN(now, 1)
	defer turn.CancelAt(now)
	return turn.DelayFrom(now)
}

// forget lets go what was known of CRDs that are gone.
func (r *crdReader) forget(there []crdItem) {
	gone := func(name string) bool {
		return !slices.ContainsFunc(there, func(item crdItem) bool { return item.Name == name })
	}
	maps.DeleteFunc(r.readings, func(name string, _ reading) bool { return gone(name) })
	maps.DeleteFunc(r.retries, func(name string, _ retry) bool { return gone(name) })
}

// read reads one CRD.
func (r *crdReader) read(ctx context.Context, item crdItem) {
	r.turns.Allow()
	u, err := r.fetch(ctx, item.Name)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		r.later(ctx, item, err)
		return
	case u == nil:
		r.later(ctx, item, nil) // it is gone, and the watch is about to say so
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

// fetch is the CRD as it is now, or nil. It is a list with one name, because that needs no permission beyond the one to list CRDs.
func (r *crdReader) fetch(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var out *unstructured.Unstructured
	meter := r.budget.Meter("CRD " + name)
	defer meter.Close()
	_, err := meter.List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()},
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return r.client.List(ctx, o) },
		func(obj any) (watch.Small, error) {
			u, is := obj.(*unstructured.Unstructured)
			if !is {
				return watch.Small{}, fmt.Errorf("a list of CRDs has a %T", obj)
			}
			if u.GetName() == name {
				out = u
			}
			return watch.Small{}, nil
		})
	if err != nil {
		return nil, fmt.Errorf("reading CRD %s: %w", name, err)
	}
	return out, nil
}

// maxDefinition is how many bytes the texts may have that are kept of a CRD: names, versions, and why it is not served. The API server allows
// 253 for a name. Beyond it the CRD counts as unreadable.
const maxDefinition = 64 << 10

func checkDefinition(d crds.Definition) error {
	n := len(d.Group) + len(d.Kind) + len(d.Plural) + len(d.Why)
	for _, name := range slices.Concat(d.Served, d.Stored) {
		n += len(name) + stringSize
	}
	if n > maxDefinition {
		return fmt.Errorf("its names, versions and conditions have more than %d KiB", maxDefinition>>10)
	}
	return nil
}

// later tries again after a while. What cannot be read because of what somebody must mend counts as unreadable, and the cause is told.
func (r *crdReader) later(ctx context.Context, item crdItem, err error) {
	r.mu.Lock()
	before := r.retries[item.Name]
	now := retry{delay: min(max(2*before.delay, firstReadDelay), maxReadDelay)}
	now.at = time.Now().Add(now.delay)
	var told bool
	if err != nil {
		cause := apply.Classify(err, "list", crdResource().GroupResource())
		now.text = cause.String()
		if told = now.text != before.text; told && !cause.Class().IsTransient() {
			r.readings[item.Name] = reading{uid: item.UID, generation: item.Generation, content: crds.Unreadable, why: cause.String()}
		}
	}
	r.retries[item.Name] = now
	r.mu.Unlock()
	if told {
		logr.FromContextOrDiscard(ctx).Info("A CRD could not be read, and is tried again", "crd", item.Name, "err", err.Error())
		r.changed()
	}
}

// weigh takes from a CRD what is kept of it.
func (r *crdReader) weigh(u *unstructured.Unstructured) reading {
	got := reading{uid: u.GetUID(), generation: u.GetGeneration(), version: u.GetResourceVersion(), content: crds.Read}
	var err error
	if got.definition, err = crds.DefinitionOf(u); err == nil {
		err = checkDefinition(got.definition)
	}
	if err == nil && r.crds.wanted[u.GetName()] {
		got.difference, err = r.compare(u, got.definition)
	}
	if err != nil {
		got.content, got.why = crds.Unreadable, answer.Brief(err).Error()
		got.definition, got.difference = crds.Definition{}, crds.Difference{}
	}
	return got
}

// compare compares a CRD with the one that we would install, which is parsed only if the two are not known to be the same.
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

// wantedCRD is the CRD that we would install.
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
