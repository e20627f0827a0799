package parity_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/golden"
)

// parityPage is the page that explains each difference.
const parityPage = "../../docs/reference/parity.md"

// TestRenderedSettings compares what is rendered for a class and for istiod with what cluster-ingress-operator renders:
// the ConfigMap with the defaults of a class, the mesh configuration, and the environment of istiod. The golden file
// has each difference, and the page about parity explains each of them.
func TestRenderedSettings(t *testing.T) {
	t.Parallel()
	source, err := charts.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	operator := ofOperator(t, source, model.Proxy{})
	operator.env = operatorsIstiod(t, source)
	got := difference(renderedLines(t, operator), renderedLines(t, ofHypergate(t, source, "", model.SeveralNodes)))
	golden.Equal(t, "testdata/rendered.diff", got)
	isExplained(t, got)
}

// operatorsIstiod returns the environment of istiod in the Deployment that the chart renders for the operator.
func operatorsIstiod(t *testing.T, source *charts.Source) map[string]string {
	t.Helper()
	given := operatorValues()
	given["env"] = anyMap(operatorEnv())
	objects, err := source.Render(charts.Release{Name: revision + "-istiod", Namespace: namespace, Values: given})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(objects, func(u *unstructured.Unstructured) bool { return u.GetKind() == "Deployment" })
	if i < 0 {
		t.Fatal("the chart renders no Deployment")
	}
	return environment(t, objects[i])
}

// renderedLines returns each value of rendered settings as a line with its path.
func renderedLines(t *testing.T, s settings) []string {
	t.Helper()
	var out []string
	flatten("env", anyMap(s.env), &out)
	flatten("mesh", fromYAML(t, s.files[meshFile]), &out)
	configMap := fromYAML(t, string(s.classDefaults))
	data, _ := configMap["data"].(map[string]any)
	for key, value := range data {
		text, _ := value.(string)
		data[key] = fromYAML(t, text)
	}
	flatten("class", configMap, &out)
	slices.Sort(out)
	return out
}

func fromYAML(t *testing.T, text string) map[string]any {
	t.Helper()
	out := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func anyMap(in map[string]string) map[string]any {
	out := map[string]any{}
	for key, value := range in {
		out[key] = value
	}
	return out
}

// isExplained checks that the table "Rendered settings" of the page names each difference, and no other one. A name in
// the first cell is the path of a value, or the beginning of paths.
func isExplained(t *testing.T, diff string) {
	t.Helper()
	page, err := os.ReadFile(parityPage)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## Rendered settings\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found {
		t.Fatalf("%s has no section \"Rendered settings\"", parityPage)
	}
	unseen := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| (.*?) \|`).FindAllStringSubmatch(section, -1) {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			unseen[name[1]] = true
		}
	}
	names := slices.Collect(maps.Keys(unseen))
	for line := range strings.Lines(diff) {
		path := line[2:]
		i := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(path, name) })
		if i < 0 {
			t.Errorf("the page does not explain %q", line)
			continue
		}
		delete(unseen, names[i])
	}
	for name := range unseen {
		t.Errorf("the page explains a difference of %s that does not exist", name)
	}
}
