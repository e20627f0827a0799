package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/hypergate/hypergate/test/cluster/internal/plane"
	"github.com/hypergate/hypergate/test/cluster/netpol"
)

// enforcePolicies plays the part of a network plugin that makes NetworkPolicies real, in the node's network namespace. Like a plugin it has an
// identity of its own, so that an audit log does not take it for somebody under test.
func (r run) enforcePolicies(ctx context.Context) error {
	config, err := plane.RESTConfig(filepath.Join(r.Dir, "pki/mgmt/network-policies.kubeconfig"))
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	// By default the kernel sends one refusal per second to the same address, and whoever tries more connections waits. This is per network namespace.
	if err := os.WriteFile("/proc/sys/net/ipv4/icmp_ratelimit", []byte("0"), 0o644); err != nil {
		return fmt.Errorf("having every refusal sent: %w", err)
	}
	return netpol.Enforce(ctx, client)
}

// HostAddress is this machine's address as a NetworkPolicy's ipBlock sees it when the machine dials a pod or a ClusterIP.
func (c *Cluster) HostAddress() netip.Addr { return c.run.Net.Host }

// DNSAddress is where pods find the management cluster's DNS: a process of the node, and not a pod that a selector could name.
func (c *Cluster) DNSAddress() netip.Addr { return c.run.Net.PodGateway }

// What ConnectFrom returns when there is no connection, by errors.Is.
var (
	// ErrRefused: nobody listens at that port.
	ErrRefused = errors.New("connection refused")
	// ErrForbidden: a NetworkPolicy does not allow it.
	ErrForbidden = errors.New("forbidden by a network policy")
)

// ConnectFrom opens a TCP connection to address, an IP address and a port, from the network of a running pod of the management cluster, and
// closes it. The pod's image needs no program for it.
func (c *Cluster) ConnectFrom(ctx context.Context, pod types.UID, address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	pid, err := pidOf(c.run.Cgroup, pod)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "nsenter", "--net=/proc/"+pid+"/ns/net", "bash", "-c", `exec 3<>"/dev/tcp/$0/$1"`, host, port).CombinedOutput()
	switch {
	case err == nil:
		return nil
	case strings.Contains(string(out), "Connection refused"):
		err = ErrRefused
	case strings.Contains(string(out), "No route to host"):
		err = ErrForbidden
	}
	return fmt.Errorf("connecting from pod %s to %s: %w: %s", pod, address, errors.Join(err, ctx.Err()), out)
}

// pidOf is a process of a pod, as this machine numbers it. The kubelet puts a pod's processes in a cgroup that has the pod's UID in its name.
func pidOf(cgroup string, pod types.UID) (string, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return "", err
	}
	for _, file := range files {
		groups, _ := os.ReadFile(file) // empty if the process is gone meanwhile
		if strings.Contains(string(groups), "/"+cgroup+"/") && strings.Contains(string(groups), "/pod"+string(pod)+"/") {
			return filepath.Base(filepath.Dir(file)), nil
		}
	}
	return "", fmt.Errorf("pod %s has no process on the node: is it running?", pod)
}
