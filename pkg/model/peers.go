package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// NetworkPolicies determines the NetworkPolicy for istiod's pod: exactly one of the types below. The interface is
// sealed.
//
// NetworkPolicies are additive. An existing policy that selects istiod's pod allows what it allows, whatever
// hypergate's policy says. HyperShift's own policy same-namespace lets the other pods of a hosted control plane reach
// istiod. On AWS, its policy management-kas lets istiod reach these pods, and everything else except for the
// management cluster's other pods and API servers. It does not exclude the addresses of the nodes and the cloud's
// metadata service.
//
// In a namespace with these policies, hypergate's policy adds the ingress for xDS and, except on AWS, the limits of the
// egress.
//
// In the standalone topology there is no policy. The kube-apiserver that calls the webhook is usually a process on a
// node, not a pod, so no selector matches it. The gateways that call istiod can be in any namespace. There is no
// boundary between clusters to protect.
type NetworkPolicies interface{ isNetworkPolicies() }

type (
	// NoPolicies means that hypergate creates no policy. Only policies of others apply to istiod's pod.
	NoPolicies struct{}
	// Peers are the only peers with which istiod's pod is allowed to communicate, in both directions. The egress is
	// limited because a guest can make istiod connect to any address: with a Secret that looks like the kubeconfig of
	// another cluster, or with the issuer of a RequestAuthentication.
	Peers struct {
		// GuestAPI are the peers where the guest's kube-apiserver runs. It calls the webhook, and istiod calls it.
		GuestAPI []Peer
		// XDS are the sources of the connections of the guest's gateways: the routers that publish istiod on the
		// management side.
		XDS []Peer
		// Metrics are the peers that collect metrics. It can be empty.
		Metrics []Peer
		// DNS are the DNS servers.
		DNS []Peer
	}
)

func (NoPolicies) isNetworkPolicies() {}
func (Peers) isNetworkPolicies()      {}

// HyperShiftPeers returns the peers of a hosted control plane on OpenShift, by the labels that HyperShift's own
// policies use (openshift/hypershift hypershift-operator/controllers/hostedcluster/network_policies.go).
func HyperShiftPeers() Peers {
	return Peers{
		GuestAPI: []Peer{PodPeer{"app", "kube-apiserver"}},
		XDS: []Peer{
			PodPeer{"app", "private-router"}, // the hosted control plane's own router
			NamespacePeer{"network.openshift.io/policy-group", "ingress"},
			NamespacePeer{"kubernetes.io/metadata.name", "hypershift-sharedingress"},
		},
		Metrics: []Peer{NamespacePeer{"network.openshift.io/policy-group", "monitoring"}},
		DNS: []Peer{
			NamespacePeer{"kubernetes.io/metadata.name", "openshift-dns"},
			NamespacePeer{"kubernetes.io/metadata.name", "kube-system"},
		},
	}
}

// Peer is a peer of istiod's pod: exactly one of the types below. The interface is sealed.
//
//sumtype:decl
type Peer interface {
	fmt.Stringer
	isPeer()
}

type (
	// PodPeer is all pods with a label in istiod's namespace.
	PodPeer struct{ Label, Value string }
	// NamespacePeer is all pods in namespaces with a label.
	NamespacePeer struct{ Label, Value string }
	// BlockPeer is a block of addresses outside of the cluster.
	BlockPeer struct{ Prefix netip.Prefix }
)

const podsPrefix, namespacesPrefix = "pods", "namespaces"

// String returns the peer in the format that ParsePeer reads.
func (p PodPeer) String() string { return podsPrefix + ":" + p.Label + "=" + p.Value }

// String returns the peer in the format that ParsePeer reads.
func (p NamespacePeer) String() string { return namespacesPrefix + ":" + p.Label + "=" + p.Value }

// String returns the peer in the format that ParsePeer reads.
func (p BlockPeer) String() string { return p.Prefix.String() }

func (PodPeer) isPeer()       {}
func (NamespacePeer) isPeer() {}
func (BlockPeer) isPeer()     {}

// ParsePeer parses a peer: pods:<label>=<value>, namespaces:<label>=<value>, an address, or a CIDR block such as
// 192.0.2.0/24.
func ParsePeer(s string) (Peer, error) {
	prefix, requirement, hasPrefix := strings.Cut(s, ":")
	if !hasPrefix || prefix != podsPrefix && prefix != namespacesPrefix {
		if addr, err := netip.ParseAddr(s); err == nil && addr.Zone() == "" {
			return BlockPeer{netip.PrefixFrom(addr, addr.BitLen())}, nil
		}
		block, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("%q is not a peer: use %s:<label>=<value>, %s:<label>=<value>, an address, or a CIDR block such as "+
				"192.0.2.0/24", s, podsPrefix, namespacesPrefix)
		}
		return BlockPeer{block.Masked()}, nil
	}
	label, value, _ := strings.Cut(requirement, "=")
	problems := slices.Concat(validation.IsQualifiedName(label), validation.IsValidLabelValue(value))
	if value == "" {
		problems = append(problems, "the value is empty")
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("%q: %q is not a <label>=<value>: %s", s, requirement, strings.Join(problems, "; "))
	}
	if prefix == podsPrefix {
		return PodPeer{label, value}, nil
	}
	return NamespacePeer{label, value}, nil
}

// NetworkPolicyPeers returns the peers of istiod's pod, and whether hypergate creates a NetworkPolicy for it.
func (c Config) NetworkPolicyPeers() (Peers, bool) {
	peers, is := c.NetworkPolicies.(Peers)
	return peers, is && c.Topology == TopologyHosted
}

// MayHaveBudget reports whether this installation can have a PodDisruptionBudget for istiod: not in the namespace of a
// HostedControlPlane, whose platform has none for such pods.
func (c Config) MayHaveBudget() bool {
	return c.Topology == TopologyStandalone || c.GuestKubeconfigSecret != ""
}

// MgmtKinds returns the kinds that this installation uses on the management side, with all allowed names. It leaves out
// NetworkPolicies and PodDisruptionBudgets if it has none, so that hypergate's Role needs no permission to watch them.
func (c Config) MgmtKinds() []Kind {
	kinds := MgmtKinds()
	for i, k := range kinds {
		kinds[i].Names = c.mgmtNames(k.GVK.Kind)
	}
	_, hasPolicy := c.NetworkPolicyPeers()
	return slices.DeleteFunc(kinds, func(k Kind) bool {
		return k.GVK.Kind == "NetworkPolicy" && !hasPolicy || k.GVK.Kind == "PodDisruptionBudget" && !c.MayHaveBudget()
	})
}
