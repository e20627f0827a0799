package status_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/publish"
	"github.com/hypergate/hypergate/pkg/status"
)

// awaitingEndpoint is a result with EndpointPending, a problem with a grace period of ten minutes.
func awaitingEndpoint() status.Result {
	return with(serving(), func(r *status.Result) {
		r.Istiod, r.Plan.Endpoint = model.Absent, publish.EndpointPending{Why: "an address"}
	})
}

// away adds GuestUnreachable to a result, a problem with a grace period of two minutes.
func away(r status.Result) status.Result {
	r.GuestWatchProblem = unreachable()
	return r
}

func degradedIn(conditions []metav1.Condition) metav1.Condition {
	return *meta.FindStatusCondition(conditions, status.ControlPlaneDegraded)
}

// TestEachTransientProblemHasItsOwnTime: a problem does not count as Degraded because another one began earlier, or
// because Degraded is True for another reason.
func TestEachTransientProblemHasItsOwnTime(t *testing.T) {
	var since status.DegradedSince
	var previous []metav1.Condition
	knownAway := with(away(serving()), func(r *status.Result) { r.APIServer = metav1.ConditionFalse })
	for _, step := range []struct {
		after  time.Duration
		result status.Result
		want   string
	}{
		{0, awaitingEndpoint(), "AsExpected"},
		{3 * time.Minute, away(awaitingEndpoint()), "AsExpected"},
		{3*time.Minute + 5*time.Second, awaitingEndpoint(), "AsExpected"},
		{5 * time.Minute, status.Result{ObservationProblem: unreachable(), ObservationSide: model.SideGuest}, "AsExpected"},
		{5*time.Minute + 5*time.Second, awaitingEndpoint(), "AsExpected"},
		{10 * time.Minute, awaitingEndpoint(), "EndpointPending"},
		{11 * time.Minute, serving(), "AsExpected"},
		{12 * time.Minute, awaitingEndpoint(), "AsExpected"},
		{13 * time.Minute, away(serving()), "AsExpected"},
		{13*time.Minute + 10*time.Second, knownAway, "AsExpected"},
		{43 * time.Minute, away(serving()), "AsExpected"},
		{45 * time.Minute, away(serving()), "GuestUnreachable"},
	} {
		at := now.Add(step.after)
		since, _ = since.Observe(step.result, at)
		previous = status.ControlPlane(step.result, since, previous, at)
		if got := degradedIn(previous); got.Reason != step.want {
			t.Errorf("after %s: %s: %s", step.after, got.Reason, got.Message)
		}
	}

	forbidden := with(serving(), func(r *status.Result) {
		r.Guest = apply.ReportOf(failed(configMap, mayNotList("configmaps")))
	})
	blocked := status.ControlPlane(forbidden, status.DegradedSince{}, nil, now)
	lost := with(forbidden, func(r *status.Result) { r.Endpoint = status.EndpointLost(model.SideMgmt, "no answer") })
	since, _ = status.DegradedSince{}.Observe(lost, now)
	before, after := degradedIn(blocked), degradedIn(status.ControlPlane(lost, since, blocked, now))
	if before.Status != metav1.ConditionTrue || after.Message != before.Message {
		t.Errorf("a new problem counts at once beside another one: %s", after.Message)
	}
}

// TestATransientProblemIsDegradedAfterItsOwnTime: whatever else comes and goes, Degraded is True if, and only if, a
// problem has lasted for its own grace period. The time of a problem that cannot be seen goes on.
func TestATransientProblemIsDegradedAfterItsOwnTime(t *testing.T) {
	const short, long = 2 * time.Minute, 10 * time.Minute
	lost := with(serving(), func(r *status.Result) { r.Endpoint = status.EndpointLost(model.SideMgmt, "no answer") })
	states := []struct {
		result   status.Result
		problems map[string]time.Duration
		unseen   bool
	}{
		{result: serving()},
		{awaitingEndpoint(), map[string]time.Duration{"EndpointPending": long}, false},
		{lost, map[string]time.Duration{"EndpointUnreachable": short}, false},
		{away(awaitingEndpoint()), map[string]time.Duration{"EndpointPending": long, "GuestUnreachable": short}, true},
		{
			status.Result{ObservationProblem: unauthorized(), ObservationSide: model.SideGuest},
			map[string]time.Duration{"GuestUnauthorized": short},
			true,
		},
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var since status.DegradedSince
		var previous []metav1.Condition
		began, at := map[string]time.Time{}, now
		for range 30 {
			state := states[random.IntN(len(states))]
			at = at.Add(time.Duration(random.IntN(240)) * time.Second)
			for reason := range began {
				if _, has := state.problems[reason]; !has && !state.unseen {
					delete(began, reason)
				}
			}
			expected := metav1.ConditionFalse
			for reason, grace := range state.problems {
				if _, known := began[reason]; !known {
					began[reason] = at
				}
				if at.Sub(began[reason]) >= grace {
					expected = metav1.ConditionTrue
				}
			}
			since, _ = since.Observe(state.result, at)
			previous = status.ControlPlane(state.result, since, previous, at)
			if got := degradedIn(previous); got.Status != expected {
				t.Fatalf("%s since %v: want %s, got %s: %s", at, began, expected, got.Status, got.Message)
			}
		}
	}
}
