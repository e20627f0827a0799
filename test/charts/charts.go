// Package charts provides tests with the charts of other Istio versions than the embedded one, as directories: those
// of the release before it, and those of two development snapshots that stand for the next minor.
package charts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/fromyaml"
)

// Folders in the checkout whose go.mod pins Istio.
const (
	pin1282 = "hack/charts-1.28"
	// pinNext is also the folder from which hack/servers/build.sh builds pilot-discovery-next.
	pinNext = "hack/servers/istiod-next"
	// pinLater is also the folder from which hack/servers/build.sh builds pilot-discovery-later.
	pinLater = "hack/servers/istiod-later"
	// pinOrigin is the folder from which hack/servers/build.sh builds the sail-operator.
	pinOrigin = "hack/servers/origin"
)

// Dir1282 returns a directory with Istio 1.28.2's charts in Istio's layout: manifests/charts of the Go module, in the
// module cache. The directory is read-only. The Go command downloads the module if it is missing, and verifies it
// with go.sum.
func Dir1282(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(istioDir(tb, pin1282), "manifests", "charts")
}

// DirEmbedded is Dir1282 for the embedded version. It asks for a package, because the module proxy has no .info file of
// this version, which `go mod download` reads.
func DirEmbedded(tb testing.TB) string {
	tb.Helper()
	pin, err := findUpwards(pin1282)
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(tb.Context(), "go", "list", "-f", "{{.Dir}}", "istio.io/istio/manifests")
	cmd.Dir = filepath.Dir(filepath.Dir(pin)) // the checkout
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("finding the charts of the embedded Istio with \"go list\": %v", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "charts")
}

// SailOperator returns the directory of the Go module of the sail-operator, with its CRDs and profiles.
func SailOperator(tb testing.TB) string {
	tb.Helper()
	return pinnedDir(tb, pinOrigin, "github.com/istio-ecosystem/sail-operator")
}

// DirNext is Dir1282 for the development snapshot with Gateway API 1.5.
func DirNext(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(istioDir(tb, pinNext), "manifests", "charts")
}

// DirLater is Dir1282 for the development snapshot with Gateway API 1.6.
func DirLater(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(istioDir(tb, pinLater), "manifests", "charts")
}

// GatewayCRDsNext returns a directory with the CRDs of the Gateway API's standard channel, in the version that the
// snapshot of DirNext was built with.
func GatewayCRDsNext(tb testing.TB) string {
	tb.Helper()
	return gatewayCRDs(tb, pinNext)
}

// GatewayCRDsLater is GatewayCRDsNext for the snapshot of DirLater.
func GatewayCRDsLater(tb testing.TB) string {
	tb.Helper()
	return gatewayCRDs(tb, pinLater)
}

// CRDs returns the CRDs of a directory of GatewayCRDsNext or GatewayCRDsLater, which also contains a
// ValidatingAdmissionPolicy. Fewer than eight CRDs fail the test: those of TLSRoutes and ListenerSets are among them.
func CRDs(tb testing.TB, dir string) []*unstructured.Unstructured {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		tb.Fatal(err)
	}
	var out []*unstructured.Unstructured
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		for _, u := range fromyaml.Objects(tb, data) {
			if u.GetKind() == "CustomResourceDefinition" {
				out = append(out, u)
			}
		}
	}
	if len(out) < 8 {
		tb.Fatalf("%s has %d CRDs", dir, len(out))
	}
	return out
}

func gatewayCRDs(tb testing.TB, pin string) string {
	tb.Helper()
	return filepath.Join(pinnedDir(tb, pin, "sigs.k8s.io/gateway-api"), "config", "crd", "standard")
}

func istioDir(tb testing.TB, pin string) string {
	tb.Helper()
	return pinnedDir(tb, pin, "istio.io/istio")
}

// pinnedDir returns the directory of a module, in the version of the go.mod file in the folder pin.
func pinnedDir(tb testing.TB, pin, module string) string {
	tb.Helper()
	folder, err := findUpwards(pin)
	if err != nil {
		tb.Fatal(err)
	}
	dir, err := servers.ModuleDir(tb.Context(), folder, module)
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}

// findUpwards finds a folder in the working directory or its parents. A test runs in the folder of its package.
func findUpwards(name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		found := filepath.Join(dir, name)
		if _, err := os.Stat(found); err == nil {
			return found, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("there is no %s above the working directory: run the test in a checkout", name)
		}
		dir = parent
	}
}
