package desired

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/publish"
)

// Ports of istiod's pod that others may reach. The rest nobody may: plaintext xDS (15010), and readiness (8080) but for the kubelet. istiod's debug pages
// are on the metrics port (pilot/pkg/bootstrap/server.go, initIstiodAdminServer), where istiod asks for a workload's token.
const (
	metricsPort     = 15014
	webhooksPort    = 15017
	guestServerPort = 6443 // HyperShift's, where no URL says another
)

// use is a list of peers and the flag that sets it.
type use struct {
	flag     string
	peers    []model.Peer
	optional bool
}

func usesOf(p model.Peers) []use {
	return []use{
		{"guest-api-peers", p.GuestAPI, false}, {"xds-peers", p.XDS, false}, {"metrics-peers", p.Metrics, true}, {"dns-peers", p.DNS, false},
	}
}

// validatePolicies says what is wrong, to add, each with the flag that sets it.
func validatePolicies(c model.Config, add func(ok bool, flag, format string, args ...any)) {
	if c.Topology != model.TopologyHosted {
		return
	}
	add(c.NetworkPolicies != nil, "network-policies", "it is not said whether to make network policies")
	peers, fenced := c.NetworkPolicyPeers()
	if !fenced {
		return
	}
	for _, use := range usesOf(peers) {
		add(use.optional || len(use.peers) > 0, use.flag, "istiod cannot work without any; name some, or set --network-policies=false")
	}
}

// networkPolicies are the policies around istiod's pod. The kubelet's probes, on port 8080, come from the node, which a policy does not keep out.
func networkPolicies(cfg model.Config, plane model.ControlPlane, guest model.GuestObservation, by publish.Strategy) ([]*unstructured.Unstructured, error) {
	peers, fenced := cfg.NetworkPolicyPeers()
	if !fenced {
		return nil, nil
	}
	server, err := portOf(guest.API.Server)
	if err != nil {
		return nil, fmt.Errorf("making istiod's network policy: %w", err)
	}
	in := slices.Concat(
		allow("from", peers.GuestAPI, port("TCP", webhooksPort)),
		allow("from", peers.XDS, port("TCP", publish.XDSPort)),
		allow("from", peers.Metrics, port("TCP", metricsPort)),
	)
	if by.IsDirect() {
		in = append(in, map[string]any{"from": publish.Clients(plane), "ports": []any{port("TCP", publish.XDSPort)}})
	}
	out := slices.Concat(
		allow("to", peers.GuestAPI, port("TCP", server)),
		// OpenShift's DNS pods listen on 5353, behind a Service on 53; a policy is about the pods.
		allow("to", peers.DNS, port("UDP", 53), port("TCP", 53), port("UDP", 5353), port("TCP", 5353)),
	)
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
		"spec": map[string]any{
			"podSelector": map[string]any{"matchLabels": cfg.IstiodPods()},
			"policyTypes": []any{"Ingress", "Egress"}, "ingress": in, "egress": out,
		},
	}}
	u.SetNamespace(cfg.MgmtNamespace)
	u.SetName(cfg.IstiodName())
	return []*unstructured.Unstructured{u}, nil
}

// addNetworkPolicies adds what fences istiod's pod in.
func (p *draft) addNetworkPolicies(by publish.Strategy) error {
	policies, err := networkPolicies(p.cfg, p.mgmt.ControlPlane, p.guest, by)
	for _, u := range policies {
		err = errors.Join(err, p.addMgmt(&p.plan.Mgmt, u))
	}
	return err
}

// allow is a rule for some peers, or none at all: in the API, a rule without peers is one for everybody.
func allow(direction string, peers []model.Peer, ports ...any) []any {
	if len(peers) == 0 {
		return nil
	}
	list := make([]any, 0, len(peers))
	for _, p := range peers {
		list = append(list, selectorOf(p))
	}
	return []any{map[string]any{direction: list, "ports": ports}}
}

// selectorOf returns a peer as the API has it.
func selectorOf(p model.Peer) map[string]any {
	switch p := p.(type) {
	case model.PodPeer:
		return map[string]any{"podSelector": map[string]any{"matchLabels": map[string]any{p.Label: p.Value}}}
	case model.NamespacePeer:
		return map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{p.Label: p.Value}}}
	case model.BlockPeer:
		return map[string]any{"ipBlock": map[string]any{"cidr": p.Prefix.String()}}
	default: // the interface is sealed; an empty peer of a policy is invalid, and the API server refuses it
		return map[string]any{}
	}
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
