package adversary_test

import (
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/test/freeport"
	"github.com/hypergate/hypergate/test/golden"
)

// TestMetricsShowAnOutage checks that a guest that does not answer is visible in the metrics: in those of hypergate,
// and in the errors that controller-runtime counts. The log does not have a line for each of these errors. The test
// does not run in parallel: all controllers of a process share one registry.
func TestMetricsShowAnOutage(t *testing.T) {
	address := freeport.Address(t)
	m, g, log := start(t, func(o *controller.Options) { o.MetricsAddress = address })
	shows := func(lines ...string) {
		t.Helper()
		for _, line := range lines {
			eventually(t, "the metrics have "+line, func() bool {
				return strings.Contains(ask(t, "http://"+address+"/metrics"), "\n"+line)
			})
		}
	}
	putClass(g, "demo")
	eventually(t, "both sides are installed", func() bool { return installed(m, g) })
	shows(`hypergate_condition{status="True",type="Available"} 1`, `hypergate_api_reachable{side="guest"} 1`, "hypergate_leader 1")
	checkLibraryMetrics(t, ask(t, "http://"+address+"/metrics"))

	counters, before := []string{
		`hypergate_reconciliations_total{outcome="unknown"}`, `controller_runtime_reconcile_errors_total{controller="hypergate"}`,
		`controller_runtime_reconcile_total{controller="hypergate",result="error"}`,
	}, map[string]string{}
	value := func(counter string) string {
		_, rest, _ := strings.Cut(ask(t, "http://"+address+"/metrics"), "\n"+counter+" ")
		count, _, _ := strings.Cut(rest, "\n")
		return count
	}
	for _, counter := range counters { // tests that ran before count as well
		before[counter] = value(counter)
	}
	g.Between(func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) })
	g.Hangup()
	shows(
		`hypergate_condition{status="Unknown",type="Available"} 1`,
		`hypergate_condition_reason{reason="GuestUnreachable",type="Available"} 1`,
		`hypergate_api_reachable{side="guest"} 0`, `hypergate_api_reachable{side="management"} 1`,
	)
	for _, counter := range counters {
		eventually(t, counter+" counts", func() bool { return value(counter) != before[counter] })
	}
	if strings.Contains(log.String(), "Reconciler error") {
		t.Error("controller-runtime logs the errors of passes")
	}

	g.Between(nil)
	shows(`hypergate_api_reachable{side="guest"} 1`, `hypergate_condition{status="True",type="Available"} 1`)
}

// checkLibraryMetrics compares the metrics of libraries on a real page with the file to which test/monitoring applies
// the PodMonitors. Tests that ran before can have added metrics to the page, but a metric of the file must be on it.
func checkLibraryMetrics(t *testing.T, page string) {
	t.Helper()
	const path = "../monitoring/testdata/hypergate.txt"
	var series []string
	for line := range strings.Lines(page) {
		name, _, _ := strings.Cut(regexp.MustCompile(`="([^"\\]|\\.)*"`).ReplaceAllString(line, ""), " ")
		if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "hypergate_") {
			series = append(series, name)
		}
	}
	slices.Sort(series)
	series = slices.Compact(series)
	if golden.Updating() {
		golden.Equal(t, path, "# The metrics of libraries on the page of hypergate: names of series, and the names of their labels.\n"+
			"# TestMetricsShowAnOutage in test/adversary compares them with a real page. UPDATE=1 writes them.\n"+
			strings.Join(series, "\n")+"\n")
		return
	}
	recorded, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(recorded)) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") && !slices.Contains(series, line) {
			t.Errorf("the page has no %s, which %s has; run the test with UPDATE=1 and read the difference", line, path)
		}
	}
}
