package docs

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/test/golden"
)

// versioned lists the files other than code that contain the Istio version in one of these forms. UPDATE=1 writes the
// constant into them.
var (
	versioned = []string{
		"README.md", "docs/hypershift.md", "deploy/cluster-api/example/kustomization.yaml", "deploy/hosted/example/kustomization.yaml",
		"deploy/standalone/deployment.yaml", "docs/quickstart-hypershift.md", "docs/quickstart-cluster-api.md",
		"docs/quickstart-standalone.md",
	}
	versionForms = regexp.MustCompile(`(pilot:|proxyv2:|istiod |\| Istio \| )(\d+\.\d+\.\d+)\b`)
)

// TestOneConstantNamesTheIstioVersion checks that a new Istio version only changes pkg/charts, go.mod, and the files
// that UPDATE=1 writes.
func TestOneConstantNamesTheIstioVersion(t *testing.T) {
	for _, file := range versioned {
		path := filepath.Join(root, file)
		text := read(t, path)
		if !versionForms.MatchString(text) {
			t.Errorf("%s does not name the Istio version any more: take it off the list", file)
		}
		golden.Equal(t, path, versionForms.ReplaceAllString(text, "${1}"+charts.EmbeddedVersion))
	}
	for _, file := range otherFiles(t) {
		if strings.Contains(read(t, filepath.Join(root, file)), charts.EmbeddedVersion) {
			t.Errorf("%s names the Istio version: take it from charts.EmbeddedVersion", file)
		}
	}
}

// otherFiles returns the files of the checkout that must not contain the Istio version.
func otherFiles(t *testing.T) (out []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if slices.Contains([]string{".git", "bin", "testdata"}, name) {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Dir(file) == "docs/conformance" && filepath.Ext(name) == ".yaml" {
			return nil // a report names the version that it is about
		}
		text := slices.Contains([]string{".go", ".sh", ".yaml", ".md", ""}, filepath.Ext(name))
		if text && name != "CHANGELOG.md" && file != "pkg/charts/source.go" && !slices.Contains(versioned, file) {
			out = append(out, file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 300 {
		t.Fatalf("only %d files were found", len(out))
	}
	return out
}
