package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/metrics"
	"github.com/hypergate/hypergate/pkg/summary"
	"github.com/hypergate/hypergate/test/hang"
)

// mostSeries is the limit that docs/reference/metrics.md states. mostBytes is the limit of a scrape.
const (
	mostSeries = 312
	mostBytes  = 60 << 10
)

func now() time.Time { return time.Unix(1_800_000_000, 0) }

// started returns a collector, and a registry that has it.
func started(t *testing.T, change func(*metrics.Options)) (*metrics.Collector, *prometheus.Registry) {
	t.Helper()
	o := metrics.Options{
		Values: controller.MetricValues(), Version: "v0.3.0", Istio: "1.2.3", Revision: "openshift-gateway", Topology: "hosted", Now: now,
	}
	if change != nil {
		change(&o)
	}
	c := metrics.New(o)
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	return c, registry
}

// scraped returns the lines of a scrape that are series of hypergate, sorted.
func scraped(t *testing.T, from prometheus.Gatherer) []string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(scrape(t, from)) {
		if strings.HasPrefix(line, "hypergate_") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	slices.Sort(lines)
	return lines
}

// scrape returns all that a scrape returns.
func scrape(t *testing.T, from prometheus.Gatherer) string {
	t.Helper()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(from, promhttp.HandlerOpts{}).ServeHTTP(answer,
		httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	if answer.Code != http.StatusOK {
		t.Fatalf("a scrape fails: %s", answer.Body)
	}
	return answer.Body.String()
}

// matching returns the lines that begin with a prefix.
func matching(lines []string, prefix string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !strings.HasPrefix(line, prefix) })
}

func crd(name string, owner crds.OwnerKind, version string, verdict crds.Verdict, because crds.Reason) crds.CRD {
	return crds.CRD{
		Name: name, Wanted: crds.Wanted{Version: "v1.4.1"}, Decision: crds.Decision{Verdict: verdict, Reason: because},
		Fact: crds.Fact{Owner: crds.Owner{Kind: owner, Name: "another owner"}, Metadata: crds.Metadata{Version: version}},
	}
}

// TestAPodThatDoesNotLeadExportsNoState checks a pod that waits for the Lease.
func TestAPodThatDoesNotLeadExportsNoState(t *testing.T) {
	t.Parallel()
	_, registry := started(t, nil)
	want := []string{
		`hypergate_build_info{istio_version="1.2.3",revision="openshift-gateway",topology="hosted",version="v0.3.0"} 1`,
		`hypergate_leader 0`,
	}
	if diff := cmp.Diff(want, scraped(t, registry)); diff != "" {
		t.Error(diff)
	}
}

// TestALeaderIsUnknownBeforeItsFirstPass checks that the conditions have series from the beginning.
func TestALeaderIsUnknownBeforeItsFirstPass(t *testing.T) {
	t.Parallel()
	c, registry := started(t, nil)
	c.Lead()
	got := scraped(t, registry)
	for _, line := range []string{
		`hypergate_leader 1`, `hypergate_condition{status="Unknown",type="Available"} 1`,
		`hypergate_condition{status="False",type="Available"} 0`, `hypergate_last_complete_timestamp_seconds 1.8e+09`,
		`hypergate_reconciliations_total{outcome="complete"} 0`,
	} {
		if !slices.Contains(got, line) {
			t.Errorf("there is no %s in\n%s", line, strings.Join(got, "\n"))
		}
	}
}

