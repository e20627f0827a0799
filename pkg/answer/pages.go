package answer

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrManyPages means that a list did not end within the number of its requests.
var ErrManyPages = errors.New("the list has too many pages")

// Pages is how a resource is listed in pages. The owners of objects decide how large these are, so a page of a fixed
// number of objects can exceed the limit of a list. They must not keep a caller from the other objects.
type Pages struct {
	// Size is the largest number of objects of a page.
	Size int64
	// Requests is how many requests list the resource, with those whose answer was too long.
	Requests int
}

// List calls request with the options of one page after another, until it returns no token for the next page. If an
// answer is too long, it requests a smaller page: the largest object that etcd stores fits on one. Pages then grow
// again, because only some objects are large. It returns the error of a request, or ErrManyPages.
func (p Pages) List(options metav1.ListOptions, request func(metav1.ListOptions) (next string, err error)) error {
	options.Limit = p.Size
	for range p.Requests {
		next, err := request(options)
		switch {
		case IsTooLong(err) && options.Limit > 1:
			options.Limit = max(options.Limit/5, 1)
		case err != nil:
			return err
		case next == "":
			return nil
		default:
			options.Continue, options.Limit = next, min(2*options.Limit, p.Size)
		}
	}
	return ErrManyPages
}
