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
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/status"
)

// TestTroubleThatComesAndGoesIsBounded: two in turn, and one that ends each time, as a claim that another hypergate, or the guest, takes and frees in a loop.
func TestTroubleThatComesAndGoesIsBounded(t *testing.T) {
	taken := status.Result{PlanProblem: desired.OwnedByOtherError{}}
	for name, between := range map[string]status.Result{"free": {}, "another trouble": {PlanProblem: errors.New("it would leak")}} {
		var lines []string
		ctx := klog.NewContext(t.Context(), funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
		trouble := newFailureLog()
		now := time.Unix(0, 0)
		tell := func(r status.Result) { trouble.report(ctx, failureOf(r, nil), now) }
		for range 3600 {
			tell(taken)
			tell(between)
			now = now.Add(time.Second)
		}
		// Ten at once, then one in ten seconds up to sixty or so, then one in ten minutes.
		if n := len(lines); n < 60 || n > 70 {
			t.Errorf("%s: %d lines in an hour", name, n)
		}
		if !strings.Contains(lines[len(lines)-1], "failuresLeftOut") {
			t.Errorf("%s: it is not said that lines were left out: %s", name, lines[len(lines)-1])
		}
		n := len(lines)
		for range 30 {
			tell(status.Result{PlanProblem: errors.New("what stands")})
			now = now.Add(30 * time.Second)
		}
		if len(lines) != n+1 || !strings.Contains(lines[n], "what stands") {
			t.Errorf("%s: what goes on is told in %d lines", name, len(lines)-n)
		}
	}
}

// TestWhatWaitsToBeToldIsCountedOnce: it is tried again and again meanwhile, and in the end it is told.
func TestWhatWaitsToBeToldIsCountedOnce(t *testing.T) {
	for name, test := range map[string]struct {
		tries []string
		want  string
	}{
		"what waited itself":                     {[]string{"stands", "stands", "stands"}, ""},
		"another before it":                      {[]string{"passed", "passed", "stands", "stands"}, "1"},
		"another after it, too":                  {[]string{"stands", "stands", "passed", "stands", "stands"}, "2"},
		"itself before, and then nothing failed": {[]string{"stands", "stands", "", "stands", "stands"}, "1"},
		"what was told last in between":          {[]string{"stands", "told", "told", "stands", "stands"}, "1"},
		"nothing":                                {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var lines []string
			ctx := klog.NewContext(t.Context(), funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
			trouble, now := newFailureLog(), time.Unix(0, 0)
			tell := func(text string) {
				var r status.Result
				if text != "" {
					r.PlanProblem = errors.New(text)
				}
				trouble.report(ctx, failureOf(r, nil), now)
			}
			for trouble.limiter.Wait(now) == 0 {
				tell("other")
				tell("told")
			}
			said := len(lines)
			for _, text := range test.tries {
				tell(text)
			}
			if len(lines) != said {
				t.Fatalf("told beyond the budget: %v", lines[said:])
			}
			now = now.Add(time.Minute)
			tell("stands")
			if len(lines) != said+1 {
				t.Fatalf("what stands is told in %d lines", len(lines)-said)
			}
			if _, leftOut, _ := strings.Cut(lines[said], `"failuresLeftOut"=`); leftOut != test.want {
				t.Errorf("%q were left out before, want %q: %s", leftOut, test.want, lines[said])
			}
		})
	}
}

// TestTroubleIsSmall, however much of it there is and whatever others say in it: what is logged, and what is remembered.
func TestTroubleIsSmall(t *testing.T) {
	long := strings.Repeat("long\n", 1<<18)
	var outcomes []apply.Outcome
	for i := range 2000 {
		id := apply.ID{GVK: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Key: types.NamespacedName{Namespace: "n", Name: fmt.Sprint("x", i)}}
		err := errors.New(long)
		outcomes = append(outcomes, apply.Failed(id, apply.Classify(err, "patch", schema.GroupResource{Resource: "configmaps"}), err))
	}
	res := status.Result{PlanProblem: errors.New(long), Mgmt: apply.ReportOf(outcomes...), Guest: apply.ReportOf(outcomes...)}
	f := failureOf(res, errors.New(long))
	if len(f.err.Error()) > 32<<10 || len(f.fingerprint) > 1<<10 {
		t.Errorf("the error has %d bytes, its gist %d", len(f.err.Error()), len(f.fingerprint))
	}
	if again := failureOf(res, errors.New(long)); again.fingerprint != f.fingerprint || !again.permanent {
		t.Errorf("the same is news: %q, %q", f.fingerprint, again.fingerprint)
	}
	res.Mgmt = apply.ReportOf(outcomes[1:]...)
	if other := failureOf(res, nil); other.fingerprint == f.fingerprint {
		t.Error("another failure is none")
	}
}
