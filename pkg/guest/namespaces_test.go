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
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/hypergate/hypergate/pkg/answer"
	"github.com/hypergate/hypergate/pkg/guestconn"
)

// annotationHere is the placeholder for an annotation.
const annotationHere = "annotation-here"

// manyNamespaces serves lists of namespaces page by page, as an API server does. Each namespace has an annotation of
// the given size. With endless, there is always another page. page limits the size of a page below the requested
// limit. With refuses, each request is forbidden.
type manyNamespaces struct {
	count, annotation, page int
	endless, refuses        bool

	requests, largest atomic.Int64
	problem           atomic.Pointer[string]
}

func (m *manyNamespaces) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.requests.Add(1)
	if m.refuses {
		http.Error(w, "no", http.StatusForbidden)
		return
	}
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
		"as large as they may be": { // pages of 500, 100, 40 and 32 are too long; seven pages of 6 to 24 are not
			&manyNamespaces{count: 100, annotation: 256 << 10}, "x", namespaces{kubeSystem: "uid-50"}, nil, 11,
		},
		"as many pages as are looked at": {
			&manyNamespaces{count: 3 * namespacePages, page: 3}, "x", namespaces{kubeSystem: "uid-300"}, nil, namespacePages,
		},
		"one more": {
			&manyNamespaces{count: 3*namespacePages + 1, page: 3}, "x", namespaces{}, errManyNamespaces, namespacePages,
		},
		"without an end": {&manyNamespaces{endless: true}, "x", namespaces{}, errManyNamespaces, namespacePages},
		"too large":      {&manyNamespaces{count: 4, annotation: 9 << 20}, "x", namespaces{}, nil, 5},
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

// TestLooksAtNamespacesAreSpacedOut checks the delays: up to 10 s, and up to five minutes after many pages and after a
// look that found the namespace. There is none for another session. Until the delay is over, the last result counts.
func TestLooksAtNamespacesAreSpacedOut(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for name, tc := range map[string]struct {
		found   namespaces
		err     error
		longest time.Duration
	}{
		"it failed":               {namespaces{pages: 1}, failed, 10 * time.Second},
		"it failed later":         {namespaces{pages: 2}, failed, 5 * time.Minute},
		"another cluster":         {namespaces{pages: 1, kubeSystem: "1"}, nil, 10 * time.Second},
		"another, many pages":     {namespaces{pages: 2, kubeSystem: "1"}, nil, 5 * time.Minute},
		"the same cluster":        {namespaces{pages: 1, has: true}, nil, 5 * time.Minute},
		"it could not begin":      {namespaces{}, failed, 10 * time.Second},
		"the same, on a far page": {namespaces{pages: 9, has: true}, nil, 5 * time.Minute},
	} {
		var l namespaceLooks
		now, looks := time.Unix(0, 0), 0
		look := func(session uint64, uid types.UID) {
			t.Helper()
			found, err := l.look(session, uid, func() time.Time { return now }, func() (namespaces, error) {
				looks++
				return tc.found, tc.err
			})
			if found != tc.found || !errors.Is(err, tc.err) {
				t.Errorf("%s: %+v, %v", name, found, err)
			}
		}
		want := 0
		expect := func(when string) {
			t.Helper()
			if looks != want {
				t.Fatalf("%s: %d looks %s, want %d", name, looks, when, want)
			}
		}
		for delay := time.Second; delay < 2*tc.longest; delay *= 2 {
			look(1, "x")
			want++
			expect("when one was due")
			now = now.Add(min(delay, tc.longest) - 1)
			look(1, "x")
			expect("just before one is due")
			now = now.Add(1)
		}
		for _, other := range []struct {
			session uint64
			uid     types.UID
		}{{2, "x"}, {2, "y"}, {1, "y"}} {
			look(other.session, other.uid)
			want++
			expect("in another session, or for another UID")
			now = now.Add(firstLookDelay - 1)
			look(other.session, other.uid)
			expect("before its first delay is over")
		}
	}
}

// TestARefusedKubeconfigIsNotLookedAtEachTime checks with a clock of its own how many requests a guest gets whose
// kubeconfig is refused: four in the first ten seconds, and then one in ten, or fewer. Here the connection asks once a
// second. Another kubeconfig is looked at immediately.
func TestARefusedKubeconfigIsNotLookedAtEachTime(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		guest *manyNamespaces
		uid   types.UID
		// minute is the number of looks in a minute, and pages the number of requests of one look.
		minute, pages int64
	}{
		"it answers badly":        {&manyNamespaces{refuses: true}, "x", 9, 1},
		"it is another guest":     {&manyNamespaces{count: 4}, "x", 9, 1},
		"another one, many pages": {&manyNamespaces{count: 4, page: 2}, "x", 6, 2},
		"it is the management's":  {&manyNamespaces{count: 4}, "uid-3", 6, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := apiServer(t, tc.guest.ServeHTTP)
			config.QPS = -1
			now := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
			candidates := NewCandidates(now)
			ask := func(number uint64) {
				t.Helper()
				found, identity, err := candidates.HasNamespace(t.Context(), guestconn.Candidate{Config: config, Number: number}, tc.uid)
				if bad := tc.guest.refuses; found != (tc.uid != "x") || bad != (err != nil) || bad != (identity == "") {
					t.Errorf("%t, %q, %v", found, identity, err)
				}
			}
			for range 60 {
				ask(1)
				now.SetTime(now.Now().Add(time.Second))
			}
			if got, want := tc.guest.requests.Load(), tc.minute*tc.pages; got != want {
				t.Errorf("%d requests in a minute, want %d", got, want)
			}
			ask(2)
			if got, want := tc.guest.requests.Load(), (tc.minute+1)*tc.pages; got != want {
				t.Errorf("%d requests after another kubeconfig, want %d", got, want)
			}
		})
	}
}
