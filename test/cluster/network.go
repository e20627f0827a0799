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

// network is the part of 10.0.0.0/8 that one run uses: a /16 of its own, so that any number of runs coexist and one host route leads to
// all that a run has (the node, pods, services).
type network struct {
	Block      netip.Prefix // 10.N.0.0/16
	Host       netip.Addr   // the host's end of the link, .0.1
	Node       netip.Addr   // the node's end, .0.2
	Pods       netip.Prefix // 10.N.16.0/24
	PodGateway netip.Addr   // the bridge in the node, which is also where CoreDNS listens
	Services   netip.Prefix // 10.N.32.0/20
	GuestAPI   netip.Addr   // the fixed ClusterIP of the guest's API server
}

// firstBlock and blocks bound N: the upper part, because low numbers are what companies and container engines use.
const (
	firstBlock = 160
	blocks     = 80
)

func networkOf(n byte) network {
	ip := func(c, d byte) netip.Addr { return netip.AddrFrom4([4]byte{10, n, c, d}) }
	return network{
		Block: netip.PrefixFrom(ip(0, 0), 16), Host: ip(0, 1), Node: ip(0, 2),
		Pods: netip.PrefixFrom(ip(16, 0), 24), PodGateway: ip(16, 1),
		Services: netip.PrefixFrom(ip(32, 0), 20), GuestAPI: ip(32, 10),
	}
}

// ServiceIP is the address of the Service "kubernetes": the first of its range.
func (n network) ServiceIP() netip.Addr { return n.Services.Addr().Next() }

// withGuestAPI is the network as another guest has it; the first is number 0.
func (n network) withGuestAPI(number byte) network {
	n.GuestAPI = netip.AddrFrom4([4]byte{10, n.Block.Addr().As4()[1], 32, 10 + number})
	return n
}

// Link names. The host's end carries the run's name (15 characters at most); the other end is renamed when it enters the node.
func hostLink(name string) string { return "hg-" + name }
func peerLink(name string) string { return "hp-" + name }

const nodeLink = "uplink"

// reserveNetwork makes the veth pair and claims a free block. The claim is the host route: the kernel refuses a second one for the same
// destination, so two starts at the same moment cannot both win. The search starts at a number hashed from the name, so that
// the same name mostly gets the same addresses.
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
	return network{}, fmt.Errorf("no free network between 10.%d.0.0/16 and 10.%d.0.0/16; see `ip route`: %w", firstBlock, firstBlock+blocks-1, last)
}

// overlapsInterface says whether an address of this machine, or its network, lies in the block.
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

// moveIntoNode gives the other end of the link to the network namespace of a process.
func moveIntoNode(ctx context.Context, name string, pid int) error {
	return ip(ctx, "link", "set", peerLink(name), "netns", strconv.Itoa(pid), "name", nodeLink)
}

// removeLink removes the link, and with it the addresses and routes. It is no error if it is not there.
func removeLink(ctx context.Context, name string) error {
	_, err := net.InterfaceByName(hostLink(name))
	if err != nil {
		return nil //nolint:nilerr // the only reason is that it does not exist
	}
	if err := ip(ctx, "link", "del", hostLink(name)); err != nil {
		if _, gone := net.InterfaceByName(hostLink(name)); gone != nil {
			return nil //nolint:nilerr // the kernel removed it meanwhile, with the node's network namespace
		}
		return err
	}
	return nil
}

// ip runs iproute2.
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
