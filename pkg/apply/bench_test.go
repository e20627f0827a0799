package apply_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/apply"
)

const benchConcurrency = 8

// installation returns a set of objects of the size of an installation, in a new namespace.
func (w *fixture) installation(b *testing.B) []object {
	b.Helper()
	u := w.create(`{apiVersion: v1, kind: Namespace, metadata: {generateName: bench-}}`)
	in := *w
	in.namespace = u.GetName()
	var objs []object
	for i := range 3 {
		for _, o := range in.sample()[2:] {
			if o.GVK().Kind == "Service" { // few addresses are available
				o.u.Object["spec"].(map[string]any)["clusterIP"] = "None"
			}
			o.u.SetName(fmt.Sprintf("%s-%d", o.u.GetName(), i))
			objs = append(objs, in.object(string(in.bare(o.u).body)))
		}
	}
	return objs
}

// BenchmarkInstall applies the objects of an installation for the first time. In the same run, it sends the same
// objects to the same API server with a plain client. That is the floor.
func BenchmarkInstall(b *testing.B) {
	w := newFixture(b)
	c := w.started(func(o *apply.Options) { o.Concurrency = benchConcurrency })
	bare, err := metadata.NewForConfig(rest.CopyConfig(w.cfg))
	if err != nil {
		b.Fatal(err)
	}
	w.bareApply(b, bare, w.installation(b)) // the first apply opens connections and fills the API server's caches
	var ours, floor []time.Duration
	objects := 0
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		first, second := w.installation(b), w.installation(b)
		objects = len(first)
		// Both take turns in the first place.
		for turn := range 2 {
			if (i+turn)%2 == 0 {
				floor = append(floor, w.bareApply(b, bare, second))
				continue
			}
			b.StartTimer()
			start := time.Now()
			if r := apply.Apply(b.Context(), c, first); r.Err() != nil || r.Writes() != len(first) {
				b.Fatalf("%s: %v", r, r.Err())
			}
			ours = append(ours, time.Since(start))
			b.StopTimer()
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(objects), "objects")
	b.ReportMetric(milliseconds(ours, 50), "ms/install")
	b.ReportMetric(milliseconds(floor, 50), "ms/floor")
	b.ReportMetric(milliseconds(ours, 50)/milliseconds(floor, 50), "x-floor")
}

func (w *fixture) bareApply(b *testing.B, client metadata.Interface, objs []object) time.Duration {
	b.Helper()
	start := time.Now()
	var group sync.WaitGroup
	slots := make(chan struct{}, benchConcurrency)
	for _, o := range objs {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			i := slices.IndexFunc(kinds(), func(k apply.Kind) bool { return k.GVK == o.GVK() })
			_, err := client.Resource(o.GVK().GroupVersion().WithResource(kinds()[i].Resource)).Namespace(o.Key().Namespace).
				Patch(b.Context(), o.Key().Name, types.ApplyPatchType, o.JSON(), metav1.PatchOptions{FieldManager: manager})
			if err != nil {
				b.Error(err)
			}
		})
	}
	group.Wait()
	return time.Since(start)
}

// BenchmarkUnchanged applies objects that already match.
func BenchmarkUnchanged(b *testing.B) {
	w := newFixture(b)
	c, objs := w.started(), w.installation(b)
	if r := apply.Apply(b.Context(), c, objs); r.Err() != nil {
		b.Fatal(r.Err())
	}
	b.ReportAllocs()
	for b.Loop() {
		if r := apply.Apply(b.Context(), c, objs); r.Writes() != 0 {
			b.Fatal(r)
		}
	}
}

// BenchmarkDrift measures the time from the end of another manager's write to the end of our write that reverts it.
func BenchmarkDrift(b *testing.B) {
	w := newFixture(b)
	c, objs := w.started(hurried), w.sample()
	if r := apply.Apply(b.Context(), c, objs); r.Err() != nil {
		b.Fatal(r.Err())
	}
	w.settle(c, objs)
	var took []time.Duration
	i := 0
	for b.Loop() {
		n := 2 + i%(len(objs)-2)
		i++
		w.patch(objs[n], sample()[n].change)
		start := time.Now()
		for writes := 0; writes == 0; {
			<-w.notified
			writes = apply.Apply(b.Context(), c, objs).Writes()
		}
		took = append(took, time.Since(start))
	}
	b.ReportMetric(milliseconds(took, 50), "ms-p50")
	b.ReportMetric(milliseconds(took, 99), "ms-p99")
}

func milliseconds(took []time.Duration, percentile int) float64 {
	sorted := slices.Sorted(slices.Values(took))
	return float64(sorted[len(sorted)*percentile/100].Microseconds()) / 1000
}
