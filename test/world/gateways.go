package world

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/test/cluster"
	"github.com/hypergate/hypergate/test/cluster/servers"
)

// BackendImage is the image of test/traffic/backend on the guest's nodes.
const BackendImage = "registry.example.com/traffic-backend:1"

// gatewayImages returns the images for real nodes of the guest: gateways with the real pilot-agent, of the embedded
// Istio and of other versions, and the backend behind them. In Envoy's place, the gateways run test/envoy. The programs
// are built into dir.
func gatewayImages(ctx context.Context, dir string, versions []IstioVersion) ([]cluster.Image, error) {
	root, err := servers.ModuleRoot()
	if err != nil {
		return nil, err
	}
	envoy, backend := filepath.Join(dir, "envoy"), filepath.Join(dir, "backend")
	if err := build(ctx, filepath.Join(root, "test/envoy"), envoy, "."); err != nil {
		return nil, err
	}
	if err := build(ctx, root, backend, "./test/traffic/backend"); err != nil {
		return nil, err
	}
	images := []cluster.Image{
		{Name: BackendImage, User: "1000", Entrypoint: []string{"/backend"}, Files: map[string]string{"/backend": backend}},
	}
	for _, v := range append([]IstioVersion{embedded()}, versions...) {
		image, err := v.proxyImage(ctx, envoy)
		if err != nil {
			return nil, err
		}
		images = append(images, image)
	}
	return images, nil
}

// ServeTLSRoutes installs the CRD of TLSRoutes in the guest. Istio 1.29 ignores TLSRoutes of a bundle above 1.4.0, so
// the CRD says that it is of 1.4.0. istiod serves them only with PILOT_ENABLE_ALPHA_GATEWAY_API, which hypergate does
// not set.
func (w *World) ServeTLSRoutes(ctx context.Context) error {
	root, err := servers.ModuleRoot()
	if err != nil {
		return err
	}
	dir, err := moduleDir(ctx, root, "sigs.k8s.io/gateway-api/apis/v1")
	if err != nil {
		return err
	}
	data, err := os.ReadFile(filepath.Join(dir, "config/crd/experimental/gateway.networking.k8s.io_tlsroutes.yaml"))
	if err != nil {
		return fmt.Errorf("reading the CRD of TLSRoutes: %w", err)
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &crd.Object); err != nil {
		return fmt.Errorf("reading the CRD of TLSRoutes: %w", err)
	}
	annotations := crd.GetAnnotations()
	annotations["gateway.networking.k8s.io/bundle-version"] = "v1.4.0"
	crd.SetAnnotations(annotations)
	return w.ApplyObject(ctx, crd)
}

// InferencePoolCRD is the CRD of InferencePools.
const InferencePoolCRD = "inferencepools.inference.networking.k8s.io"

// ServeInferencePools installs the CRD of InferencePools in the guest: that of the module with which istiod was built.
func (w *World) ServeInferencePools(ctx context.Context) error {
	root, err := servers.ModuleRoot()
	if err != nil {
		return err
	}
	dir, err := moduleDir(ctx, filepath.Join(root, "hack/servers/istiod"), "sigs.k8s.io/gateway-api-inference-extension/api/v1")
	if err != nil {
		return err
	}
	data, err := os.ReadFile(filepath.Join(dir, "config/crd/bases/inference.networking.k8s.io_inferencepools.yaml"))
	if err != nil {
		return fmt.Errorf("reading the CRD of InferencePools: %w", err)
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &crd.Object); err != nil {
		return fmt.Errorf("reading the CRD of InferencePools: %w", err)
	}
	return w.ApplyObject(ctx, crd)
}

// build builds a static program of a module.
func build(ctx context.Context, module, file, pkg string) error {
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", file, pkg)
	command.Dir, command.Env = module, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s in %s: %w\n%s", pkg, module, err, out)
	}
	return nil
}

// moduleDir returns the folder of the module that has a package. `go list -m` would ask for the module's description,
// which Istio's modules without a release do not have.
func moduleDir(ctx context.Context, root, pkg string) (string, error) {
	command := exec.CommandContext(ctx, "go", "list", "-f", "{{.Module.Dir}}", pkg)
	command.Dir = root
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("finding the sources of %s: %w", pkg, err)
	}
	return strings.TrimSpace(string(out)), nil
}