// TestTheTimeOfTheLastCompletePass checks that the time goes on while everything is as planned, and stops with the
// first pass that is not complete.
func TestTheTimeOfTheLastCompletePass(t *testing.T) {
	t.Parallel()
	at := now()
	c, registry := started(t, func(o *metrics.Options) { o.Now = func() time.Time { return at } })
	c.Lead()
	for _, step := range []struct {
		name string
		pass metrics.Outcome
		// after is the time between the pass and the scrape.
		after time.Duration
		want  time.Time
	}{
		{"an installation", metrics.Incomplete, time.Minute, now()},
		{"at rest", metrics.Complete, time.Hour, now().Add(time.Hour + time.Minute)},
		{"an outage begins", metrics.Unobserved, time.Hour, now().Add(time.Hour + time.Minute)},
		{"it lasts", metrics.Unobserved, time.Hour, now().Add(time.Hour + time.Minute)},
		{"it ends", metrics.Complete, time.Minute, now().Add(3*time.Hour + 2*time.Minute)},
	} {
		c.Pass(step.pass)
		at = at.Add(step.after)
		want := []string{fmt.Sprintf("hypergate_last_complete_timestamp_seconds %v", float64(step.want.Unix()))}
		if diff := cmp.Diff(want, matching(scraped(t, registry), "hypergate_last_complete")); diff != "" {
			t.Errorf("%s: %s", step.name, diff)
		}
	}
}

// whole is a state with all of its parts.
func whole() metrics.State {
	hour := now().Add(time.Hour)
	return metrics.State{
		Summary: summary.Summary{
			Lifecycle: summary.Paused, Istiod: summary.Istiod{State: summary.IstiodServing, Since: now()},
			Published: summary.Published{Strategy: "route", State: summary.PublishedReached},
			Token:     summary.Validity{From: now(), Until: hour}, CA: summary.CA{Expires: hour, Phase: "spreading"},
			Webhook: summary.Webhook{Policy: summary.WebhookFail, Since: now()},
			Conditions: []summary.Condition{
				{Type: summary.Available, Status: summary.True, Reason: "AsExpected"},
				{Type: summary.Progressing, Status: summary.False, Reason: "ReconciliationPaused"},
				{Type: summary.Degraded, Status: summary.True, Reason: "WriteConflict"},
				{Type: summary.Upgradeable, Status: summary.False, Reason: "CARotation"},
			},
		},
		Credential: summary.Validity{From: now(), Until: hour}, NextCA: hour.Add(time.Hour), RotationSince: now(), PublishedSeen: now(),
		Sides: map[string]metrics.Numbers{
			"management": {Failing: map[string]int{"Forbidden": 2}}, "guest": {RateLimited: 1, WatchFailing: 3},
		},
		Migration: metrics.Migration{Phase: "Roll", Since: now(), Moved: 2, Moving: 5},
		Guest: metrics.Guest{
			Mode: crds.Managed, InUse: map[string]int{"httproutes.gateway.networking.k8s.io": 7},
			Decisions: []crds.CRD{
				crd("gateways.gateway.networking.k8s.io", crds.Unowned, "", crds.Install, crds.IsAbsent),
				crd("httproutes.gateway.networking.k8s.io", crds.ThirdParty, "v1.2.0", crds.Blocked, crds.NeedsConsent),
			},
		},
	}
}

