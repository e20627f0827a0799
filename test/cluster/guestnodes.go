package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hypergate/hypergate/test/proc"
)

const (
	// guestNodesDir is the folder for the state of the guest's nodes, in the Dir of the cluster.
	guestNodesDir = "guest-nodes"
	// maxGuestNodes is the number of nodes for which the network has room.
	maxGuestNodes = 8
)

// GuestNode is a real node of the guest: containerd, kubelet, kube-proxy and CoreDNS in namespaces of their own.
type GuestNode struct {
	Name string
	// Address is the InternalIP of the node.
	Address netip.Addr

	run     run
	process *proc.Process
}

// Stop ends one server of the node: kubelet, kube-proxy, coredns, containerd or KonnectivityAgent. Its pods keep
// running.
func (n *GuestNode) Stop(ctx context.Context, server string) error {
	return n.run.control(ctx, verbStop+"/"+server)
}

// Start starts a server that Stop has ended.
func (n *GuestNode) Start(ctx context.Context, server string) error {
	return n.run.control(ctx, verbStart+"/"+server)
}

// PodLogs returns the folder with the logs of the node's pods, named as a kubelet names them.
func (n *GuestNode) PodLogs() string { return filepath.Join(n.run.Dir, "logs/pods") }

// HasGuestNodes reports whether the guest has real nodes. A cluster that another process started has no GuestNodes.
func (c *Cluster) HasGuestNodes() bool { return c.run.GuestNodes > 0 }

// GuestLoadBalancers returns the range of addresses of load balancers. This machine and the guest's nodes route it to
// the guest's first node. Without a guest, they route it to the management node. kube-proxy on that node forwards the
// addresses that a Service of type LoadBalancer has in its status.
func (c *Cluster) GuestLoadBalancers() netip.Prefix { return c.run.Net.guestLoadBalancers() }

// MgmtLoadBalancers returns the range of addresses of the management cluster's load balancers. This machine and the
// guest's nodes route it to the management node, whose kube-proxy forwards it likewise.
func (c *Cluster) MgmtLoadBalancers() netip.Prefix { return c.run.Net.mgmtLoadBalancers() }

// startGuestNodes starts the real nodes of the first guest. It returns when they are ready.
func (c *Cluster) startGuestNodes(ctx context.Context, o Options, images []importable) error {
	if o.GuestNodes == 0 {
		return nil
	}
	hosts := map[string]string{}
	for _, name := range o.HostNames {
		hosts[name] = c.HostAddress().String()
	}
	if err := c.publishAPIServer(ctx); err != nil {
		return err
	}
	for number := range o.GuestNodes {
		node, err := c.startGuestNode(ctx, number, images, hosts)
		if node != nil {
			c.GuestNodes = append(c.GuestNodes, node)
		}
		if err != nil {
			return fmt.Errorf("starting the guest's node %d: %w", number+1, err)
		}
	}
	first := c.GuestNodes[0]
	if err := c.onNode(ctx, "route add "+c.GuestLoadBalancers().String()+" via "+first.Address.String()); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(c.Guest)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	for _, node := range c.GuestNodes {
		ctx, release := node.process.Guard(ctx)
		err := waitNode(ctx, client, node.Name)
		release()
		if err != nil {
			return err
		}
		c.progress("guest node ready: %s", node.Name)
	}
	return nil
}

func (c *Cluster) startGuestNode(ctx context.Context, number int, images []importable, hosts map[string]string) (*GuestNode, error) {
	r := c.run
	r.Role, r.NodeName = guestNode, "guest-node-"+strconv.Itoa(number+1)
	r.Dir = filepath.Join(c.Dir, guestNodesDir, r.NodeName)
	r.Keys, r.Cgroup = filepath.Join(r.Dir, "pki"), filepath.Join(c.run.Cgroup, r.NodeName)
	r.Net, r.Images = c.run.Net.guestNode(byte(number)), images //nolint:gosec // at most maxGuestNodes
	r.Hosts = hosts
	node := &GuestNode{Name: r.NodeName, Address: r.Net.Node, run: r}
	if err := makeFoldersIn(r.Dir, "node/cni", "logs/pods"); err != nil {
		return nil, err
	}
	if err := errors.Join(c.writeNodeKeys(r), c.writeAgentKeys(r)); err != nil {
		return nil, err
	}
	if err := r.write(); err != nil {
		return nil, err
	}
	var err error
	node.process, err = r.launch(func(pid int) error { return c.linkGuestNode(ctx, r, number, pid) })
	if node.process == nil {
		return nil, err
	}
	return node, err
}

// linkGuestNode connects the network namespaces of the management node and of a guest's node, and routes the guest's
// pods.
func (c *Cluster) linkGuestNode(ctx context.Context, r run, number, pid int) error {
	link := "guest" + strconv.Itoa(number+1)
	for _, command := range []string{
		"link add " + link + " type veth peer name " + nodeLink + " netns " + strconv.Itoa(pid),
		"addr add " + r.Net.Host.String() + "/30 dev " + link,
		"link set " + link + " up",
		"route add " + r.Net.Pods.String() + " via " + r.Net.Node.String(),
	} {
		if err := c.onNode(ctx, command); err != nil {
			return err
		}
	}
	return nil
}

// onNode runs the ip command in the network namespace of the management node.
func (c *Cluster) onNode(ctx context.Context, command string) error {
	args := append([]string{"--net=/proc/" + strconv.Itoa(c.node.PID()) + "/ns/net", "ip"}, strings.Fields(command)...)
	if out, err := exec.CommandContext(ctx, "nsenter", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s on the management node: %w: %s", command, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// writeNodeKeys writes the keys of a guest's node. The guest's certificate authority signs them.
func (c *Cluster) writeNodeKeys(r run) error {
	server := "https://" + r.Net.GuestAPI.String() + ":6443"
	keys := c.guestKeys.Copy()
	if err := errors.Join(
		keys.AddKubeconfig("admin", server, "guest-node-starter", "system:masters"),
		keys.AddKubeconfig("kubelet", server, "system:node:"+r.NodeName, "system:nodes"),
		keys.AddKubeconfig("kube-proxy", server, "system:kube-proxy", ""),
		keys.AddKubeconfig("coredns", server, "coredns", "system:masters"),
		keys.AddKubeconfig("network-policies", server, "network-policies", "system:masters"),
		keys.AddServing("kubelet-serving", r.NodeName, r.Net.Node.String(), r.NodeName),
	); err != nil {
		return err
	}
	return keys.Write(r.Keys)
}

// publishAPIServer gives the guest's Service "kubernetes" the published address of its API server. In HyperShift, a
// proxy on each node does this.
func (c *Cluster) publishAPIServer(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.Guest)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	_, err = client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{c.run.Net.GuestAPI.String()}}},
		Ports:       []discoveryv1.EndpointPort{{Name: new("https"), Port: new(int32(6443))}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("publishing the guest's API server in the guest: %w", err)
	}
	return nil
}

// apiServerNames are the names and addresses by which the guest's nodes and pods reach the guest's API server.
func apiServerNames(services netip.Prefix) []string {
	return []string{services.Addr().Next().String(), "kubernetes", "kubernetes.default.svc"}
}
