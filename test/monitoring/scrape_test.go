package monitoring

import (
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/config"
	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// podMonitor is a PodMonitor with the fields that deploy/ uses. Another field is an error: the translation lacks it.
type podMonitor struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct {
		Name, Namespace string
		Labels          map[string]string
		OwnerReferences []any `yaml:"ownerReferences"`
	}
	Spec struct {
		Selector struct {
			MatchLabels      map[string]string `yaml:"matchLabels"`
			MatchExpressions []struct {
				Key, Operator string
			} `yaml:"matchExpressions"`
		}
		NamespaceSelector struct {
			Any        bool
			MatchNames []string `yaml:"matchNames"`
		} `yaml:"namespaceSelector"`
		PodTargetLabels     []string        `yaml:"podTargetLabels"`
		PodMetricsEndpoints []scrapedSource `yaml:"podMetricsEndpoints"`
	}
}

// scrapedSource is one endpoint of a PodMonitor.
type scrapedSource struct {
	Port, Path, Scheme, Interval string
	Relabelings                  []relabeling
	MetricRelabelings            []relabeling `yaml:"metricRelabelings"`
}

// relabeling is a rule as a PodMonitor has it.
type relabeling struct {
	Action, Regex, TargetLabel, Replacement string
	SourceLabels                            []string
}

// UnmarshalYAML reads the names of a PodMonitor's fields.
func (r *relabeling) UnmarshalYAML(node *yaml.Node) error {
	var fields struct {
		Action, Regex, Replacement string
		TargetLabel                string   `yaml:"targetLabel"`
		SourceLabels               []string `yaml:"sourceLabels"`
	}
	if err := strict(node, &fields); err != nil {
		return err
	}
	*r = relabeling{
		Action: fields.Action, Regex: fields.Regex, Replacement: fields.Replacement, TargetLabel: fields.TargetLabel,
		SourceLabels: fields.SourceLabels,
	}
	return nil
}

// MarshalYAML writes the names of the fields in a configuration of Prometheus.
func (r relabeling) MarshalYAML() (any, error) {
	return struct {
		Action       string   `yaml:",omitempty"`
		SourceLabels []string `yaml:"source_labels,flow,omitempty"`
		Regex        string   `yaml:",omitempty"`
		TargetLabel  string   `yaml:"target_label,omitempty"`
		Replacement  string   `yaml:",omitempty"`
	}{r.Action, r.SourceLabels, r.Regex, r.TargetLabel, r.Replacement}, nil
}

