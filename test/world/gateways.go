package world

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

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
