package watch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/watch"
	"github.com/hypergate/hypergate/test/hang"
)

// liar is an API server whose responses a test defines.
type liar struct {
	*httptest.Server
	mu       sync.Mutex
	requests []url.Values
	answer   func(w http.ResponseWriter, r *http.Request, n int)
}

func newLiar(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, n int)) *liar {
	t.Helper()
	l := &liar{answer: answer}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		l.requests = append(l.requests, r.URL.Query())
		n := len(l.requests)
		l.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		l.answer(w, r, n)
	}))
	t.Cleanup(l.Close)
	return l
}

// newStreamingLiar returns a liar that serves only streamed lists. After its response the stream stays open.
func newStreamingLiar(t *testing.T, answer func(w http.ResponseWriter, n int)) *liar {
	t.Helper()
	return newLiar(t, func(w http.ResponseWriter, r *http.Request, n int) {
		if r.URL.Query().Get("sendInitialEvents") != "true" {
			http.Error(w, "no", http.StatusInternalServerError)
			return
		}
		answer(w, n)
		<-r.Context().Done()
	})
}

func (l *liar) asked() []url.Values {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]url.Values(nil), l.requests...)
}

// counting is the transport of a metered watch.
type counting struct{ http.RoundTripper }

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.RoundTripper.RoundTrip(r)
	if err == nil && response.StatusCode < http.StatusBadRequest {
		response.Body = watch.LimitBody(r, response.Body)
	}
	return response, err
}

// item is what a test keeps of an object.
type item struct {
	metav1.ObjectMeta
	kept int
}

func (i *item) KeptBytes() int { return i.kept }

// options returns the options of a watch of the ConfigMaps of the liar.
func (l *liar) options(t *testing.T, budget *watch.Budget) watch.Options {
	t.Helper()
	client, err := dynamic.NewForConfig(&rest.Config{
		Host: l.URL, QPS: -1, WrapTransport: func(next http.RoundTripper) http.RoundTripper { return counting{next} },
	})
	if err != nil {
		t.Fatal(err)
	}
	resource := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"})
	return watch.Options{
		Name: "configmaps", Example: &unstructured.Unstructured{}, Budget: budget,
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return resource.List(ctx, o) },
		Watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			return resource.Watch(ctx, o)
		},
		Transform: func(obj any) (any, error) {
			u := obj.(*unstructured.Unstructured)
			kept, _, _ := unstructured.NestedInt64(u.Object, "kept")
			return &item{metav1.ObjectMeta{Name: u.GetName(), ResourceVersion: u.GetResourceVersion()}, int(kept)}, nil
		},
	}
}

func object(i int, fields string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c%d","uid":"u%d","resourceVersion":"%d"}%s}`,
		i, i, i+1000, fields)
}

func event(kind string, i int, fields string) string {
	return `{"type":"` + kind + `","object":` + object(i, fields) + "}\n"
}

const listEnd = `{"type":"BOOKMARK","object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"resourceVersion":"9999",` +
	`"annotations":{"k8s.io/initial-events-end":"true"}}}}` + "\n"

// send writes text, and reports whether the client still reads.
func send(w http.ResponseWriter, text string) bool {
	_, err := io.WriteString(w, text)
	return err == nil && http.NewResponseController(w).Flush() == nil
}

// forever writes until the client no longer reads.
func forever(w http.ResponseWriter, text func(i int) string) {
	for i := 0; send(w, text(i)); i++ {
	}
}

// small returns limits that a test reaches soon, with a pause that lasts longer than the test.
func small() watch.Limits {
	l := watch.DefaultLimits()
	l.Message, l.MessageCost, l.ListBytes, l.LargeMessage = 64<<10, 256<<10, 512<<10, 32<<10
	l.Objects, l.KeptObject, l.Kept, l.KeptTotal = 1000, 4<<10, 512<<10, 600<<10
	l.Burst, l.Rate, l.FirstPause, l.MaxPause = 1<<20, 1, time.Hour, time.Hour
	return l
}

// limitCase is what an API server sends, and the limit that ends the attempt.
type limitCase struct {
	answer func(http.ResponseWriter, *http.Request, int)
	limits func(*watch.Limits)
	want   string
	synced bool
	most   int // requests, if not 0
}

