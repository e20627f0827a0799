package watch

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// OpenFunc opens a watch.
type OpenFunc func(context.Context, metav1.ListOptions) (apiwatch.Interface, error)

// ListFunc reads a list, or a page of a list.
type ListFunc func(context.Context, metav1.ListOptions) (runtime.Object, error)

// ShrinkFunc reduces an object to what is kept of it.
type ShrinkFunc func(obj any) (Small, error)

// Small is an object reduced to what is kept of it.
type Small struct {
	metav1.Object
	Kept any
}

// GetObjectKind returns an empty kind.
func (Small) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns the same object, because what is kept does not change.
func (s Small) DeepCopyObject() runtime.Object { return s }

// List reads a list within the limits, page by page, with at most o.Limit objects in a page if that is set. It shrinks
// each object before it reads the next page. The pager of client-go would hold all objects unshrunk.
func (m *Meter) List(ctx context.Context, o metav1.ListOptions, list ListFunc, shrink ShrinkFunc) (runtime.Object, error) {
	if m == nil {
		return list(ctx, o)
	}
	ctx, c, err := m.begin(ctx, true)
	if err != nil {
		return nil, err
	}
	all, err := m.pages(ctx, c, o, list, shrink)
	if err := c.end(err); err != nil {
		return nil, err
	}
	return all, nil
}

func (m *Meter) pages(
	ctx context.Context, c *charge, o metav1.ListOptions, list ListFunc, shrink ShrinkFunc,
) (*internalversion.List, error) {
	if o.ResourceVersion == "0" {
		o.ResourceVersion = "" // the API server answers 0 from its cache, without pages
	}
	all := &internalversion.List{}
	if o.Limit <= 0 || o.Limit > pageSize {
		o.Limit = pageSize
	}
	for {
		m.asks(c, o.Limit)
		page, err := list(ctx, o)
		switch {
		case m.tooLargePage(c):
			o.Limit = max(1, o.Limit/8)
			continue
		case err != nil:
			return nil, err
		}
		if o.Continue, err = m.addPage(all, page, shrink); err != nil || o.Continue == "" {
			return all, err
		}
		if err := m.read(c, leastPage); err != nil {
			return nil, err
		}
		o.ResourceVersion, o.ResourceVersionMatch = "", "" // the continue token has them
	}
}

// asks records the maximum number of objects of the next page.
func (m *Meter) asks(c *charge, limit int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.page = limit
}

// tooLargePage reports whether a page was too large and a smaller page can be within the limit.
func (m *Meter) tooLargePage(c *charge) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.failed == nil || !c.failed.message {
		return false
	}
	c.failed = nil
	return true
}

// addPage adds what is kept of a page. It returns the continue token of the next page, or "" after the last page.
func (m *Meter) addPage(all *internalversion.List, page runtime.Object, shrink ShrinkFunc) (string, error) {
	list, err := meta.ListAccessor(page)
	if err != nil {
		return "", fmt.Errorf("reading a list of %s: %w", m.name, err)
	}
	if all.ResourceVersion == "" {
		all.ResourceVersion = list.GetResourceVersion()
	}
	return list.GetContinue(), meta.EachListItemWithAlloc(page, func(obj runtime.Object) error {
		small, err := shrink(obj)
		if err == nil {
			m.Adding(small.Kept)
			all.Items = append(all.Items, small)
		}
		return err
	})
}
