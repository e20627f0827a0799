package guest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/answer"
)

// annotationHere is the placeholder for an annotation.
const annotationHere = "annotation-here"

// manyNamespaces serves lists of namespaces page by page, as an API server does. Each namespace has an annotation of
// the given size. With endless, there is always another page. page limits the size of a page below the requested
// limit.
type manyNamespaces struct {
	count, annotation, page int
	endless                 bool

	requests, largest atomic.Int64
	problem           atomic.Pointer[string]
}

func (m *manyNamespaces) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.requests.Add(1)
	query := r.URL.Query()
	limit, _ := strconv.Atoi(query.Get("limit"))
	from, _ := strconv.Atoi(query.Get("continue"))
	switch {
	case r.Method != http.MethodGet || r.URL.Path != "/api/v1/namespaces" || len(query["fieldSelector"]) > 0:
		m.problem.Store(new(r.Method + " " + r.URL.String()))
	case !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList"):
		m.problem.Store(new("Accept: " + r.Header.Get("Accept")))
	case limit == 0:
		m.problem.Store(new("a list without a limit"))
	}
	if m.page > 0 {
		limit = min(limit, m.page)
	}
	page := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}}
	for i := from; i < min(from+limit, m.count); i++ {
		ns := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("ns-", i), UID: types.UID(fmt.Sprint("uid-", i))}}
		if i == m.count/2 {
			ns.Name = metav1.NamespaceSystem
		}
		if m.annotation > 0 {
			ns.Annotations = map[string]string{"a": annotationHere}
		}
		page.Items = append(page.Items, ns)
	}
	if from+limit < m.count || m.endless {
		page.Continue = strconv.Itoa(from + limit)
	}
	body, err := json.Marshal(page)
	if err != nil {
		m.problem.Store(new(err.Error()))
	}
	// Encoding it would take most of the test's time.
	body = bytes.ReplaceAll(body, []byte(annotationHere), bytes.Repeat([]byte("x"), m.annotation))
	m.largest.Store(max(m.largest.Load(), int64(len(body))))
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

// TestNamespacesAreListedInPages checks that the listing ends and holds little memory, for any number and size
// of namespaces.
func TestNamespacesAreListedInPages(t *testing.T) {
	for name, tc := range map[string]struct {
		guest *manyNamespaces
		uid   types.UID
		want  namespaces
		err   error
		// most is the maximum number of requests.
		most int64
	}{
		"none":                {&manyNamespaces{}, "x", namespaces{}, nil, 1},
		"few":                 {&manyNamespaces{count: 4}, "x", namespaces{kubeSystem: "uid-2"}, nil, 1},
		"few, one is the one": {&manyNamespaces{count: 4}, "uid-3", namespaces{has: true, kubeSystem: "uid-2"}, nil, 1},
		"20,000":              {&manyNamespaces{count: 20_000}, "x", namespaces{kubeSystem: "uid-10000"}, nil, 40},
		"20,000, the last one is it": {
			&manyNamespaces{count: 20_000}, "uid-19999", namespaces{has: true, kubeSystem: "uid-10000"}, nil, 40,
		},
		"20,000, the first one is": {&manyNamespaces{count: 20_000}, "uid-0", namespaces{has: true}, nil, 1},
		"as large as they may be": { // pages of 500 and of 100 are too long; five pages of 20 are not
			&manyNamespaces{count: 100, annotation: 256 << 10}, "x", namespaces{kubeSystem: "uid-50"}, nil, 2 + 100/20,
		},
		"as many pages as are looked at": {
			&manyNamespaces{count: 3 * namespacePages, page: 3}, "x", namespaces{kubeSystem: "uid-300"}, nil, namespacePages,
		},
		"one more": {
			&manyNamespaces{count: 3*namespacePages + 1, page: 3}, "x", namespaces{}, errManyNamespaces, namespacePages,
		},
		"without an end": {&manyNamespaces{endless: true}, "x", namespaces{}, errManyNamespaces, namespacePages},
		"too large":      {&manyNamespaces{count: 4, annotation: 3 << 20}, "x", namespaces{}, nil, 4},
	} {
		t.Run(name, func(t *testing.T) {
			config := apiServer(t, tc.guest.ServeHTTP)
			config.QPS = -1
			client, err := namespaceClient(config)
			if err != nil {
				t.Fatal(err)
			}
			got, err := lookAtNamespaces(t.Context(), client, tc.uid)
			if tooLong := name == "too large"; !tooLong && got.pages == 0 || int64(got.pages) != tc.guest.requests.Load() {
				t.Errorf("%d pages were counted for %d requests", got.pages, tc.guest.requests.Load())
			}
			got.pages = 0
			tooLong := name == "too large"
			if got != tc.want || answer.IsTooLong(err) != tooLong || !tooLong && !errors.Is(err, tc.err) {
				t.Errorf("%+v, %v; want %+v, %v", got, err, tc.want, tc.err)
			}
			if n := tc.guest.requests.Load(); n > tc.most {
				t.Errorf("%d requests, want at most %d", n, tc.most)
			}
			if problem := tc.guest.problem.Load(); problem != nil {
				t.Error(*problem)
			}
		})
	}
}

// TestLooksAtNamespacesThatFailAreSpacedOut checks the delays: up to 10 s, up to five minutes after many pages, and
// none for another session.
func TestLooksAtNamespacesThatFailAreSpacedOut(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for pages, longest := range map[int]time.Duration{1: 10 * time.Second, 2: 5 * time.Minute} {
		var l namespaceLooks
		now := time.Unix(0, 0)
		for delay := time.Second; delay < 2*longest; delay *= 2 {
			if err := l.waits(1, now); err != nil {
				t.Fatal(err)
			}
			l.ended(1, pages, failed, now)
			now = now.Add(min(delay, longest) - 1)
			if err := l.waits(1, now); !errors.Is(err, failed) {
				t.Errorf("%d pages: %v before %s are over", pages, err, min(delay, longest))
			}
			if err := l.waits(2, now); err != nil {
				t.Errorf("another session waits: %v", err)
			}
			now = now.Add(1)
		}
		l.ended(1, 1, nil, now)
		if err := l.waits(1, now); err != nil {
			t.Errorf("after a look that worked: %v", err)
		}
	}
}