// TestWatchLimits checks that each limit ends the attempt and is named in the error. No request
// follows before the pause is over.
func TestWatchLimits(t *testing.T) {
	t.Parallel()
	padding := strings.Repeat("x", 1<<10)
	streaming := func(answer func(w http.ResponseWriter)) func(http.ResponseWriter, *http.Request, int) {
		return func(w http.ResponseWriter, r *http.Request, _ int) {
			answer(w)
			<-r.Context().Done()
		}
	}
	checkLimit(t, map[string]limitCase{
		"a list without end": {
			answer: streaming(func(w http.ResponseWriter) {
				forever(w, func(i int) string { return event("ADDED", i%10, `,"data":{"a":"`+padding+`"}`) })
			}), want: "a list has more than 512 KiB",
		},
		"bookmarks without end": {
			answer: streaming(func(w http.ResponseWriter) {
				forever(w, func(int) string { return strings.Replace(listEnd, "initial-events-end", "something-else", 1) })
			}), want: "a list has more than 512 KiB",
		},
		"objects without end": {
			answer: streaming(func(w http.ResponseWriter) { forever(w, func(i int) string { return event("ADDED", i, "") }) }),
			want:   "there are more than 1000 objects",
		},
		"an event without end": {
			answer: streaming(func(w http.ResponseWriter) {
				send(w, `{"type":"ADDED","object":{"data":{"a":"`)
				forever(w, func(int) string { return padding })
			}), want: "one message has more than 64 KiB",
		},
		"white space without end": {
			answer: streaming(func(w http.ResponseWriter) { forever(w, func(int) string { return strings.Repeat(" \n", 512) }) }),
			want:   "one message has more than 64 KiB",
		},
		"an event that is small as JSON": {
			answer: streaming(func(w http.ResponseWriter) {
				send(w, event("ADDED", 1, `,"data":[`+strings.Repeat("{},", 10_000)+`{}]`))
				forever(w, func(int) string { return padding })
			}), want: "one message takes more than 256 KiB when it is decoded",
		},
		"an object of which much is kept": {
			answer: streaming(func(w http.ResponseWriter) {
				send(w, event("ADDED", 1, `,"kept":5000`))
			}), want: "what is kept of one object has more than 4 KiB",
		},
		"objects of which much is kept": {
			answer: streaming(func(w http.ResponseWriter) {
				forever(w, func(i int) string { return event("ADDED", i, `,"kept":3000`) })
			}),
			want: "what is kept of the objects has more than 512 KiB",
		},
		"a list that trickles": {
			answer: streaming(func(w http.ResponseWriter) {
				send(w, event("ADDED", 1, ""))
			}), limits: func(l *watch.Limits) { l.ListTime = 50 * time.Millisecond }, want: "a list does not end within 50ms",
		},
		"a list without any bytes": {
			answer: streaming(func(w http.ResponseWriter) { send(w, "") }),
			limits: func(l *watch.Limits) { l.ListTime = 50 * time.Millisecond }, want: "a list does not end within 50ms",
		},
	})
}

