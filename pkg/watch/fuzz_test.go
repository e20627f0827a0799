package watch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/hypergate/hypergate/pkg/answer"
)

// FuzzStream sends any bytes as the bodies of lists and watches, in pieces of any size. The requests go through
// client-go and the transports of a guest. The clock does not wait.
//
// The watch stays within its limits, and its events agree with its copy. It is synced only after a complete list.
// Otherwise it reports a problem, unless the stream just ends or expires. After the server becomes honest, the copy
// has the honest objects. In the end everything is closed.
func FuzzStream(f *testing.F) {
	for _, seed := range fuzzSeeds() {
		for _, how := range []uint8{0, onlyPages, staysOpen, isSlow | breaksOff, firstOnly} {
			f.Add([]byte(seed.list), []byte(seed.stream), 16*how, how)
		}
	}
	f.Fuzz(func(t *testing.T, list, stream []byte, piece, how uint8) {
		const most = 8 << 10 // longer bodies take too much time
		list, stream = list[:min(len(list), most)], stream[:min(len(stream), most)]
		synctest.Test(t, func(t *testing.T) {
			s := &fuzzServer{list: list, stream: stream, piece: 1 + 4*int(piece), how: how, honest: make(chan struct{})}
			newFuzzed(t, s, NewBudget(fuzzLimits())).run()
		})
	})
}

// fuzzSeed is a pair of bodies.
type fuzzSeed struct{ list, stream string }

// fuzzSeeds returns bodies of an honest server, and of each kind of lie.
func fuzzSeeds() []fuzzSeed {
	a, b, end := fuzzObject("a", "5", ""), fuzzObject("b", "6", ""), endOfList("9")
	added, changed := fuzzEvent("ADDED", a), func(version string) string { return fuzzEvent("MODIFIED", fuzzObject("a", version, "")) }
	const version = `"resourceVersion":"9"`
	many, long := "", strings.Repeat("x", 700)
	for i := range 6 {
		many += fuzzEvent("ADDED", fuzzObject(fmt.Sprint("c", i), "7", ""))
	}
	dense := fuzzObject("a", "5", `,"data":[`+strings.Repeat("{},", 200)+`{}]`)
	return []fuzzSeed{
		{fuzzList(version, a+","+b), added + fuzzEvent("ADDED", b) + end + changed("10")},
		{fuzzList(version+`,"continue":"more"`, a), added + fuzzEvent("DELETED", a) + end + fuzzEvent("DELETED", a)},
		{fuzzList(version, a+`,7,null,{"kind":5}`), fuzzEvent("ADDED", "7") + fuzzEvent("ADDED", "null") + end},
		{fuzzList(version, `{"kind":[]}`), end + fuzzEvent("ADDED", `{"kind":[]}`)},
		{fuzzList(`"resourceVersion":9`, a), added + end + changed("3") + changed("2")}, // versions that go back
		{fuzzList(`"resourceVersion":"`+long+`"`, a), end + fuzzEvent("BOOKMARK", fuzzObject("", long, ""))},
		{"{", added[:40]},
		{fuzzList(version, a)[:60], end + changed("10")[:60]},
		{"", ""},
		{fuzzList(version, a+","+fuzzObject("a", "7", "")), added + changed("4") + end}, // one name twice
		{fuzzList(version, fuzzObject(long, "5", "")), fuzzEvent("ADDED", fuzzObject(long, "5", "")) + end},
		{fuzzList(version, a+strings.Repeat(","+a, 5)), many + end},
		{fuzzList(version, a+strings.Repeat(","+a, 120)), strings.Repeat(added, 120)}, // long lists, and many events
		{fuzzList(version, a), end + strings.Repeat(changed("10"), 120)},
		{expired, end + fuzzEvent("ERROR", expired)},
		{fuzzList(version, dense), end + fuzzEvent("ADDED", dense) + fuzzEvent("FOREIGN", a)},
	}
}

// fuzzLimits are small, so that short inputs exceed them.
func fuzzLimits() Limits {
	return Limits{
		Message: 2 << 10, MessageCost: 16 << 10, ListBytes: 4 << 10, KeptObject: 600, Kept: 1800, KeptTotal: 1800,
		LargeMessage: 512, LargeCost: 8 << 10, Objects: 4, Version: 20, Burst: 6 << 10, Rate: 64, ListTime: 10 * time.Second,
		FirstPause: 5 * time.Second, MaxPause: 20 * time.Second,
	}
}

// fuzzed is a watch of a fuzzServer, and what its events say.
type fuzzed struct {
	*Watch
	t      *testing.T
	server *fuzzServer
	budget *Budget
	// said is the copy as the events describe it: the version of each object.
	said map[string]string
	// synced and problems count the calls of OnSynced and OnProblem.
	synced, problems int
}

func newFuzzed(t *testing.T, s *fuzzServer, budget *Budget) *fuzzed {
	t.Helper()
	client, err := dynamic.NewForConfig(&rest.Config{
		Host: "http://guest", QPS: -1, Transport: meteredTransport{answer.Limit("the guest")(s)},
	})
	if err != nil {
		t.Fatal(err)
	}
	resource := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"})
	f := &fuzzed{t: t, server: s, budget: budget, said: map[string]string{}}
	f.Watch = New(Options{
		Name: "configmaps", Example: &unstructured.Unstructured{}, Budget: f.budget, OnEvent: f.event,
		OnSynced: func() { f.synced++ }, OnProblem: func() { f.problems++ },
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return resource.List(ctx, o) },
		Watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			return resource.Watch(ctx, o)
		},
		Transform: func(obj any) (any, error) {
			u, ok := obj.(*unstructured.Unstructured)
			if !ok {
				return nil, fmt.Errorf("%T is not what was asked for", obj)
			}
			return &metav1.ObjectMeta{
				Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
			}, nil
		},
	})
	return f
}

