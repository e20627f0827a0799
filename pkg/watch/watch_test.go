package watch_test

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/watch"
	"github.com/hypergate/hypergate/test/hang"
)

// log records what a watch reported, one line per event.
type log struct {
	mu    sync.Mutex
	lines []string
}

func (l *log) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

// onEvent logs the name, the version and the content of the object, and whether it is gone.
func (l *log) onEvent(e watch.Event) {
	o, ok := e.Object.(*corev1.ConfigMap)
	if !ok {
		l.add("a %T", e.Object)
		return
	}
	l.add("%s v%s %q gone=%t unseen=%t", o.Name, o.ResourceVersion, o.Data["data"], e.Gone, e.Unseen)
}

// taken returns the lines since the last call, sorted, because objects of one list have no order.
func (l *log) taken() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	slices.Sort(lines)
	return lines
}

func (l *log) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// fixture is a server and a watch of it that does not run yet.
type fixture struct {
	*testing.T
	gomega.Gomega
	server *server
	log    *log
	watch  *watch.Watch
}

// eachWay runs a test with a server that streams lists, and with one that does not.
func eachWay(t *testing.T, test func(*fixture)) {
	t.Helper()
	for name, streaming := range map[string]bool{"list and watch": false, "streamed list": true} {
		t.Run(name, func(t *testing.T) {
			f := &fixture{T: t, Gomega: hang.Gomega(t), server: newServer(streaming), log: &log{}}
			options := f.server.options()
			options.OnEvent = f.log.onEvent
			options.OnSynced = func() { f.log.add("synced") }
			f.watch = watch.New(options)
			test(f)
		})
	}
}

// run starts the watch. It returns a function that stops the watch and waits for its end. The watch stops at the end
// of the test at the latest.
func (f *fixture) run() func() {
	f.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.watch.Run(ctx)
	}()
	stop := func() {
		cancel()
		f.Eventually(ended).Should(gomega.BeClosed(), "Run does not end with its context")
	}
	f.Cleanup(stop)
	return stop
}

// names returns the names of the objects of the copy, sorted.
func (f *fixture) names() []string {
	out := []string{}
	for _, obj := range f.watch.List() {
		out = append(out, obj.(*corev1.ConfigMap).Name)
	}
	slices.Sort(out)
	return out
}

func forbidden(verb string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("cannot "+verb))
}

func TestNotSyncedBeforeRun(t *testing.T) {
	eachWay(t, func(f *fixture) {
		f.server.put("a", "1")
		f.Expect(f.watch.Synced()).To(gomega.BeFalse())
		f.Expect(f.names()).To(gomega.BeEmpty())
		f.Expect(f.server.count()).To(gomega.BeZero())
	})
}

// TestAServerWithoutStreamedLists checks that a watch reports no error if the API server does not serve streamed lists.
// The watch lists without a stream.
func TestAServerWithoutStreamedLists(t *testing.T) {
	f := &fixture{T: t, Gomega: hang.Gomega(t), server: newServer(false), log: &log{}}
	f.server.put("a", "1")
	options := f.server.options()
	options.OnSynced = func() { f.log.add("synced") }
	options.OnProblem = func() { f.log.add("problem: %v", f.watch.Err()) }
	f.watch = watch.New(options)
	f.run()
	f.Eventually(f.log.all).Should(gomega.ContainElement("synced"))
	f.server.put("b", "2") // seen by the watch that follows the list
	f.Eventually(f.names).Should(gomega.Equal([]string{"a", "b"}))
	f.Expect(f.log.all()).To(gomega.Equal([]string{"synced"}))
}

func TestSync(t *testing.T) {
	eachWay(t, func(f *fixture) {
		f.server.put("a", "1")
		f.server.put("b", "2")
		f.run()
		f.Eventually(f.watch.Synced).Should(gomega.BeTrue())
		f.Eventually(f.log.all).Should(gomega.HaveLen(3))
		f.Expect(f.log.all()[2]).To(gomega.Equal("synced"), "it is reported after the events of all objects")
		f.Expect(f.log.taken()).To(gomega.Equal([]string{`a v1 "1" gone=false unseen=false`, `b v2 "2" gone=false unseen=false`, "synced"}))
		f.Expect(f.names()).To(gomega.Equal([]string{"a", "b"}))
		f.Expect(f.watch.Err()).NotTo(gomega.HaveOccurred())

		obj, found := f.watch.Get("ns/b")
		f.Expect(found).To(gomega.BeTrue())
		f.Expect(obj.(*corev1.ConfigMap).Data).To(gomega.HaveKeyWithValue("data", "2"))
		_, found = f.watch.Get("ns/c")
		f.Expect(found).To(gomega.BeFalse())
	})
}

