package watch

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

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

// openStream opens a stream that has a large buffer, and returns its charge and a weak pointer to the buffer.
func openStream(t *testing.T, m *Meter) (apiwatch.Interface, weak.Pointer[[4 << 20]byte]) {
	t.Helper()
	stream := &bufferedStream{FakeWatcher: apiwatch.NewFake(), buffer: new([4 << 20]byte)}
	list := true
	open, err := m.Watch(t.Context(), metav1.ListOptions{SendInitialEvents: &list},
		func(context.Context, metav1.ListOptions) (apiwatch.Interface, error) { return stream, nil })
	if err != nil {
		t.Fatal(err)
	}
	return open, weak.Make(stream.buffer)
}

// bufferedStream is a stream with a buffer, like that of a decoder.
type bufferedStream struct {
	*apiwatch.FakeWatcher
	buffer *[4 << 20]byte
}

// TestTheBuffersOfAnEndedStreamAreFree checks that a watch does not keep the buffers of its last stream. A watch that
// exceeded a limit sends no request for minutes, and ten such watches would keep 40 MiB.
func TestTheBuffersOfAnEndedStreamAreFree(t *testing.T) {
	t.Parallel()
	for name, finish := range map[string]func(*Meter, apiwatch.Interface){
		"stopped by its caller": func(_ *Meter, stream apiwatch.Interface) { stream.Stop() },
		"exceeded a limit": func(m *Meter, _ apiwatch.Interface) {
			m.overdue(m.current)
			<-time.After(2 * drainDelay)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := NewBudget(DefaultLimits()).Meter("pods")
				buffer := func() weak.Pointer[[4 << 20]byte] {
					stream, buffer := openStream(t, m)
					finish(m, stream)
					return buffer
				}()
				runtime.GC()
				if buffer.Value() != nil {
					t.Error("the buffer is in memory")
				}
				runtime.KeepAlive(m)
			})
		})
	}
}

// TestAStreamThatOpensTooLateIsStopped checks a stream whose request exceeded a limit before the stream was open.
func TestAStreamThatOpensTooLateIsStopped(t *testing.T) {
	t.Parallel()
	m, stream := NewBudget(DefaultLimits()).Meter("pods"), apiwatch.NewFake()
	list := true
	_, err := m.Watch(t.Context(), metav1.ListOptions{SendInitialEvents: &list},
		func(context.Context, metav1.ListOptions) (apiwatch.Interface, error) {
			m.overdue(m.current)
			return stream, nil
		})
	if err == nil || !stream.IsStopped() {
		t.Errorf("the error is %v, the stream is stopped: %t", err, stream.IsStopped())
	}
}
