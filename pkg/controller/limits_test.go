package controller

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/throttle"
	"github.com/hypergate/hypergate/test/fakeapi"
)

// TestLimitersOfAReconciler checks the burst and the interval of each limiter that a new Reconciler has.
func TestLimitersOfAReconciler(t *testing.T) {
	m, now := newMemory(Options{}), time.Unix(0, 0)
	classes := newClasses()
	for name, tc := range map[string]struct {
		limiter *throttle.Limiter
		burst   int
		every   time.Duration
	}{
		"token requests of istiod":      {&m.tokens[model.IstiodBearer].requests, 5, 30 * time.Second},
		"token requests of the sidecar": {&m.tokens[model.SidecarBearer].requests, 5, 30 * time.Second},
		"Leases acquired":               {&m.acquiring, 10, 10 * time.Second},
		"Leases released":               {&m.releasing, 10, 10 * time.Second},
		"the status of one class":       {&classes.get("a").writes, 10, 10 * time.Second},
		"statuses beyond the rest":      {&classes.beyond, 64, time.Second},
	} {
		for i := range tc.burst {
			if wait := tc.limiter.Wait(now); wait != 0 {
				t.Errorf("%s: number %d waits for %s", name, i+1, wait)
			}
			tc.limiter.Take(now)
		}
		if wait := tc.limiter.Wait(now); wait != tc.every {
			t.Errorf("%s: after %d, the next one waits for %s, want %s", name, tc.burst, wait, tc.every)
		}
	}
}

// TestDueStatusesAreLimited checks that a status that was written too often is not due, and that all classes beyond the
// limit share one budget.
func TestDueStatusesAreLimited(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(start)
	r := newTestReconciler(t, now, fakeapi.New(t).Config())
	due := func(res status.Result) (int, time.Duration) {
		all, requeue := r.dueStatuses(t.Context(), res)
		for _, d := range all {
			r.reports.classes.try(d.class, now.Now())
		}
		return len(all), requeue
	}
	one := status.Result{Classes: []model.GatewayClass{{Name: "a"}}}
	for i := range statusBurst {
		if n, _ := due(one); n != 1 {
			t.Fatalf("write %d: %d statuses are due, want 1", i+1, n)
		}
	}
	if n, requeue := due(one); n != 0 || requeue != statusEvery {
		t.Errorf("after the burst, %d are due, again in %s", n, requeue)
	}
	now.SetTime(start.Add(statusEvery))
	if n, _ := due(one); n != 1 {
		t.Errorf("after %s, %d are due, want 1", statusEvery, n)
	}

	var many status.Result
	for i := range 2 * beyondBurst {
		many.Beyond = append(many.Beyond, model.GatewayClass{Name: fmt.Sprintf("beyond-%03d", i)})
	}
	if n, _ := due(many); n != beyondBurst {
		t.Errorf("%d statuses beyond the limit are due, want %d", n, beyondBurst)
	}
	if n, requeue := due(many); n != 0 || requeue != beyondEvery {
		t.Errorf("then %d are due, again in %s", n, requeue)
	}
}

// TestAPassHasItsGuestTime checks that each observation sets the time for work in the guest.
func TestAPassHasItsGuestTime(t *testing.T) {
	r := newTestReconciler(t, clock.RealClock{}, fakeapi.New(t).Config())
	before := time.Now()
	o := r.observe(t.Context())
	if after := time.Now(); o.deadline.Before(before.Add(40*time.Second)) || o.deadline.After(after.Add(40*time.Second)) {
		t.Errorf("the work in the guest ends %s after the observation began, want 40s", o.deadline.Sub(before))
	}
}

// TestTokensThatWereRequestedTooOftenAreNotRequested checks that nothing is sent until the limiter allows it.
func TestTokensThatWereRequestedTooOftenAreNotRequested(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(start)
	sent := 0
	config := fakeapi.New(t).Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return counted{next, &sent}
	})
	r := newTestReconciler(t, now, config)
	for range tokenBurst {
		r.memory.tokens[model.IstiodBearer].requests.Take(start)
	}
	e := newExecution(r, observation{deadline: time.Now().Add(time.Hour)})
	e.requestToken(t.Context(), model.IstiodBearer, start)
	if sent != 0 || e.outcome.requeue != tokenEvery {
		t.Errorf("%d requests, again in %s", sent, e.outcome.requeue)
	}
	e.requestToken(t.Context(), model.IstiodBearer, start.Add(tokenEvery))
	if sent != 1 {
		t.Errorf("%d requests after %s, want 1", sent, tokenEvery)
	}
}

// counted is a transport that counts requests, one after the other.
type counted struct {
	next http.RoundTripper
	n    *int
}

// RoundTrip sends a request.
func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	*c.n++
	return c.next.RoundTrip(r)
}
