package watch

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
)

var (
	_ cache.TransformingStore      = events{}
	_ cache.ResourceVersionUpdater = events{}
)

// events is the store that the reflector writes to. It keeps the copy and reports each change.
type events struct{ *Watch }

// Transformer returns the function that makes objects small before the reflector buffers them. The reflector calls it
// only while a list is streamed. shrink marks each object, so that no object is transformed twice.
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

// shrink makes an object small, and marks it as small.
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
	if err := e.changed(before, obj, obj); err != nil {
		return err
	}
	if err := e.store.Update(obj); err != nil {
		return fmt.Errorf("keeping an object of %s: %w", e.opts.Name, err)
	}
	e.opts.OnEvent(Event{Object: obj, Before: before})
	return nil
}

func (e events) Delete(obj any) error {
	obj, err := e.transform(obj)
	if err != nil {
		return err
	}
	before := e.before(obj)
	if err := e.changed(before, nil, obj); err != nil {
		return err
	}
	if err := e.store.Delete(obj); err != nil {
		return fmt.Errorf("forgetting an object of %s: %w", e.opts.Name, err)
	}
	e.opts.OnEvent(Event{Object: obj, Before: before, Gone: true})
	return nil
}

// changed counts the event of obj, before anything of it is kept.
func (e events) changed(before, after, obj any) error {
	identity, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Errorf("counting an object of %s: %w", e.opts.Name, err)
	}
	return e.meter.Changed(before, after, identity.GetResourceVersion())
}

// UpdateResourceVersion checks the version of each event, also of a bookmark, which has no object.
func (e events) UpdateResourceVersion(version string) { e.meter.Version(version) }

// before returns what was kept of an object until now, or nil if nothing was kept.
func (e events) before(obj any) any {
	before, _, _ := e.store.Get(obj)
	return before
}

// Replace stores a new list. An object of the old copy that the list does not have is gone, although no event showed
// it. If a list has a name twice, the last object counts, as in the store.
func (e events) Replace(list []any, resourceVersion string) error {
	kept, before := make([]any, 0, len(list)), make([]any, 0, len(list))
	places := map[string]int{}
	for _, obj := range list {
		obj, err := e.transform(obj)
		if err != nil {
			return err
		}
		key, err := cache.MetaNamespaceKeyFunc(obj)
		if err != nil {
			return fmt.Errorf("keeping an object of %s: %w", e.opts.Name, err)
		}
		if i, twice := places[key]; twice {
			kept[i] = obj
			continue
		}
		places[key] = len(kept)
		kept, before = append(kept, obj), append(before, e.before(obj))
	}
	gone := e.missing(places)
	wasOver := e.meter.Over() != nil
	if err := e.meter.Listed(resourceVersion); err != nil {
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

// missing returns the kept objects that a new list does not have. places has the keys of the list.
func (e events) missing(places map[string]int) []any {
	var gone []any
	for _, key := range e.store.ListKeys() {
		if _, listed := places[key]; listed {
			continue
		}
		if old, found, _ := e.store.GetByKey(key); found {
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
