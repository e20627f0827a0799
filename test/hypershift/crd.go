package hypershift

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

// api is the Go module that contains HyperShift's CRDs.
const api = "github.com/openshift/hypershift/api"

// CRD returns HyperShift's own CustomResourceDefinition of HostedControlPlanes.
func CRD(ctx context.Context) (*unstructured.Unstructured, error) {
	root, err := servers.ModuleRoot()
	if err != nil {
		return nil, err
	}
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", api)
	list.Dir = root
	dir, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("finding module %s: %w", api, err)
	}
	data, err := os.ReadFile(
		filepath.Join(strings.TrimSpace(string(dir)), "hypershift", "v1beta1", "zz_generated.featuregated-crd-manifests",
			"hostedcontrolplanes.hypershift.openshift.io", "AAA_ungated.yaml"))
	if err != nil {
		return nil, fmt.Errorf("reading HyperShift's CRD: %w", err)
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &crd.Object); err != nil {
		return nil, fmt.Errorf("reading HyperShift's CRD: %w", err)
	}
	crd.SetAnnotations(nil) // one annotation has a name that no API server accepts
	return crd, nil
}
