package world

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// Exec runs a command of hypergate's image in its container, as `kubectl exec` would, and returns the standard
// output.
func (h *Hypergate) Exec(ctx context.Context, argv ...string) (string, error) {
	pid := strconv.Itoa(h.PID())
	environment, err := os.ReadFile("/proc/" + pid + "/environ")
	if err != nil {
		return "", fmt.Errorf("reading the environment of hypergate's container: %w", err)
	}
	command := exec.CommandContext(ctx, "nsenter",
		append([]string{"--target", pid, "--mount", "--net", "--setuid", "65532", "--setgid", "0", "--"}, argv...)...)
	command.Env = strings.Split(strings.TrimRight(string(environment), "\x00"), "\x00")
	var out, failed bytes.Buffer
	command.Stdout, command.Stderr = &out, &failed
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("running %q in hypergate's container: %w: %s", argv, err, failed.String())
	}
	return out.String(), nil
}
