package monitoring

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

// expressions returns all expressions of rules and dashboards, by where they are.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	_, all := ruleFile(t)
	for _, rule := range all {
		out[fmt.Sprintf("%s%s %s", rule.Alert, rule.Record, rule.Labels["severity"])] = rule.Expr
	}
	var fleet, cluster dashboard
	var rows []struct{ Panels []panel }
	for path, into := range map[string]any{
		"dashboards/fleet.json": &fleet, "dashboards/cluster.json": &cluster, "hypershift/rows.json": &rows,
	} {
		if err := json.Unmarshal([]byte(file(t, "deploy/monitoring", path)), into); err != nil {
			t.Fatal(err)
		}
	}
	for title, panels := range map[string][]panel{"fleet": fleet.Panels, "cluster": cluster.Panels, "row": rows[0].Panels} {
		for _, p := range panels {
			for i, target := range p.Targets {
				out[fmt.Sprintf("%s: %s, %d", title, p.Title, i)] = asPromQL(target.Expr)
			}
		}
	}
	return out
}

// seriesRead returns series that an expression reads, with the labels that it selects.
func seriesRead(t *testing.T, expr string, names map[string][]string) (out []string) {
	t.Helper()
	parsed, err := promQL().ParseExpr(expr)
	if err != nil {
		t.Fatal(err)
	}
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		selector, is := node.(*parser.VectorSelector)
		if !is || names[selector.Name] == nil && !strings.HasPrefix(selector.Name, "hypergate_") {
			return nil
		}
		b := labels.NewScratchBuilder(0)
		with := map[string]string{"namespace": "clusters-guest1", "pod": "pod-0"}
		for _, name := range names[selector.Name] {
			with[name] = "1"
		}
		for _, m := range selector.LabelMatchers {
			if m.Type == labels.MatchEqual || m.Type == labels.MatchRegexp {
				with[m.Name], _, _ = strings.Cut(m.Value, "|")
			}
		}
		for _, name := range slices.Sorted(maps.Keys(with)) {
			b.Add(name, with[name])
		}
		b.Sort()
		out = append(out, selector.Name+b.Labels().String()+" 0+40x60")
		return nil
	})
	return out
}

// TestPodsThatAreScrapedTwiceCountOnce evaluates each expression with one job, and with two. HyperShift's component has
// PodMonitors in each namespace, and deploy/monitoring/hosted has others for all.
func TestPodsThatAreScrapedTwiceCountOnce(t *testing.T) {
	t.Parallel()
	names := map[string][]string{}
	for _, page := range pages(t) {
		maps.Copy(names, page)
	}
	all := expressions(t)
	once, twice := map[string]bool{}, map[string]bool{}
	for _, expr := range all {
		for _, series := range seriesRead(t, expr, names) {
			first := strings.Replace(series, "{", `{job="openshift-monitoring/hypergate", `, 1)
			once[first], twice[first] = true, true
			twice[strings.Replace(series, "{", `{job="clusters-guest1/hypergate", _id="1", `, 1)] = true
		}
	}
	const at = 30 * time.Minute
	a, _ := evaluated(t, slices.Sorted(maps.Keys(once)), at)
	b, _ := evaluated(t, slices.Sorted(maps.Keys(twice)), at)
	for where, expr := range all {
		want, got := sorted(t, a, expr, at), sorted(t, b, expr, at)
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwith one job: %q\nwith two:     %q", where, expr, want, got)
		}
		if len(want) == 0 && strings.Contains(expr, "sum") {
			t.Errorf("%s: no value of %s", where, expr)
		}
	}
}

// sorted returns the values of an expression at a time after the beginning of some series.
func sorted(t *testing.T, suite *promqltest.LazyLoader, expr string, at time.Duration) (out []string) {
	t.Helper()
	found, err := rules.EngineQueryFunc(suite.QueryEngine(), suite.Storage())(t.Context(), expr, time.Unix(0, 0).Add(at))
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	for _, sample := range found {
		out = append(out, sample.String())
	}
	slices.Sort(out)
	return out
}
