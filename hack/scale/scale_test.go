package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const auditLines = `{"stage":"ResponseStarted","verb":"watch","user":{"username":"hosted-001"},"objectRef":{"resource":"secrets"}}` + "\n" +
	`{"stage":"ResponseComplete","verb":"watch","user":{"username":"hosted-001"},` +
	`"objectRef":{"resource":"secrets"}}` + "\n" +
	`{"stage":"ResponseComplete","verb":"update","user":{"username":"hosted-001"},` +
	`"objectRef":{"resource":"leases","name":"hypergate"}}` + "\n" +
	`{"stage":"ResponseComplete","verb":"get","user":{"username":"hosted-001"},` +
	`"objectRef":{"resource":"leases","name":"hypergate"}}` + "\n" +
	`{"stage":"ResponseComplete","verb":"create","user":{"username":"hosted-001"},` +
	`"objectRef":{"resource":"leases","name":"hypergate"}}` + "\n" +
	`{"stage":"ResponseComplete","verb":"patch","user":{"username":"hosted-001"},` +
	`"objectRef":{"resource":"gatewayclasses","subresource":"status","name":"a"}}` + "\n" +
	`{"stage":"ResponseComplete","verb":"list","user":{"username":"hosted-002"},` +
	`"objectRef":{"resource":"services"},"stageTimestamp":"2026-01-02T03:04:05Z"}` + "\n" +
	`{"stage":"ResponseComplete","verb":"get","user":{"username":"hosted-002"},"requestURI":"/version"}` + "\n" +
	`{"stage":"ResponseComplete","verb":"patch","user":{"username":"admin"},` +
	`"objectRef":{"resource":"deployments","namespace":"a","name":"b"}}` + "\n"

// TestTallies checks that each request counts for its hypergate and for one kind. For Leases, only renewals are
// allowed at rest.
func TestTallies(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	log, err := openAudit(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.file.Close() }()
	// The first read ends in the middle of a line.
	for _, part := range []string{auditLines[:200], auditLines[200:]} {
		if _, err := file.WriteString(part); err != nil {
			t.Fatal(err)
		}
		if err := log.read(); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]tally{"hosted-001": {watches: 1, leases: 1, reads: 1, writes: 1, status: 1}, "hosted-002": {reads: 2}}
	if diff := cmp.Diff(want, tallies(log.events), cmp.AllowUnexported(tally{})); diff != "" {
		t.Error(diff)
	}
	if got, want := active(log.events), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC); !got.Equal(want) {
		t.Errorf("active last at %s, want %s", got, want)
	}
	if got := active(log.events[:3]); !got.IsZero() {
		t.Errorf("watches and a renewal count as activity: %s", got)
	}
	if got, want := describe(log.events[5:6]), "hosted-001 patch gatewayclasses status a"; got != want {
		t.Errorf("described as %q, want %q", got, want)
	}
}

func TestSizes(t *testing.T) {
	for n, want := range map[int][]int{4: {1, 2, 4}, 5: {1, 2, 5}, 8: {1, 2, 4, 8}, 100: {1, 25, 50, 100}} {
		if diff := cmp.Diff(want, sizes(n)); diff != "" {
			t.Errorf("%d: %s", n, diff)
		}
	}
}

