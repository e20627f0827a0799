package guest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/watch"
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
		if !r.turns.Allow(now) {
			t.Fatalf("reading %d: the rate limit allows no read after the wait", readings)
		}
		readings++
	}
	// A reading parses a whole CRD of up to 1.5 MiB. More than these would take a large part of a core.
	if readings < 100 || readings > 200 {
		t.Errorf("%d readings in a minute, want 100 to 200", readings)
	}
}

// readerOf returns a reader of the CRDs of an API server.
func readerOf(t *testing.T, answer http.HandlerFunc) *crdReader {
	t.Helper()
	config := apiServer(t, answer)
	config.QPS = -1
	config.Wrap(limitStreams)
	return newCRDReader(dynamic.NewForConfigOrDie(config), watch.NewBudget(watch.DefaultLimits()), nil, nil, func() {})
}

const listOfCRDs = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinitionList","metadata":{"continue":%q},"items":[%s]}`

func bodyOfCRD(bytes int) string {
	return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"a.example.com"},"x":"` +
		strings.Repeat("x", bytes) + `"}`
}

// TestAReadOfACRDHasOneAnswer checks that an answer with a further page, or with a second object, ends the read.
func TestAReadOfACRDHasOneAnswer(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"a further page":  fmt.Sprintf(listOfCRDs, "more", bodyOfCRD(1)),
		"a second object": fmt.Sprintf(listOfCRDs, "", bodyOfCRD(1)+","+bodyOfCRD(1)),
	} {
		var requests atomic.Int64
		r := readerOf(t, func(w http.ResponseWriter, request *http.Request) {
			requests.Add(1)
			if limit := request.URL.Query().Get("limit"); limit != "1" {
				t.Errorf("%s: a list of up to %q objects", name, limit)
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, body)
		})
		if _, err := r.fetch(t.Context(), "a.example.com"); !errors.Is(err, errManyCRDs) || requests.Load() != 1 {
			t.Errorf("%s: %v after %d requests", name, err, requests.Load())
		}
	}
}

// TestALongIdentityOfACRDIsNotKept checks that a CRD whose UID or version is too long is not read: both would be kept.
func TestALongIdentityOfACRDIsNotKept(t *testing.T) {
	t.Parallel()
	for identity, want := range map[string]bool{
		`"uid":"` + strings.Repeat("u", maxUID) + `","resourceVersion":"` + strings.Repeat("9", maxIdentity) + `"`: true,
		`"uid":"` + strings.Repeat("u", maxUID+1) + `"`:                                                            false,
		`"resourceVersion":"` + strings.Repeat("9", maxIdentity+1) + `"`:                                           false,
	} {
		r := readerOf(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, listOfCRDs, "", strings.Replace(bodyOfCRD(1), `"name"`, identity+`,"name"`, 1))
		})
		u, err := r.fetch(t.Context(), "a.example.com")
		if (u != nil && err == nil) != want || !want && !strings.Contains(err.Error(), "the API server returned an object whose ") {
			t.Errorf("%s: %v", identity, err)
		}
	}
}

// TestBytesOfReadsAreLimited reads a CRD of 1 MiB until the next read has to wait. Each read has a meter of its own.
// The limit barely refills in the test, so the result does not depend on the time that reads take.
func TestBytesOfReadsAreLimited(t *testing.T) {
	t.Parallel()
	body := fmt.Sprintf(listOfCRDs, "", bodyOfCRD(1<<20))
	r := readerOf(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	})
	if got := r.bytes.Limit(); got != readBytesRate {
		t.Errorf("%v bytes are allowed in a second, want %d", got, readBytesRate)
	}
	r.bytes.SetLimit(1)
	const allowed = readBytesBurst >> 20
	reads := 0
	for ; reads <= allowed && r.turn(time.Now()) == 0; reads++ {
		if _, err := r.fetch(t.Context(), "a.example.com"); err != nil {
			t.Fatal(err)
		}
	}
	if reads != allowed {
		t.Errorf("%d reads of 1 MiB in a row, want %d", reads, allowed)
	}
}
