package guest

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/crds"
)

// TestReadsOfAChangingCRDAreRateLimited checks that a CRD that changes all the time is read readBurst times in a row,
// and then once in readEvery. A call of dueOf does not count against the limit.
func TestReadsOfAChangingCRDAreRateLimited(t *testing.T) {
	t.Parallel()
	client, err := dynamic.NewForConfig(&rest.Config{Host: "https://nowhere.invalid"})
	if err != nil {
		t.Fatal(err)
	}
	r := newCRDReader(client, nil, nil, nil, func() {})
	began := time.Now()
	now := began
	readings := 0
	for version := 0; now.Sub(began) < time.Minute; version++ {
		item := crdItem{
			ObjectMeta: metav1.ObjectMeta{Name: "a.example.com", UID: "1", ResourceVersion: fmt.Sprint(version)},
			marks:      &crds.Metadata{},
		}
		for range 3 {
			if _, wait, due := r.dueOf([]crdItem{item}, now); !due || wait > readEvery {
				t.Fatalf("due %t in %s", due, wait)
			}
		}
		_, wait, _ := r.dueOf([]crdItem{item}, now)
		now = now.Add(wait)
		if !r.turns.AllowN(now, 1) {
			t.Fatalf("reading %d: the rate limit allows no read after the wait", readings)
		}
		readings++
	}
	// A reading parses a whole CRD of up to 1.5 MiB. More than these would take a large part of a core.
	if readings < 100 || readings > 200 {
		t.Errorf("%d readings in a minute, want 100 to 200", readings)
	}
}
