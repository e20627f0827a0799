package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// NetworkPolicies is what fences istiod's pod in: exactly one of the values below. The interface is sealed.
//
// Policies only ever add up: one that is there already and selects istiod's pod opens what it opens, whatever hypergate's says. HyperShift's own
// same-namespace policy lets the other pods of a hosted control plane reach istiod, and on AWS its management-kas policy lets istiod reach them, and
// everything but the management cluster's other pods and its API servers; its nodes' addresses and the cloud's metadata service are not
// excepted. In a namespace with these, hypergate's adds the way in for xDS and, but for AWS, the limits to the way out.
//
// Standalone there are none: the kube-apiserver that calls the webhook mostly is no pod but a process of a node, which no selector names, the
// gateways that call istiod may be in any namespace, and no cluster boundary is there to be kept.
type NetworkPolicies interface{ isNetworkPolicies() }

type (
	// NoPolicies leaves istiod's pod to the policies that others have made.
	NoPolicies struct{}
	// Peers are those that istiod's pod may exchange anything with. Everybody else is refused, in both directions: a guest can make istiod dial an
	// address of its choice (a Secret that looks like another cluster's kubeconfig, the issuer of a RequestAuthentication).
	Peers struct {
		// GuestAPI is where the guest's kube-apiserver runs. It calls the webhook, and istiod calls it.
		GuestAPI []Peer
		// XDS is from where the guest's gateways come: what publishes istiod on the management side.
		XDS []Peer
		// Metrics is from where metrics are collected. It may be empty.
		Metrics []Peer
		// DNS is where names are resolved.
		DNS []Peer
	}
)

func (NoPolicies) isNetworkPolicies() {}
func (Peers) isNetworkPolicies()      {}

// HyperShiftPeers are those of a hosted control plane on OpenShift, known by the labels that HyperShift's own policies go by
// (openshift/hypershift hypershift-operator/controllers/hostedcluster/network_policies.go).
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

// Peer is one end of connections: exactly one of the types below. The interface is sealed.
type Peer interface {
	fmt.Stringer
	isPeer()
}

type (
	// PodPeer are the pods of istiod's namespace with a label.
	PodPeer struct{ Label, Value string }
	// NamespacePeer are all pods of the namespaces with a label.
	NamespacePeer struct{ Label, Value string }
	// BlockPeer are addresses outside of the cluster.
	BlockPeer struct{ Prefix netip.Prefix }
)

const podsWord, namespacesWord = "pods", "namespaces"

// String is the form that ParsePeer reads.
func (p PodPeer) String() string { return podsWord + ":" + p.Label + "=" + p.Value }

// String is the form that ParsePeer reads.
func (p NamespacePeer) String() string { return namespacesWord + ":" + p.Label + "=" + p.Value }

// String is the form that ParsePeer reads.
func (p BlockPeer) String() string { return p.Prefix.String() }

func (PodPeer) isPeer()       {}
func (NamespacePeer) isPeer() {}
func (BlockPeer) isPeer()     {}

// ParsePeer reads pods:<label>=<value>, namespaces:<label>=<value>, an address, or a block of addresses such as 192.0.2.0/24.
func ParsePeer(s string) (Peer, error) {
	word, requirement, selects := strings.Cut(s, ":")
	if !selects || word != podsWord && word != namespacesWord {
		if addr, err := netip.ParseAddr(s); err == nil && addr.Zone() == "" {
			return BlockPeer{netip.PrefixFrom(addr, addr.BitLen())}, nil
		}
		prefix, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("%q is neither %s:<label>=<value> nor %s:<label>=<value> nor an address nor a block of addresses such as 192.0.2.0/24", s, podsWord, namespacesWord)
		}
		return BlockPeer{prefix.Masked()}, nil
	}
	label, value, _ := strings.Cut(requirement, "=")
	if problems := slices.Concat(validation.IsQualifiedName(label), validation.IsValidLabelValue(value)); len(problems) > 0 || value == "" {
		return nil, fmt.Errorf("%q: %q is no <label>=<value> %s", s, requirement, strings.Join(problems, "; "))
	}
	if word == podsWord {
		return PodPeer{label, value}, nil
	}
	return NamespacePeer{label, value}, nil
}

// NetworkPolicyPeers returns the peers that the Config allows istiod's pod, and whether it asks for network policies at all.
func (c Config) NetworkPolicyPeers() (Peers, bool) {
	peers, asked := c.NetworkPolicies.(Peers)
	return peers, asked && c.Topology == TopologyHosted
}

// MgmtKinds are the kinds that this installation has on the management side, with all the names that it has there. A role that may not make NetworkPolicies need not allow to watch
// them either.
func (c Config) MgmtKinds() []Kind {
	kinds := MgmtKinds()
	for i, k := range kinds {
		kinds[i].Names = c.mgmtNames(k.GVK.Kind)
	}
	if _, fenced := c.NetworkPolicyPeers(); fenced {
		return kinds
	}
	return slices.DeleteFunc(kinds, func(k Kind) bool { return k.GVK.Kind == "NetworkPolicy" })
}
