// Package ocpcrds has CRDs of OpenShift, as its API module has them.
package ocpcrds

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/test/cluster/servers"
)

// Files of CRDs of config.openshift.io, as the default feature set of an OpenShift cluster has them. That of APIServers
// is of the technology preview: it has tlsAdherence.
const (
	Proxies         = "0000_03_config-operator_01_proxies.crd.yaml"
	Infrastructures = "0000_10_config-operator_01_infrastructures-Default.crd.yaml"
	APIServers      = "0000_10_config-operator_01_apiservers-TechPreviewNoUpgrade.crd.yaml"
)

// configPackage is the package beside whose Go types the API module has these files.
const configPackage = "github.com/openshift/api/config/v1"

// CRD returns the CRD in one of these files, of the version of the API module that hypergate's own module requires.
func CRD(ctx context.Context, file string) (*unstructured.Unstructured, error) {
	root, err := servers.ModuleRoot()
	if err != nil {
		return nil, err
	}
	list := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", configPackage)
	list.Dir = root
	dir, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("finding %s: %w", configPackage, err)
	}
	data, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "zz_generated.crd-manifests", file))
	if err != nil {
		return nil, fmt.Errorf("reading a CRD of OpenShift: %w", err)
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &crd.Object); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return crd, nil
}
