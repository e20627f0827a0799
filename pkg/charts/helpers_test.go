package charts_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/pkg/charts"
	testcharts "github.com/hypergate/hypergate/test/charts"
)

func embedded(tb testing.TB) *charts.Source {
	tb.Helper()
	s, err := charts.Embedded()
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func fromFS(tb testing.TB, fsys fs.FS, name string) *charts.Source {
	tb.Helper()
	s, err := charts.FromFS(fsys, name)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// bothVersions returns the embedded charts, and the charts of the previous release from a directory.
func bothVersions(tb testing.TB) map[string]*charts.Source {
	tb.Helper()
	dir := testcharts.Dir1282(tb)
	return map[string]*charts.Source{charts.EmbeddedVersion: embedded(tb), "1.28.2": fromFS(tb, os.DirFS(dir), dir)}
}

func values(tb testing.TB, file string) map[string]any {
	tb.Helper()
	data, err := os.ReadFile("testdata/" + file)
	if err != nil {
		tb.Fatal(err)
	}
	out := map[string]any{}
	if err := yaml.Unmarshal(data, &out); err != nil {
		tb.Fatalf("%s: %v", file, err)
	}
	return out
}

// releases returns the two releases that hypergate renders.
func releases(tb testing.TB) (mgmt, guest charts.Release) {
	tb.Helper()
	return charts.Release{Name: "istiod", Namespace: "clusters-guest1", Values: values(tb, "values-mgmt.yaml")},
		charts.Release{Name: "istiod-remote", Namespace: "openshift-ingress", Values: values(tb, "values-guest.yaml")}
}

func render(tb testing.TB, s *charts.Source, r charts.Release) []*unstructured.Unstructured {
	tb.Helper()
	objects, err := s.Render(r)
	if err != nil {
		tb.Fatal(err)
	}
	return objects
}

// text returns the JSON of all objects, in their order.
func text(tb testing.TB, objects []*unstructured.Unstructured) string {
	tb.Helper()
	var out strings.Builder
	for _, u := range objects {
		data, err := json.Marshal(u)
		if err != nil {
			tb.Fatal(err)
		}
		out.Write(data)
		out.WriteByte('\n')
	}
	return out.String()
}

func identities(objects []*unstructured.Unstructured) []string {
	out := make([]string, 0, len(objects))
	for _, u := range objects {
		out = append(out, strings.TrimPrefix(u.GetKind()+" "+u.GetNamespace()+"/"+u.GetName(), "/"))
	}
	return out
}

// tinyChart returns a charts directory in sail-operator's layout with one template of its own. It has nothing of
// Istio.
func tinyChart(files map[string]string) fstest.MapFS {
	out := fstest.MapFS{
		"istiod/Chart.yaml": {Data: []byte("apiVersion: v2\nname: istiod\nversion: 9.9.9\nappVersion: 9.9.9\n")},
		"istiod/values.yaml": {Data: []byte(
			"_internal_defaults_do_not_set:\n  env: {}\n  args: []\n  hub: h\n  proxy:\n    image: i\n",
		)},
		"base/files/crd-all.gen.yaml":  {Data: []byte("# none\n")},
		"istiod/templates/NOTES.txt":   {Data: []byte("{{ fail \"notes are never rendered\" }}")},
		"istiod/templates/_blank.tpl":  {Data: []byte("{{ define \"boom\" }}{{ fail \"boom\" }}{{ end }}")},
		"istiod/templates/blank.yaml":  {Data: []byte("# nothing but a comment\n---\n\n---\nnull\n")},
		"istiod/templates/object.yaml": {Data: []byte("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: fine\n")},
	}
	for name, data := range files {
		out[name] = &fstest.MapFile{Data: []byte(data)}
	}
	return out
}