// TestTheStateIsExported compares the series of a state.
func TestTheStateIsExported(t *testing.T) {
	t.Parallel()
	c, registry := started(t, nil)
	c.Lead()
	c.Set(whole())
	got := slices.DeleteFunc(scraped(t, registry), func(line string) bool {
		return strings.HasSuffix(line, " 0") || strings.HasPrefix(line, "hypergate_build_info") ||
			strings.HasPrefix(line, "hypergate_last_complete") || strings.HasPrefix(line, "hypergate_install_duration")
	})
	want := []string{
		`hypergate_condition_reason{reason="AsExpected",type="Available"} 1`,
		`hypergate_condition_reason{reason="CARotation",type="Upgradeable"} 1`,
		`hypergate_condition_reason{reason="ReconciliationPaused",type="Progressing"} 1`,
		`hypergate_condition_reason{reason="WriteConflict",type="Degraded"} 1`,
		`hypergate_condition{status="False",type="Progressing"} 1`,
		`hypergate_condition{status="False",type="Upgradeable"} 1`,
		`hypergate_condition{status="True",type="Available"} 1`,
		`hypergate_condition{status="True",type="Degraded"} 1`,
		`hypergate_failing_objects{class="Forbidden",side="management"} 2`,
		`hypergate_guest_crd_info{crd="gateways.gateway.networking.k8s.io",installed_version="",owner="none",` +
			`reason="Absent",verdict="Install",wanted_version="v1.4.1"} 1`,
		`hypergate_guest_crd_info{crd="httproutes.gateway.networking.k8s.io",installed_version="v1.2.0",owner="third party",` +
			`reason="NeedsConsent",verdict="Blocked",wanted_version="v1.4.1"} 1`,
		`hypergate_guest_credential_expiry_timestamp_seconds 1.8000036e+09`,
		`hypergate_guest_credential_issued_timestamp_seconds 1.8e+09`,
		`hypergate_guest_management_mode{mode="Managed"} 1`,
		`hypergate_guest_unsupported_objects{crd="httproutes.gateway.networking.k8s.io"} 7`,
		`hypergate_istiod_state{state="serving"} 1`,
		`hypergate_istiod_token_expiry_timestamp_seconds 1.8000036e+09`,
		`hypergate_istiod_token_issued_timestamp_seconds 1.8e+09`,
		`hypergate_leader 1`,
		`hypergate_mesh_ca_expiry_timestamp_seconds{root="current"} 1.8000036e+09`,
		`hypergate_mesh_ca_expiry_timestamp_seconds{root="next"} 1.8000072e+09`,
		`hypergate_mesh_ca_rotation_phase{phase="spreading"} 1`,
		`hypergate_mesh_ca_rotation_since_timestamp_seconds 1.8e+09`,
		`hypergate_migration_gateways{at="hosted"} 2`,
		`hypergate_migration_gateways{at="origin"} 3`,
		`hypergate_migration_phase{phase="Roll"} 1`,
		`hypergate_migration_since_timestamp_seconds 1.8e+09`,
		`hypergate_on_hold{by="paused"} 1`,
		`hypergate_published_info{strategy="route"} 1`,
		`hypergate_published_last_seen_timestamp_seconds 1.8e+09`,
		`hypergate_published_reachable 1`,
		`hypergate_rate_limited_objects{side="guest"} 1`,
		`hypergate_watch_failing{side="guest"} 3`,
		`hypergate_webhook_failure_policy{policy="Fail"} 1`,
		`hypergate_webhook_proven_timestamp_seconds 1.8e+09`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestOnlyAProbedAddressIsReachable checks that the series does not exist before the first result of the probe, and
// while the probe is off.
func TestOnlyAProbedAddressIsReachable(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]string{
		summary.PublishedReached: "hypergate_published_reachable 1", summary.PublishedUnreached: "hypergate_published_reachable 0",
		summary.PublishedProbing: "", summary.PublishedUnprobed: "",
	} {
		c, registry := started(t, nil)
		c.Lead()
		shown := whole()
		shown.Summary.Published.State = state
		c.Set(shown)
		got := ""
		for _, line := range scraped(t, registry) {
			if strings.HasPrefix(line, "hypergate_published_reachable") {
				got = line
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", state, got, want)
		}
	}
}

// TestHostileNamesAddNoSeries feeds names that a guest can choose. The number of series stays within its limit, and a
// scrape has no series twice. TestAScrapeHasNoMetricsOfGo checks the size.
func TestHostileNamesAddNoSeries(t *testing.T) {
	t.Parallel()
	c, registry := started(t, nil)
	c.Lead()
	setHostile(t, c)
	got := scraped(t, registry)
	size := len(strings.Join(got, "\n"))
	t.Logf("%d series, %d bytes", len(got), size)
	if len(got) > mostSeries {
		t.Errorf("a scrape has %d series, more than %d", len(got), mostSeries)
	}
	if strings.Contains(strings.Join(got, ""), "x1.gateway") {
		t.Error("a name that the guest chose is a label")
	}
	if want := `hypergate_guest_unsupported_objects{crd="other"} 1007`; !slices.Contains(got, want) {
		t.Errorf("there is no %s", want)
	}
}

// setHostile gives a collector names that a guest can choose, and everything else that can have a series.
func setHostile(t *testing.T, c *metrics.Collector) {
	t.Helper()
	values := controller.MetricValues()
	state := whole()
	hostile := []string{"", "x\n\"y\\", "\xff\xfe", strings.Repeat("long", 10_000), "other", "1.2.3", "v9.9.9"}
	for i := range 1000 {
		hostile = append(hostile, fmt.Sprintf("x%d.gateway.networking.k8s.io", i))
	}
	failing := map[string]int{}
	for _, class := range slices.Concat(values.Classes, hostile) {
		failing[class] = 1
	}
	for _, side := range []string{"management", "guest"} {
		state.Sides[side] = metrics.Numbers{RateLimited: 1, WatchFailing: 1, Failing: failing}
		for _, kind := range slices.Concat(values.Kinds["management"], values.Kinds["guest"], hostile) {
			for _, verdict := range []string{"applied", "deleted", "failed", "skipped"} {
				c.Writes(side, kind, verdict, 1)
			}
			c.Repair(side, kind)
		}
		transport := c.Requests(side)(answering(http.StatusOK, nil))
		for _, method := range []string{"GET", "POST", "PATCH", "PUT", "DELETE", "BREW"} {
			send(transport, request(t, method, "/api"))
		}
	}
	for _, name := range slices.Concat(values.CRDs, hostile) {
		state.Guest.InUse[name]++
	}
	state.Migration.Phase = hostile[3]
	state.Guest.Mode, state.Guest.Decisions = crds.Mode(hostile[3]), nil
	for i, name := range values.CRDs {
		state.Guest.Decisions = append(state.Guest.Decisions,
			crd(name, crds.OwnerKind(hostile[i%7]), hostile[i%7], crds.Blocked, crds.IsUnknown))
	}
	for i := range state.Summary.Conditions {
		state.Summary.Conditions[i].Reason = hostile[3]
	}
	c.Set(state)
}

// roundTripper is a transport for tests.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answering(status int, err error) http.RoundTripper {
	return roundTripper(func(*http.Request) (*http.Response, error) {
		if err != nil {
			return nil, err
		}
		return &http.Response{StatusCode: status, Body: http.NoBody}, nil
	})
}

func request(t *testing.T, method, path string) *http.Request {
	t.Helper()
	out, err := http.NewRequestWithContext(t.Context(), method, "https://api"+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func send(through http.RoundTripper, r *http.Request) {
	if response, err := through.RoundTrip(r); err == nil {
		_ = response.Body.Close()
	}
}

// TestRequestsShowWhetherASideAnswers checks what a request says about an API server.
func TestRequestsShowWhetherASideAnswers(t *testing.T) {
	t.Parallel()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	const reachable, unreachable = `hypergate_api_reachable{side="guest"} 1`, `hypergate_api_reachable{side="guest"} 0`
	for name, tc := range map[string]struct {
		ctx    context.Context
		status int
		err    error
		path   string
		// want is what is known after it; measured reports whether its duration is.
		want     []string
		measured bool
		ending   metrics.Ending
	}{
		"an answer":              {status: http.StatusOK, want: []string{reachable}, measured: true, ending: metrics.Answered},
		"a refusal":              {status: http.StatusForbidden, want: []string{reachable}, measured: true, ending: metrics.Answered},
		"a proxy without server": {status: http.StatusBadGateway, want: []string{unreachable}, measured: true, ending: metrics.Failed},
		"no answer":              {err: errors.New("no route to host"), want: []string{unreachable}, ending: metrics.Unanswered},
		"the caller gave up":     {ctx: cancelled, err: context.Canceled},
		"a watch":                {status: http.StatusOK, path: "?watch=true", want: []string{reachable}, ending: metrics.Answered},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, registry := started(t, nil)
			r := request(t, http.MethodGet, "/api"+tc.path)
			if tc.ctx != nil {
				r = r.WithContext(tc.ctx)
			}
			send(c.Requests("guest")(answering(tc.status, tc.err)), r)
			got := scraped(t, registry)
			if diff := cmp.Diff(tc.want, matching(got, "hypergate_api_reachable"), cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
			if measured := len(matching(got, "hypergate_api_request_duration_seconds_count")) > 0; measured != tc.measured {
				t.Errorf("its duration is measured: %t", measured)
			}
			if last := c.LastAnswer("guest"); last.Ending != tc.ending {
				t.Errorf("the last request: %+v", last)
			}
		})
	}
}

// TestMetricsAreSafeForConcurrentUse is for the race detector.
func TestMetricsAreSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	c, registry := started(t, nil)
	c.Lead()
	var writer sync.WaitGroup
	writer.Go(func() {
		for range 100 {
			c.Set(whole())
			c.Pass(metrics.Complete)
			c.Writes("guest", "Service", "applied", 1)
			send(c.Requests("guest")(answering(http.StatusOK, nil)), request(t, http.MethodGet, "/api"))
		}
	})
	for range 100 {
		if n := len(matching(scraped(t, registry), "hypergate_guest_crd_info")); n != 0 && n != 2 {
			t.Fatalf("half of a state: %d series", n)
		}
	}
	writer.Wait()
}

// TestAScrapeHasNoMetricsOfGo checks what a whole scrape of the process has, and its size: with the comments, the
// metrics of libraries, and all that a hostile guest can add.
func TestAScrapeHasNoMetricsOfGo(t *testing.T) {
	g := hang.Gomega(t)
	c, _ := started(t, nil)
	c.Lead()
	setHostile(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	g.Eventually(func() []string { return matching(scraped(t, ctrlmetrics.Registry), "hypergate_leader") }).ShouldNot(gomega.BeEmpty())
	begun := time.Now()
	body := scrape(t, ctrlmetrics.Registry)
	t.Logf("%d bytes in %s", len(body), time.Since(begun))
	g.Expect(body).NotTo(gomega.MatchRegexp(`(?m)^go_`))
	g.Expect(body).To(gomega.MatchRegexp(`(?m)^process_resident_memory_bytes `), "the process's own stay")
	g.Expect(len(body)).To(gomega.BeNumerically("<=", mostBytes))
	cancel()
	g.Expect(<-ended).To(gomega.Succeed())
}

// TestTwoCollectorsInOneProcess checks that the metrics of one of them are exported, that neither fails, and that no
// series is left at the end.
func TestTwoCollectorsInOneProcess(t *testing.T) {
	t.Parallel()
	g := hang.Gomega(t)
	first, _ := started(t, nil)
	second, _ := started(t, nil)
	first.Lead()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- first.Start(ctx) }()
	shown := func() []string { return matching(scraped(t, ctrlmetrics.Registry), "hypergate_leader") }
	g.Eventually(shown).Should(gomega.Equal([]string{"hypergate_leader 1"}))
	g.Expect(second.Start(t.Context())).To(gomega.Succeed())
	g.Expect(shown()).To(gomega.Equal([]string{"hypergate_leader 1"}))
	cancel()
	g.Expect(<-ended).To(gomega.Succeed())
	g.Expect(shown()).To(gomega.BeEmpty())

	again, stop := context.WithCancel(t.Context())
	go func() { ended <- second.Start(again) }()
	g.Eventually(shown).Should(gomega.Equal([]string{"hypergate_leader 0"}))
	stop()
	g.Expect(<-ended).To(gomega.Succeed())
}
