package cluster

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
)

// network is the part of 10.0.0.0/8 that one run uses. Each run has its own /16. So any number of runs can coexist,
// and one host route leads to all addresses of a run (the node, pods, services).
type network struct {
	Block      netip.Prefix // 10.N.0.0/16
	Host       netip.Addr   // the host's end of the link, .0.1
	Node       netip.Addr   // the node's end of the link, .0.2
	Pods       netip.Prefix // 10.N.16.0/24
	PodGateway netip.Addr   // the bridge in the node; CoreDNS listens there
	// ClusterPods contains the Pods of all nodes of the cluster.
	ClusterPods netip.Prefix
	Services    netip.Prefix // 10.N.32.0/20
	GuestAPI    netip.Addr   // the fixed ClusterIP of the guest's API server
}

// firstBlock and blocks limit N to the upper part, because companies and container engines use low numbers.
const (
	firstBlock = 160
	blocks     = 80
)

func networkOf(n byte) network {
	ip := func(c, d byte) netip.Addr { return netip.AddrFrom4([4]byte{10, n, c, d}) }
	return network{
		Block: netip.PrefixFrom(ip(0, 0), 16), Host: ip(0, 1), Node: ip(0, 2),
		Pods: netip.PrefixFrom(ip(16, 0), 24), PodGateway: ip(16, 1), ClusterPods: netip.PrefixFrom(ip(16, 0), 24),
		Services: netip.PrefixFrom(ip(32, 0), 20), GuestAPI: ip(32, 10),
	}
}

// ServiceIP returns the address of the Service "kubernetes", which is the first of the range.
func (n network) ServiceIP() netip.Addr { return n.Services.Addr().Next() }

// withGuestAPI returns the network for another guest. The first guest has number 0.
func (n network) withGuestAPI(number byte) network {
	n.GuestAPI = netip.AddrFrom4([4]byte{10, n.Block.Addr().As4()[1], 32, 10 + number})
	return n
}

// konnectivity returns the fixed ClusterIP at which the guest's konnectivity agents reach their server.
func (n network) konnectivity() netip.Addr {
	ip := n.GuestAPI.As4()
	ip[3] += 100 // GuestAPI is 10 to 99
	return netip.AddrFrom4(ip)
}

// guestServices is the range of the guest's Services. Each guest uses the same, because only its own nodes translate
// these addresses.
var guestServices = netip.MustParsePrefix("172.31.0.0/16") //nolint:gochecknoglobals // a constant

// guestNode returns the network of a node of the guest. The first node has number 0. Its uplink leads to the
// management node (Host), which forwards between this machine, the guest's nodes and its own pods.
//
// The nodes share the block of the run, so the one route of this machine leads to them as well: links in
// 10.N.64.0/24, pods in 10.N.80.0/20, load balancers in 10.N.96.0/24. The load balancers of the
// management cluster are in 10.N.97.0/24.
func (n network) guestNode(number byte) network {
	ip := func(c, d byte) netip.Addr { return netip.AddrFrom4([4]byte{10, n.Block.Addr().As4()[1], c, d}) }
	return network{
		Block: n.Block, Host: ip(64, 4*number+1), Node: ip(64, 4*number+2),
		Pods: netip.PrefixFrom(ip(80+number, 0), 24), PodGateway: ip(80+number, 1), ClusterPods: netip.PrefixFrom(ip(80, 0), 20),
		Services: guestServices, GuestAPI: n.GuestAPI,
	}
}

// guestLoadBalancers returns the range of the addresses of the guest's load balancers.
func (n network) guestLoadBalancers() netip.Prefix { return n.range24(96) }

// mgmtLoadBalancers returns the range of the addresses of the management cluster's load balancers.
func (n network) mgmtLoadBalancers() netip.Prefix { return n.range24(97) }

// range24 returns a range of the block, by its third byte.
func (n network) range24(third byte) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, n.Block.Addr().As4()[1], third, 0}), 24)
}

// Link names. The host's end contains the run's name (15 characters at most). The other end is renamed when it enters
// the node.
func hostLink(name string) string { return "hg-" + name }
func peerLink(name string) string { return "hp-" + name }

const nodeLink = "uplink"

// reserveNetwork creates the veth pair and reserves a free block, by its host route: the kernel refuses a second route
// to the same destination, so two concurrent starts cannot both succeed. The search starts at a hash of the name, so
// the same name usually gets the same addresses.
func reserveNetwork(ctx context.Context, name string) (network, error) {
	if err := ip(ctx, "link", "add", hostLink(name), "type", "veth", "peer", "name", peerLink(name)); err != nil {
		return network{}, err
	}
	if err := ip(ctx, "link", "set", hostLink(name), "up"); err != nil {
		return network{}, err
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(name)) // never fails
	var last error
	for i := range uint32(blocks) {
		candidate := networkOf(byte(firstBlock + (hash.Sum32()+i)%blocks))
		if taken, err := overlapsInterface(candidate.Block); err != nil {
			return network{}, err
		} else if taken {
			continue
		}
		address := candidate.Host.String() + "/30"
		if err := ip(ctx, "addr", "add", address, "dev", hostLink(name)); err != nil {
			return network{}, err
		}
		if last = ip(ctx, "route", "add", candidate.Block.String(), "via", candidate.Node.String(), "dev", hostLink(name)); last == nil {
			return candidate, nil
		}
		if err := ip(ctx, "addr", "del", address, "dev", hostLink(name)); err != nil {
			return network{}, err
		}
	}
	return network{}, fmt.Errorf("no free network between 10.%d.0.0/16 and 10.%d.0.0/16; see `ip route`: %w", firstBlock,
		firstBlock+blocks-1, last)
}

// overlapsInterface reports whether an address or network of this machine overlaps the block.
func overlapsInterface(block netip.Prefix) (bool, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return false, fmt.Errorf("listing this machine's addresses: %w", err)
	}
	for _, address := range addresses {
		if prefix, err := netip.ParsePrefix(address.String()); err == nil && prefix.Overlaps(block) {
			return true, nil
		}
	}
	return false, nil
}

// moveIntoNode moves the other end of the link into the network namespace of a process.
func moveIntoNode(ctx context.Context, name string, pid int) error {
	return ip(ctx, "link", "set", peerLink(name), "netns", strconv.Itoa(pid), "name", nodeLink)
}

// removeLink removes the link, with its addresses and routes. It succeeds if the link does not exist.
func removeLink(ctx context.Context, name string) error {
	_, err := net.InterfaceByName(hostLink(name))
	if err != nil {
		return nil //nolint:nilerr // fails only if the link does not exist
	}
	if err := ip(ctx, "link", "del", hostLink(name)); err != nil {
		if _, gone := net.InterfaceByName(hostLink(name)); gone != nil {
			return nil //nolint:nilerr // removed by the kernel with the node's network namespace
		}
		return err
	}
	return nil
}

// ip runs the ip command of iproute2.
func ip(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("running ip: %w; install the Debian package iproute2", err)
	}
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
