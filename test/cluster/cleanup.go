package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Down stops the clusters whose state is in dir and which another process started with Detach. It removes everything
// outside the node's namespaces. It keeps the folder, because its logs may be useful. If nothing runs any more, Down
// succeeds. If the folder does not contain the record of a cluster, the error is fs.ErrNotExist.
func Down(ctx context.Context, dir string) error {
	r, err := readRun(dir)
	if err != nil {
		return err
	}
	return teardown(ctx, r.Name)
}

// readRun reads the record of the run whose state is in dir.
func readRun(dir string) (run, error) {
	var r run
	data, err := os.ReadFile(filepath.Join(dir, runFile))
	if err != nil {
		return r, fmt.Errorf("finding the clusters of folder %s: %w", dir, err)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("reading %s of folder %s: %w", runFile, dir, err)
	}
	return r, nil
}

// teardown kills the node and removes the link and the cgroups of a run. The order matters: a cgroup cannot be
// removed before its processes have ended.
func teardown(ctx context.Context, name string) error {
	return errors.Join(kill(ctx, cgroupOf(name)), removeLink(ctx, name), removeCgroups(ctx, cgroupOf(name)))
}

// cgroupOf returns the name of a run's cgroup. The run started every process in it, so it is safe to kill them.
func cgroupOf(name string) string { return "hypergate-" + name }

// kill kills all processes of a cgroup and returns when they have ended. Process 1 of the node is one of them. The
// kernel kills the other processes of its namespace with it.
func kill(ctx context.Context, cgroup string) error {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		pids, err := cgroupProcesses(cgroup)
		if err != nil {
			return false, err
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return false, fmt.Errorf("killing process %d: %w", pid, err)
			}
		}
		return len(pids) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("ending the processes of cgroup %s: %w", cgroup, err)
	}
	return nil
}

// removeLeftovers removes the leftovers of a crashed run with this name. The kernel has killed its processes,
// possibly just before. If some processes keep running, the run has not crashed, and removeLeftovers returns an
// error.
func removeLeftovers(ctx context.Context, name string) error {
	var pids []int
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		var err error
		pids, err = cgroupProcesses(cgroupOf(name))
		return len(pids) == 0, err
	})
	if wait.Interrupted(err) && len(pids) > 0 {
		return fmt.Errorf("a cluster named %q is running (process %d); stop it, or use another name", name, pids[0])
	}
	if err != nil {
		return fmt.Errorf("looking for leftovers of cluster %s: %w", name, err)
	}
	if err := teardown(ctx, name); err != nil {
		return fmt.Errorf("removing leftovers of cluster %s: %w", name, err)
	}
	return nil
}
