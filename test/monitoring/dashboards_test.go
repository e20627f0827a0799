package monitoring

import (
	"encoding/json"
	"strings"
	"testing"
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
	return strings.NewReplacer("$__rate_interval", "5m", "$__range", "1d", "$namespace", "clusters-guest1").Replace(expr)
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
