package charts_test

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"
	"testing/fstest"

	"istio.io/istio/manifests"

	"github.com/hypergate/hypergate/pkg/charts"
	testcharts "github.com/hypergate/hypergate/test/charts"
	"github.com/hypergate/hypergate/test/mustfail"
)

// TestEmbeddedVersionGoesWithTheModule checks that EmbeddedVersion matches the module in go.mod. The pseudo-version
// there does not contain the release, so that only this test detects a mismatch.
func TestEmbeddedVersionGoesWithTheModule(t *testing.T) {
	var major, minor, patch int
	if _, err := fmt.Sscanf(charts.EmbeddedVersion, "%d.%d.%d", &major, &minor, &patch); err != nil {
		t.Fatal(err)
	}
	profile := func(minor int) string {
		return fmt.Sprintf("charts/istio-control/istio-discovery/files/profile-compatibility-version-1.%d.yaml", minor)
	}
	if _, err := fs.Stat(manifests.FS, profile(minor-1)); err != nil {
		t.Errorf("the embedded charts are older than %s: %v", charts.EmbeddedVersion, err)
	}
	if _, err := fs.Stat(manifests.FS, profile(minor)); err == nil {
		t.Errorf("the embedded charts are newer than %s: they have %s", charts.EmbeddedVersion, profile(minor))
	}
	if got := embedded(t).Version(); got != charts.EmbeddedVersion {
		t.Errorf("Version() = %s, want %s", got, charts.EmbeddedVersion)
	}
}

func TestFromFSKnowsTheLayouts(t *testing.T) {
	istio := os.DirFS(testcharts.Dir1282(t))
	sail := sailLayout(t, istio)
	for _, tc := range []struct {
		name, version string
		fsys          fs.FS
	}{
		{"Istio's manifests/charts", "1.28", istio},
		{"Istio's manifests", "1.28", below(t, istio, "charts")},
		{"an Istio release", "1.28", below(t, istio, "manifests/charts")},
		{"sail-operator's resources/v1.28.2/charts", "1.28.2", sail},
		{"sail-operator's resources/v1.28.2", "1.28.2", below(t, sail, "charts")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := fromFS(t, tc.fsys, "dir")
			if s.Version() != tc.version {
				t.Errorf("Version() = %s, want %s", s.Version(), tc.version)
			}
			mgmt, _ := releases(t)
			objects := render(t, s, mgmt)
			if got := objects[0].GetLabels()["app.kubernetes.io/version"]; got != tc.version {
				t.Errorf("label app.kubernetes.io/version = %q, want %q", got, tc.version)
			}
			if _, err := s.CRDs([]string{"wasmplugins.extensions.istio.io"}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLayoutDoesNotMatter checks that the same chart renders the same objects in two layouts.
func TestLayoutDoesNotMatter(t *testing.T) {
	istio := os.DirFS(testcharts.Dir1282(t))
	mgmt, guest := releases(t)
	for _, r := range []charts.Release{mgmt, guest} {
		a := text(t, render(t, fromFS(t, istio, "istio"), r))
		b := text(t, render(t, fromFS(t, sailLayout(t, istio), "sail"), r))
		for _, label := range []string{`"app.kubernetes.io/version":"%s"`, `"helm.sh/chart":"istiod-%s"`} {
			b = strings.ReplaceAll(b, fmt.Sprintf(label, "1.28.2"), fmt.Sprintf(label, "1.28"))
		}
		if a != b {
			t.Errorf("release %s differs between the layouts", r.Name)
		}
	}
}

func TestBadChartsDir(t *testing.T) {
	without := func(names ...string) fstest.MapFS {
		out := tinyChart(nil)
		for _, name := range names {
			delete(out, name)
		}
		return out
	}
	for _, tc := range []struct {
		name string
		fsys fs.FS
		want []string
	}{
		{"not there", os.DirFS("testdata/absent"), []string{"no such file or directory"}},
		{"empty", fstest.MapFS{}, []string{
			"does not contain the chart istiod", "istio-control/istio-discovery/Chart.yaml", "istiod/Chart.yaml",
			"pass Istio's manifests/charts",
		}},
		{"chart without Chart.yaml", without("istiod/Chart.yaml"), []string{"does not contain the chart istiod"}},
		{
			"no CRDs", without("base/files/crd-all.gen.yaml"),
			[]string{"base does not contain files/crd-all.gen.yaml or crds/crd-all.gen.yaml", "chart base"},
		},
		{
			"broken Chart.yaml", tinyChart(map[string]string{"istiod/Chart.yaml": "name: [x\n"}),
			[]string{"loading the chart in istiod", "Chart.yaml", "yaml"},
		},
		{
			"nameless chart", tinyChart(map[string]string{"istiod/Chart.yaml": "apiVersion: v2\n"}),
			[]string{"loading the chart in istiod", "chart.metadata.name is required"},
		},
		{"broken values.yaml", tinyChart(map[string]string{"istiod/values.yaml": "a: b: c\n"}), []string{"values.yaml", "yaml"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := charts.FromFS(tc.fsys, "/etc/charts")
			mustfail.With(t, err, append(tc.want, `charts directory "/etc/charts"`)...)
		})
	}
}

func TestVersionOfAnUnknownSourceTree(t *testing.T) {
	s := fromFS(
		t,
		tinyChart(map[string]string{"istiod/Chart.yaml": "apiVersion: v2\nname: istiod\nversion: 1.0.0\nappVersion: 1.0.0\n"}),
		"dir",
	)
	if s.Version() != "1.0.0" {
		t.Errorf("Version() = %s, want the chart's own", s.Version())
	}
}

// sailLayout returns the charts in sail-operator's layout, where Chart.yaml has the actual version.
func sailLayout(t *testing.T, istio fs.FS) fstest.MapFS {
	t.Helper()
	out := fstest.MapFS{}
	for from, to := range map[string]string{"istio-control/istio-discovery": "istiod", "base": "base"} {
		copyTree(t, out, istio, from, to)
		chart := out[path.Join(to, "Chart.yaml")]
		chart.Data = []byte(strings.ReplaceAll(string(chart.Data), "ersion: 1.0.0", "ersion: 1.28.2"))
	}
	return out
}

// below returns the charts inside the given folder.
func below(t *testing.T, fsys fs.FS, folder string) fstest.MapFS {
	t.Helper()
	out := fstest.MapFS{}
	for _, dir := range []string{"istio-control", "istiod", "base"} {
		if _, err := fs.Stat(fsys, dir); err == nil {
			copyTree(t, out, fsys, dir, path.Join(folder, dir))
		}
	}
	return out
}

func copyTree(t *testing.T, out fstest.MapFS, fsys fs.FS, from, to string) {
	t.Helper()
	err := fs.WalkDir(fsys, from, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(fsys, name)
		out[path.Join(to, strings.TrimPrefix(name, from))] = &fstest.MapFile{Data: data}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
