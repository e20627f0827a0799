package desired_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/golden"
)

// The golden files contain everything that Compute returns for an ordinary installation, one file per object:
//
//	testdata/golden/<chart version>/<topology>/<side>/<kind>_<name>.yaml   the object
//	testdata/golden/<chart version>/<topology>/plan.yaml                   the names of the objects in each stage
//	testdata/golden/<chart version>/<topology>/dropped.yaml                the dropped objects, with reasons
//	testdata/golden/<chart version>/tunnel/...                             the same, hosted, published by the tunnel
//
// CRDs have no file of their own. They are only in plan.yaml.

func TestGolden(t *testing.T) {
	folders := map[string]bool{}
	for version, source := range bothVersions(t) {
		for _, topology := range bothTopologies() {
			dir := filepath.Join("testdata", "golden", version, string(topology))
			folders[dir] = true
			t.Run(version+"/"+string(topology), func(t *testing.T) {
				plan := compute(t, config(topology), source, installed(t), withClasses("openshift-default", "second"))
				checkGoldens(t, dir, goldens(t, plan))
			})
		}
	}
	tunnel := filepath.Join("testdata", "golden", charts.EmbeddedVersion, "tunnel")
	folders[tunnel] = true
	t.Run("tunnel", func(t *testing.T) {
		mgmt := withControlPlane(t, func(c *model.ControlPlane) { c.Availability = model.HighlyAvailable })
		plan := compute(t, byTunnel(t), embedded(t), mgmt, withForeignCRDs(withClasses("openshift-default")))
		checkGoldens(t, tunnel, goldens(t, plan))
	})
	found, err := filepath.Glob(filepath.Join("testdata", "golden", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range found {
		if !folders[dir] {
			t.Errorf("%s is stale: no test has it; remove it", dir)
		}
	}
}

// goldens returns the golden files for one plan, by path.
func goldens(t *testing.T, plan desired.Plan) map[string][]byte {
	t.Helper()
	files := map[string][]byte{
		"dropped.yaml": asYAML(t, plan.Dropped),
		"plan.yaml": asYAML(t, map[string][]string{
			"1-crds": names(plan.CRDs), "1-protection": names(plan.Protection), "2-guest": names(plan.Guest),
			"2-management": names(plan.Mgmt),
			"3-workload":   names(plan.Workload), "4-admission": names(plan.Admission),
		}),
	}
	for side, objects := range map[model.Side][]anObject{
		model.SideMgmt:  mgmtObjects(plan),
		model.SideGuest: append(guestObjects(plan), anObjects(plan.Protection)...),
	} {
		for _, o := range objects {
			data, err := yaml.JSONToYAML(o.JSON())
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(string(side), strings.ToLower(o.GVK().Kind)+"_"+o.Key().Name+".yaml")
			if files[path] != nil {
				t.Fatalf("two objects would be the golden %s", path)
			}
			files[path] = data
		}
	}
	return files
}

// checkGoldens checks that a folder contains exactly the wanted files.
func checkGoldens(t *testing.T, dir string, want map[string][]byte) {
	t.Helper()
	if golden.Updating() {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	for path, got := range want {
		golden.Equal(t, filepath.Join(dir, path), got)
	}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, entry fs.DirEntry, err error) error {
		if _, wanted := want[path]; err == nil && !entry.IsDir() && !wanted {
			t.Errorf("the golden %s is stale: no such object is computed; run the test with UPDATE=1", filepath.Join(dir, path))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func asYAML(t *testing.T, v any) []byte {
	t.Helper()
	data, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
