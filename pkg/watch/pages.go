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

// ListFunc reads a list, or a page of it.
type ListFunc func(context.Context, metav1.ListOptions) (runtime.Object, error)

// ShrinkFunc leaves of an object what is kept.
type ShrinkFunc func(obj any) (Small, error)

// Small is an object of which only what is kept is left.
type Small struct {
	metav1.Object
	Kept any
}

// GetObjectKind is empty.
func (Small) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns the same object: what is kept is not changed.
func (s Small) DeepCopyObject() runtime.Object { return s }

// List reads a list within the bounds, page by page. Each object is shrunk before the next page is read: client-go's own pager would hold all of
// them whole.
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

func (m *Meter) pages(ctx context.Context, c *charge, o metav1.ListOptions, list ListFunc, shrink ShrinkFunc) (*internalversion.List, error) {
	if o.ResourceVersion == "0" {
		o.ResourceVersion = "" // the API server answers 0 from its cache, and then without pages
	}
	all := &internalversion.List{}
	for o.Limit = pageSize; ; {
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
		o.ResourceVersion, o.ResourceVersionMatch = "", "" // the token has them
	}
}

// asks notes how many objects the next page may have.
func (m *Meter) asks(c *charge, limit int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.page = limit
}

// tooLargePage reports whether a page was too large, and a smaller one may not be.
func (m *Meter) tooLargePage(c *charge) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.failed == nil || !c.failed.message {
		return false
	}
	c.failed = nil
	return true
}

// addPage adds what is kept of a page, and returns where the next one begins; empty after the last.
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