func TestAnEmptyListIsSynced(t *testing.T) {
	eachWay(t, func(f *fixture) {
		f.run()
		f.Eventually(f.watch.Synced).Should(gomega.BeTrue())
		f.Eventually(f.log.all).Should(gomega.Equal([]string{"synced"}))
		f.Expect(f.names()).To(gomega.BeEmpty())
	})
}

func TestEvents(t *testing.T) {
	eachWay(t, func(f *fixture) {
		f.run()
		f.Eventually(f.server.open).Should(gomega.Equal(1))
		f.Eventually(f.log.taken).Should(gomega.Equal([]string{"synced"}))

		f.server.put("a", "1")
		f.Eventually(f.log.taken).Should(gomega.Equal([]string{`a v1 "1" gone=false unseen=false`}))
		f.server.put("a", "2")
		f.Eventually(f.log.taken).Should(gomega.Equal([]string{`a v2 "2" gone=false unseen=false`}))
		f.Expect(f.names()).To(gomega.Equal([]string{"a"}))
		f.server.remove("a")
		f.Eventually(f.log.taken).Should(gomega.Equal([]string{`a v3 "2" gone=true unseen=false`}))
		f.Expect(f.names()).To(gomega.BeEmpty())
	})
}

func TestMissedEventsAreReportedAfterExpiry(t *testing.T) {
	eachWay(t, func(f *fixture) {
		for _, name := range []string{"changed", "gone", "same"} {
			f.server.put(name, "1")
		}
		f.run()
		f.Eventually(f.server.open).Should(gomega.Equal(1))
		f.Eventually(f.log.taken).Should(gomega.ContainElement("synced"))

		f.server.putUnseen("changed", "2")
		f.server.removeUnseen("gone")
		f.server.putUnseen("new", "1")
		f.server.expire()
		f.Eventually(f.names).Should(gomega.Equal([]string{"changed", "new", "same"}))
		f.Eventually(f.log.all).Should(gomega.ContainElements( // in any order
			`new v6 "1" gone=false unseen=false`, `changed v4 "2" gone=false unseen=false`, `gone v2 "1" gone=true unseen=true`))
		f.Expect(f.log.all()).NotTo(gomega.ContainElement("synced"), "that is for the first time only")
		f.Expect(f.watch.Err()).NotTo(gomega.HaveOccurred())
	})
}

// TestEachListIsReported checks that each list is reported. An object that appeared and disappeared while nothing was
// watched causes no event.
func TestEachListIsReported(t *testing.T) {
	for _, streaming := range []bool{false, true} {
		f := &fixture{T: t, Gomega: hang.Gomega(t), server: newServer(streaming), log: &log{}}
		options := f.server.options()
		options.OnListed = func(version string) { f.log.add("listed v%s", version) }
		f.watch = watch.New(options)
		f.server.put("a", "1")
		f.run()
		f.Eventually(f.server.open).Should(gomega.Equal(1))
		f.server.putUnseen("b", "1")
		f.server.removeUnseen("b")
		f.server.expire()
		f.Eventually(f.log.all).Should(gomega.Equal([]string{"listed v1", "listed v3"}), "streaming=%t", streaming)
	}
}

func TestObjectsAreKeptDuringAnOutage(t *testing.T) {
	eachWay(t, func(f *fixture) {
		f.server.put("a", "1")
		f.run()
		f.Eventually(f.server.open).Should(gomega.Equal(1))

		f.server.fail(errors.New("no route"), errors.New("no route"))
		f.server.hangUp()
		f.Eventually(f.watch.Err).Should(gomega.MatchError(
			gomega.And(gomega.ContainSubstring("watching configmaps"), gomega.ContainSubstring("no route"))))
		f.Expect(f.watch.Synced()).To(gomega.BeTrue())
		f.Expect(f.names()).To(gomega.Equal([]string{"a"}), "could not list is not the list is empty")
		f.log.taken()

		f.server.putUnseen("b", "1")
		f.server.fail(nil, nil)
		f.Eventually(f.names).Should(gomega.Equal([]string{"a", "b"}))
		f.Eventually(f.watch.Err).ShouldNot(gomega.HaveOccurred())
	})
}

func TestAForbiddenListIsNamed(t *testing.T) {
	eachWay(t, func(f *fixture) {
		f.server.fail(forbidden("list"), forbidden("watch"))
		f.run()
		f.Eventually(f.watch.Err).Should(gomega.MatchError(
			gomega.And(gomega.ContainSubstring("watching configmaps"), gomega.ContainSubstring("cannot list"))))
		f.Expect(apierrors.IsForbidden(f.watch.Err())).To(gomega.BeTrue(), "the cause can be found in it")
		f.Expect(f.watch.Synced()).To(gomega.BeFalse())
		f.Expect(f.log.all()).To(gomega.BeEmpty())

		f.server.fail(nil, nil)
		f.Eventually(f.watch.Synced).Should(gomega.BeTrue())
		f.Eventually(f.watch.Err).ShouldNot(gomega.HaveOccurred())
	})
}

