package previous

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/hypergate/hypergate/test/cluster/servers"
)

// Version is the name of a previous hypergate in hack/previous/build.sh.
type Version string

// The previous versions.
const (
	// ChartNames is the last one with the names of Istio's chart in the guest.
	ChartNames Version = "chart-names"
	// OwnNames is the first one with hypergate's own names in the guest.
	OwnNames Version = "own-names"
	// Rollouts is one that holds Gateways, and rolls them one by one.
	Rollouts Version = "rollouts"
	// Tunnel is the last hypergate-tunnel that sends a frame in two writes.
	Tunnel Version = "tunnel"
)

// Build builds a previous hypergate, unless it is already there, and returns its folder. The folder contains the
// manifests deploy/ and the binary: hypergate, or hypergate-tunnel for Tunnel. An error contains the message of
// hack/previous/build.sh, for example that the commit is not in this clone.
func Build(ctx context.Context, version Version) (string, error) {
	root, err := servers.ModuleRoot()
	if err != nil {
		return "", err
	}
	script := filepath.Join(root, "hack/previous/build.sh")
	var message bytes.Buffer
	build := exec.CommandContext(ctx, script, string(version))
	build.Stderr = &message
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("building the previous hypergate: %w: %s", err, strings.TrimSpace(message.String()))
	}
	dir, err := exec.CommandContext(ctx, script, "--dir", string(version)).Output()
	if err != nil {
		return "", fmt.Errorf("asking hack/previous/build.sh --dir for the folder of the previous hypergate: %w", err)
	}
	return strings.TrimSpace(string(dir)), nil
}
