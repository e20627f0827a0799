package desired_test

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	testcharts "github.com/hypergate/hypergate/test/charts"
)

// Istio silently ignores a value or an environment variable that it does not know. These tests look up each of
// hypergate's in the chart and in istiod's source code. So they find a misspelled one, or one that a new Istio renamed.

// istioDirs returns the source directories of all Istio versions in the module cache, by version.
func istioDirs(t *testing.T) map[string]string {
	t.Helper()
	// "go list -m" would ask for the module's .info file. Go module proxies do not have it for every version.
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Module.Dir}}", "istio.io/istio/manifests").Output()
	if err != nil {
		t.Fatalf("finding module istio.io/istio: %v", err)
	}
	return map[string]string{
		charts.EmbeddedVersion: strings.TrimSpace(string(out)),
		"1.28.2":               filepath.Dir(filepath.Dir(testcharts.Dir1282(t))),
		nextVersion:            filepath.Dir(filepath.Dir(testcharts.DirNext(t))),
		laterVersion:           filepath.Dir(filepath.Dir(testcharts.DirLater(t))),
	}
}

// valuesSource records the values of each release.
type valuesSource struct {
	desired.ChartSource
	values map[string]map[string]any
}

func (s valuesSource) Render(r charts.Release) ([]*unstructured.Unstructured, error) {
	s.values[r.Name] = r.Values
	return s.ChartSource.Render(r)
}

func TestTheChartsKnowEveryValue(t *testing.T) {
	source := valuesSource{embedded(t), map[string]map[string]any{}}
	compute(t, config(model.TopologyHosted), source, installed(t), withForeignCRDs(withClasses("openshift-default")))
	if got := slices.Sorted(maps.Keys(source.values)); !slices.Equal(got, []string{"istiod", "istiod-remote"}) {
		t.Fatalf("rendered releases %q", got)
	}
	for version, dir := range istioDirs(t) {
		chart := filepath.Join(dir, "manifests", "charts", "istio-control", "istio-discovery")
		defaults, templates := chartDefaults(t, chart), chartTemplates(t, chart)
		for release, values := range source.values {
			for _, path := range valuePaths("", defaults, values) {
				if !regexp.MustCompile(`\.Values\)?\.` + regexp.QuoteMeta(path) + `\b`).MatchString(templates) {
					t.Errorf("chart %s: release %s sets %s, which is neither in the chart's values nor used by a template", version,
						release, path)
				}
			}
		}
	}
}

// chartDefaults returns the chart's default values.
func chartDefaults(t *testing.T, chart string) map[string]any {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]map[string]any
	if err := yaml.Unmarshal(data, &values); err != nil {
		t.Fatal(err)
	}
	return values["_internal_defaults_do_not_set"]
}

// chartTemplates returns the text of all templates.
func chartTemplates(t *testing.T, chart string) string {
	t.Helper()
	var all strings.Builder
	files, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("templates: %v, error %v", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(data)
	}
	return all.String()
}

// valuePaths returns the paths of the values that are not among the defaults. It accepts any value below a default that
// is an empty table, and below the mesh configuration, which Istio reads.
func valuePaths(prefix string, defaults, values map[string]any) []string {
	var unknown []string
	for key, value := range values {
		path := prefix + key
		byDefault, known := defaults[key]
		table, isTable := value.(map[string]any)
		defaultTable, isDefaultTable := byDefault.(map[string]any)
		switch {
		case !known && isTable:
			unknown = append(unknown, valuePaths(path+".", nil, table)...)
		case !known:
			unknown = append(unknown, path)
		case isTable && isDefaultTable && len(defaultTable) > 0 && path != "meshConfig":
			unknown = append(unknown, valuePaths(path+".", defaultTable, table)...)
		}
	}
	return unknown
}

// TestIstiodReadsEveryEnvironmentVariable looks each variable that hypergate sets up in the Go code of istiod.
func TestIstiodReadsEveryEnvironmentVariable(t *testing.T) {
	source := valuesSource{embedded(t), map[string]map[string]any{}}
	compute(t, config(model.TopologyHosted), source, installed(t), withForeignCRDs(withClasses("openshift-default")))
	env, ok := source.values["istiod"]["env"].(map[string]any)
	if !ok || len(env) == 0 {
		t.Fatalf("the release istiod sets no environment: %v", source.values["istiod"]["env"])
	}
	// Istio 1.28 watches all Istio resources whose CRDs exist.
	since129 := []string{"PILOT_IGNORE_RESOURCES", "PILOT_INCLUDE_RESOURCES"}
	for version, dir := range istioDirs(t) {
		left := map[string]bool{}
		for name := range env {
			left[name] = true
		}
		if version == "1.28.2" {
			for _, name := range since129 {
				delete(left, name)
			}
		}
		for _, folder := range []string{"pilot", "security", "pkg"} {
			strikeOut(t, filepath.Join(dir, folder), left)
		}
		for _, name := range slices.Sorted(maps.Keys(left)) {
			t.Errorf("istiod %s never reads the environment variable %s", version, name)
		}
	}
}

// strikeOut removes the names that a folder's Go files have as string literals.
func strikeOut(t *testing.T, folder string, names map[string]bool) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || len(names) == 0 || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text := string(data)
		for name := range names {
			if strings.Contains(text, `"`+name+`"`) {
				delete(names, name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
