package hostile_test

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// TestEveryMoveWithinTheMemoryLimit makes each move once while hypergate runs in a cgroup with the memory limit of
// deploy/, as its container does. The kernel must not kill it.
func TestEveryMoveWithinTheMemoryLimit(t *testing.T) {
	if !*limitedFlag {
		t.Skip("needs root, and -limited")
	}
	deployed := deployedMemory(t)
	group := newMemoryGroup(t, deployed.limit)
	seed := seedOf(t)
	w := newHostileRun(t, seed, group)
	w.installHonestly()
	before := w.reached()
	w.lieOnce()
	w.becomeHonest()
	w.reachAll(before)
	if kills := group.kills(); kills != 0 {
		t.Errorf("the kernel killed hypergate %d times for its memory", kills)
	}
	t.Logf("limit %d MiB, GOMEMLIMIT %s, most memory of the cgroup %d MiB (with the pages of files, which the kernel takes back)",
		deployed.limit>>20, deployed.soft, group.peak()>>20)
}

// deployment holds hypergate's memory settings in deploy/.
type deployment struct {
	limit int64
	// soft is GOMEMLIMIT.
	soft string
}

func deployedMemory(t *testing.T) deployment {
	t.Helper()
	data, err := os.ReadFile("../../deploy/hosted/management/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.Deployment
	if err := yaml.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	container := d.Spec.Template.Spec.Containers[0]
	out := deployment{limit: container.Resources.Limits.Memory().Value()}
	for _, env := range container.Env {
		if env.Name == "GOMEMLIMIT" {
			out.soft = env.Value
		}
	}
	if out.limit == 0 || out.soft == "" {
		t.Fatal("deploy/hosted/management/deployment.yaml has no memory limit or no GOMEMLIMIT")
	}
	return out
}

// memoryGroup is a cgroup with a memory limit.
type memoryGroup struct {
	dir     string
	unified bool
}

// newMemoryGroup creates a cgroup with this limit, in bytes. The cgroup is removed when the test ends.
func newMemoryGroup(t *testing.T, limit int64) *memoryGroup {
	t.Helper()
	root, unified, err := memoryHierarchy()
	if err != nil {
		t.Fatal(err)
	}
	g := &memoryGroup{filepath.Join(root, "hypergate-hostile-"+strconv.Itoa(os.Getpid())), unified}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		var err error
		for range polls(10 * time.Second) { // the kernel refuses until the last process is gone
			if err = syscall.Rmdir(g.dir); err == nil {
				return
			}
		}
		t.Errorf("removing %s: %v", g.dir, err)
	})
	if err := os.WriteFile(filepath.Join(g.dir, g.file("memory.limit_in_bytes", "memory.max")), []byte(strconv.FormatInt(limit, 10)),
		0o644); err != nil {
		t.Fatal(err)
	}
	return g
}

// memoryHierarchy returns the folder in which cgroups with a memory controller can be created. unified means cgroup
// v2.
func memoryHierarchy() (root string, unified bool, err error) {
	mounts, err := os.Open("/proc/self/mounts")
	if err != nil {
		return "", false, err
	}
	defer func() { _ = mounts.Close() }()
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		field := strings.Fields(lines.Text())
		if len(field) < 4 {
			continue
		}
		switch field[2] {
		case "cgroup":
			if slices.Contains(strings.Split(field[3], ","), "memory") {
				return field[1], false, nil
			}
		case "cgroup2":
			if has, err := os.ReadFile(filepath.Join(field[1], "cgroup.subtree_control")); err == nil &&
				slices.Contains(strings.Fields(string(has)), "memory") {
				return field[1], true, nil
			}
		}
	}
	return "", false, errors.New("no cgroup hierarchy has a memory controller")
}

// file returns the name of a cgroup file for the cgroup version in use.
func (g *memoryGroup) file(v1, v2 string) string {
	if g.unified {
		return v2
	}
	return v1
}

// command returns a command that runs argv in the cgroup from its first instruction. Without a cgroup it returns
// argv.
func (g *memoryGroup) command(argv []string) []string {
	if g == nil {
		return argv
	}
	return append([]string{"/bin/sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(g.dir, "cgroup.procs")}, argv...)
}

// kills returns the number of processes in the cgroup that the kernel killed because of the limit, or -1 if it is
// unknown.
func (g *memoryGroup) kills() int64 {
	data, err := os.ReadFile(filepath.Join(g.dir, g.file("memory.oom_control", "memory.events")))
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(data)) {
		if field := strings.Fields(line); len(field) == 2 && field[0] == "oom_kill" {
			n, err := strconv.ParseInt(field[1], 10, 64)
			if err != nil {
				return -1
			}
			return n
		}
	}
	return -1
}

// peak returns the maximum memory of the cgroup, in bytes.
func (g *memoryGroup) peak() int64 {
	data, err := os.ReadFile(filepath.Join(g.dir, g.file("memory.max_usage_in_bytes", "memory.peak")))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	return n
}
