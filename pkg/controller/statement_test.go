package controller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
)

// TestConditionsAreComputedOnce checks that the Lease and the HostedControlPlane get the same conditions, each with its
// own transition times, and that a second HostedControlPlane gets those of its own lifecycle.
func TestConditionsAreComputedOnce(t *testing.T) {
	r := reports{summary: summarizer{board: &board{leaseless: true}}}
	first := mgmt.StatusTarget{ControlPlane: model.ControlPlane{Name: "a"}, APIServer: metav1.ConditionTrue}
	said, _ := r.state(status.Result{}, []mgmt.StatusTarget{first}, start)
	if len(said.conditions) != 4 {
		t.Fatalf("%d conditions", len(said.conditions))
	}
	// A mark that only the statement has: what is computed again would not have it.
	for i := range said.conditions {
		said.conditions[i].Message = "marked"
	}
	earlier := metav1.NewTime(start.Add(-time.Hour))
	for _, c := range said.conditions {
		c.LastTransitionTime = earlier
		first.Conditions = append(first.Conditions, c)
	}
	r.summary.addPass(said)
	for _, c := range said.conditionsFor(first) {
		if c.Message != "marked" || !c.LastTransitionTime.Equal(&earlier) {
			t.Errorf("the HostedControlPlane gets %+v", c)
		}
		inSummary := meta.FindStatusCondition(r.summary.conditions, c.Type)
		if inSummary == nil || inSummary.Message != "marked" || !inSummary.LastTransitionTime.Time.Equal(start.Truncate(time.Second)) {
			t.Errorf("the summary gets %+v", inSummary)
		}
	}

	paused := mgmt.StatusTarget{ControlPlane: model.ControlPlane{Name: "b", PausedUntil: "true"}}
	deleted := mgmt.StatusTarget{ControlPlane: model.ControlPlane{Name: "c", Deleting: true}}
	var got []string
	for _, to := range []mgmt.StatusTarget{paused, deleted} {
		for _, c := range said.conditionsFor(to) {
			got = append(got, to.Name+" "+c.Reason)
		}
	}
	if diff := cmp.Diff([]string{"b " + status.ReasonReconciliationPaused}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestTheAPIServersStateCounts checks that a HostedControlPlane whose API server is not available changes what is
// Degraded, in the Lease as well.
func TestTheAPIServersStateCounts(t *testing.T) {
	for state, want := range map[metav1.ConditionStatus]metav1.ConditionStatus{
		metav1.ConditionTrue: metav1.ConditionTrue, metav1.ConditionFalse: metav1.ConditionFalse,
	} {
		r := reports{summary: summarizer{board: &board{leaseless: true}}}
		targets := []mgmt.StatusTarget{{ControlPlane: model.ControlPlane{Name: "a"}, APIServer: state}}
		res := status.Result{GuestWatchProblem: away()}
		if _, again := r.state(res, targets, start); (again > lookEvery) || again == 0 {
			t.Errorf("%s: the next look is after %s", state, again)
		}
		said, _ := r.state(res, targets, start.Add(time.Hour))
		if c := meta.FindStatusCondition(said.conditions, status.ControlPlaneDegraded); c.Status != want {
			t.Errorf("%s: %+v", state, c)
		}
	}
}