// TestWatchLimitsAfterTheList checks the limits of events after the list, and of lists in pages.
func TestWatchLimitsAfterTheList(t *testing.T) {
	t.Parallel()
	padding := strings.Repeat("x", 1<<10)
	streaming := func(answer func(w http.ResponseWriter)) func(http.ResponseWriter, *http.Request, int) {
		return func(w http.ResponseWriter, r *http.Request, _ int) {
			answer(w)
			<-r.Context().Done()
		}
	}
	checkLimit(t, map[string]limitCase{
		"events without end": {
			answer: streaming(func(w http.ResponseWriter) {
				send(w, event("ADDED", 1, "")+listEnd)
				forever(w, func(int) string { return event("MODIFIED", 1, `,"data":{"a":"`+padding+`"}`) })
			}), want: "more than 1 MiB at once, and then more than 1 bytes per second", synced: true,
		},
		"more objects after the list": {
			answer: streaming(func(w http.ResponseWriter) {
				send(w, event("ADDED", 1, "")+listEnd)
				forever(w, func(i int) string { return event("ADDED", i, "") })
			}), want: "there are more than 1000 objects", synced: true,
		},
		"a list of one page without end": {
			answer: func(w http.ResponseWriter, r *http.Request, _ int) {
				if r.URL.Query().Has("watch") {
					http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":400,"reason":"BadRequest"}`,
						http.StatusBadRequest)
					return
				}
				send(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[`+object(1, ""))
				forever(w, func(int) string { return "," + object(2, padding) })
			}, want: "one message has more than 64 KiB",
		},
		"pages without end": {
			answer: func(w http.ResponseWriter, r *http.Request, _ int) {
				if r.URL.Query().Has("watch") {
					http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":400,"reason":"BadRequest"}`,
						http.StatusBadRequest)
					return
				}
				send(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"5","continue":"more"},"items":[]}`)
			}, want: "a list has more than 512 KiB", most: 1 + 512/64, // each page counts as 64 KiB, after one watch
		},
	})
}

func checkLimit(t *testing.T, cases map[string]limitCase) {
	t.Helper()
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := gomega.NewWithT(t)
			limits := small()
			if test.limits != nil {
				test.limits(&limits)
			}
			l := newLiar(t, test.answer)
			options := l.options(t, watch.NewBudget(limits))
			troubled := make(chan struct{}, 100)
			options.OnProblem = func() { troubled <- struct{}{} }
			w := watch.New(options)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go w.Run(ctx)
			over := func() string {
				if limit, is := errors.AsType[*watch.LimitError](w.Err()); is {
					return limit.Error()
				}
				return ""
			}
			for over() == "" {
				select {
				case <-troubled:
				case <-time.After(hang.Deadline):
					t.Fatalf("the error names no limit: %v", w.Err())
				}
			}
			want := "the API server sends too much of configmaps: " + test.want + ": reduce the number or the size of the objects"
			g.Expect(over()).To(gomega.Equal(want))
			g.Expect(w.Synced()).To(gomega.Equal(test.synced))
			asked := len(l.asked())
			if test.most > 0 && asked > test.most {
				t.Errorf("%d requests, want at most %d", asked, test.most)
			}
			_, err := w.Meter().Watch(ctx, metav1.ListOptions{}, func(context.Context, metav1.ListOptions) (apiwatch.Interface, error) {
				t.Error("a request before the pause is over")
				return nil, errors.ErrUnsupported
			})
			g.Expect(err).To(gomega.MatchError(want))
			g.Expect(l.asked()).To(gomega.HaveLen(asked))
		})
	}
}

// TestAWatchRecoversAfterALimit checks that the watch recovers without a restart once the API server behaves
// correctly. Until then it reports a problem, also during an attempt.
func TestAWatchRecoversAfterALimit(t *testing.T) {
	t.Parallel()
	g := gomega.NewWithT(t)
	g.SetDefaultEventuallyTimeout(hang.Deadline)
	begun, right := make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	l := newLiar(t, func(w http.ResponseWriter, r *http.Request, n int) {
		switch {
		case n == 1:
			forever(w, func(i int) string { return event("ADDED", i, "") })
			return
		case r.URL.Query().Get("sendInitialEvents") != "true":
			http.Error(w, "no", http.StatusInternalServerError)
			return
		}
		send(w, event("ADDED", 1, ""))
		begin()
		<-right
		send(w, listEnd)
		<-r.Context().Done()
	})
	limits := small()
	limits.FirstPause, limits.MaxPause = time.Millisecond, time.Millisecond
	w := watch.New(l.options(t, watch.NewBudget(limits)))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go w.Run(ctx)
	<-begun
	g.Expect(w.Err()).To(gomega.HaveOccurred())
	close(right)
	g.Eventually(w.List).Should(gomega.HaveLen(1))
	g.Expect(w.Err()).To(gomega.Succeed())
}

// TestAWatchRecoversAfterTheMemoryLimit exceeds the limit of what the watch keeps with events. The next list is short
// again.
func TestAWatchRecoversAfterTheMemoryLimit(t *testing.T) {
	t.Parallel()
	g := gomega.NewWithT(t)
	g.SetDefaultEventuallyTimeout(hang.Deadline)
	l := newStreamingLiar(t, func(w http.ResponseWriter, n int) {
		send(w, event("ADDED", 1, `,"kept":3000`))
		send(w, listEnd)
		for i := 0; n == 1 && i < 1000; i++ {
			send(w, event("ADDED", i, `,"kept":3000`))
		}
	})
	limits := small()
	limits.Objects, limits.Kept = 10_000, 300<<10
	limits.FirstPause, limits.MaxPause = time.Millisecond, time.Millisecond
	w := watch.New(l.options(t, watch.NewBudget(limits)))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go w.Run(ctx)
	g.Eventually(func() int { return len(l.asked()) }).Should(gomega.BeNumerically(">", 1))
	g.Eventually(w.List).Should(gomega.HaveLen(1))
	g.Eventually(w.Err).Should(gomega.Succeed())
}

// TestAllWatchesShareATotalLimit checks that all watches share one total, and that a watch frees its part when it ends.
func TestAllWatchesShareATotalLimit(t *testing.T) {
	t.Parallel()
	g := gomega.NewWithT(t)
	g.SetDefaultEventuallyTimeout(hang.Deadline)
	l := newStreamingLiar(t, func(w http.ResponseWriter, _ int) {
		for i := range 100 {
			send(w, event("ADDED", i, `,"kept":3000`))
		}
		send(w, listEnd)
	})
	limits := small()
	limits.FirstPause, limits.MaxPause = time.Second, time.Second // the list after the stream is within the pause
	budget := watch.NewBudget(limits)
	first, second := watch.New(l.options(t, budget)), watch.New(l.options(t, budget))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		first.Run(ctx)
		close(ended)
	}()
	g.Eventually(first.Synced).Should(gomega.BeTrue())
	secondCtx, cancelSecond := context.WithCancel(t.Context())
	defer cancelSecond()
	go second.Run(secondCtx)
	g.Eventually(second.Err).Should(gomega.MatchError(
		gomega.ContainSubstring("what is kept of all objects of this API server has more than 600 KiB")))
	g.Expect(first.Err()).To(gomega.Succeed())
	cancel()
	<-ended
	g.Eventually(second.Synced).Should(gomega.BeTrue())
}

// TestLargeListsAreAccepted checks that lists of the size of real clusters are read, streamed or in pages. Pages become
// smaller if objects are large.
func TestLargeListsAreAccepted(t *testing.T) {
	t.Parallel()
	const objects = 5000
	fields := `,"data":{"a":"` + strings.Repeat("x", 3<<10) + `"}`
	for name, streaming := range map[string]bool{"streamed": true, "in pages": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := gomega.NewWithT(t)
			g.SetDefaultEventuallyTimeout(hang.Deadline)
			l := newLiar(t, func(w http.ResponseWriter, r *http.Request, _ int) {
				q := r.URL.Query()
				switch {
				case q.Get("sendInitialEvents") == "true" && !streaming:
					http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":400,"reason":"BadRequest"}`,
						http.StatusBadRequest)
				case q.Get("sendInitialEvents") == "true":
					for i := range objects { // not sent one by one, which would take most of the test
						_, _ = io.WriteString(w, event("ADDED", i, fields))
					}
					send(w, listEnd)
					<-r.Context().Done()
				case q.Has("watch"):
					send(w, "")
					<-r.Context().Done()
				default:
					sendPage(w, q, objects, fields)
				}
			})
			limits := watch.DefaultLimits()
			limits.Message, limits.LargeMessage = 512<<10, 32<<10 // a page of 250 exceeds this
			w := watch.New(l.options(t, watch.NewBudget(limits)))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go w.Run(ctx)
			g.Eventually(w.Synced).Should(gomega.BeTrue())
			g.Expect(w.List()).To(gomega.HaveLen(objects))
			g.Eventually(w.Err).Should(gomega.Succeed())
			if !streaming {
				asked := l.asked()
				g.Expect(asked[1].Get("limit")).To(gomega.Equal("250"))
				g.Expect(asked[1].Has("resourceVersion")).To(gomega.BeFalse())
				g.Expect(asked[2].Get("limit")).To(gomega.Equal("31"))
			}
		})
	}
}

