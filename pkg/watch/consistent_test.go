package watch

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	testclock "k8s.io/utils/clock/testing"
)

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// TestWatchResumesWithoutAList checks from which state a watch can continue without a list.
func TestWatchResumesWithoutAList(t *testing.T) {
	t.Parallel()
	const timeout = 300
	type step struct {
		after time.Duration
		do    string // list, list fails, stream (a streamed list), watch
		fails bool
		want  string // sent, refused or fails
	}
	for name, steps := range map[string][]step{
		"nothing was listed":   {{0, "watch", false, "refused"}},
		"after a list":         {{0, "list", false, "sent"}, {time.Hour, "watch", false, "sent"}},
		"a list that failed":   {{0, "list", true, "fails"}, {0, "watch", false, "refused"}},
		"one watch for a list": {{0, "list", false, "sent"}, {0, "watch", true, "fails"}, {0, "watch", false, "refused"}},
		"a watch that ended by its timeout": {
			{0, "list", false, "sent"}, {0, "watch", false, "sent"}, {seconds(timeout), "watch", false, "sent"},
		},
		"again and again": {
			{0, "stream", false, "sent"}, {seconds(timeout), "watch", false, "sent"}, {seconds(timeout + 1), "watch", false, "sent"},
		},
		"a little early, as clocks are":  {{0, "stream", false, "sent"}, {seconds(timeout - 0.5), "watch", false, "sent"}},
		"a stream that was lost":         {{0, "stream", false, "sent"}, {seconds(timeout - 2), "watch", false, "refused"}},
		"a stream that was lost at once": {{0, "stream", false, "sent"}, {0, "watch", false, "refused"}},
		"too late":                       {{0, "stream", false, "sent"}, {seconds(timeout + 11), "watch", false, "refused"}},
		"in time, and the server does not answer": {
			{0, "stream", false, "sent"}, {seconds(timeout), "watch", true, "fails"}, {0, "watch", false, "refused"},
		},
		"a list after it was refused": {
			{0, "stream", false, "sent"},
			{0, "watch", false, "refused"},
			{firstDelay, "stream", false, "sent"},
			{seconds(timeout), "watch", false, "sent"},
		},
		"streamed lists, one after the other": {
			{0, "stream", true, "fails"},
			{0, "stream", false, "refused"},
			{firstDelay, "stream", true, "fails"},
			{firstDelay, "stream", false, "refused"},
			{firstDelay, "stream", false, "sent"},
		},
		"a streamed list after a long time": {
			{0, "stream", false, "sent"}, {resetAfter + 1, "stream", false, "sent"}, {firstDelay, "stream", false, "sent"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := testclock.NewFakeClock(time.Unix(1e9, 0))
			var failure error
			lw := consistentBy(Requests{
				List: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
					return &corev1.ConfigMapList{}, failure
				},
				Watch: func(context.Context, metav1.ListOptions) (apiwatch.Interface, error) {
					return apiwatch.NewFake(), failure
				},
			}, now)
			for i, s := range steps {
				now.SetTime(now.Now().Add(s.after))
				failure = map[bool]error{true: errors.New("no answer")}[s.fails]
				var err error
				if s.do == "list" {
					_, err = lw.ListWithContextFunc(t.Context(), metav1.ListOptions{})
				} else {
					o := metav1.ListOptions{TimeoutSeconds: new(int64(timeout)), ResourceVersion: "7"}
					if s.do == "stream" {
						o.SendInitialEvents = new(true)
					}
					_, err = lw.WatchFuncWithContext(t.Context(), o)
				}
				got := map[bool]string{true: "sent", false: "fails"}[err == nil]
				if errors.Is(err, ErrNotResumed) {
					got = "refused"
				}
				if got != s.want {
					t.Errorf("step %d, %s after %s: %s, want %s", i, s.do, s.after, got, s.want)
				}
			}
		})
	}
}

// TestListsRequestTheNewestVersion checks that lists request the newest version. A list of "at least what was seen
// last" waits in vain if that version lies in the future. A list of any version can be older than a write that was
// answered before.
func TestListsRequestTheNewestVersion(t *testing.T) {
	t.Parallel()
	var sent []string
	begun := 0
	lw := Consistent(Requests{
		Begin: func() { begun++ },
		List: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
			sent = append(sent, "list "+o.ResourceVersion+" "+string(o.ResourceVersionMatch)+o.Continue)
			return &corev1.ConfigMapList{}, nil
		},
		Watch: func(_ context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			sent = append(sent, "watch "+o.ResourceVersion+" "+string(o.ResourceVersionMatch))
			return apiwatch.NewFake(), nil
		},
	})
	for _, o := range []metav1.ListOptions{
		{ResourceVersion: "0"},
		{ResourceVersion: "7", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan},
		{Continue: "next"},
	} {
		if _, err := lw.ListWithContextFunc(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range []metav1.ListOptions{
		{ResourceVersion: "7"},
		{ResourceVersion: "7", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, SendInitialEvents: new(true)},
	} {
		if _, err := lw.WatchFuncWithContext(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"list  ", "list  ", "list  next", "watch 7 ", "watch  NotOlderThan"}, sent); diff != "" {
		t.Error(diff)
	}
	if begun != 3 {
		t.Errorf("%d lists began, want 3: the next page does not count", begun)
	}
}

// TestNoWatchIsResumedInANewSession checks that versions of another server do not count. A stream that was opened
// while the session changed must not continue either.
func TestNoWatchIsResumedInANewSession(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]string{"after a list": "list", "after a stream": "stream"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := testclock.NewFakeClock(time.Unix(1e9, 0))
			session, during := uint64(0), uint64(0)
			var streams []*apiwatch.FakeWatcher
			lw := consistentBy(Requests{
				Session: func() uint64 { return session },
				List:    func(context.Context, metav1.ListOptions) (runtime.Object, error) { return &corev1.ConfigMapList{}, nil },
				Watch: func(context.Context, metav1.ListOptions) (apiwatch.Interface, error) {
					session += during
					streams = append(streams, apiwatch.NewFake())
					return streams[len(streams)-1], nil
				},
			}, now)
			list := func() error {
				if first == "list" {
					_, err := lw.ListWithContextFunc(t.Context(), metav1.ListOptions{})
					return err
				}
				_, err := lw.WatchFuncWithContext(t.Context(),
					metav1.ListOptions{SendInitialEvents: new(true), TimeoutSeconds: new(int64(300))})
				now.SetTime(now.Now().Add(300 * time.Second))
				return err
			}
			resume := func() error {
				_, err := lw.WatchFuncWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "7", TimeoutSeconds: new(int64(300))})
				return err
			}
			if err := list(); err != nil {
				t.Fatal(err)
			}
			session++
			if err := resume(); !errors.Is(err, ErrNotResumed) {
				t.Errorf("in another session: %v", err)
			}
			if err := list(); err != nil {
				t.Fatal(err)
			}
			during = 1
			if err := resume(); !errors.Is(err, ErrNotResumed) || !streams[len(streams)-1].IsStopped() {
				t.Errorf("the session changed while it was opened: %v, stopped %t", err, streams[len(streams)-1].IsStopped())
			}
			during = 0
			if err := errors.Join(list(), resume()); err != nil {
				t.Errorf("in the same session: %v", err)
			}
		})
	}
}
