package desired

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Ports of istiod's pod that others may reach. The rest nobody may: plaintext xDS (15010), and readiness (8080) but for the kubelet. istiod's debug pages
// are on the metrics port (pilot/pkg/bootstrap/server.go, initIstiodAdminServer), where istiod asks for a workload's token.
const (
	xdsPort         = 15012
	metricsPort     = 15014
	webhooksPort    = 15017
	guestServerPort = 6443 // HyperShift's, where no URL says another
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
	// selector is the peer in the API.
	selector() map[string]any
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

func (p PodPeer) selector() map[string]any {
	return map[string]any{"podSelector": map[string]any{"matchLabels": map[string]any{p.Label: p.Value}}}
}

func (p NamespacePeer) selector() map[string]any {
	return map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{p.Label: p.Value}}}
}

func (p BlockPeer) selector() map[string]any {
	return map[string]any{"ipBlock": map[string]any{"cidr": p.Prefix.String()}}
}

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

// hasNetworkPolicies says whether the Config asks for policies.
func (c Config) hasNetworkPolicies() (Peers, bool) {
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
	if _, fenced := c.hasNetworkPolicies(); fenced {
		return kinds
	}
	return slices.DeleteFunc(kinds, func(k Kind) bool { return k.GVK.Kind == "NetworkPolicy" })
}

// use is a list of peers and the flag that sets it.
type use struct {
	flag     string
	peers    []Peer
	optional bool
}

func (p Peers) uses() []use {
	return []use{
		{"guest-api-peers", p.GuestAPI, false}, {"xds-peers", p.XDS, false}, {"metrics-peers", p.Metrics, true}, {"dns-peers", p.DNS, false},
	}
}

// validatePolicies says what is wrong, to add, each with the flag that sets it.
func (c Config) validatePolicies(add func(ok bool, flag, format string, args ...any)) {
	if c.Topology != TopologyHosted {
		return
	}
	add(c.NetworkPolicies != nil, "network-policies", "it is not said whether to make network policies")
	peers, fenced := c.hasNetworkPolicies()
	if !fenced {
		return
	}
	for _, use := range peers.uses() {
		add(use.optional || len(use.peers) > 0, use.flag, "istiod cannot work without any; name some, or set --network-policies=false")
	}
}

// networkPolicies are the policies around istiod's pod. The kubelet's probes, on port 8080, come from the node, which a policy does not keep out.
func networkPolicies(cfg Config, plane ControlPlane, guest GuestObservation, by strategy) ([]*unstructured.Unstructured, error) {
	peers, fenced := cfg.hasNetworkPolicies()
	if !fenced {
		return nil, nil
	}
	server, err := portOf(guest.API.Server)
	if err != nil {
		return nil, fmt.Errorf("making istiod's network policy: %w", err)
	}
	in := slices.Concat(
		allow("from", peers.GuestAPI, port("TCP", webhooksPort)),
		allow("from", peers.XDS, port("TCP", xdsPort)),
		allow("from", peers.Metrics, port("TCP", metricsPort)),
	)
	if by.direct {
		in = append(in, map[string]any{"from": xdsClients(plane), "ports": []any{port("TCP", xdsPort)}})
	}
	out := slices.Concat(
		allow("to", peers.GuestAPI, port("TCP", server)),
		// OpenShift's DNS pods listen on 5353, behind a Service on 53; a policy is about the pods.
		allow("to", peers.DNS, port("UDP", 53), port("TCP", 53), port("UDP", 5353), port("TCP", 5353)),
	)
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
		"spec": map[string]any{
			"podSelector": map[string]any{"matchLabels": istiodPods(cfg)},
			"policyTypes": []any{"Ingress", "Egress"}, "ingress": in, "egress": out,
		},
	}}
	u.SetNamespace(cfg.MgmtNamespace)
	u.SetName(cfg.IstiodName())
	return []*unstructured.Unstructured{u}, nil
}

// addNetworkPolicies adds what fences istiod's pod in.
func (p *draft) addNetworkPolicies(by strategy) error {
	policies, err := networkPolicies(p.cfg, p.hosted.ControlPlane, p.guest, by)
	for _, u := range policies {
		err = errors.Join(err, p.addMgmt(&p.plan.Mgmt, u))
	}
	return err
}

// allow is a rule for some peers, or none at all: in the API, a rule without peers is one for everybody.
func allow(direction string, peers []Peer, ports ...any) []any {
	if len(peers) == 0 {
		return nil
	}
	list := make([]any, 0, len(peers))
	for _, p := range peers {
		list = append(list, p.selector())
	}
	return []any{map[string]any{direction: list, "ports": ports}}
}

func port(protocol string, number int64) any {
	return map[string]any{"protocol": protocol, "port": number}
}

// portOf is the port of the guest's API server as its pods have it: HyperShift's Service gives it no other number.
func portOf(server string) (int64, error) {
	if server == "" {
		return guestServerPort, nil
	}
	parsed, err := url.Parse(server)
	if err != nil {
		return 0, fmt.Errorf("the guest's API server: %w", err)
	}
	if parsed.Port() == "" {
		return 443, nil
	}
	number, err := strconv.ParseUint(parsed.Port(), 10, 16)
	if err != nil || number == 0 {
		return 0, fmt.Errorf("the guest's API server %q has no port between 1 and 65535", server)
	}
	return int64(number), nil
}
