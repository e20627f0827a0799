package answer_test

import (
	"errors"
	"slices"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/answer"
)

// TestPagesAreSmallerWhenTooLong checks the sizes of the pages that are requested, and that each object is listed once.
func TestPagesAreSmallerWhenTooLong(t *testing.T) {
	t.Parallel()
	other := errors.New("other")
	for name, test := range map[string]struct {
		objects, most int // a page with more objects is too long; 0: each page is
		failure       error
		limits        []int64
		want          error
	}{
		"one page":            {objects: 100, most: 100, limits: []int64{100}},
		"two pages":           {objects: 101, most: 100, limits: []int64{100, 100}},
		"smaller, and larger": {objects: 100, most: 30, limits: []int64{100, 20, 40, 8, 16, 32, 6, 12, 24, 48}},
		"single objects":      {objects: 3, most: 1, limits: []int64{100, 20, 4, 1, 2, 1, 2}},
		"too long":            {objects: 3, limits: []int64{100, 20, 4, 1}, want: &answer.TooLongError{}},
		"an error":            {objects: 3, failure: other, limits: []int64{100}, want: other},
		"too many":            {objects: 10_000, most: 200, limits: slices.Repeat([]int64{100}, 10), want: answer.ErrManyPages},
	} {
		var limits []int64
		found := 0
		err := answer.Pages{Size: 100, Requests: 10}.List(metav1.ListOptions{LabelSelector: "a"},
			func(o metav1.ListOptions) (string, error) {
				limits = append(limits, o.Limit)
				if o.LabelSelector != "a" || found > 0 && o.Continue != strconv.Itoa(found) {
					t.Errorf("%s: %+v after %d objects", name, o, found)
				}
				count := min(int(o.Limit), test.objects-found)
				if test.failure != nil {
					return "", test.failure
				}
				if count > test.most {
					return "", &answer.TooLongError{}
				}
				if found += count; found < test.objects {
					return strconv.Itoa(found), nil
				}
				return "", nil
			})
		same := errors.Is(err, test.want) || answer.IsTooLong(err) && answer.IsTooLong(test.want)
		if !slices.Equal(limits, test.limits) || !same || test.want == nil && found != test.objects {
			t.Errorf("%s: pages of %d, %d of %d objects, %v", name, limits, found, test.objects, err)
		}
	}
}
