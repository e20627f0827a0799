package origin

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// sailVersion is the newest version that the sail-operator of hack/servers/origin accepts in a resource Istio
// (pkg/istioversion/versions.yaml of that module).
const sailVersion = "v1.24.3"

// writeResources writes the folder that --resource-directory of the sail-operator names: the charts of Istio, with the
// sail-operator's own profiles.
func writeResources(dir string, o Options) error {
	version := filepath.Join(dir, sailVersion)
	chart := chartIn(dir)
	if err := errors.Join(
		os.CopyFS(chart, os.DirFS(filepath.Join(o.Charts, "istio-control/istio-discovery"))),
		os.CopyFS(filepath.Join(version, "charts/base"), os.DirFS(filepath.Join(o.Charts, "base"))),
		os.CopyFS(filepath.Join(version, "profiles"), os.DirFS(filepath.Join(o.Sail, "resources", sailVersion, "profiles"))),
	); err != nil {
		return fmt.Errorf("copying charts for the sail-operator: %w", err)
	}
	return errors.Join(
		// Istio's build writes the version.
		replaceIn(filepath.Join(chart, "Chart.yaml"), "version: 1.0.0\nappVersion: 1.0.0",
			"version: "+o.Version+"\nappVersion: "+o.Version),
		// The API of this sail-operator does not have two values that cluster-ingress-operator sets
		// (pkg/operator/controller/gatewayclass/istio_olm.go, desiredIstio). As defaults of the chart, they have the
		// same effect.
		replaceIn(filepath.Join(chart, "values.yaml"), "\n  global:\n", "\n  global:\n    trustBundleName: "+rootName+"\n"),
		replaceIn(filepath.Join(chart, "values.yaml"), "\n  gatewayClasses: {}", "\n  gatewayClasses:\n    "+Class+": "+classDefaults),
	)
}

// classDefaults is what cluster-ingress-operator sets for each class (pkg/operator/controller/gatewayclass/
// istio_sail_installer.go, buildGatewayClassesConfig), with fewer pods: the guest has one node.
const classDefaults = `{horizontalPodAutoscaler: {spec: {minReplicas: 1, maxReplicas: 10}}, deployment: {spec: {template: {spec: {` +
	`containers: [{name: istio-proxy, terminationMessagePolicy: FallbackToLogsOnError}]}}}}}`

// chartIn returns the folder of the chart istiod in a folder of writeResources.
func chartIn(dir string) string { return filepath.Join(dir, sailVersion, "charts/istiod") }

// replaceIn replaces the only occurrence of a text in a file.
func replaceIn(file, old, replacement string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if n := strings.Count(string(content), old); n != 1 {
		return fmt.Errorf("%s contains %q %d times, not once: the charts have changed, adapt test/origin", file, old, n)
	}
	return os.WriteFile(file, []byte(strings.Replace(string(content), old, replacement, 1)), 0o600)
}
