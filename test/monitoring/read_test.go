package monitoring

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

// root is the checkout.
const root = "../.."

// file returns the content of a file of the checkout.
func file(t *testing.T, path ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, filepath.Join(path...)))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// ruleFile returns the rules as Prometheus reads them, and as they are parsed.
func ruleFile(t *testing.T) ([]byte, []rulefmt.Rule) {
	t.Helper()
	var object struct {
		Spec yaml.Node `yaml:"spec"`
	}
	if err := yaml.Unmarshal([]byte(file(t, "deploy/monitoring/rules/prometheusrule.yaml")), &object); err != nil {
		t.Fatal(err)
	}
	content, err := yaml.Marshal(&object.Spec)
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(content, false, model.UTF8Validation, promQL(), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Fatal(err)
	}
	var out []rulefmt.Rule
	for _, group := range groups.Groups {
		out = append(out, group.Rules...)
	}
	return content, out
}

func promQL() parser.Parser { return parser.NewParser(parser.Options{}) }

// metricsOf returns the metrics that an expression reads.
func metricsOf(t *testing.T, where, expr string) []string {
	t.Helper()
	parsed, err := promQL().ParseExpr(expr)
	if err != nil {
		t.Fatalf("%s: %v\n%s", where, err, expr)
	}
	var out []string
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if selector, is := node.(*parser.VectorSelector); is {
			out = append(out, selector.Name)
		}
		return nil
	})
	return out
}

// known returns a function that reports whether a metric exists: one of hypergate, a recording rule, or one of the
// listed metrics of others.
func known(t *testing.T) func(metric string) bool {
	t.Helper()
	all := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(hypergate_[a-z_]+)[^`]*` \\| (\\w+) \\|").
		FindAllStringSubmatch(file(t, "docs/reference/metrics.md"), -1) {
		if row[2] == "histogram" {
			all[row[1]+"_bucket"], all[row[1]+"_sum"], all[row[1]+"_count"] = true, true, true
		} else {
			all[row[1]] = true
		}
	}
	if len(all) < 30 {
		t.Fatalf("only %d metrics were found", len(all))
	}
	_, rules := ruleFile(t)
	for _, rule := range rules {
		if rule.Record != "" {
			all[rule.Record] = true
		}
	}
	others := othersMetrics()
	return func(metric string) bool { return all[metric] || slices.Contains(others, metric) }
}

// othersMetrics are the metrics of others that rules and dashboards read: of istiod, of libraries, and of
// kube-state-metrics.
func othersMetrics() []string {
	return []string{
		"pilot_xds", "pilot_total_xds_rejects", "pilot_proxy_convergence_time_bucket", "istio_build",
		"hypergate_tunnel_up", "hypergate_tunnel_reconnects_total", // of the tunnel's sidecar
		"process_cpu_seconds_total", "process_resident_memory_bytes", "process_start_time_seconds",
		"kube_deployment_spec_replicas", "kube_deployment_created", "kube_pod_container_status_restarts_total", "ALERTS",
	}
}