// strict decodes a node, and fails for a field that is not known.
func strict(node *yaml.Node, into any) error {
	text, err := yaml.Marshal(node)
	if err != nil {
		return err
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	decoder.KnownFields(true)
	return decoder.Decode(into)
}

// scrapeConfig is a part of Prometheus' configuration. It lacks the service discovery: a test states its targets. So
// the namespaces of the discovery are a relabeling here.
type scrapeConfig struct {
	JobName        string       `yaml:"job_name"`
	Interval       string       `yaml:"scrape_interval"`
	Path           string       `yaml:"metrics_path,omitempty"`
	Scheme         string       `yaml:"scheme,omitempty"`
	Relabel        []relabeling `yaml:"relabel_configs"`
	RelabelMetrics []relabeling `yaml:"metric_relabel_configs"`
}

const podLabel, podLabelPresent = "__meta_kubernetes_pod_label_", "__meta_kubernetes_pod_labelpresent_"

// labelName returns the name by which Prometheus has a label of Kubernetes.
func labelName(name string) string {
	return regexp.MustCompile(`[^a-zA-Z0-9_]`).ReplaceAllString(name, "_")
}

// selected returns the relabelings that keep the pods that a PodMonitor selects.
func (m podMonitor) selected() []relabeling {
	var selected []relabeling
	if in := m.Spec.NamespaceSelector; !in.Any {
		names := in.MatchNames
		if len(names) == 0 {
			names = []string{m.Metadata.Namespace}
		}
		selected = append(selected, relabeling{
			Action: "keep", SourceLabels: []string{"__meta_kubernetes_namespace"}, Regex: "(" + strings.Join(names, "|") + ")",
		})
	}
	for _, name := range slices.Sorted(maps.Keys(m.Spec.Selector.MatchLabels)) {
		selected = append(selected, relabeling{
			Action: "keep", SourceLabels: []string{podLabel + labelName(name), podLabelPresent + labelName(name)},
			Regex: "(" + m.Spec.Selector.MatchLabels[name] + ");true",
		})
	}
	for _, expression := range m.Spec.Selector.MatchExpressions { // all of them are Exists: read checks that
		selected = append(selected, relabeling{
			Action: "keep", SourceLabels: []string{podLabelPresent + labelName(expression.Key)}, Regex: "true",
		})
	}
	return selected
}

// scrapeConfigs translates a PodMonitor as the Prometheus operator does.
func (m podMonitor) scrapeConfigs() []scrapeConfig {
	id := m.Metadata.Namespace + "/" + m.Metadata.Name
	var out []scrapeConfig
	for i, endpoint := range m.Spec.PodMetricsEndpoints {
		rules := append([]relabeling{
			{Action: "drop", SourceLabels: []string{"__meta_kubernetes_pod_phase"}, Regex: "(Failed|Succeeded)"},
		}, m.selected()...)
		rules = append(
			rules,
			relabeling{Action: "keep", SourceLabels: []string{"__meta_kubernetes_pod_container_port_name"}, Regex: endpoint.Port},
			relabeling{SourceLabels: []string{"__meta_kubernetes_namespace"}, TargetLabel: "namespace"},
			relabeling{SourceLabels: []string{"__meta_kubernetes_pod_container_name"}, TargetLabel: "container"},
			relabeling{SourceLabels: []string{"__meta_kubernetes_pod_name"}, TargetLabel: "pod"},
		)
		for _, name := range m.Spec.PodTargetLabels {
			rules = append(rules, relabeling{
				SourceLabels: []string{podLabel + labelName(name)}, Regex: "(.+)", TargetLabel: labelName(name), Replacement: "${1}",
			})
		}
		rules = append(
			rules,
			relabeling{TargetLabel: "job", Replacement: id},
			relabeling{TargetLabel: "endpoint", Replacement: endpoint.Port},
		)
		out = append(out, scrapeConfig{
			JobName: "podMonitor/" + id + "/" + strconv.Itoa(i), Interval: endpoint.Interval, Path: endpoint.Path, Scheme: endpoint.Scheme,
			Relabel: append(rules, endpoint.Relabelings...), RelabelMetrics: endpoint.MetricRelabelings,
		})
	}
	return out
}

// podMonitors returns the PodMonitors of a file, or those that a folder's kustomization renders. Both can have other
// objects as well.
func podMonitors(t *testing.T, path string) []podMonitor {
	t.Helper()
	var out []podMonitor
	for _, object := range objects(t, path) {
		var header struct{ Kind string }
		if err := object.Decode(&header); err != nil {
			t.Fatal(err)
		}
		if header.Kind != "PodMonitor" {
			continue
		}
		var one podMonitor
		if err := strict(object, &one); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, expression := range one.Spec.Selector.MatchExpressions {
			if expression.Operator != "Exists" {
				t.Fatalf("%s: the operator %s is not translated", path, expression.Operator)
			}
		}
		out = append(out, one)
	}
	if len(out) == 0 {
		t.Fatalf("%s has no PodMonitor", path)
	}
	return out
}

// objects returns the documents of a file, or those that a folder's kustomization renders.
func objects(t *testing.T, path string) []*yaml.Node {
	t.Helper()
	var text string
	if filepath.Ext(path) == ".yaml" {
		text = file(t, path)
	} else {
		text = rendered(t, path)
	}
	var out []*yaml.Node
	for decoder := yaml.NewDecoder(strings.NewReader(text)); ; {
		var node yaml.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		out = append(out, &node)
	}
}

// rendered returns what `kubectl apply -k` would apply for a folder.
func rendered(t *testing.T, folder string) string {
	t.Helper()
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(root, folder))
	if err != nil {
		t.Fatal(err)
	}
	text, err := all.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// asConfig returns scrape configurations as Prometheus loads them.
func asConfig(t *testing.T, all []scrapeConfig) []*config.ScrapeConfig {
	t.Helper()
	loaded, err := config.Load(asYAML(t, all), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return loaded.ScrapeConfigs
}

func asYAML(t *testing.T, all []scrapeConfig) string {
	t.Helper()
	var text strings.Builder
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := encoder.Encode(map[string]any{"scrape_configs": all}); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// TestTheScrapeConfigs checks the golden file from which test/e2e configures a real Prometheus: the PodMonitors of
// deploy/monitoring/hosted, as the Prometheus operator translates them. UPDATE=1 writes it.
func TestTheScrapeConfigs(t *testing.T) {
	t.Parallel()
	var all []scrapeConfig
	for _, one := range podMonitors(t, "deploy/monitoring/hosted") {
		all = append(all, one.scrapeConfigs()...)
	}
	asConfig(t, all)
	got := "# The PodMonitors of deploy/monitoring/hosted, as the Prometheus operator translates them. Written with UPDATE=1.\n" +
		asYAML(t, all)
	golden := filepath.Join("testdata", "scrape_configs.yaml")
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := file(t, "test/monitoring", golden); want != got {
		t.Errorf("%s differs from the PodMonitors; run the test with UPDATE=1 and read the difference. Got:\n%s", golden, got)
	}
}
