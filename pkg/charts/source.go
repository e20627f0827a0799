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

// EmbeddedVersion is the Istio release whose charts are compiled in. It must match the version of module
// istio.io/istio in go.mod, which is a pseudo-version that does not contain the release.
const EmbeddedVersion = "1.29.2"

// placeholderVersion is the version in the Chart.yaml files of Istio's source tree. The release build replaces it.
const placeholderVersion = "1.0.0"

// Source is one version of Istio's charts.
type Source struct {
	name      string
	discovery *chart.Chart

	// The CRDs are read on demand.
	fsys     fs.FS
	crdsPath string
}

// layout is the location of the charts in a directory.
type layout struct{ discovery, base string }

// layouts returns Istio's layout (manifests/charts) and sail-operator's layout (resources/<version>/charts).
func layouts() []layout {
	return []layout{
		{discovery: "istio-control/istio-discovery", base: "base"},
		{discovery: "istiod", base: "base"},
	}
}

// chartRoots returns where the charts can be in a given directory. It can be the charts directory itself, Istio's
// manifests or sail-operator's resources/<version>, or the whole tree of an Istio release.
func chartRoots() []string { return []string{".", "charts", "manifests/charts"} }

// crdFiles returns the possible paths of the CRDs in the chart base. The second is that of Istio 1.23 and older.
func crdFiles() []string { return []string{"files/crd-all.gen.yaml", "crds/crd-all.gen.yaml"} }

// Embedded returns the compiled-in Source, of Istio EmbeddedVersion. An error means that the program was built with a
// broken module istio.io/istio.
func Embedded() (*Source, error) {
	s, err := newSource(manifests.FS, "the embedded charts")
	if err != nil {
		return nil, err
	}
	setVersion(s.discovery, EmbeddedVersion)
	return s, nil
}

// FromFS returns the Source in a directory. The directory has Istio's layout (manifests/charts, or its parent) or
// sail-operator's layout (resources/<version>/charts, or its parent). name is the path of the directory, for errors.
//
// FromFS reads the chart istiod. The CRDs are read on demand. An error names the file that is missing or broken.
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

// Version returns the Istio version of the charts, which is the appVersion of the chart istiod. Charts of Istio's
// source tree do not have it. Then Version returns only the minor version, such as 1.28.
func (s *Source) Version() string { return s.discovery.Metadata.AppVersion }

// String returns a name of the charts, for messages.
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

// locate returns the directories of the charts istiod and base.
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
	return "", "", errors.New("it does not contain the chart istiod: looked for istio-control/istio-discovery/Chart.yaml and " +
		"istiod/Chart.yaml, in it, in charts and in manifests/charts; " +
		"pass Istio's manifests/charts or sail-operator's resources/<version>/charts")
}

// firstFile returns the path of the first file that exists.
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
	return "", fmt.Errorf("%s does not contain %s", dir, strings.Join(files, " or "))
}

// loadChart loads a chart without the files that no template uses and that produce no object.
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
	c.Raw = nil // a copy of every file, which the engine does not use
	return c, nil
}

// setVersion sets both versions of a chart from Istio's source tree, as in a released chart. Both appear in labels.
func setVersion(c *chart.Chart, version string) {
	c.Metadata.Version, c.Metadata.AppVersion = version, version
}

// guessVersion returns the minor version of a chart from Istio's source tree: a chart of 1.N has compatibility
// profiles up to 1.N-1. Without such profiles it returns the placeholder.
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
