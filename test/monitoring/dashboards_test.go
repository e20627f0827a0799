package monitoring

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/rules"
)

// dashboard is the part of Grafana's JSON that is tested.
type dashboard struct {
	Title, UID string
	Panels     []panel
	Templating struct {
		List []struct{ Name, Type, Query string }
	}
}

type panel struct {
	ID      int
	Title   string
	Type    string
	GridPos struct{ X, Y, W, H int }
	Targets []struct{ Expr, RefID string }
}

// asPromQL replaces Grafana's variables by values.
func asPromQL(expr string) string {
	return strings.NewReplacer("$__rate_interval", "5m", "$__range", "1d", "$namespace", "clusters-guest1",
		"__CONTROL_PLANE_NAMESPACE__", "clusters-guest1").Replace(expr)
}

// TestDashboards parses each expression of each dashboard, and checks its metrics. No two panels overlap.
func TestDashboards(t *testing.T) {
	t.Parallel()
	exists := known(t)
	for _, name := range []string{"fleet", "cluster"} {
		var d dashboard
		if err := json.Unmarshal([]byte(file(t, "deploy/monitoring/dashboards", name+".json")), &d); err != nil {
			t.Fatal(err)
		}
		if d.UID != "hypergate-"+name || d.Title == "" || len(d.Panels) < 8 {
			t.Errorf("%s: %q with %d panels", name, d.UID, len(d.Panels))
		}
		taken, ids := map[[2]int]string{}, map[int]bool{}
		for _, p := range d.Panels {
			if p.Title == "" || ids[p.ID] || len(p.Targets) == 0 {
				t.Errorf("%s: panel %d %q has no title, no expression, or an ID that another one has", name, p.ID, p.Title)
			}
			ids[p.ID] = true
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
						t.Fatalf("%s: the panel %q is outside, or overlaps with %q", name, p.Title, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
			for _, target := range p.Targets {
				for _, metric := range metricsOf(t, name+": "+p.Title, asPromQL(target.Expr)) {
					if !exists(metric) {
						t.Errorf("%s: %s reads %s, which does not exist", name, p.Title, metric)
					}
				}
			}
		}
	}
}

// TestTheRowForHyperShift checks the row for HyperShift's dashboards. The IDs of its panels differ from those of
// HyperShift's (7 and 9), and each expression is about one hosted cluster.
func TestTheRowForHyperShift(t *testing.T) {
	t.Parallel()
	exists := known(t)
	var rows []struct {
		Title  string
		Panels []panel
	}
	if err := json.Unmarshal([]byte(file(t, "deploy/monitoring/hypershift", "rows.json")), &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 1 || len(rows[0].Panels) == 0 || rows[0].Title == "" {
		t.Fatalf("%d rows", len(rows))
	}
	ids := map[int]bool{7: true, 9: true}
	for _, p := range rows[0].Panels {
		if ids[p.ID] || p.Type != "graph" || len(p.Targets) == 0 {
			t.Errorf("panel %d %q has an ID of another one, another type, or no expression", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			metrics := metricsOf(t, p.Title, asPromQL(target.Expr))
			if strings.Count(target.Expr, `{namespace="__CONTROL_PLANE_NAMESPACE__"`) != len(metrics) {
				t.Errorf("%s: %s is not about one hosted cluster", p.Title, target.Expr)
			}
			for _, metric := range metrics {
				if !exists(metric) {
					t.Errorf("%s reads %s, which does not exist", p.Title, metric)
				}
			}
		}
	}
}

// TestTheCountOfClustersWithoutALeader evaluates the panel of the fleet with one cluster of two whose pods are gone. A
// pod that is gone has no series.
func TestTheCountOfClustersWithoutALeader(t *testing.T) {
	t.Parallel()
	var d dashboard
	if err := json.Unmarshal([]byte(file(t, "deploy/monitoring/dashboards/fleet.json")), &d); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(d.Panels, func(p panel) bool { return p.Title == "Without a leader" })
	for name, tc := range map[string]struct {
		series []string
		want   float64
	}{
		"all lead":                {nil, 0},
		"no pod leads":            {[]string{`hypergate_leader{} 1x10 0x6000`}, 1},
		"the pods are gone":       {[]string{`hypergate_leader{} 1x10 stale`}, 1},
		"no pod has ever started": {[]string{`hypergate_leader{} gone`}, 1},
		"hypergate was uninstalled": {[]string{
			`hypergate_leader{} 1x10 stale`, `kube_deployment_spec_replicas{deployment="hypergate"} 1x10 stale`,
		}, 0},
	} {
		series := slices.Concat(healthy("clusters-guest1", tc.series...), healthy("clusters-guest2"))
		if got := valueOf(t, series, d.Panels[i].Targets[0].Expr, 28*time.Minute); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// valueOf returns the one value of an expression at a time after the beginning of some series.
func valueOf(t *testing.T, series []string, expr string, at time.Duration) float64 {
	t.Helper()
	suite, _ := evaluated(t, series, at)
	found, err := rules.EngineQueryFunc(suite.QueryEngine(), suite.Storage())(t.Context(), expr, time.Unix(0, 0).Add(at))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v, %v", expr, found, err)
	}
	return found[0].F
}
