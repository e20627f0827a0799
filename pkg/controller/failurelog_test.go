package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/ownership"
	"github.com/hypergate/hypergate/pkg/status"
)

// TestRecurringFailuresAreLoggedAtALimitedRate checks that recurring failures are logged at a limited rate: two
// failures in turn, and one failure that ends each time. An example is an ownership Lease that another hypergate, or
// the guest, takes and releases in a loop.
func TestRecurringFailuresAreLoggedAtALimitedRate(t *testing.T) {
	owned := status.Result{PlanProblem: ownership.OwnedByOtherError{}}
	for name, between := range map[string]status.Result{"free": {}, "another failure": {PlanProblem: errors.New("it would leak")}} {
		var lines []string
		ctx := klog.NewContext(t.Context(), funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
		failures := newFailureLog()
		now := time.Unix(0, 0)
		report := func(r status.Result) { failures.report(ctx, failureOf(r, nil), now) }
		for range 3600 {
			report(owned)
			report(between)
			now = now.Add(time.Second)
		}
		// Ten at once, then one in ten seconds up to about sixty, then one in ten minutes.
		if n := len(lines); n < 60 || n > 70 {
			t.Errorf("%s: %d lines in an hour", name, n)
		}
		if !strings.Contains(lines[len(lines)-1], "failuresLeftOut") {
			t.Errorf("%s: the line does not have failuresLeftOut: %s", name, lines[len(lines)-1])
		}
		n := len(lines)
		for range 30 {
			report(status.Result{PlanProblem: errors.New("a lasting failure")})
			now = now.Add(30 * time.Second)
		}
		if len(lines) != n+1 || !strings.Contains(lines[n], "a lasting failure") {
			t.Errorf("%s: a lasting failure is logged in %d lines", name, len(lines)-n)
		}
	}
}

// TestAFailureBeyondTheLogLimitIsCountedOnce checks that a failure that recurs beyond the limit is counted once, and
// logged later.
func TestAFailureBeyondTheLogLimitIsCountedOnce(t *testing.T) {
	for name, test := range map[string]struct {
		tries []string
		want  string
	}{
		"what waited itself":                     {[]string{"lasts", "lasts", "lasts"}, ""},
		"another before it":                      {[]string{"passed", "passed", "lasts", "lasts"}, "1"},
		"another after it, too":                  {[]string{"lasts", "lasts", "passed", "lasts", "lasts"}, "2"},
		"itself before, and then nothing failed": {[]string{"lasts", "lasts", "", "lasts", "lasts"}, "1"},
		"what was logged last in between":        {[]string{"lasts", "logged", "logged", "lasts", "lasts"}, "1"},
		"nothing":                                {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var lines []string
			ctx := klog.NewContext(t.Context(), funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
			failures, now := newFailureLog(), time.Unix(0, 0)
			report := func(text string) {
				var r status.Result
				if text != "" {
					r.PlanProblem = errors.New(text)
				}
				failures.report(ctx, failureOf(r, nil), now)
			}
			for failures.limiter.Wait(now) == 0 {
				report("other")
				report("logged")
			}
			logged := len(lines)
			for _, text := range test.tries {
				report(text)
			}
			if len(lines) != logged {
				t.Fatalf("logged beyond the limit: %v", lines[logged:])
			}
			now = now.Add(time.Minute)
			report("lasts")
			if len(lines) != logged+1 {
				t.Fatalf("a lasting failure is logged in %d lines", len(lines)-logged)
			}
			if _, leftOut, _ := strings.Cut(lines[logged], `"failuresLeftOut"=`); leftOut != test.want {
				t.Errorf("%q were left out before, want %q: %s", leftOut, test.want, lines[logged])
			}
		})
	}
}

// TestLoggedFailuresAreBounded checks that the logged text and the fingerprint are bounded, for many failures and for
// long texts.
func TestLoggedFailuresAreBounded(t *testing.T) {
	long := strings.Repeat("long\n", 1<<18)
	var outcomes []apply.Outcome
	for i := range 2000 {
		id := apply.ID{
			GVK: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
			Key: types.NamespacedName{Namespace: "n", Name: fmt.Sprint("x", i)},
		}
		err := errors.New(long)
		outcomes = append(outcomes, apply.Failed(id, apply.Classify(err, "patch", schema.GroupResource{Resource: "configmaps"}), err))
	}
	res := status.Result{PlanProblem: errors.New(long), Mgmt: apply.ReportOf(outcomes...), Guest: apply.ReportOf(outcomes...)}
	f := failureOf(res, errors.New(long))
	if len(f.err.Error()) > 32<<10 || len(f.fingerprint) > 1<<10 {
		t.Errorf("the error has %d bytes, its fingerprint %d", len(f.err.Error()), len(f.fingerprint))
	}
	if again := failureOf(res, errors.New(long)); again.fingerprint != f.fingerprint || !again.permanent {
		t.Errorf("the same failure has another fingerprint: %q, %q", f.fingerprint, again.fingerprint)
	}
	res.Mgmt = apply.ReportOf(outcomes[1:]...)
	if other := failureOf(res, nil); other.fingerprint == f.fingerprint {
		t.Error("another failure has the same fingerprint")
	}
}