func sendPage(w http.ResponseWriter, q url.Values, objects int, fields string) {
	from, _ := strconv.Atoi(q.Get("continue"))
	limit, _ := strconv.Atoi(q.Get("limit"))
	to, more := objects, ""
	if limit > 0 && from+limit < objects {
		to, more = from+limit, strconv.Itoa(from+limit)
	}
	var items []string
	for i := from; i < to; i++ {
		items = append(items, object(i, fields))
	}
	send(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"5","continue":"`+more+`"},"items":[`+
		strings.Join(items, ",")+`]}`)
}

// TestLargeMessagesAreReadOneAtATime checks that a stream with a large message delays the others until it is opened
// again. Then the others get their turn.
func TestLargeMessagesAreReadOneAtATime(t *testing.T) {
	t.Parallel()
	g := gomega.NewWithT(t)
	g.SetDefaultEventuallyTimeout(hang.Deadline)
	l := newLiar(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		if r.URL.Query().Get("sendInitialEvents") == "true" {
			send(w, event("ADDED", 1, `,"data":{"a":"`+strings.Repeat("x", 56<<10)+`"}`)+listEnd)
		} else {
			send(w, "")
		}
		<-r.Context().Done()
	})
	budget := watch.NewBudget(small())
	for range 3 {
		w := watch.New(l.options(t, budget))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.Run(ctx)
		g.Eventually(w.Synced).Should(gomega.BeTrue())
		g.Expect(w.Err()).To(gomega.Succeed())
	}
	reopened := func() (n int) {
		for _, q := range l.asked() {
			if !q.Has("sendInitialEvents") && q.Get("resourceVersion") == "9999" {
				n++
			}
		}
		return n
	}
	g.Eventually(reopened).Should(gomega.Equal(3))
}
