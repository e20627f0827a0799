package monitoring

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

// interval is the interval between two evaluations, and between two samples of a series.
const interval = time.Minute

// firing returns the alerts that fire at a time after the beginning of some series, as "name severity". The series
// begin at the Unix epoch.
func firing(t *testing.T, series []string, at time.Duration) []string {
	t.Helper()
	_, groups := evaluated(t, series, at)
	return active(t, groups)
}

// evaluated evaluates all rules until a time after the beginning of some series, and returns the database that has the
// results.
func evaluated(t *testing.T, series []string, at time.Duration) (*promqltest.LazyLoader, map[string]*rules.Group) {
	t.Helper()
	content, _ := ruleFile(t)
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	suite, err := promqltest.NewLazyLoader("load 1m\n  "+strings.Join(series, "\n  ")+"\n",
		promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = suite.Close() })
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc:  rules.EngineQueryFunc(suite.QueryEngine(), suite.Storage()),
		Appendable: suite.Storage(), Queryable: suite.Storage(), Context: t.Context(), Parser: promQL(),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {}, Logger: promslog.NewNopLogger(),
	})
	groups, errs := manager.LoadGroups(interval, labels.EmptyLabels(), "", nil, false, path)
	for _, err := range errs {
		t.Fatal(err)
	}
	for now := time.Duration(0); now <= at; now += interval {
		suite.WithSamplesTill(time.Unix(0, 0).Add(now), func(err error) {
			if err != nil {
				t.Fatal(err)
			}
			evaluate(t, suite, groups, time.Unix(0, 0).Add(now).UTC())
		})
	}
	return suite, groups
}

// evaluate evaluates all groups, the recording rules first.
func evaluate(t *testing.T, suite *promqltest.LazyLoader, groups map[string]*rules.Group, at time.Time) {
	t.Helper()
	ordered := make([]*rules.Group, 0, len(groups))
	for _, group := range groups {
		ordered = append(ordered, group)
	}
	slices.SortFunc(ordered, func(a, b *rules.Group) int { return strings.Compare(b.Name(), a.Name()) })
	for _, group := range ordered {
		for _, rule := range group.Rules() {
			if alert, is := rule.(*rules.AlertingRule); is {
				alert.SetRestored(true)
			}
		}
		group.Eval(suite.Context(), at)
		for _, rule := range group.Rules() {
			if err := rule.LastError(); err != nil {
				t.Fatalf("%s at %s: %v", rule.Name(), at, err)
			}
		}
	}
}

