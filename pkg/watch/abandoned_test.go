package watch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// TestAStreamThatIsNotStoppedHoldsNothing checks a stream that exceeds a limit, and whose caller never stops it. A
// reflector does that if its store rejects the list. Others can read large messages, and the stream ends.
func TestAStreamThatIsNotStoppedHoldsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, stream := NewBudget(DefaultLimits()), apiwatch.NewFake()
		first, second := b.Meter("first"), b.Meter("second")
		list := true
		_, err := first.Watch(t.Context(), metav1.ListOptions{SendInitialEvents: &list},
			func(context.Context, metav1.ListOptions) (apiwatch.Interface, error) { return stream, nil })
		if err != nil {
			t.Fatal(err)
		}
		held := first.current
		if err := held.enlarge(t.Context()); err != nil {
			t.Fatal(err)
		}
		held.page = 0
		first.answered(held)
		<-time.After(MaxListTime + time.Second)
		if first.Over() == nil {
			t.Fatal("the list without an end continues")
		}
		_, c, err := second.begin(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := c.enlarge(ctx); err != nil {
			t.Errorf("a large message of another watch: %v", err)
		}
		if held.enlarge(ctx) == nil {
			t.Error("a request that exceeded a limit gets a turn again")
		}
		_ = c.end(nil)
		<-time.After(2 * drainDelay)
		if !stream.IsStopped() {
			t.Error("the stream is still open")
		}
	})
}
