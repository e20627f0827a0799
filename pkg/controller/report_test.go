package controller

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
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

// TestPersistentFailuresAreRetriedLater checks that the first retry is later for a failure that needs an action than
// for one that may be transient.
func TestPersistentFailuresAreRetriedLater(t *testing.T) {
	for name, tc := range map[string]struct {
		result status.Result
		status error
		want   time.Duration
	}{
		"nothing":   {status.Result{}, nil, 0},
		"forbidden": {status.Result{Mgmt: failed(forbidden())}, nil, time.Second},
		"no answer": {status.Result{Guest: failed(away())}, nil, 100 * time.Millisecond},
		"forbidden here, no answer there": {
			status.Result{Mgmt: failed(forbidden()), Guest: failed(away())}, nil, 100 * time.Millisecond,
		},
		"a plan that is refused":                {status.Result{PlanProblem: errors.New("it would leak")}, nil, time.Second},
		"a plan that is not known for an error": {status.Result{PlanProblem: away()}, nil, 100 * time.Millisecond},
		"a status whose write is forbidden":     {status.Result{}, forbidden(), time.Second},
		"a status that got no answer":           {status.Result{Mgmt: failed(forbidden())}, away(), 100 * time.Millisecond},
		"this process ends":                     {status.Result{Guest: failed(context.Canceled)}, nil, 100 * time.Millisecond},
	} {
		failures := newFailureLog()
		if got := failures.report(t.Context(), failureOf(tc.result, tc.status), time.Unix(0, 0)); got != tc.want {
			t.Errorf("%s: tried again after %s, want %s", name, got, tc.want)
		}
	}
}

// counting returns a context with a logger, and the number of lines that were logged with it.
func counting(t *testing.T) (ctx context.Context, lines *int) {
	t.Helper()
	lines = new(int)
	return klog.NewContext(t.Context(), funcr.New(func(string, string) { *lines++ }, funcr.Options{})), lines
}

// TestAFailureIsLoggedOnce checks that a failure is logged once, and retried at growing intervals, even if its text
// differs with each attempt.
func TestAFailureIsLoggedOnce(t *testing.T) {
	from := func(port int) error {
		return &url.Error{Op: "Patch", URL: "https://guest", Err: fmt.Errorf("read tcp 10.0.0.1:%d->10.0.0.2:6443: connection reset", port)}
	}
	for name, tc := range map[string]struct {
		result func(try int) status.Result
		delays []time.Duration
	}{
		"forbidden": {
			func(int) status.Result { return status.Result{Mgmt: failed(forbidden())} },
			[]time.Duration{1e9, 2e9, 4e9, 8e9, 16e9, 30e9, 30e9},
		},
		"no answer, by another connection each time": {
			func(try int) status.Result { return status.Result{Guest: failed(from(try))} },
			[]time.Duration{1e8, 2e8, 4e8, 8e8, 16e8, 32e8, 64e8, 1e10, 1e10},
		},
		"no answer, and others were not waited for": {
			func(try int) status.Result {
				report := failed(context.DeadlineExceeded)
				if try%2 == 1 {
					report = report.And(failed(context.Canceled)).And(apply.ReportOf(apply.Skipped(object("c"))))
				}
				return status.Result{Guest: report}
			},
			[]time.Duration{1e8, 2e8, 4e8, 8e8},
		},
	} {
		ctx, lines := counting(t)
		failures := newFailureLog()
		var delays []time.Duration
		for try := range tc.delays {
			delays = append(delays, failures.report(ctx, failureOf(tc.result(try), nil), time.Unix(0, 0)))
		}
		if diff := cmp.Diff(tc.delays, delays); diff != "" || *lines != 1 {
			t.Errorf("%s: %d lines; delays, -want +got:\n%s", name, *lines, diff)
		}
		t.Log("another failure is logged, and one that recurs is logged again")
		failures.report(ctx, failureOf(status.Result{PlanProblem: errors.New("it would leak")}, nil), time.Unix(0, 0))
		failures.report(ctx, failureOf(status.Result{}, nil), time.Unix(0, 0))
		if got := failures.report(ctx, failureOf(tc.result(0), nil), time.Unix(0, 0)); got != tc.delays[0] || *lines != 3 {
			t.Errorf("%s: after a success: retried after %s, %d lines", name, got, *lines)
		}
	}
}

// TestTransientStatesAreNotReported checks that a transient state is not reported before it has lasted.
func TestTransientStatesAreNotReported(t *testing.T) {
	deleted := status.Result{Guest: apply.ReportOf(apply.Waiting(object("a")))}
	rolling := status.Result{Istiod: model.Available, Rollout: model.Rolling}
	both := status.Result{Istiod: model.Available, Rollout: model.Rolling, Guest: deleted.Guest}
	coming := status.Result{Istiod: model.Unavailable, Rollout: model.Rolling}
	unread := crds.CRD{
		Name: "a", Fact: crds.Fact{Owner: crds.Owner{Kind: crds.ThirdParty}}, Wanted: crds.Wanted{Version: "v1.4.1"},
		Decision: crds.Decision{Verdict: crds.Undetermined, Reason: crds.IsUnread},
	}
	settling := status.Result{Istiod: model.Available, Plan: desired.Plan{Decisions: []crds.CRD{unread}}}
	early := status.Result{Istiod: model.Unavailable, Plan: settling.Plan}
	var transient transientSince
	for i, step := range []struct {
		result status.Result
		after  time.Duration
		want   time.Duration
	}{
		{deleted, 0, 10 * time.Second},
		{deleted, time.Second, 9 * time.Second},
		{deleted, 10 * time.Second, 0}, // it lasts
		{status.Result{}, 11 * time.Second, 0},
		{rolling, 12 * time.Second, 10 * time.Second}, // another state
		{rolling, 22 * time.Second, 0},                // it lasts
		{both, 30 * time.Second, 10 * time.Second},    // the new state has its own time
		{both, 39 * time.Second, time.Second},
		{both, 40 * time.Second, 0},
		{coming, 41 * time.Second, 0},                  // a rollout before istiod is available is reported
		{settling, 50 * time.Second, 10 * time.Second}, // a CRD was changed, and not read yet
		{status.Result{}, 51 * time.Second, 0},         // it was read
		{early, 52 * time.Second, 3 * time.Second},     // all CRDs are read within it, each would change the status
		{early, 55 * time.Second, 0},                   // it lasts
	} {
		if got := transient.wait(step.result, start.Add(step.after)); got != step.want {
			t.Errorf("step %d: wait %s, want %s", i, got, step.want)
		}
	}
}

func TestRepairsAreLoggedByNameAndInstallationsByCount(t *testing.T) {
	few := apply.ReportOf(apply.Unchanged(object("a")), apply.Applied(object("b")), apply.Deleted(object("c")))
	if diff := cmp.Diff("1 unchanged, 1 applied, 1 deleted: Service ns/b applied, Service ns/c deleted", describeChanges(few)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	many := apply.Report{}
	for range 9 {
		many = many.And(apply.ReportOf(apply.Applied(object("a"))))
	}
	if diff := cmp.Diff("9 applied", describeChanges(many)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
