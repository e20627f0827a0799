package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// The environment variables of a re-executed program: that it is a node, which part of the node, and the state
// folder.
const (
	roleEnv  = "HYPERGATE_TEST_NODE"
	dirEnv   = "HYPERGATE_TEST_NODE_DIR"
	roleInit = "init"
	roleNode = "node"
	goWord   = "go"
)

// privateDirs are covered by the node's own file systems. So every default path of containerd, its shims, the
// kubelet, CNI and ip-netns is private.
var privateDirs = []string{"/var/lib", "/run", "/var/log"} //nolint:gochecknoglobals // a constant table

// MaybeRunNode runs a node's inner part and never returns, if Start re-executed this process for that. Otherwise it
// does nothing. Call it first in main or TestMain.
func MaybeRunNode() {
	var err error
	switch os.Getenv(roleEnv) {
	case "":
		return
	case roleInit:
		err = runInit()
	case roleNode:
		err = runNode(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// runInit is process 1 of the node. It makes the mount namespace private, starts the process that does the work, and
// reaps orphans until that process ends (container shims daemonise). There are two processes, because reaping all
// children would take exit codes away from os/exec.
func runInit() error {
	word := make([]byte, len(goWord))
	if _, err := io.ReadFull(os.Stdin, word); err != nil {
		return fmt.Errorf("waiting for the order to start (did the starter end?): %w", err)
	}
	// First stop the propagation of mounts to the machine. Then allow it to the containers' mount namespaces, as the
	// kubelet requires.
	for _, propagation := range []uintptr{syscall.MS_PRIVATE, syscall.MS_SHARED} {
		if err := syscall.Mount("none", "/", "", syscall.MS_REC|propagation, ""); err != nil {
			return fmt.Errorf("making the mount namespace private: %w", err)
		}
	}
	if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc of the new pid namespace: %w", err)
	}
	node := exec.CommandContext(context.Background(), "/proc/self/exe", os.Args[1:]...)
	node.Env = append(os.Environ(), roleEnv+"="+roleNode)
	node.Stdout, node.Stderr = os.Stdout, os.Stderr
	if err := node.Start(); err != nil {
		return fmt.Errorf("starting the node's servers: %w", err)
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("waiting for children: %w", err)
		}
		if pid == node.Process.Pid {
			return fmt.Errorf("the node's servers ended with status %d", status.ExitStatus())
		}
	}
}

// runNode prepares the namespaces and runs the servers. It returns only with an error, and then the whole node ends.
func runNode(ctx context.Context) error {
	r, err := readRun(os.Getenv(dirEnv))
	if err != nil {
		return err
	}
	if err := syscall.Sethostname([]byte(r.NodeName)); err != nil {
		return fmt.Errorf("setting the host name: %w", err)
	}
	if err := mountPrivate(); err != nil {
		return err
	}
	if err := maskSysctls(); err != nil {
		return err
	}
	if err := r.setUpLinks(ctx); err != nil {
		return fmt.Errorf("setting up the node's network: %w", err)
	}
	return r.serve(ctx)
}

func mountPrivate() error {
	for _, dir := range privateDirs {
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=755,size=75%"); err != nil {
			return fmt.Errorf("mounting a private %s: %w", dir, err)
		}
	}
	for _, dir := range []string{"/var/lib/cni", "/run/netns", "/run/sysctl"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("making %s: %w", dir, err)
		}
	}
	return nil
}

// maskSysctls hides the sysctls that the kubelet sets (ContainerManager, KernelMemory and so on). They are not
// namespaced, so the kubelet would change the machine, for example to reboot 10 s after a kernel panic. A bind mount
// covers each with a file that contains the value which the kubelet expects.
func maskSysctls() error {
	for key, value := range map[string]string{
		"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
		"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
	} {
		mask, target := filepath.Join("/run/sysctl", strings.ReplaceAll(key, "/", "_")), filepath.Join("/proc/sys", key)
		if !fileExists(target) {
			continue // this kernel does not have it
		}
		if err := os.WriteFile(mask, []byte(value+"\n"), 0o644); err != nil {
			return fmt.Errorf("masking sysctl %s: %w", key, err)
		}
		if err := syscall.Mount(mask, target, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("masking sysctl %s: %w", key, err)
		}
	}
	return nil
}

// setUpLinks configures the node's network namespace. It creates the pods' bridge before the first pod's CNI call,
// because CoreDNS listens on the bridge's address before there are pods.
func (r run) setUpLinks(ctx context.Context) error {
	gateway := fmt.Sprintf("%s/%d", r.Net.PodGateway, r.Net.Pods.Bits())
	for _, command := range []string{
		"link set lo up",
		"addr add " + r.Net.Node.String() + "/30 dev " + nodeLink,
		"link set " + nodeLink + " up",
		// This route leads nowhere. But a connection to a Service needs a route before its address is translated.
		"route add default via " + r.Net.Host.String(),
		"link add cni0 type bridge",
		"addr add " + gateway + " dev cni0",
		"link set cni0 up",
	} {
		if err := ip(ctx, strings.Fields(command)...); err != nil {
			return err
		}
	}
	if err := r.refuseUnknownServices(ctx); err != nil {
		return err
	}
	// These settings are per network namespace. The second is for connections through a ClusterIP between two pods on
	// the same bridge. Without it, the answer would not be translated back, and the connection would hang. The
	// setting is absent if the module is not loaded.
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return fmt.Errorf("enabling forwarding: %w", err)
	}
	_ = exec.CommandContext(ctx, "modprobe", "br_netfilter").Run() // if this fails, the module is built in, or the next statement fails
	if err := os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte("1"), 0o644); err != nil {
		return fmt.Errorf("enabling netfilter on the pods' bridge (is the kernel module br_netfilter loaded?): %w", err)
	}
	return nil
}

// refuseUnknownServices resets connections to Service addresses that kube-proxy does not know yet. Without this, the
// kernel would forward such a connection to nowhere and remember it without translation. The connection would then
// hang for its full timeout, even if kube-proxy learns the Service shortly after.
func (r run) refuseUnknownServices(ctx context.Context) error {
	rule := fmt.Sprintf("ip daddr %s meta l4proto tcp reject with tcp reset", r.Net.Services)
	command := exec.CommandContext(ctx, "nft", "-f", "-")
	command.Stdin = strings.NewReader(`table ip hypergate {
		chain forward { type filter hook forward priority 0; ` + rule + `; }
		chain output { type filter hook output priority 0; ` + rule + `; }
	}
`)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("running nft (Debian package nftables): %w: %s", err, out)
	}
	return nil
}
