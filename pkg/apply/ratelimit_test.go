package apply

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func TestRateLimitOfAnObject(t *testing.T) {
	t.Parallel()
	const second = time.Second
	burst := make([]time.Duration, repairBurst) // when the writes are tried, counted from the start: all at once
	tests := map[string]struct {
		at   []time.Duration
		want time.Duration // how long the last write must wait
	}{
		"the first":                         {[]time.Duration{0}, 0},
		"the last of a burst":               {burst, 0},
		"one more":                          {append(burst, 0), 10 * second},
		"one more, later":                   {append(burst, 4*second), 6 * second},
		"one more, when it is time":         {append(burst, 10*second), 0},
		"two more, when it is time for one": {append(burst, 10*second, 11*second), 9 * second},
		"being refused costs nothing":       {append(burst, 0, 1*second, 9*second, 10*second), 0},
		"after a long rest":                 {append(append(burst, 1000*second), burst[2:]...), 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := rateLimiter{buckets: map[place]bucket{}}
			start, now := time.Unix(1000, 0), time.Duration(0)
			var got pause
			for _, at := range test.at {
				now = max(now, at)
				got = d.take(place{}, start.Add(now))
			}
			if got.wait != test.want {
				t.Errorf("the last waits %v, want %v", got.wait, test.want)
			}
		})
	}
}

func TestRateLimitKeepsOneBucketPerObject(t *testing.T) {
	t.Parallel()
	d, now := rateLimiter{buckets: map[place]bucket{}}, time.Unix(1000, 0)
	a := place{0, types.NamespacedName{Name: "a"}}
	for range repairBurst {
		d.take(a, now)
	}
	for _, other := range []place{{1, a.key}, {0, types.NamespacedName{Namespace: "n", Name: "a"}}, {0, types.NamespacedName{Name: "b"}}} {
		if got := d.take(other, now); got.wait != 0 {
			t.Errorf("%v waits %v because of another object", other, got.wait)
		}
	}
	d.take(place{}, now.Add(repairBurst*repairEvery-time.Second))
	if _, ok := d.buckets[a]; !ok || len(d.buckets) != 2 {
		t.Errorf("%d buckets before the first is full: %v", len(d.buckets), d.buckets)
	}
	now = now.Add(3 * repairBurst * repairEvery)
	d.take(place{}, now)
	if len(d.buckets) != 1 {
		t.Errorf("%d buckets, want the one in use: %v", len(d.buckets), d.buckets)
	}
}

func TestVerdictOfAWrite(t *testing.T) {
	t.Parallel()
	id := ID{GVK: schema.GroupVersionKind{Kind: "Thing"}, Key: types.NamespacedName{Name: "x"}}
	failed := func(class ErrorClass) Outcome {
		return Failed(id, Cause{}.as(class, "no"), errors.New("no")).withWrites(2)
	}
	tests := map[string]struct {
		outcome Outcome
		verdict Verdict // of the write beyond the burst
		free    bool    // the write is not counted, so it is not beyond the burst
	}{
		"applied":     {outcome: Applied(id), verdict: VerdictRateLimited},
		"deleted":     {outcome: Deleted(id), verdict: VerdictRateLimited},
		"waiting":     {outcome: Waiting(id), verdict: VerdictRateLimited},
		"forbidden":   {outcome: failed(Forbidden), verdict: VerdictFailed},
		"denied":      {outcome: failed(Denied), verdict: VerdictFailed},
		"unreachable": {outcome: failed(Unreachable), free: true},
		"cancelled":   {outcome: failed(Cancelled), free: true},
		"skipped":     {outcome: Skipped(id), free: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, now := rateLimiter{buckets: map[place]bucket{}}, time.Unix(1000, 0)
			var last pause
			for range repairBurst + 1 {
				if last = d.take(place{}, now); last.wait == 0 {
					d.ended(place{}, test.outcome)
				}
			}
			if free := last.wait == 0; free || test.free {
				if free != test.free {
					t.Errorf("free = %t, want %t", free, test.free)
				}
				return
			}
			got := last.outcome(id)
			if got.Verdict() != test.verdict || got.ID() != id || got.writes != 0 || (got.Err() != nil) != (test.verdict == VerdictFailed) {
				t.Errorf("%s: %s, %d writes, %v", got.ID(), got.Verdict(), got.writes, got.Err())
			}
			if diff := cmp.Diff(repairEvery, ReportOf(Applied(id), got).RetryAfter()); diff != "" {
				t.Errorf("it is to be tried again after (-want +got):\n%s", diff)
			}
			if got.Verdict() == VerdictFailed && got.Cause().Class() != test.outcome.Cause().Class() {
				t.Errorf("cause = %s, want that of the last write", got.Cause().Class())
			}
		})
	}
}

func TestASuccessEndsTheFailure(t *testing.T) {
	t.Parallel()
	id := ID{GVK: schema.GroupVersionKind{Kind: "Thing"}}
	d, now := rateLimiter{buckets: map[place]bucket{}}, time.Unix(1000, 0)
	for i := range repairBurst {
		d.take(place{}, now)
		if i < repairBurst-1 {
			d.ended(place{}, Failed(id, Cause{}.as(Denied, "no"), errors.New("no")))
			continue
		}
		d.ended(place{}, Applied(id))
	}
	if got := d.take(place{}, now).outcome(id).Verdict(); got != VerdictRateLimited {
		t.Errorf("%s, want rate limited", got)
	}
}

func TestRetryAfterIsTheSoonest(t *testing.T) {
	t.Parallel()
	var id ID
	tests := map[string]struct {
		report Report
		want   time.Duration
	}{
		"none":   {Report{}, 0},
		"others": {ReportOf(Applied(id), Waiting(id)), 0},
		"one":    {ReportOf(Applied(id), RateLimited(id, 3*time.Second)), 3 * time.Second},
		"two":    {ReportOf(RateLimited(id, 5*time.Second), RateLimited(id, 3*time.Second)), 3 * time.Second},
		"of calls": {
			ReportOf(RateLimited(id, 5*time.Second)).And(ReportOf(RateLimited(id, 7*time.Second), Unchanged(id))),
			5 * time.Second,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := test.report.RetryAfter(); got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
			if limited := test.want > 0; test.report.Count(VerdictRateLimited) > 0 != limited ||
				limited && test.report.Complete() || test.report.Err() != nil {
				t.Errorf("%s, complete %t: %v", test.report, test.report.Complete(), test.report.Err())
			}
		})
	}
}
