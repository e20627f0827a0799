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

// Ports of istiod's pod that clients are allowed to reach. The other ports are closed: plaintext xDS (15010), and
// readiness (8080), which only the kubelet reaches.
//
// istiod's debug pages are on the metrics port (pilot/pkg/bootstrap/server.go, initIstiodAdminServer). There, istiod
// requires the token of a workload.
const (
	metricsPort     = 15014
	webhooksPort    = 15017
	guestServerPort = 6443 // HyperShift's port, if there is no URL with another
)

// peerList is a list of peers and the flag that sets it.
type peerList struct {
	flag     string
	peers    []model.Peer
	optional bool
}

func peerLists(c model.Config, p model.Peers) []peerList {
	strategy, _ := publish.Find(c.Publish.Strategy)
	return []peerList{
		{"guest-api-peers", p.GuestAPI, false},
		{"xds-peers", p.XDS, strategy.IsTunnel()},
		{"metrics-peers", p.Metrics, true},
		{"dns-peers", p.DNS, false},
	}
}

// validatePolicies reports errors in the network policies to add, each with the flag that causes it.
func validatePolicies(c model.Config, add func(ok bool, flag, format string, args ...any)) {
	if c.Topology != model.TopologyHosted {
		return
	}
	add(c.NetworkPolicies != nil, "network-policies", "it is not set: set it to true or false")
	peers, enabled := c.NetworkPolicyPeers()
	if !enabled {
		return
	}
	for _, list := range peerLists(c, peers) {
		add(list.optional || len(list.peers) > 0, list.flag,
			"istiod cannot work without these peers: set at least one, or set --network-policies=false")
	}
}

// networkPolicies returns the policies for istiod's pod, or nothing if they are disabled. No policy is necessary for
// the kubelet's probes (port 8080): they come from the node, and a policy does not block the pod's own node.
func networkPolicies(
	cfg model.Config, plane model.ControlPlane, guest model.GuestObservation, strategy publish.Strategy,
) ([]*unstructured.Unstructured, error) {
	peers, enabled := cfg.NetworkPolicyPeers()
	if !enabled {
		return nil, nil
	}
	serverPort, err := guestAPIPort(guest.API.Server)
	if err != nil {
		return nil, fmt.Errorf("computing istiod's network policy: %w", err)
	}
	xds, metrics := peers.XDS, []any{port("TCP", metricsPort)}
	if strategy.IsTunnel() {
		// Only the sidecar connects to xDS. A policy does not apply to connections of a pod with itself.
		xds, metrics = nil, append(metrics, port("TCP", model.TunnelHealthPort))
	}
	in := slices.Concat(
		allow("from", peers.GuestAPI, port("TCP", webhooksPort)),
		allow("from", xds, port("TCP", publish.XDSPort)),
		allow("from", peers.Metrics, metrics...),
	)
	if strategy.IsDirect() {
		in = append(in, map[string]any{"from": publish.Clients(plane), "ports": []any{port("TCP", publish.XDSPort)}})
	}
	out := slices.Concat(
		allow("to", peers.GuestAPI, port("TCP", serverPort)),
		// OpenShift's DNS pods listen on port 5353, behind a Service on port 53. A policy applies to the ports of pods.
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

// addNetworkPolicies adds the network policies for istiod's pod.
func (p *draft) addNetworkPolicies(strategy publish.Strategy) error {
	policies, err := networkPolicies(p.cfg, p.mgmt.ControlPlane, p.guest, strategy)
	for _, u := range policies {
		err = errors.Join(err, p.addMgmt(&p.plan.Mgmt, u))
	}
	return err
}

// allow returns a rule for these peers, or no rule if there are no peers. In the API, a rule without peers allows all
// peers.
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

// selectorOf returns a peer in the form of the API.
func selectorOf(p model.Peer) map[string]any {
	switch p := p.(type) {
	case model.PodPeer:
		return map[string]any{"podSelector": map[string]any{"matchLabels": map[string]any{p.Label: p.Value}}}
	case model.NamespacePeer:
		return map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{p.Label: p.Value}}}
	case model.BlockPeer:
		return map[string]any{"ipBlock": map[string]any{"cidr": p.Prefix.String()}}
	default: // impossible, because the interface is sealed; the API server would refuse the empty peer
		return map[string]any{}
	}
}

func port(protocol string, number int64) any {
	return map[string]any{"protocol": protocol, "port": number}
}

// guestAPIPort returns the port on which the pods of the guest's API server listen. It is the port of the URL, because
// HyperShift's Service has the same port as its pods.
func guestAPIPort(server string) (int64, error) {
	if server == "" {
		return guestServerPort, nil
	}
	parsed, err := url.Parse(server)
	if err != nil {
		return 0, fmt.Errorf("parsing the URL of the guest's API server: %w", err)
	}
	if parsed.Port() == "" {
		return 443, nil
	}
	number, err := strconv.ParseUint(parsed.Port(), 10, 16)
	if err != nil || number == 0 {
		return 0, fmt.Errorf("the port in the URL %q of the guest's API server is not between 1 and 65535", server)
	}
	return int64(number), nil
}
