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

// enforcePolicies enforces the NetworkPolicies of the node's cluster in the node's network namespace, like a network
// plugin. Like a plugin, it has its own identity, so that an audit log does not show it as a component under test.
func (r run) enforcePolicies(ctx context.Context) error {
	config, err := plane.RESTConfig(filepath.Join(r.Keys, "network-policies.kubeconfig"))
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	// By default, the kernel sends one refusal per second to the same address. A client with more connections would
	// wait. This setting is per network namespace.
	if err := os.WriteFile("/proc/sys/net/ipv4/icmp_ratelimit", []byte("0"), 0o644); err != nil {
		return fmt.Errorf("having every refusal sent: %w", err)
	}
	return netpol.Enforce(ctx, client)
}

// HostAddress returns this machine's address as a NetworkPolicy's ipBlock sees it when the machine dials a pod or a
// ClusterIP.
func (c *Cluster) HostAddress() netip.Addr { return c.run.Net.Host }

// DNSAddress returns the address of the management cluster's DNS server for pods. The server is a process on the
// node, not a pod that a selector could match.
func (c *Cluster) DNSAddress() netip.Addr { return c.run.Net.PodGateway }

// The errors of ConnectFrom if it cannot connect. Use errors.Is.
var (
	// ErrRefused means that nothing listens at the port.
	ErrRefused = errors.New("connection refused")
	// ErrForbidden means that a NetworkPolicy denies the connection.
	ErrForbidden = errors.New("forbidden by a network policy")
)

// ConnectFrom opens a TCP connection to address (an IP address and a port) and closes it. The connection comes from
// the network of a running pod in the management cluster. The pod's image needs no program for this.
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
	out, err := exec.CommandContext(ctx, "nsenter", "--net=/proc/"+pid+"/ns/net", "bash", "-c", `exec 3<>"/dev/tcp/$0/$1"`, host, port).
		CombinedOutput()
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

// pidOf returns the ID of a pod's process, as this machine numbers it. The kubelet puts a pod's processes in a cgroup
// with the pod's UID in its name.
func pidOf(cgroup string, pod types.UID) (string, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return "", err
	}
	for _, file := range files {
		groups, _ := os.ReadFile(file) // empty if the process has ended
		if strings.Contains(string(groups), "/"+cgroup+"/") && strings.Contains(string(groups), "/pod"+string(pod)+"/") {
			return filepath.Base(filepath.Dir(file)), nil
		}
	}
	return "", fmt.Errorf("pod %s has no process on the node: is it running?", pod)
}
