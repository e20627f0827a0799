package monitoring

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/rules"
)

// records are series and the results of each recording rule after 10 minutes.
func records() map[string]struct{ series, want []string } {
	versions := []string{
		`hypergate_build_info{namespace="a",pod="1",version="v1"} 1x10`, `hypergate_build_info{namespace="a",pod="2",version="v1"} 1x10`,
		`hypergate_build_info{namespace="b",pod="3",version="v1"} 1x10`, `hypergate_build_info{namespace="c",pod="4",version="v2"} 1x10`,
	}
	// d crashes, e has never run, f has no replicas, and g is new. c led until four minutes ago.
	deployments := []string{
		`kube_deployment_spec_replicas{namespace="c",deployment="hypergate"} 1x10`,
		`kube_deployment_spec_replicas{namespace="d",deployment="hypergate"} 2x10`,
		`kube_deployment_spec_replicas{namespace="e",deployment="hypergate"} 1x10`,
		`kube_deployment_spec_replicas{namespace="f",deployment="hypergate"} 0x10`,
		`kube_deployment_spec_replicas{namespace="d",deployment="istiod"} 1x10`,
		`kube_deployment_spec_replicas{namespace="g",deployment="hypergate"} 1x10`,
		`kube_deployment_created{namespace="g",deployment="hypergate"} 0x10`,
		`kube_deployment_created{namespace="d",deployment="hypergate"} -2000x10`,
	}
	leaders := []string{
		`hypergate_leader{namespace="a",pod="1"} 1x10`, `hypergate_leader{namespace="c",pod="1"} 0x10`,
		`hypergate_leader{namespace="c",pod="2"} 1x6 0x3`, `hypergate_leader{namespace="d",pod="1"} 1x4 0x5`,
	}
	conditions := []string{
		`hypergate_condition{namespace="a",type="Degraded",status="True"} 1x10`,
		`hypergate_condition{namespace="b",type="Degraded",status="True"} 0x10`,
		`hypergate_condition{namespace="b",type="Available",status="False"} 1x10`,
		`hypergate_condition{namespace="c",type="Degraded",status="True"} 1x10`, `hypergate_on_hold{namespace="c"} 1x10`,
	}
	// a and d are counted already, j has restarted three times, and another container of k restarts.
	restarts := []string{
		`kube_pod_container_status_restarts_total{namespace="i",container="hypergate"} 0x1 1x1 2x1 3x1 4x1 5x1`,
		`process_start_time_seconds{namespace="j",container="hypergate"} 0x1 1x1 2x1 3x6`,
		`process_start_time_seconds{namespace="k",container="istiod"} 0+1x10`,
	}
	for _, namespace := range []string{"a", "c", "d", "h"} {
		restarts = append(restarts, `process_start_time_seconds{namespace="`+namespace+`",container="hypergate"} 0+1x10`)
	}
	available := []string{
		`hypergate_condition{namespace="a",pod="1",type="Available",status="True"} 0x4 1x5`,
		`hypergate_condition{namespace="a",pod="2",type="Available",status="True"} 0x10`,
	}
	return map[string]struct{ series, want []string }{
		"hypergate:available:bool":      {available, []string{`{namespace="a"} 1.00`}},
		"hypergate:available:ratio_28d": {available, []string{`{namespace="a"} 0.55`}},
		"hypergate:install_seconds:p99": {[]string{
			`hypergate_install_duration_seconds_bucket{namespace="a",le="10"} 0+99x10`,
			`hypergate_install_duration_seconds_bucket{namespace="a",le="60"} 0+100x10`,
			`hypergate_install_duration_seconds_bucket{namespace="a",le="+Inf"} 0+100x10`,
		}, []string{"{} 10.00"}},
		"hypergate:proxies:sum": {
			[]string{`pilot_xds{namespace="a",pod="1",version="1.28"} 2x10`, `pilot_xds{namespace="a",pod="2",version="1.29"} 3x10`},
			[]string{`{namespace="a"} 5.00`},
		},
		"hypergate:fleet:clusters:count": {slices.Concat(versions, deployments), []string{"{} 6.00"}},
		"hypergate:fleet:version:count":  {versions, []string{`{version="v1"} 2.00`, `{version="v2"} 1.00`}},
		"hypergate:fleet:condition:count": {conditions, []string{
			`{status="False", type="Available"} 1.00`, `{status="True", type="Degraded"} 2.00`,
		}},
		"hypergate:fleet:degraded:count": {conditions, []string{"{} 2.00"}},
		"hypergate:fleet:silent:count":   {slices.Concat(leaders, deployments), []string{"{} 2.00"}},
		"hypergate:fleet:restarting:count": {
			slices.Concat(leaders, deployments, conditions, restarts), []string{"{} 3.00"},
		},
	}
}

// TestRecordingRules evaluates each recording rule. A rule without a row is an error.
func TestRecordingRules(t *testing.T) {
	t.Parallel()
	rows := records()
	_, all := ruleFile(t)
	for _, rule := range all {
		if _, has := rows[rule.Record]; rule.Record != "" && !has {
			t.Errorf("%s has no row", rule.Record)
		}
	}
	const end = 10 * time.Minute
	for name, tc := range rows {
		suite, _ := evaluated(t, tc.series, end)
		query := rules.EngineQueryFunc(suite.QueryEngine(), suite.Storage())
		found, err := query(t.Context(), name, time.Unix(0, 0).Add(end))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got []string
		for _, sample := range found {
			unnamed := labels.NewBuilder(sample.Metric).Del(model.MetricNameLabel).Labels()
			got = append(got, fmt.Sprintf("%s %.2f", unnamed, sample.F))
		}
		slices.Sort(got)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