// TestAForbiddenWatchStaysAProblem checks that the problem stays although each list before the watch succeeds.
func TestAForbiddenWatchStaysAProblem(t *testing.T) {
	f := &fixture{T: t, Gomega: hang.Gomega(t), server: newServer(false), log: &log{}}
	f.server.fail(nil, forbidden("watch"))
	var mu sync.Mutex
	var between []error // the error between each list and the watch after it
	f.server.onWatch = func() {
		mu.Lock()
		defer mu.Unlock()
		between = append(between, f.watch.Err())
	}
	f.watch = watch.New(f.server.options())
	f.run()
	seen := func() []error {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(between)
	}
	// The first two requests come before any watch has failed: the streamed list, and the first watch.
	f.Eventually(func() int { return len(seen()) }).Should(gomega.BeNumerically(">=", 6))
	for i, err := range seen()[2:] {
		if err == nil {
			t.Errorf("attempt %d: a list that works hides that the watch does not", i+2)
		}
	}
	f.Expect(f.watch.Synced()).To(gomega.BeTrue())
}

func TestTransform(t *testing.T) {
	eachWay(t, func(f *fixture) {
		options := f.server.options()
		options.OnEvent = f.log.onEvent
		options.Transform = func(obj any) (any, error) {
			o := obj.(*corev1.ConfigMap)
			return &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, ResourceVersion: o.ResourceVersion},
				Data:       map[string]string{"data": "small " + o.Data["data"]},
			}, nil
		}
		f.watch = watch.New(options)
		f.server.put("listed", "1")
		f.run()
		f.Eventually(f.server.open).Should(gomega.Equal(1))
		f.Eventually(f.log.taken).Should(gomega.Equal([]string{`listed v1 "small 1" gone=false unseen=false`}))
		f.server.put("seen", "1")
		f.Eventually(f.log.taken).Should(gomega.Equal([]string{`seen v2 "small 1" gone=false unseen=false`}))
		f.server.remove("seen")
		f.Eventually(f.log.taken).Should(gomega.Equal([]string{`seen v3 "small 1" gone=true unseen=false`}))
		f.server.putUnseen("listed", "2")
		f.server.expire()
		f.Eventually(f.log.taken).Should(gomega.Equal([]string{`listed v4 "small 2" gone=false unseen=false`}))
		for _, obj := range f.watch.List() {
			f.Expect(obj.(*corev1.ConfigMap).Labels).To(gomega.BeEmpty())
		}
	})
}

func TestCallbacksAreOptional(t *testing.T) {
	eachWay(t, func(f *fixture) {
		f.watch = watch.New(f.server.options())
		f.run()
		f.Eventually(f.server.open).Should(gomega.Equal(1))
		f.server.put("a", "1")
		f.Eventually(f.names).Should(gomega.Equal([]string{"a"}))
	})
}

func TestRunDoesNotLeak(t *testing.T) {
	for name, prepare := range map[string]func(*fixture){
		"while it watches": func(f *fixture) {
			f.Eventually(f.server.open).Should(gomega.Equal(1))
		},
		"while it cannot list": func(f *fixture) {
			f.server.fail(errors.New("no route"), errors.New("no route"))
			f.server.hangUp()
			f.Eventually(f.watch.Err).Should(gomega.HaveOccurred())
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(f *fixture) {
				stop := f.run()
				prepare(f)
				stop()
				f.Expect(f.server.open()).To(gomega.BeZero(), "a stream was left open")
				f.Eventually(reflectors).Should(gomega.BeEmpty(), "there is one that would ask on")
			})
		})
	}
}

// reflectors returns the goroutines that run the reflector of client-go.
func reflectors() []string {
	var all strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&all, 2)
	return slices.DeleteFunc(strings.Split(all.String(), "\n\n"),
		func(stack string) bool { return !strings.Contains(stack, "cache.(*Reflector)") })
}

// TestReadersAndTheWatchDoNotRace is for the race detector.
func TestReadersAndTheWatchDoNotRace(t *testing.T) {
	eachWay(t, func(f *fixture) {
		f.run()
		f.Eventually(f.server.open).Should(gomega.Equal(1))
		done := make(chan struct{})
		var readers sync.WaitGroup
		for range 4 {
			readers.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
						f.names()
						f.watch.Get("ns/a")
						_ = f.watch.Err()
						f.watch.Synced()
					}
				}
			})
		}
		for i := range 50 { // as many as a stream buffers
			f.server.put("a", fmt.Sprint(i))
		}
		f.server.expire()
		f.Eventually(func() string {
			obj, _ := f.watch.Get("ns/a")
			o, _ := obj.(*corev1.ConfigMap)
			if o == nil {
				return ""
			}
			return o.Data["data"]
		}).Should(gomega.Equal("49"))
		close(done)
		readers.Wait()
	})
}
