package watch

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// TestStreamsOfLargeEventsAreReopenedSlowly checks watches whose streams all have a large event, so that this side ends
// them. The first ones are opened again at once, and the others one after the other.
func TestStreamsOfLargeEventsAreReopenedSlowly(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]string{
		"many bytes":        `,"data":{"a":"` + strings.Repeat("x", LargeMessage) + `"}`,
		"many small fields": `,"data":[` + strings.Repeat("{},", 10_000) + `{}]`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const watches = 3
				s := &fuzzServer{
					stream: []byte(endOfList("5") + fuzzEvent("MODIFIED", fuzzObject("a", "6", more))),
					piece:  16 << 10, how: staysOpen, honest: make(chan struct{}),
				}
				ctx, cancel := context.WithCancel(t.Context())
				limits := DefaultLimits()
				limits.Burst = 16 << 20 // without a limit for the streams, this one ends the test early
				budget, ended := NewBudget(limits), make(chan struct{}, watches)
				for range watches {
					w := newFuzzed(t, s, budget)
					go func() { w.Run(ctx); ended <- struct{}{} }()
				}
				last := int64(0)
				for i, want := range []int64{watches + reopenBurst + 100, 100} {
					<-time.After(10 * time.Second)
					synctest.Wait()
					now := s.requests.Load()
					if n := now - last; n < want-20 || n > want+watches { // a list can keep the turn for more than a second
						t.Errorf("%d requests in the %d. ten seconds, want about %d", n, i+1, want)
					}
					last = now
				}
				if s.listed.Load() {
					t.Error("a list was requested")
				}
				cancel()
				for range watches {
					<-ended
				}
			})
		})
	}
}

// TestAStreamWaitsBeforeItIsReopened checks the time until a stream opens that this side ended, and that its timeout
// begins afterwards.
func TestAStreamWaitsBeforeItIsReopened(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const wait = 3 * time.Second
		drained := true
		lw := Consistent(Requests{
			Drained: func(time.Time) (time.Duration, bool) { return wait, drained },
			Watch: func(context.Context, metav1.ListOptions) (apiwatch.Interface, error) {
				return apiwatch.NewFake(), nil
			},
		})
		watch := func(ctx context.Context) (time.Duration, error) {
			begun := time.Now()
			_, err := lw.WatchFuncWithContext(ctx, metav1.ListOptions{TimeoutSeconds: new(int64(300))})
			return time.Since(begun), err
		}
		if waited, err := watch(t.Context()); err != nil || waited != wait {
			t.Errorf("it opened after %s, with the error %v", waited, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if waited, err := watch(ctx); !errors.Is(err, context.DeadlineExceeded) || waited != time.Second {
			t.Errorf("it ended after %s, with the error %v", waited, err)
		}
		if _, err := watch(t.Context()); err != nil {
			t.Fatal(err)
		}
		drained = false
		<-time.After(300 * time.Second)
		if _, err := watch(t.Context()); err != nil {
			t.Errorf("after the timeout: %v", err)
		}
	})
}

// TestAStreamThatWouldWaitForTooLongIsNotResumed checks that a stream which this side ended either opens soon, or lists
// first.
func TestAStreamThatWouldWaitForTooLongIsNotResumed(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	b := NewBudget(DefaultLimits())
	b.now = func() time.Time { return now }
	m := b.Meter("things")
	var longest time.Duration
	resumed := 0
	for range 1000 {
		m.drain()
		if wait, drained := m.Drained(now); drained {
			longest, resumed = max(longest, wait), resumed+1
		}
	}
	if want := reopenBurst + int(resumeLate/reopenEvery); resumed != want || longest != resumeLate {
		t.Errorf("%d streams are resumed, the last after %s; want %d and %s", resumed, longest, want, resumeLate)
	}
	if _, drained := m.Drained(now); drained {
		t.Error("a stream is resumed twice")
	}
}

// TestAReplacedSessionEndsTheWaitForAStream checks that a watch lists soon in a new session, although its next stream
// had to wait.
func TestAReplacedSessionEndsTheWaitForAStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		large := fuzzObject("a", "6", `,"data":{"a":"`+strings.Repeat("x", LargeMessage)+`"}`)
		s := &fuzzServer{
			stream: []byte(endOfList("5") + fuzzEvent("MODIFIED", large)),
			piece:  16 << 10, how: staysOpen, honest: make(chan struct{}),
		}
		budget := NewBudget(DefaultLimits())
		for i := range reopenBurst + int(resumeLate/reopenEvery)/2 { // other watches are due first, for five seconds
			other := budget.Meter(strconv.Itoa(i))
			other.drain()
			other.Drained(time.Now())
		}
		var session atomic.Uint64
		replaced := make(chan struct{})
		w := newFuzzed(t, s, budget)
		ctx, cancel := context.WithCancel(WithSession(t.Context(), session.Load, func() <-chan struct{} { return replaced }))
		ended := make(chan struct{})
		go func() { defer close(ended); w.Run(ctx) }()
		<-time.After(drainDelay + time.Second)
		synctest.Wait()
		if n, open := s.requests.Load(), s.open.Load(); n != 1 || open != 0 {
			t.Fatalf("%d requests, %d open; want 1 that has ended, because the next one must wait", n, open)
		}
		close(s.honest)
		session.Add(1)
		close(replaced)
		<-time.After(2 * firstDelay)
		synctest.Wait()
		if n := s.requests.Load(); n != 2 || !w.Synced() {
			t.Errorf("%d requests, synced %t; want a list at once", n, w.Synced())
		}
		cancel()
		<-ended
	})
}
