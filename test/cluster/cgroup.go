package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// A node's cgroups are one folder with its name in every hierarchy. A machine with the unified hierarchy (v2) has one
// hierarchy. A machine with v1 controllers has about twelve. There the kubelet also uses a folder in a v2 hierarchy
// without controllers ("hybrid").
//
// The node's own processes are in the child "system", and pods are in "kubepods". A v2 cgroup with children cannot
// hold processes itself.

// cgroupRoots returns the mount points of all hierarchies.
func cgroupRoots() ([]string, error) {
	mounts, err := os.Open("/proc/self/mounts")
	if err != nil {
		return nil, fmt.Errorf("finding the cgroup hierarchies: %w", err)
	}
	defer func() { _ = mounts.Close() }()
	var roots []string
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		if field := strings.Fields(lines.Text()); len(field) > 2 && (field[2] == "cgroup" || field[2] == "cgroup2") {
			roots = append(roots, field[1])
		}
	}
	if len(roots) == 0 {
		return nil, errors.New("no cgroup hierarchy is mounted; the kubelet cannot run without (mount one on /sys/fs/cgroup)")
	}
	return roots, nil
}

// joinCgroups creates the named cgroup in every hierarchy and moves the process into it. All child processes are then
// in it too. The clean-up uses this to find leftovers.
func joinCgroups(name string, pid int) error {
	roots, err := cgroupRoots()
	if err != nil {
		return err
	}
	for _, root := range roots {
		for _, dir := range []string{filepath.Join(root, name), filepath.Join(root, name, "system")} {
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("making cgroup: %w", err)
			}
			if err := inherit(dir); err != nil {
				return fmt.Errorf("preparing cgroup %s: %w", dir, err)
			}
		}
		procs := filepath.Join(root, name, "system", "cgroup.procs")
		if err := os.WriteFile(procs, []byte(strconv.Itoa(pid)), 0o644); err != nil {
			return fmt.Errorf("joining cgroup: %w", err)
		}
	}
	return nil
}

// inherit makes a new cgroup usable. In v1, a cpuset starts empty and accepts no process until it has CPUs and memory
// nodes. In v2, the parent must first enable its controllers for the child.
func inherit(dir string) error {
	parent := filepath.Dir(dir)
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		from, err := os.ReadFile(filepath.Join(parent, file))
		if err != nil || fileExists(filepath.Join(parent, "cgroup.controllers")) {
			continue // not a v1 cpuset
		}
		if err := os.WriteFile(filepath.Join(dir, file), from, 0o644); err != nil {
			return err
		}
	}
	controllers, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
	if err != nil {
		return nil //nolint:nilerr // not a v2 hierarchy
	}
	for controller := range strings.FieldsSeq(string(controllers)) {
		// Each controller is enabled separately and errors are ignored. The kernel may refuse some (cpu, with
		// real-time processes). The kubelet reports a missing controller.
		_ = os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
	}
	return nil
}

// cgroupProcesses returns the IDs of all processes in the named cgroup and below, in any hierarchy.
func cgroupProcesses(name string) ([]int, error) {
	var pids []int
	err := eachCgroup(name, func(dir string) error {
		data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			return ignoreGone(err)
		}
		for field := range strings.FieldsSeq(string(data)) {
			// 0 means a process in another PID namespace. This process cannot see or kill it.
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 && !slices.Contains(pids, pid) {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids, err
}

// removeCgroups removes the named cgroup's folders, deepest first, and returns when they are gone. The kernel refuses
// until the last processes have ended, so it retries.
func removeCgroups(ctx context.Context, name string) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		var dirs []string
		if last = eachCgroup(name, func(dir string) error { dirs = append(dirs, dir); return nil }); last != nil {
			return false, last
		}
		for _, dir := range slices.Backward(dirs) {
			if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, syscall.ENOENT) {
				last = fmt.Errorf("removing cgroup %s: %w", dir, err)
			}
		}
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(last, err)
	}
	return nil
}

// PeakMemory returns the most memory in bytes that all nodes have used together, with all that runs on them and the
// page cache. The cgroups of the guest's nodes are in that of the management node.
func (c *Cluster) PeakMemory() (int64, error) {
	roots, err := cgroupRoots()
	if err != nil {
		return 0, err
	}
	for _, root := range roots {
		for _, file := range []string{"memory.max_usage_in_bytes", "memory.peak"} { // v1 and v2
			data, err := os.ReadFile(filepath.Join(root, c.run.Cgroup, file))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return 0, fmt.Errorf("reading the peak memory of cgroup %s: %w", c.run.Cgroup, err)
			}
			return strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
		}
	}
	return 0, fmt.Errorf("no hierarchy has the peak memory of cgroup %s", c.run.Cgroup)
}

// eachCgroup visits the named cgroup in every hierarchy, parents before children.
func eachCgroup(name string, visit func(dir string) error) error {
	roots, err := cgroupRoots()
	if err != nil {
		return err
	}
	for _, root := range roots {
		err := filepath.WalkDir(filepath.Join(root, name), func(dir string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() {
				return ignoreGone(err)
			}
			return visit(dir)
		})
		if err != nil {
			return fmt.Errorf("walking cgroup %s: %w", name, err)
		}
	}
	return nil
}

// ignoreGone drops errors which mean that the cgroup was removed during the visit.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return nil
	}
	return err
}

func fileExists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
