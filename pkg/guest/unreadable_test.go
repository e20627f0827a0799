package guest

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hypergate/hypergate/pkg/crds"
)

// TestReadErrorsAreRecordedPerGeneration: the same error for another generation, or another CRD of the same name, is
// recorded again. Otherwise the CRD would count as not read yet, without an end.
func TestReadErrorsAreRecordedPerGeneration(t *testing.T) {
	changes := 0
	r := &crdReader{changed: func() { changes++ }, readings: map[string]reading{}, retries: map[string]retry{}}
	forbidden := apierrors.NewForbidden(crdResource().GroupResource(), "x", errors.New("no"))
	item := crdItem{}
	item.Name, item.UID, item.Generation = "x", "1", 1
	for _, step := range []struct {
		name string
		edit func()
		want int
	}{
		{"the first error", func() {}, 1},
		{"the same again", func() {}, 1},
		{"another generation", func() { item.Generation = 2 }, 2},
		{"another CRD", func() { item.UID = "2" }, 3},
		{"the same again", func() {}, 3},
	} {
		step.edit()
		r.later(t.Context(), item, forbidden)
		if got, known := r.reading(item); !known || got.content != crds.Unreadable || changes != step.want {
			t.Errorf("%s: known %t, content %v, %d changes, want %d", step.name, known, got.content, changes, step.want)
		}
	}
}
