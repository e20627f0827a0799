package controller

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/metrics"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/summary"
)

// TestTheOutcomeOfAPass has a row for each outcome.
func TestTheOutcomeOfAPass(t *testing.T) {
	t.Parallel()
	refused := errors.New("it would leak")
	for name, tc := range map[string]struct {
		decision decision
		problem  error
		result   status.Result
		settled  bool
		want     metrics.Outcome
	}{
		"on hold":                   {decision: onHold{}, want: metrics.OnHold},
		"a side is not known":       {decision: waitForSync{}, want: metrics.Unobserved},
		"no plan":                   {decision: noPlan{problem: refused}, want: metrics.Refused},
		"another hypergate's guest": {decision: pruneManagement{problem: refused}, want: metrics.Refused},
		"the Leases are not taken":  {decision: converge{}, problem: refused, settled: true, want: metrics.Refused},
		"all is as planned":         {decision: converge{}, settled: true, want: metrics.Complete},
		"istiod is on its way":      {decision: converge{}, want: metrics.Incomplete},
		"the guest's watches end": {
			decision: converge{}, settled: true, want: metrics.Unobserved,
			result: status.Result{ObservationProblem: errors.New("no answer"), ObservationSide: model.SideGuest},
		},
	} {
		if got := outcomeOf(known{decision: tc.decision, outcome: outcome{problem: tc.problem}}, tc.result, tc.settled); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// newTestExporter returns an exporter of a process that leads.
func newTestExporter() *exporter {
	e := &exporter{
		Collector:  metrics.New(metrics.Options{Values: MetricValues()}),
		credential: func() (from, until time.Time) { return time.Time{}, time.Time{} },
	}
	e.Lead()
	return e
}

// scraped returns the answer to a scrape.
func scraped(t *testing.T, e *exporter) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(e.Collector)
	answer := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, request)
	return answer.Body.String()
}

// shows compares some metrics with lines in the text format, without comments.
func shows(t *testing.T, e *exporter, name string, lines ...string) {
	t.Helper()
	var got []string
	for line := range strings.Lines(scraped(t, e)) {
		if strings.HasPrefix(line, name+"{") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	if strings.Join(got, "\n") != strings.Join(lines, "\n") {
		t.Errorf("%s:\n%s\nwant:\n%s", name, strings.Join(got, "\n"), strings.Join(lines, "\n"))
	}
}

// TestWritesAndRepairsAreCounted checks the counters of what passes wrote. A renewed token is not a repair.
func TestWritesAndRepairsAreCounted(t *testing.T) {
	t.Parallel()
	e := newTestExporter()
	id := func(kind, name string) apply.ID {
		return apply.ID{GVK: schema.GroupVersionKind{Version: "v1", Kind: kind}, Key: types.NamespacedName{Namespace: "n", Name: name}}
	}
	out := outcome{
		mgmt:  apply.ReportOf(apply.Applied(id("Secret", model.CredentialSecretName)), apply.Unchanged(id("Service", "s"))),
		guest: apply.ReportOf(apply.Deleted(id("ConfigMap", "c")), apply.RateLimited(id("ClusterRole", "r"), time.Second)),
	}
	e.note(observation{}, converge{}, out, false)
	shows(t, e, "hypergate_repairs_total")
	e.note(observation{}, converge{}, out, true)
	shows(t, e, "hypergate_repairs_total", `hypergate_repairs_total{kind="ConfigMap",side="guest"} 1`)
	e.export(summary.Summary{}, status.Result{Guest: out.guest}, time.Time{}, start)
	shows(t, e, "hypergate_rate_limited_objects",
		`hypergate_rate_limited_objects{side="guest"} 1`, `hypergate_rate_limited_objects{side="management"} 0`)
}

// TestAnInstallationIsMeasured checks which passes begin and end an installation.
func TestAnInstallationIsMeasured(t *testing.T) {
	t.Parallel()
	type pass struct {
		after          int // seconds
		status, reason string
		istiod         model.Availability
	}
	for name, tc := range map[string]struct {
		passes []pass
		want   string
	}{
		"installed": {
			[]pass{
				{0, "True", "NotRequested", model.Absent},
				{1, "False", "Installing", model.Absent},
				{21, "True", "AsExpected", model.Available},
			},
			"1 20",
		},
		"with an outage of the guest": {
			[]pass{
				{0, "False", "Installing", model.Absent},
				{5, "Unknown", "GuestUnreachable", model.Unavailable},
				{30, "True", "AsExpected", model.Available},
			},
			"1 30",
		},
		"the class goes": {
			[]pass{
				{0, "False", "Installing", model.Absent},
				{9, "True", "NotRequested", model.Absent},
				{20, "True", "AsExpected", model.Available},
			},
			"0 0",
		},
		"istiod restarts": {
			[]pass{
				{0, "True", "AsExpected", model.Available},
				{5, "False", "Installing", model.Unavailable},
				{9, "True", "AsExpected", model.Available},
			},
			"0 0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newTestExporter()
			for _, p := range tc.passes {
				s := summary.Summary{Conditions: []summary.Condition{{Type: summary.Available, Status: p.status, Reason: p.reason}}}
				e.export(s, status.Result{Istiod: p.istiod}, time.Time{}, start.Add(time.Duration(p.after)*time.Second))
			}
			found := scraped(t, e)
			count, sum, _ := strings.Cut(tc.want, " ")
			for _, want := range []string{"_count " + count, "_sum " + sum} {
				if !strings.Contains(found, "hypergate_install_duration_seconds"+want+"\n") {
					t.Errorf("there is no %s in\n%s", want, found)
				}
			}
		})
	}
}

// TestTheLastCountsStayDuringASearch checks the counts of objects that use what istiod ignores.
func TestTheLastCountsStayDuringASearch(t *testing.T) {
	t.Parallel()
	e, count := newTestExporter(), map[string]int{"httproutes.gateway.networking.k8s.io": 7}
	for _, res := range []status.Result{{InUseTotals: count, Plan: desired.Plan{Mode: "Managed"}}, {Searching: true}} {
		e.noteGuest(res)
		e.export(summary.Summary{}, res, time.Time{}, start)
		shows(t, e, "hypergate_guest_unsupported_objects",
			`hypergate_guest_unsupported_objects{crd="httproutes.gateway.networking.k8s.io"} 7`)
	}
	shows(t, e, "hypergate_guest_management_mode")
}

// TestAReportedErrorIsNotLoggedAgain checks the logger of controller-runtime, which logs each error of Reconcile.
func TestAReportedErrorIsNotLoggedAgain(t *testing.T) {
	t.Parallel()
	var lines []string
	log := withoutReported(funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})).WithValues("reconcileID", 7)
	log.Error(reconcile.TerminalError(reportedError{errors.New("no answer")}), "Reconciler error")
	log.Error(fmt.Errorf("panic: %v [recovered]", "index out of range"), "Reconciler error")
	log.Info("Applied")
	if len(lines) != 2 || !strings.Contains(lines[0], "index out of range") || !strings.Contains(lines[1], "Applied") {
		t.Errorf("logged:\n%s", strings.Join(lines, "\n"))
	}
}
