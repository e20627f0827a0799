package hypershift

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/test/cluster/servers"
)

// api is the Go module that contains HyperShift's CRDs.
const api = "github.com/openshift/hypershift/api"

// CRD returns HyperShift's own CustomResourceDefinition of HostedControlPlanes. It gets the module if the module cache
// does not have it: only a test of pkg/mgmt imports it, so the build of a caller does not get it.
func CRD(ctx context.Context) (*unstructured.Unstructured, error) {
	root, err := servers.ModuleRoot()
	if err != nil {
		return nil, err
	}
	dir, err := servers.ModuleDir(ctx, root, api)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(
		filepath.Join(dir, "hypershift", "v1beta1", "zz_generated.featuregated-crd-manifests",
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
