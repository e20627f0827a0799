package world

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/test/cluster"
	"github.com/hypergate/hypergate/test/cluster/servers"
)

// Paths of the programs in the images of Istio.
const (
	discoveryPath = "/usr/local/bin/pilot-discovery"
	agentPath     = "/usr/local/bin/pilot-agent"
	agentPackage  = "istio.io/istio/pilot/cmd/pilot-agent"
)

// IstioVersion is another Istio than the embedded one: its istiod and its gateways.
type IstioVersion struct {
	// Tag is the tag of both images.
	Tag string
	// Discovery and Agent are the names of its servers in hack/servers/build.sh.
	Discovery, Agent string
	// Module is the folder in the checkout whose go.mod pins this Istio.
	Module string
}

// PilotImage returns the name of the image of istiod.
func (v IstioVersion) PilotImage() string { return "registry.example.com/pilot:" + v.Tag }

// ProxyImage returns the name of the image of gateways.
func (v IstioVersion) ProxyImage() string { return "registry.example.com/proxyv2:" + v.Tag }

// istiodImage returns the image of istiod.
func (v IstioVersion) istiodImage(ctx context.Context) (cluster.Image, error) {
	found, err := servers.Find(ctx, v.Discovery)
	if err != nil {
		return cluster.Image{}, fmt.Errorf("%w (%s: hack/servers/build.sh %s)", err, v.Discovery, v.Discovery)
	}
	return cluster.Image{
		Name: v.PilotImage(), User: "1337", Entrypoint: []string{discoveryPath},
		Files: map[string]string{discoveryPath: found[v.Discovery]},
	}, nil
}

// istiodImages returns the images of istiod for the management node.
func istiodImages(ctx context.Context, versions []IstioVersion) ([]cluster.Image, error) {
	images := make([]cluster.Image, 0, len(versions))
	for _, v := range versions {
		image, err := v.istiodImage(ctx)
		if err != nil {
			return nil, err
		}
		images = append(images, image)
	}
	return images, nil
}

// proxyImage returns the image of gateways: the agent, the template for the bootstrap, and a program in Envoy's place.
func (v IstioVersion) proxyImage(ctx context.Context, envoy string) (cluster.Image, error) {
	found, err := servers.Find(ctx, v.Agent)
	if err != nil {
		return cluster.Image{}, fmt.Errorf("%w (%s: hack/servers/build.sh %s)", err, v.Agent, v.Agent)
	}
	root, err := servers.ModuleRoot()
	if err != nil {
		return cluster.Image{}, err
	}
	istio, err := moduleDir(ctx, filepath.Join(root, v.Module), agentPackage)
	if err != nil {
		return cluster.Image{}, err
	}
	return cluster.Image{Name: v.ProxyImage(), User: "1337", Entrypoint: []string{agentPath}, Files: map[string]string{
		agentPath:              found[v.Agent],
		"/usr/local/bin/envoy": envoy,
		// Istio's image has the template at this place (istio/istio pilot/docker/Dockerfile.proxyv2).
		"/var/lib/istio/envoy/envoy_bootstrap_tmpl.json": filepath.Join(istio, "tools/packaging/common/envoy_bootstrap.json"),
	}}, nil
}

// embedded is the Istio that hypergate has, and that every world has.
func embedded() IstioVersion {
	return IstioVersion{Tag: charts.EmbeddedVersion, Discovery: "pilot-discovery", Agent: "pilot-agent", Module: "hack/servers/istiod"}
}