// TestBars checks that growth is measured from a quarter to all clusters, independent of the cost of a single cluster.
// A missing value never meets a target for growth.
func TestBars(t *testing.T) {
	unknown := math.NaN()
	for name, tc := range map[string]struct {
		bar    bar
		values []float64
		want   verdictOf
	}{
		"the same":             {linear{}, []float64{9, 2, 2, 2}, verdictYes},
		"cheaper":              {linear{}, []float64{1, 2, 2, 1}, verdictYes},
		"at the limit":         {linear{}, []float64{1, 10, 11, 12}, verdictYes},
		"above it":             {linear{}, []float64{99, 10, 11, 12.1}, verdictNo},
		"nothing":              {linear{}, []float64{0, 0, 0, 0}, verdictYes},
		"something of nothing": {linear{}, []float64{0, 0, 0, 0.1}, verdictNo},
		"of four":              {linear{}, []float64{1, 2, 1.2}, verdictYes},
		"of four, above":       {linear{}, []float64{1, 1, 1.3}, verdictNo},
		"a trifle":             {linear{trifle: 1}, []float64{1, 0.2, 0.5, 1}, verdictYes},
		"more than a trifle":   {linear{trifle: 1}, []float64{1, 0.2, 0.5, 1.1}, verdictNo},
		"an unknown trifle":    {linear{trifle: 1}, []float64{1, unknown, 0.5, 0.1}, verdictNo},
		"not measured":         {linear{}, []float64{1, unknown, 1, 1}, verdictNo},
		"none":                 {exactly(0), []float64{0, 0, 0, 0}, verdictYes},
		"one at one size":      {exactly(0), []float64{0, 1, 0, 0}, verdictNo},
		"no number at one":     {exactly(0), []float64{0, unknown, 0, 0}, verdictNo},
		"stated":               {stated{}, []float64{0, 1, 2, 99}, verdictNone},
	} {
		if got := tc.bar.met(tc.values); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestUnsteady checks that a period of slightly more than two renewal intervals can have two or three writes.
func TestUnsteady(t *testing.T) {
	requests := map[string]tally{"a": {leases: 2}, "b": {leases: 3}, "c": {leases: 4}, "d": {leases: 1}, "e": {watches: 2}}
	if got := unsteady(6, 54*time.Second, requests); got != 4 {
		t.Errorf("%d are unsteady, want c, d, e and the one that was never heard of", got)
	}
}

// TestFigures checks that totals are divided by the number of clusters, and that a missed target makes the run fail.
func TestFigures(t *testing.T) {
	at := func(n int, live float64) measurement {
		one := needs{rssAnon: 14 * mib, rss: 50 * mib, peak: 60 * mib, cpu: 1}
		later := one
		later.cpu += 0.054
		quiet := counted{mgmt: map[string]tally{}, guest: map[string]tally{}}
		for i := range n {
			quiet.mgmt[userPrefix+string(rune('a'+i))] = tally{leases: 2}
		}
		done := change{
			took: time.Second, requests: counted{mgmt: map[string]tally{userPrefix: {writes: 3 * n}}},
			cpu: []float64{0.2}, after: []needs{later},
		}
		return measurement{
			clusters: n, empty: usage{live: 100 * mib, watches: 200}, restart: done, upgrade: done,
			rest: atRest{
				took: 52 * time.Second, requests: quiet, before: []needs{one}, after: []needs{later},
				mgmt: usage{live: live * mib, watches: 200 + 14*float64(n)},
			},
		}
	}
	good := figuresOf([]measurement{at(1, 101), at(2, 102), at(4, 104), at(8, 109)})
	if err := verdict(good); err != nil {
		t.Error(err)
	}
	var out bytes.Buffer
	if err := printTable(&out, sizes(8), good); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"PER HOSTED CLUSTER N=1 N=2 N=4 N=8 N / (N/4) BAR MET",
		"at rest: Lease writes in 26 s, management 1.00 1.00 1.00 1.00 stated",
		"open watches, management 14.00 14.00 14.00 14.00 1.00 N <= 1.2 x N/4 yes",
		"hypergate: CPU 1.04 m 1.04 m 1.04 m 1.04 m 1.00 N <= 1.2 x N/4, or <= 1 yes",
		"management API server: live memory 1.00 MiB 1.00 MiB 1.00 MiB 1.12 MiB 1.12 N <= 1.2 x N/4 yes",
		"restart-date on all: writes, management 3.00 3.00 3.00 3.00 1.00 N <= 1.2 x N/4 yes",
	} {
		if got := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(got, want) {
			t.Errorf("the table has no %q:\n%s", want, out.String())
		}
	}

	grown, busy := at(8, 110), at(8, 104)
	busy.rest.requests.guest["hosted-x"] = tally{reads: 1}
	for want, last := range map[string]measurement{"management API server: live memory": grown, "all requests but watches, guests": busy} {
		err := verdict(figuresOf([]measurement{at(1, 101), at(2, 102), at(4, 104), last}))
		if err == nil || !strings.Contains(err.Error(), "bars missed: 1: at rest: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("verdict = %v, want one that names %s", err, want)
		}
	}
}

// TestParseUsage checks that only watches count among the long-running requests, for every resource.
func TestParseUsage(t *testing.T) {
	const metrics = `# HELP process_cpu_seconds_total x
process_cpu_seconds_total 12.5
process_resident_memory_bytes 2.5e+08
go_memstats_heap_alloc_bytes 1e+08
go_memstats_stack_inuse_bytes 5e+06
apiserver_longrunning_requests{resource="pods",verb="WATCH"} 3
apiserver_longrunning_requests{resource="secrets",verb="WATCH"} 4
apiserver_longrunning_requests{resource="pods",verb="CONNECT"} 5
`
	got, err := parseUsage([]byte(metrics))
	if err != nil {
		t.Fatal(err)
	}
	if want := (usage{cpu: 12.5, rss: 2.5e8, live: 1.05e8, watches: 7}); got != want {
		t.Errorf("usage = %+v, want %+v", got, want)
	}
	if _, err := parseUsage([]byte(strings.ReplaceAll(metrics, "go_memstats_heap", "memstats"))); err == nil {
		t.Error("no error although a metric is missing")
	}
}
