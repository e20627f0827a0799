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

// gatewayImages returns the images for real nodes of the guest: gateways with the real pilot-agent, and the backend
// behind them. In Envoy's place, the gateways run test/envoy. The programs are built into dir.
func gatewayImages(ctx context.Context, dir string) ([]cluster.Image, error) {
	found, err := servers.Find(ctx, "pilot-agent")
	if err != nil {
		return nil, fmt.Errorf("%w (pilot-agent: hack/servers/build.sh pilot-agent)", err)
	}
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
	istio, err := moduleDir(ctx, root, "istio.io/istio/manifests")
	if err != nil {
		return nil, err
	}
	return []cluster.Image{
		{Name: ProxyImage, User: "1337", Entrypoint: []string{"/usr/local/bin/pilot-agent"}, Files: map[string]string{
			"/usr/local/bin/pilot-agent": found["pilot-agent"],
			"/usr/local/bin/envoy":       envoy,
			// Istio's image has the template at this place (istio/istio pilot/docker/Dockerfile.proxyv2).
			"/var/lib/istio/envoy/envoy_bootstrap_tmpl.json": filepath.Join(istio, "tools/packaging/common/envoy_bootstrap.json"),
		}},
		{Name: BackendImage, User: "1000", Entrypoint: []string{"/backend"}, Files: map[string]string{"/backend": backend}},
	}, nil
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
