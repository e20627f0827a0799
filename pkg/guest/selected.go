package guest

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/hypergate/hypergate/pkg/watch"
)

// selectedWatch returns the options of a watch of a resource that have its name and its requests. The requests are for
// the objects that selected matches, by labels, fields, or both. The caller adds everything else.
func selectedWatch[L runtime.Object](resource string, client interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error)
}, selected metav1.ListOptions,
) watch.Options {
	return watch.Options{
		Name: resource,
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector, o.LabelSelector = selected.FieldSelector, selected.LabelSelector
			return client.List(ctx, o)
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.FieldSelector, o.LabelSelector = selected.FieldSelector, selected.LabelSelector
			return client.Watch(ctx, o)
		},
	}
}

// keeps returns the transformation of a watch of untyped objects, which keeps what keep returns. FuzzWatched has a row
// for each.
func keeps[K metav1.Object](keep func(*unstructured.Unstructured) K) func(any) (any, error) {
	return func(obj any) (any, error) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj, nil
		}
		return keep(u), nil
	}
}

// named selects the object with a name.
func named(name string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: "metadata.name=" + name}
}
