package origin

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/world"
)

// helm is the name of the command helm among the servers of hack/servers.
const helm = "helm"

// HelmRelease is the release of StartHelm.
const HelmRelease = world.Revision + "-istiod"

// helmTimeout ends a command of helm that hangs.
const helmTimeout = 2 * time.Minute

// StartHelm installs Istio's own chart with the command helm, as an administrator of the guest does. Nothing repairs
// what it installs. Where the release exists, the administrator upgrades it with the same chart and values.
//
// Gateways have no label istio.io/rev, so the release has the tag default.
func StartHelm(ctx context.Context, g Guest, o Options) (*Origin, error) {
	dir, err := prepared(ctx, g, o, nil)
	if err != nil {
		return nil, err
	}
	values, err := json.Marshal(map[string]any{
		"revision": world.Revision, "revisionTags": []any{"default"},
		"global": map[string]any{
			"istioNamespace": world.GuestNamespace,
			"proxy":          map[string]any{"image": world.ProxyImage},
			"proxy_init":     map[string]any{"image": world.ProxyImage},
		},
		"pilot": map[string]any{"image": o.image(), "env": map[string]any{
			"PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER": "false",
			"PILOT_GATEWAY_API_DEFAULT_GATEWAYCLASS_NAME":      Class,
			"PILOT_GATEWAY_API_CONTROLLER_NAME":                controllerName,
		}},
	})
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "values.json")
	if err := os.WriteFile(file, values, 0o600); err != nil {
		return nil, err
	}
	out := &Origin{guest: g, release: HelmRelease}
	return out, out.helm(ctx, "upgrade", HelmRelease, chartIn(dir), "--install", "--create-namespace", "--values", file)
}

// helm runs a command of helm in the namespace of istiod.
func (o *Origin) helm(ctx context.Context, args ...string) error {
	found, err := servers.Find(ctx, helm)
	if err != nil {
		return fmt.Errorf("%w (hack/servers/build.sh %s)", err, helm)
	}
	home, err := os.MkdirTemp(o.guest.Dir, "helm-")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, helmTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, found[helm],
		append(args, "--kubeconfig", o.guest.Kubeconfig, "--namespace", world.GuestNamespace)...)
	command.Env = append(os.Environ(), "HOME="+home)
	if text, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("helm %s: %w\n%s", args[0], err, text)
	}
	return nil
}
