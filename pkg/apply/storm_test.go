package apply_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/apply"
)

// Another client changes, unlabels and deletes objects at random, as fast as the API server allows. A loop like the
// controller restores them.
//
// The order of events, responses and notifications does not matter. In the end all objects are as desired, no drift
// cost more than one write, and no more requests follow.
func TestStorm(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	c, objs := w.started(hurried), w.sample()[2:]
	if r := apply.Apply(t.Context(), c, objs); r.Err() != nil {
		t.Fatal(r.Err())
	}
	ctx, stop := context.WithCancel(t.Context())
	var writes atomic.Int64
	var loop sync.WaitGroup
	loop.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-w.notified:
				r := apply.Apply(ctx, c, objs)
				writes.Add(int64(r.Writes()))
				if r.Err() != nil && ctx.Err() == nil {
					t.Errorf("restoring: %v", r.Err())
				}
			}
		}
	})

	const storms = 300
	// The fixed seed makes each run the same.
	random, drifts := rand.New(rand.NewPCG(1, 2)), int64(0)
	for range storms {
		i := random.IntN(len(objs))
		o, patch := objs[i], sample()[i+2].change
		var err error
		switch random.IntN(4) {
		case 0:
			err = w.resource(o.u).Delete(ctx, o.u.GetName(), metav1.DeleteOptions{})
		case 1:
			patch = `{"metadata":{"labels":{"` + ownerKey + `":null}}}`
			fallthrough
		default:
			_, err = w.resource(o.u).Patch(ctx, o.u.GetName(), types.MergePatchType, []byte(patch),
				metav1.PatchOptions{FieldManager: "third-party"})
		}
		if err == nil { // otherwise the object does not exist at this time
			drifts++
		}
	}
	for _, o := range objs {
		w.Eventually(func() bool { return w.isOurs(o) }).Should(gomega.BeTrue(), "%s %s", o.GVK().Kind, o.Key())
	}
	w.Eventually(c.Members).Should(gomega.ConsistOf(apply.IDs(objs)))
	stop()
	loop.Wait()
	quiet := writes.Load()
	w.Eventually(func() int { return apply.Apply(t.Context(), c, objs).Writes() }).Should(gomega.BeZero(),
		"what is restored is not written again")
	t.Logf("%d drifts, %d writes", drifts, quiet)
	// A write can meet a conflict if the object changes at the same time. It is then tried once more.
	if quiet == 0 || quiet > drifts*5/4 {
		t.Errorf("%d drifts cost %d writes", drifts, quiet)
	}
}