// active returns the alerts that fire now. An annotation that cannot be computed is an error.
func active(t *testing.T, groups map[string]*rules.Group) []string {
	t.Helper()
	var out []string
	for _, group := range groups {
		for _, rule := range group.Rules() {
			alert, is := rule.(*rules.AlertingRule)
			if !is {
				continue
			}
			for _, found := range alert.ActiveAlerts() {
				if found.State != rules.StateFiring {
					continue
				}
				out = append(out, rule.Name()+" "+found.Labels.Get("severity"))
				if text := found.Annotations.String(); strings.Contains(text, "error") || strings.Contains(text, "no value") {
					t.Errorf("%s: %s", rule.Name(), text)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// healthy returns the series of one hosted cluster in which no alert fires, and others in place of those that have the
// same name and labels. A series is "name{labels} values", in the notation of promtool.
func healthy(namespace string, others ...string) []string {
	all := []string{
		`hypergate_build_info{version="v0.3.0"} 1x6000`,
		`hypergate_leader{} 1x6000`,
		`hypergate_condition{type="Available",status="True"} 1x6000`, `hypergate_condition{type="Available",status="False"} 0x6000`,
		`hypergate_condition{type="Degraded",status="True"} 0x6000`,
		`hypergate_condition_reason{type="Available",reason="AsExpected"} 1x6000`,
		`hypergate_condition_reason{type="Degraded",reason="AsExpected"} 1x6000`,
		`hypergate_on_hold{by="paused"} 0x6000`,
		`hypergate_last_complete_timestamp_seconds{} 0+60x6000`,
		// A token of an hour, renewed after 48 minutes, and a credential of a day that is renewed hourly.
		renewed("hypergate_istiod_token", 48, 3600), renewedFrom("hypergate_istiod_token", 48),
		renewed("hypergate_guest_credential", 60, 86400), renewedFrom("hypergate_guest_credential", 60),
		`hypergate_mesh_ca_expiry_timestamp_seconds{root="current"} 315360000x6000`,
		`hypergate_published_reachable{} 1x6000`,
		`hypergate_webhook_failure_policy{policy="Fail"} 1x6000`, `hypergate_webhook_failure_policy{policy="Ignore"} 0x6000`,
		`hypergate_rate_limited_objects{side="guest"} 0x6000`,
		`hypergate_guest_crd_info{crd="httproutes.gateway.networking.k8s.io",verdict="UpToDate"} 1x6000`,
		`kube_deployment_spec_replicas{deployment="hypergate"} 1x6000`,
	}
	var out []string
	for _, series := range slices.Concat(all, others) {
		name, _, _ := strings.Cut(series, " ")
		out = slices.DeleteFunc(out, func(old string) bool { return strings.HasPrefix(old, name+" ") })
		if values := strings.TrimPrefix(series, name+" "); values != "gone" {
			out = append(out, series)
		}
	}
	for i, series := range out {
		separator := ","
		if strings.Contains(series, "{}") {
			separator = ""
		}
		out[i] = strings.Replace(series, "{", fmt.Sprintf("{namespace=%q%s", namespace, separator), 1)
	}
	return out
}

// renewed returns the series of the expiry of a credential with a life in seconds that is renewed each so many minutes,
// for a day and a half. renewedFrom returns that of when it was issued.
func renewed(what string, every, life int) string {
	return what + "_expiry_timestamp_seconds{} " + steps(every, life)
}

func renewedFrom(what string, every int) string {
	return what + "_issued_timestamp_seconds{} " + steps(every, 0)
}

func steps(every, offset int) string {
	var out []string
	for minute := 0; minute < 36*60; minute += every {
		out = append(out, fmt.Sprintf("%dx%d", minute*60+offset, every-1))
	}
	return strings.Join(out, " ")
}

// scenario is a row of a test: the series that differ from those of a healthy cluster, and the alerts that fire at a
// time, in minutes.
type scenario struct {
	name   string
	series []string
	at     int
	want   []string
}

// TestAlertsAboutTheState has, for each alert, series with which it fires and series with which it does not.
func TestAlertsAboutTheState(t *testing.T) {
	t.Parallel()
	const (
		availableFalse = `hypergate_condition{type="Available",status="False"} `
		degradedTrue   = `hypergate_condition{type="Degraded",status="True"} `
		held           = `hypergate_on_hold{by="paused"} 1x6000`
		complete       = `hypergate_last_complete_timestamp_seconds{} `
		createdNow     = `kube_deployment_created{deployment="hypergate"} 0x6000`
	)
	checkScenarios(t, []scenario{
		{name: "all is well", at: 600},
		{
			name: "no pod leads", series: []string{`hypergate_leader{} 1x30 0x6000`}, at: 45,
			want: []string{"HypergateAbsent warning"},
		},
		{
			name: "the pods are gone, and the Deployment is not", series: []string{`hypergate_leader{} 1x30 stale`}, at: 500,
			want: []string{"HypergateAbsent warning"},
		},
		{
			name: "the pods are gone, and kube-state-metrics is not installed", at: 60,
			series: []string{`hypergate_leader{} 1x30 stale`, `kube_deployment_spec_replicas{deployment="hypergate"} gone`},
			want:   []string{"HypergateAbsent warning"},
		},
		{
			name: "hypergate was uninstalled", at: 120,
			series: []string{`hypergate_leader{} 1x30 stale`, `kube_deployment_spec_replicas{deployment="hypergate"} 1x30 stale`},
		},
		{
			name: "the hosted cluster was deleted", at: 60,
			series: []string{
				`hypergate_leader{} 1x30 stale`, `kube_deployment_spec_replicas{deployment="hypergate"} 1x30 stale`,
				`hypergate_on_hold{by="deleting"} 0x20 1x10 stale`,
			},
		},
		{
			name: "it was deleted, and created again without a pod", at: 60,
			series: []string{`hypergate_leader{} 1x30 stale`, `hypergate_on_hold{by="deleting"} 0x20 1x10 stale`},
			want:   []string{"HypergateAbsent warning"},
		},
		{name: "a new hosted cluster starts slowly", series: []string{`hypergate_leader{} gone`, createdNow}, at: 20},
		{
			name: "a new hosted cluster never starts", series: []string{`hypergate_leader{} gone`, createdNow}, at: 45,
			want: []string{"HypergateAbsent warning"},
		},
		{
			name: "the first pod of a new hosted cluster is gone", series: []string{`hypergate_leader{} 1x5 stale`, createdNow}, at: 20,
			want: []string{"HypergateAbsent warning"},
		},
		{name: "a pod is replaced", series: []string{`hypergate_leader{} 1x30 0x3 1x6000`}, at: 45},
		{
			name: "istiod does not serve", series: []string{availableFalse + "0x10 1x6000"}, at: 25,
			want: []string{"HypergateUnavailable critical"},
		},
		{name: "istiod restarts", series: []string{availableFalse + "0x10 1x5 0x6000"}, at: 25},
		{name: "istiod does not serve, during a pause", series: []string{availableFalse + "1x6000", held}, at: 25},
		{name: "degraded", series: []string{degradedTrue + "1x6000"}, at: 20, want: []string{"HypergateDegraded warning"}},
		{name: "degraded for a moment", series: []string{degradedTrue + "1x10 0x6000"}, at: 20},
		{name: "degraded, during a pause", series: []string{degradedTrue + "1x6000", held}, at: 20},
		{name: "no complete pass", series: []string{complete + "0x6000"}, at: 40, want: []string{"HypergateNotConverging warning"}},
		{name: "no complete pass yet", series: []string{complete + "0x6000"}, at: 30},
		{
			name: "no complete pass, during a pause", series: []string{complete + "0x6000", held}, at: 40,
			want: []string{"HypergatePaused info"},
		},
	})
}

// TestAlertsAboutRestarts does the same for a hypergate that ends again and again. Each process leads and begins to
// count, and the conditions are Unknown until the first pass ends.
func TestAlertsAboutRestarts(t *testing.T) {
	t.Parallel()
	const (
		starts   = `process_start_time_seconds{container="hypergate",pod="hypergate-0"} `
		restarts = `kube_pod_container_status_restarts_total{container="hypergate",pod="hypergate-0",uid="1"} `
	)
	one, began := func(int) int { return 1 }, func(began int) int { return began }
	hung := []string{
		inLives(`hypergate_leader{} `, one), inLives(`hypergate_last_complete_timestamp_seconds{} `, began),
		inLives(`hypergate_condition{type="Available",status="Unknown"} `, one),
		`hypergate_condition{type="Available",status="True"} 0x6000`, inLives(starts, began),
	}
	checkScenarios(t, []scenario{
		{name: "the first pass hangs again and again", series: hung, at: 60, want: []string{"HypergateRestarting warning"}},
		{
			name: "during a pause", series: append(hung, `hypergate_on_hold{by="paused"} 1x6000`), at: 60,
			want: []string{"HypergatePaused info", "HypergateRestarting warning"},
		},
		{name: "it has restarted three times", series: hung, at: 40},
		{name: "it has restarted three times in an hour, and before", series: []string{restarts + "5x10 6x5 7x5 8x6000"}, at: 60},
		{name: "it ends within seconds, between two scrapes", at: 60, series: []string{
			inLives(`hypergate_leader{} `, one), restarts + "0x10 1x5 2x5 3x5 4x6000",
		}, want: []string{"HypergateRestarting warning"}},
		{name: "two upgrades in an hour", series: []string{
			starts + "0x20 stale", strings.Replace(starts, "-0", "-1", 1) + "_x20 1200x20 stale",
			strings.Replace(starts, "-0", "-2", 1) + "_x40 2400x6000",
		}, at: 60},
		{name: "it restarted, and runs for an hour", series: []string{starts + "0x5 360x5 720x5 1080x5 1440x6000"}, at: 90},
		{name: "another container restarts", series: []string{
			inLives(`process_start_time_seconds{container="istiod"} `, began),
			`kube_pod_container_status_restarts_total{container="discovery"} 0+1x6000`,
		}, at: 60},
	})
}

// TestTheTokenExpiresWithoutALeader does the same for the token of an istiod after the last pod that led. That token
// expires at minute 60, and two hours after it was last seen, nothing is known of it.
func TestTheTokenExpiresWithoutALeader(t *testing.T) {
	t.Parallel()
	const (
		noLeader = `hypergate_leader{} 1x10 stale`
		absent   = `hypergate_istiod_state{state="absent"} 0x5 1x5 stale`
		deleting = `hypergate_on_hold{by="deleting"} 0x5 1x5 stale`
		noToken  = `hypergate_istiod_token_expiry_timestamp_seconds{} 3600x10 stale`
		neither  = `hypergate_istiod_token_issued_timestamp_seconds{} 0x10 stale`
	)
	one := func(int) int { return 1 }
	const isAbsent, expires = "HypergateAbsent warning", "HypergateIstiodTokenExpiring critical"
	checkScenarios(t, []scenario{
		{name: "it is still valid", series: []string{noLeader, noToken, neither}, at: 50, want: []string{isAbsent}},
		{name: "it expires", series: []string{noLeader, noToken, neither}, at: 58, want: []string{isAbsent, expires}},
		{name: "it has expired", series: []string{noLeader, noToken, neither}, at: 120, want: []string{isAbsent, expires}},
		{name: "nothing is known of it", series: []string{noLeader, noToken, neither}, at: 140, want: []string{isAbsent}},
		{name: "istiod was removed before", series: []string{noLeader, noToken, neither, absent}, at: 70, want: []string{isAbsent}},
		{
			name: "the hosted cluster was deleted, and its Deployment stays", series: []string{noLeader, noToken, neither, deleting},
			at: 70, want: []string{isAbsent},
		},
		{name: "istiod is removed, and hypergate runs", at: 70, series: []string{
			noToken, neither, `hypergate_istiod_state{state="absent"} 0x10 1x6000`,
		}},
		{name: "each process ends before its first pass has", at: 60, series: []string{
			noToken, neither, inLives(`hypergate_leader{} `, one),
			inLives(`process_start_time_seconds{container="hypergate"} `, func(began int) int { return began }),
		}, want: []string{expires, "HypergateRestarting warning"}},
	})
}

// TestTheTokenOfAnIstiodThatIsGone does the same for an uninstallation. hypergate ends before a scrape sees that istiod
// is absent, and kube-state-metrics shows which Deployments there are.
func TestTheTokenOfAnIstiodThatIsGone(t *testing.T) {
	t.Parallel()
	const (
		replicas         = `kube_deployment_spec_replicas{deployment=`
		other            = replicas + `"kube-apiserver"} 1x6000`
		hypergate        = replicas + `"hypergate"} `
		istiod           = replicas + `"istiod-openshift-gateway"} `
		isAbsent, expire = "HypergateAbsent warning", "HypergateIstiodTokenExpiring critical"
	)
	noLeader := []string{
		`hypergate_leader{} 1x10 stale`, other, `hypergate_istiod_state{state="absent"} 0x10 stale`,
		`hypergate_istiod_token_expiry_timestamp_seconds{} 3600x10 stale`, `hypergate_istiod_token_issued_timestamp_seconds{} 0x10 stale`,
	}
	with := func(more ...string) []string { return slices.Concat(noLeader, more) }
	checkScenarios(t, []scenario{
		{
			name: "hypergate was uninstalled", series: with(hypergate+"1x10 stale", istiod+"1x9 stale"), at: 65,
			want: []string{isAbsent},
		},
		{
			name: "hypergate was uninstalled minutes after istiod", series: with(hypergate+"1x10 stale", istiod+"1x5 stale"), at: 129,
		},
		{
			name: "hypergate was deleted, and istiod stays", series: with(hypergate+"1x10 stale", istiod+"1x6000"), at: 65,
			want: []string{isAbsent, expire},
		},
		{
			name: "it was uninstalled, and without kube-state-metrics, nothing shows that", at: 65,
			series: append(slices.Clone(noLeader[:1]), append(slices.Clone(noLeader[2:]), hypergate+"gone")...),
			want:   []string{isAbsent, expire},
		},
		{
			name: "kube-state-metrics fails, and the token is not renewed", at: 65,
			series: []string{
				hypergate + "1x50 stale", istiod + "1x50 stale",
				`hypergate_istiod_token_expiry_timestamp_seconds{} 3600x6000`, `hypergate_istiod_token_issued_timestamp_seconds{} 0x6000`,
			},
			want: []string{expire},
		},
	})
}

// TestThePodThatExportsTheTokenIsReplaced does the same for what a pod exported that is replaced at minute 10.
func TestThePodThatExportsTheTokenIsReplaced(t *testing.T) {
	t.Parallel()
	const (
		absent   = `hypergate_istiod_state{state="absent",pod=`
		deleting = `hypergate_on_hold{by="deleting",pod=`
		expiry   = `hypergate_istiod_token_expiry_timestamp_seconds{`
		issued   = `hypergate_istiod_token_issued_timestamp_seconds{`
		expires  = "HypergateIstiodTokenExpiring critical"
	)
	token := []string{expiry + `} 3600x6000`, issued + `} 0x6000`}
	checkScenarios(t, []scenario{
		{
			name: "istiod was absent, and is not any more", at: 60, want: []string{expires},
			series: append(slices.Clone(token), absent+`"a"} 1x10 stale`, absent+`"b"} _x11 0x6000`),
		},
		{
			name: "and then no pod leads", at: 60, want: []string{"HypergateAbsent warning", expires},
			series: []string{
				expiry + `} 3600x20 stale`, issued + `} 0x20 stale`, `hypergate_leader{} 1x20 stale`,
				absent + `"a"} 1x10 stale`, absent + `"b"} _x11 0x9 stale`,
			},
		},
		{
			name: "the hosted cluster was deleted, and created again", at: 60, want: []string{expires},
			series: append(slices.Clone(token), deleting+`"a"} 1x10 stale`, deleting+`"b"} _x11 0x6000`),
		},
		{
			name: "the life of a token is shorter than before", at: 68, want: []string{expires},
			series: []string{
				expiry + `} gone`, expiry + `pod="a"} 7200x10 stale`, expiry + `pod="b"} _x11 4200x6000`,
				issued + `} gone`, issued + `pod="a"} 0x10 stale`, issued + `pod="b"} _x11 600x6000`,
			},
		},
		{
			name: "istiod was removed after that", at: 60,
			series: append(slices.Clone(token), absent+`"a"} 0x10 stale`, absent+`"b"} _x11 1x6000`),
		},
	})
}

// TestAlertsAboutAMigration does the same for a migration that does not proceed.
func TestAlertsAboutAMigration(t *testing.T) {
	t.Parallel()
	phase := func(name string) string { return `hypergate_migration_phase{phase="` + name + `"} 1x6000` }
	const (
		stalled = "HypergateMigrationStalled info"
		moved   = `hypergate_migration_gateways{at="hosted"} `
		left    = `hypergate_migration_gateways{at="origin"} `
		churn   = "2x29 3x29 2x29 3x29 2x29 3x29 2x29 3x29"
	)
	checkScenarios(t, []scenario{
		{name: "it is paused, or skips Gateways", series: []string{phase("Roll"), moved + "2x6000"}, at: 185, want: []string{stalled}},
		{name: "it has begun", series: []string{phase("StandBy"), moved + "0x6000"}, at: 170},
		{
			name: "a Gateway moves each half hour", at: 230,
			series: []string{
				phase("Roll"), moved + "0x29 1x29 2x29 3x29 4x29 5x29 6x29 7x29", left + "9x29 8x29 7x29 6x29 5x29 4x29 3x29 2x29",
			},
		},
		{
			name: "the last Gateway moved less than four hours ago", at: 265,
			series: []string{phase("Roll"), moved + "0x29 1x6000", left + "2x29 1x6000"},
		},
		{
			name: "the last Gateway moved", at: 275, want: []string{stalled},
			series: []string{phase("Roll"), moved + "0x29 1x6000", left + "2x29 1x6000"},
		},
		{
			name: "it is paused, and a tenant creates and deletes a Gateway of the origin", at: 230, want: []string{stalled},
			series: []string{phase("Roll"), moved + "2x6000", left + churn},
		},
		{
			name: "it is paused, and a tenant creates and deletes a Gateway of the hosted istiod", at: 230, want: []string{stalled},
			series: []string{phase("Roll"), moved + churn, left + "2x6000"},
		},
		{name: "the origin is parked", series: []string{phase("Park"), moved + "2x6000"}, at: 600},
		{name: "it was rolled back", series: []string{phase("Check"), moved + "0x6000"}, at: 600},
		{
			name: "the control plane is paused", at: 200, want: []string{"HypergatePaused info"},
			series: []string{phase("Roll"), moved + "2x6000", `hypergate_on_hold{by="paused"} 1x6000`},
		},
	})
}

// inLives returns a series of a process that lives for six minutes again and again, with five minutes in between. value
// returns its value by the second at which a process began.
func inLives(series string, value func(began int) int) string {
	var out strings.Builder
	for minute := 0; minute < 120; minute += 11 {
		fmt.Fprintf(&out, "%dx5 stale _x4 ", value(60*minute))
	}
	return series + strings.TrimSpace(out.String())
}

// TestAlertsAboutCredentials does the same for what expires.
func TestAlertsAboutCredentials(t *testing.T) {
	t.Parallel()
	checkScenarios(t, []scenario{
		{
			name: "istiod's token is not renewed", at: 58,
			series: []string{
				`hypergate_istiod_token_expiry_timestamp_seconds{} 3600x6000`, `hypergate_istiod_token_issued_timestamp_seconds{} 0x6000`,
			},
			want: []string{"HypergateIstiodTokenExpiring critical"},
		},
		{
			name: "istiod's token is renewed five minutes late", at: 52,
			series: []string{renewed("hypergate_istiod_token", 53, 3600), renewedFrom("hypergate_istiod_token", 53)},
		},
		{
			name: "a pause of 40 minutes", series: []string{`hypergate_on_hold{by="paused"} 1x6000`}, at: 40,
			want: []string{"HypergatePaused info"},
		},
		{name: "a pause of 20 minutes", series: []string{`hypergate_on_hold{by="paused"} 1x20 0x6000`}, at: 40},
		{name: "a deletion", series: []string{`hypergate_on_hold{by="deleting"} 1x6000`}, at: 40},
		{
			name: "istiod's token is not renewed during a pause", at: 60,
			series: []string{
				`hypergate_on_hold{by="paused"} 1x6000`,
				`hypergate_istiod_token_expiry_timestamp_seconds{} 3600x6000`, `hypergate_istiod_token_issued_timestamp_seconds{} 0x6000`,
			},
			want: []string{"HypergateIstiodTokenExpiring critical", "HypergatePaused info"},
		},
		{
			name: "a token of ten minutes is renewed in time", at: 600,
			series: []string{renewed("hypergate_istiod_token", 8, 600), renewedFrom("hypergate_istiod_token", 8)},
		},
		{
			name: "the credential is not renewed", at: 19 * 60,
			series: []string{
				`hypergate_guest_credential_expiry_timestamp_seconds{} 86400x6000`,
				`hypergate_guest_credential_issued_timestamp_seconds{} 0x6000`,
			},
			want: []string{"HypergateGuestCredentialExpiring warning"},
		},
		{
			name: "the credential has expired", at: 25 * 60,
			series: []string{
				`hypergate_guest_credential_expiry_timestamp_seconds{} 86400x6000`,
				`hypergate_guest_credential_issued_timestamp_seconds{} 0x6000`,
			},
			want: []string{"HypergateGuestCredentialExpiring critical", "HypergateGuestCredentialExpiring warning"},
		},
		{
			name: "a credential of an hour is renewed in time", at: 600,
			series: []string{renewed("hypergate_guest_credential", 40, 3600), renewedFrom("hypergate_guest_credential", 40)},
		},
		{
			name: "the mesh CA expires in 29 days", at: 70,
			series: []string{fmt.Sprintf(`hypergate_mesh_ca_expiry_timestamp_seconds{root="current"} %dx6000`, 29*86400)},
			want:   []string{"HypergateMeshCAExpiring warning"},
		},
		{
			name: "the next mesh CA does not count", at: 70,
			series: []string{`hypergate_mesh_ca_expiry_timestamp_seconds{root="next"} 86400x6000`},
		},
		{
			name: "a rotation lasts for five days", at: 70,
			series: []string{fmt.Sprintf(`hypergate_mesh_ca_rotation_since_timestamp_seconds{} %dx6000`, -5*86400)},
			want:   []string{"HypergateMeshCARotationStuck warning"},
		},
		{
			name: "a rotation lasts for two days", at: 70,
			series: []string{fmt.Sprintf(`hypergate_mesh_ca_rotation_since_timestamp_seconds{} %dx6000`, -2*86400)},
		},
	})
}

// TestAlertsAboutTheGuest does the same for what istiod serves, and for objects of the guest.
func TestAlertsAboutTheGuest(t *testing.T) {
	t.Parallel()
	checkScenarios(t, []scenario{
		{
			name: "istiod does not answer where it is published", series: []string{`hypergate_published_reachable{} 0x6000`}, at: 15,
			want: []string{"HypergateEndpointUnreachable critical"},
		},
		{
			name: "istiod does not answer where it is published, during a pause", at: 15,
			series: []string{`hypergate_published_reachable{} 0x6000`, `hypergate_on_hold{by="paused"} 1x6000`},
		},
		{name: "istiod was not probed yet", series: []string{`hypergate_published_reachable{} gone`}, at: 60},
		{
			name: "one relay has no tunnel", at: 20, want: []string{"HypergateTunnelDown warning"},
			series: []string{`hypergate_tunnel_up{relay="istiod-relay-0"} 0x6000`, `hypergate_tunnel_up{relay="istiod-relay-1"} 1x6000`},
		},
		{
			name: "no relay has a tunnel", at: 20, want: []string{"HypergateTunnelDown critical"},
			series: []string{`hypergate_tunnel_up{relay="istiod-relay-0"} 0x6000`, `hypergate_tunnel_up{relay="istiod-relay-1"} 0x6000`},
		},
		{
			name: "one of two istiods has the tunnels", at: 20,
			series: []string{
				`hypergate_tunnel_up{relay="istiod-relay-0",pod="a"} 0x6000`, `hypergate_tunnel_up{relay="istiod-relay-1",pod="a"} 1x6000`,
				`hypergate_tunnel_up{relay="istiod-relay-0",pod="b"} 1x6000`, `hypergate_tunnel_up{relay="istiod-relay-1",pod="b"} 0x6000`,
			},
		},
		{
			name: "no relay has a tunnel, during a pause", at: 20,
			series: []string{`hypergate_tunnel_up{relay="istiod-relay-0"} 0x6000`, `hypergate_on_hold{by="paused"} 1x6000`},
		},
		{
			name: "the guest's API server restarts", at: 20,
			series: []string{
				`hypergate_tunnel_up{relay="istiod-relay-0"} 1x10 0x2 1x6000`,
				`hypergate_tunnel_reconnects_total{reason="forbidden"} 0x10 12x6000`,
			},
		},
		{
			name: "the sidecar has lost its permission", at: 30, want: []string{"HypergateTunnelForbidden warning"},
			series: []string{
				`hypergate_tunnel_up{relay="istiod-relay-0"} 1x6000`, `hypergate_tunnel_reconnects_total{reason="forbidden"} 0+30x6000`,
			},
		},
		{
			name: "the webhook is not enforced", series: []string{`hypergate_webhook_failure_policy{policy="Ignore"} 1x6000`}, at: 35,
			want: []string{"HypergateWebhookNotEnforced info"},
		},
		{
			name: "the webhook is not enforced, because istiod is not available", at: 35,
			series: []string{
				`hypergate_webhook_failure_policy{policy="Ignore"} 1x6000`, `hypergate_condition{type="Available",status="True"} 0x6000`,
			},
		},
		{
			name: "another client reverts objects", series: []string{`hypergate_rate_limited_objects{side="guest"} 2x6000`}, at: 20,
			want: []string{"HypergateWriteConflict warning"},
		},
		{name: "a short conflict", series: []string{`hypergate_rate_limited_objects{side="guest"} 2x10 0x6000`}, at: 20},
		{
			name: "a CRD is blocked", at: 70,
			series: []string{`hypergate_guest_crd_info{crd="gateways.gateway.networking.k8s.io",verdict="Blocked"} 1x6000`},
			want:   []string{"HypergateCRDBlocked info"},
		},
		{
			name: "a CRD is kept", at: 70,
			series: []string{`hypergate_guest_crd_info{crd="gateways.gateway.networking.k8s.io",verdict="Keep"} 1x6000`},
		},
	})
}

func checkScenarios(t *testing.T, all []scenario) {
	t.Helper()
	for _, tc := range all {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := firing(t, healthy("clusters-guest1", tc.series...), time.Duration(tc.at)*time.Minute); !slices.Equal(got, tc.want) {
				t.Errorf("these fire: %q, want %q", got, tc.want)
			}
		})
	}
}

// TestAlertsWithValuesFromBeforeAPause checks that a pause ends each alert whose values hypergate no longer updates.
func TestAlertsWithValuesFromBeforeAPause(t *testing.T) {
	t.Parallel()
	const at = 90
	scenarios := make([]scenario, 0, 8)
	for alert, series := range map[string]string{
		"HypergateMeshCARotationStuck warning": fmt.Sprintf(`hypergate_mesh_ca_rotation_since_timestamp_seconds{} %dx6000`, -5*86400),
		"HypergateWebhookNotEnforced info":     `hypergate_webhook_failure_policy{policy="Ignore"} 1x6000`,
		"HypergateWriteConflict warning":       `hypergate_rate_limited_objects{side="guest"} 2x6000`,
		"HypergateCRDBlocked info":             `hypergate_guest_crd_info{crd="gateways",verdict="Blocked"} 1x6000`,
	} {
		scenarios = append(scenarios,
			scenario{name: alert, series: []string{series}, at: at, want: []string{alert}},
			scenario{
				name: alert + ", and then a pause", series: []string{series, `hypergate_on_hold{by="paused"} 0x80 1x6000`}, at: at,
			})
	}
	checkScenarios(t, scenarios)
}

// TestAlertsAboutWhatExpiresDuringADeletion checks that a deletion ends each alert about what hypergate no longer
// renews.
func TestAlertsAboutWhatExpiresDuringADeletion(t *testing.T) {
	t.Parallel()
	const at = 80
	expires := func(what string, seconds int) []string {
		return []string{
			fmt.Sprintf(`%s_expiry_timestamp_seconds{} %dx6000`, what, seconds), what + `_issued_timestamp_seconds{} -86400x6000`,
		}
	}
	during := func(series []string, deleting string) []string {
		return append(slices.Clone(series), `hypergate_on_hold{by="deleting"} `+deleting)
	}
	meshCA := fmt.Sprintf(`hypergate_mesh_ca_expiry_timestamp_seconds{root="current"} %dx6000`, 29*86400)
	var scenarios []scenario
	for alert, series := range map[string][]string{
		"HypergateIstiodTokenExpiring critical":     expires("hypergate_istiod_token", 3600),
		"HypergateGuestCredentialExpiring warning":  expires("hypergate_guest_credential", at*60+4*3600),
		"HypergateGuestCredentialExpiring critical": expires("hypergate_guest_credential", 3600),
		"HypergateMeshCAExpiring warning":           {meshCA},
	} {
		want := []string{alert}
		if alert == "HypergateGuestCredentialExpiring critical" {
			want = append(want, "HypergateGuestCredentialExpiring warning")
		}
		scenarios = append(scenarios,
			scenario{name: alert, series: series, at: at, want: want},
			scenario{name: alert + ", during a deletion", series: during(series, "1x6000"), at: at},
			scenario{name: alert + ", and then a deletion", series: during(series, "0x78 1x6000"), at: at})
	}
	checkScenarios(t, scenarios)
}

// TestEachAlertFiresInAScenario checks that the tests above cover all alerts.
func TestEachAlertFiresInAScenario(t *testing.T) {
	t.Parallel()
	source := file(t, "test/monitoring/alerts_test.go") + file(t, "test/monitoring/fleet_test.go")
	_, all := ruleFile(t)
	for _, rule := range all {
		if rule.Alert != "" && !strings.Contains(source, `"`+rule.Alert+" "+rule.Labels["severity"]+`"`) {
			t.Errorf("no scenario expects %s with severity %s", rule.Alert, rule.Labels["severity"])
		}
	}
}
