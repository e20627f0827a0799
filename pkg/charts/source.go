package charts

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"istio.io/istio/manifests"
)

// EmbeddedVersion is the Istio release whose charts are compiled in. It goes with the version of module istio.io/istio in go.mod, whose
// pseudo-version does not tell.
const EmbeddedVersion = "1.29.1"

// placeholderVersion is in the Chart.yaml files of Istio's source tree; the release build puts the true version there.
const placeholderVersion = "1.0.0"

// Source is one version of Istio's charts.
type Source struct {
	name      string
	discovery *chart.Chart

	// The CRDs stay where they are until they are asked for.
	fsys     fs.FS
	crdsPath string
}

// layout is one way in which the charts lie in a directory.
type layout struct{ discovery, base string }

// layouts are Istio's own (manifests/charts) and sail-operator's (resources/<version>/charts).
func layouts() []layout {
	return []layout{
		{discovery: "istio-control/istio-discovery", base: "base"},
		{discovery: "istiod", base: "base"},
	}
}

// chartRoots are the places in a given directory where the charts may lie: it is the charts directory itself; or Istio's manifests or
// sail-operator's resources/<version>; or the whole tree of an Istio release.
func chartRoots() []string { return []string{".", "charts", "manifests/charts"} }

// crdFiles are the places of the CRDs in the chart base; the second is that of Istio 1.23 and older.
func crdFiles() []string { return []string{"files/crd-all.gen.yaml", "crds/crd-all.gen.yaml"} }

// Embedded is the Source that is compiled in, of Istio EmbeddedVersion.
// An error means that the program was built with a broken module istio.io/istio.
func Embedded() (*Source, error) {
	s, err := newSource(manifests.FS, "the embedded charts")
	if err != nil {
		return nil, err
	}
	setVersion(s.discovery, EmbeddedVersion)
	return s, nil
}

// FromFS is the Source in a directory, in Istio's layout (manifests/charts, or its parent) or sail-operator's (resources/<version>/charts,
// or its parent). The name is what errors call the directory: its path.
//
// The chart istiod is read at once and the CRDs when they are asked for. An error says which file is missing or broken.
func FromFS(fsys fs.FS, name string) (*Source, error) {
	s, err := newSource(fsys, "charts directory "+strconv.Quote(name))
	if err != nil {
		return nil, err
	}
	if s.Version() == placeholderVersion {
		setVersion(s.discovery, guessVersion(s.discovery))
	}
	return s, nil
}

// Version is the Istio version of the charts: the appVersion of the chart istiod. Charts of Istio's source tree do not tell theirs; then it is
// the minor version alone, such as 1.28.
func (s *Source) Version() string { return s.discovery.Metadata.AppVersion }

// String names the charts, for messages.
func (s *Source) String() string { return s.name }

func newSource(fsys fs.FS, name string) (*Source, error) {
	discoveryDir, baseDir, err := locate(fsys)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	discovery, err := loadChart(fsys, discoveryDir)
	if err != nil {
		return nil, fmt.Errorf("%s: loading the chart in %s: %w", name, discoveryDir, err)
	}
	crds, err := firstFile(fsys, baseDir, crdFiles())
	if err != nil {
		return nil, fmt.Errorf("%s: Istio's CRDs: %w; pass a complete charts directory, with the chart base", name, err)
	}
	return &Source{name: name, discovery: discovery, fsys: fsys, crdsPath: crds}, nil
}

// locate finds the directories of the charts istiod and base.
func locate(fsys fs.FS) (discovery, base string, err error) {
	if _, err := fs.Stat(fsys, "."); err != nil {
		return "", "", fmt.Errorf("reading it: %w", err)
	}
	for _, root := range chartRoots() {
		for _, l := range layouts() {
			dir := path.Join(root, l.discovery)
			_, err := fs.Stat(fsys, path.Join(dir, "Chart.yaml"))
			if err == nil {
				return dir, path.Join(root, l.base), nil
			}
			if !errors.Is(err, fs.ErrNotExist) {
				return "", "", fmt.Errorf("looking for the chart istiod: %w", err)
			}
		}
	}
	return "", "", errors.New("it holds no chart istiod: looked for istio-control/istio-discovery/Chart.yaml and istiod/Chart.yaml, " +
		"in it, in charts and in manifests/charts; pass Istio's manifests/charts or sail-operator's resources/<version>/charts")
}

// firstFile is the path of the first of the files that is there.
func firstFile(fsys fs.FS, dir string, files []string) (string, error) {
	for _, file := range files {
		name := path.Join(dir, file)
		_, err := fs.Stat(fsys, name)
		if err == nil {
			return name, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", fmt.Errorf("there is no %s in %s", strings.Join(files, " nor "), dir)
}

// loadChart reads a chart, without what no template uses and no object comes from.
func loadChart(fsys fs.FS, dir string) (*chart.Chart, error) {
	var files []*loader.BufferedFile
	err := fs.WalkDir(fsys, dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		inChart := strings.TrimPrefix(name, dir+"/")
		if inChart == "README.md" || inChart == "templates/NOTES.txt" {
			return nil
		}
		data, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		files = append(files, &loader.BufferedFile{Name: inChart, Data: data})
		return nil
	})
	if err != nil {
		return nil, err
	}
	c, err := loader.LoadFiles(files)
	if err != nil {
		return nil, err
	}
	c.Raw = nil // every file a second time; the engine does not look at it
	return c, nil
}

// setVersion makes a chart of Istio's source tree look like the released one: both versions end up in labels.
func setVersion(c *chart.Chart, version string) {
	c.Metadata.Version, c.Metadata.AppVersion = version, version
}

// guessVersion is the minor version of a chart of Istio's source tree: a chart of 1.N has compatibility profiles up to 1.N-1. Without any,
// the version stays the placeholder.
func guessVersion(c *chart.Chart) string {
	newest := -1
	for _, file := range c.Files {
		minor, found := strings.CutPrefix(file.Name, "files/profile-compatibility-version-1.")
		if !found {
			continue
		}
		if n, err := strconv.Atoi(strings.TrimSuffix(minor, ".yaml")); err == nil {
			newest = max(newest, n)
		}
	}
	if newest < 0 {
		return placeholderVersion
	}
	return "1." + strconv.Itoa(newest+1)
}