// event records an event, and checks that it agrees with the events before it.
func (f *fuzzed) event(e Event) {
	object := e.Object.(*metav1.ObjectMeta)
	key, _ := cache.MetaNamespaceKeyFunc(object)
	before, had := f.said[key]
	if (e.Before != nil) != had || had && e.Before.(*metav1.ObjectMeta).ResourceVersion != before {
		f.t.Errorf("event of %q: before it was %v, and the events before say %q", key, e.Before, before)
	}
	if e.Gone {
		delete(f.said, key)
	} else {
		f.said[key] = object.ResourceVersion
	}
}

// run lets the server lie for a while, then makes it honest, and ends the watch.
func (f *fuzzed) run() {
	const lie, honest = 30 * time.Second, 2 * time.Minute
	ctx, cancel := context.WithCancel(f.t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() { f.Run(ctx); close(done) }()
	for range 2 {
		<-time.After(lie / 2)
		synctest.Wait()
		f.check("during the lie")
	}
	requests, read := f.server.requests.Load(), f.server.read.Load()
	l := fuzzLimits()
	if most := int64(l.Burst) + int64(l.Rate*lie.Seconds()) + requests<<10; requests > 100 || read > most {
		f.t.Errorf("%d requests in half a minute, and %d bytes were read", requests, read)
	}
	f.claims()
	close(f.server.honest)
	<-time.After(honest)
	synctest.Wait()
	f.check("afterwards")
	f.recovered()
	cancel()
	<-done
	<-time.After(time.Minute)
	synctest.Wait()
	if f.server.open.Load() != 0 || f.budget.kept != 0 || f.budget.twice != 0 {
		f.t.Errorf("in the end %d bodies are open, and %d bytes count as kept", f.server.open.Load(), f.budget.kept+f.budget.twice)
	}
}

// check checks what holds whenever nothing is under way.
func (f *fuzzed) check(when string) {
	f.t.Helper()
	l, copied, kept := fuzzLimits(), map[string]string{}, int64(0)
	for _, obj := range f.List() {
		object := obj.(*metav1.ObjectMeta)
		key, _ := cache.MetaNamespaceKeyFunc(object)
		copied[key] = object.ResourceVersion
		kept += SizeOf(object)
		if n := SizeOf(object); n > l.KeptObject || len(object.ResourceVersion) > l.Version {
			f.t.Errorf("%s: an object with %d bytes and the version %q is kept", when, n, object.ResourceVersion)
		}
	}
	if !maps.Equal(copied, f.said) {
		f.t.Errorf("%s: the copy is %v, and its events say %v", when, copied, f.said)
	}
	if len(copied) > l.Objects || kept > l.Kept || len(copied) > 0 && f.synced == 0 {
		f.t.Errorf("%s: %d objects with %d bytes are kept, synced %d times", when, len(copied), kept, f.synced)
	}
	f.meter.mu.Lock()
	defer f.meter.mu.Unlock()
	if m := f.meter; m.kept < kept || m.listing < 0 || f.budget.kept+f.budget.twice != m.kept+m.listing {
		f.t.Errorf("%s: %d bytes are kept, and the meter has %d, %d of a list, and %d and %d in all",
			when, kept, m.kept, m.listing, f.budget.kept, f.budget.twice)
	}
}

// claims checks what the watch says about the lie.
func (f *fuzzed) claims() {
	s := f.server
	if s.how&firstOnly != 0 {
		return
	}
	ends := bytes.Contains(s.stream, []byte(metav1.InitialEventsAnnotationKey)) || bytes.Contains(s.stream, []byte(`\`))
	if f.Synced() && !s.listed.Load() && !ends {
		f.t.Errorf("it is synced after a stream that has no end of a list: %q", s.stream)
	}
	// A stream that ends or expires within a list causes another attempt, and no problem. The caller reports that
	// nothing is known. A slow list can take longer than the lie.
	noJSON := len(s.stream) > 0 && !strings.ContainsRune(" \t\r\n{[\"-0123456789tfn", rune(s.stream[0]))
	lasts := s.how&(staysOpen|onlyPages) != 0 && !bytes.Contains(s.stream, []byte("410"))
	if mustFail := s.how&isSlow == 0 && (lasts || noJSON); mustFail && !f.Synced() && f.problems == 0 {
		f.t.Errorf("nothing is known, and no problem is reported: %q", s.stream)
	}
	if over, is := errors.AsType[*LimitError](f.Err()); is && over.Resource != "configmaps" {
		f.t.Errorf("the error does not name the resource: %v", over)
	}
}

// recovered checks that the copy has what the honest server has.
func (f *fuzzed) recovered() {
	want := map[string]string{"a": "1000", "b": "1000"}
	if !f.Synced() || f.Err() != nil || !maps.Equal(f.said, want) {
		f.t.Errorf("with an honest server, it is synced %t (%v) with %v", f.Synced(), f.Err(), f.said)
	}
}
