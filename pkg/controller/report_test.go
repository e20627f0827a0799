package controller_test

import (
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/status"
)

var services = schema.GroupResource{Resource: "services"}

func object(name string) apply.ID {
	return apply.ID{GVK: schema.GroupVersionKind{Version: "v1", Kind: "Service"}, Key: types.NamespacedName{Namespace: "ns", Name: name}}
}

func failed(err error) apply.Report {
	return apply.ReportOf(apply.Unchanged(object("a")), apply.Failed(object("b"), apply.Classify(err, "patch", services), err))
}

func forbidden() error { return apierrors.NewForbidden(services, "b", errors.New("no")) }

func away() error { return apierrors.NewServiceUnavailable("no") }

// TestWhatLastsIsNotTriedAtOnce, and what may pass in a moment is.
func TestWhatLastsIsNotTriedAtOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		outcome status.Outcome
		want    bool
	}{
		"forbidden":                             {status.Outcome{Mgmt: failed(forbidden())}, true},
		"no answer":                             {status.Outcome{Guest: failed(away())}, false},
		"forbidden here, no answer there":       {status.Outcome{Mgmt: failed(forbidden()), Guest: failed(away())}, false},
		"a plan that is refused":                {status.Outcome{Refused: errors.New("it would leak")}, true},
		"a plan that is not known for an error": {status.Outcome{Refused: away()}, false},
	} {
		if got := controller.Lasting(tc.outcome); got != tc.want {
			t.Errorf("%s: lasting is %t, want %t", name, got, tc.want)
		}
	}
}

// TestTroubleIsToldOnce, and tried less and less often.
func TestTroubleIsToldOnce(t *testing.T) {
	lines := 0
	ctx := klog.NewContext(t.Context(), funcr.New(func(string, string) { lines++ }, funcr.Options{}))
	var trouble controller.Trouble
	var delays []time.Duration
	for range 7 {
		delays = append(delays, controller.Tell(&trouble, ctx, forbidden()))
	}
	want := []time.Duration{1e9, 2e9, 4e9, 8e9, 16e9, 30e9, 30e9}
	if diff := cmp.Diff(want, delays); diff != "" || lines != 1 {
		t.Errorf("%d lines; delays, -want +got:\n%s", lines, diff)
	}
	if got := controller.Tell(&trouble, ctx, nil); got != 0 {
		t.Errorf("without trouble it is tried again after %s", got)
	}
	if got := controller.Tell(&trouble, ctx, forbidden()); got != time.Second || lines != 2 {
		t.Errorf("new trouble: after %s, %d lines", got, lines)
	}
}

// TestWhatPassesIsNotTold before it lasts.
func TestWhatPassesIsNotTold(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	deleted := status.Outcome{Guest: apply.ReportOf(apply.Waiting(object("a")))}
	rolling := status.Outcome{Istiod: desired.Available, Rollout: desired.Rolling}
	both := status.Outcome{Istiod: desired.Available, Rollout: desired.Rolling, Guest: deleted.Guest}
	coming := status.Outcome{Istiod: desired.Unavailable, Rollout: desired.Rolling}
	var passing controller.Passing
	for i, step := range []struct {
		outcome status.Outcome
		after   time.Duration
		want    time.Duration
	}{
		{deleted, 0, 10 * time.Second},
		{deleted, time.Second, 9 * time.Second},
		{deleted, 10 * time.Second, 0}, // it lasts
		{status.Outcome{}, 11 * time.Second, 0},
		{rolling, 12 * time.Second, 10 * time.Second}, // another
		{rolling, 22 * time.Second, 0},                // it lasts
		{both, 30 * time.Second, 10 * time.Second},    // what begins now has its own time
		{both, 39 * time.Second, time.Second},
		{both, 40 * time.Second, 0},
		{coming, 41 * time.Second, 0}, // nobody waits for that to pass: it is told
	} {
		if got := controller.Wait(&passing, step.outcome, now.Add(step.after)); got != step.want {
			t.Errorf("step %d: wait %s, want %s", i, got, step.want)
		}
	}
}

func TestARepairIsToldByNameAndAnInstallationByNumber(t *testing.T) {
	few := apply.ReportOf(apply.Unchanged(object("a")), apply.Applied(object("b")), apply.Deleted(object("c")))
	if diff := cmp.Diff("1 unchanged, 1 applied, 1 deleted: Service ns/b applied, Service ns/c deleted", controller.Told(few)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	many := apply.Report{}
	for range 9 {
		many = many.And(apply.ReportOf(apply.Applied(object("a"))))
	}
	if diff := cmp.Diff("9 applied", controller.Told(many)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
