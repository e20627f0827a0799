package app

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/hypergate/hypergate/pkg/model"
)

// peerOptions holds the flags for network policies.
type peerOptions struct {
	on                          bool
	guestAPI, xds, metrics, dns []string
}

func (o *peerOptions) addFlags(flags *pflag.FlagSet) {
	usual := model.HyperShiftPeers()
	flags.BoolVar(&o.on, "network-policies", true, "If true, restrict the traffic of istiod's pod with a NetworkPolicy. "+
		"Only for --topology=hosted. "+
		"If false, hypergate does not access NetworkPolicies, so its role does not need that permission, "+
		"and a policy of an earlier run stays.")
	for _, f := range []struct {
		into  *[]string
		name  string
		usual []model.Peer
		usage string
	}{
		{
			&o.guestAPI, "guest-api-peers", usual.GuestAPI, "Peers of the network policy that are the guest's kube-apiserver. " +
				"It calls istiod's webhooks, " +
				"and istiod calls it. Each peer is pods:<label>=<value> (in istiod's namespace), namespaces:<label>=<value>, " +
				"an IP address, or a CIDR block.",
		},
		{
			&o.xds, "xds-peers", usual.XDS, "Peers of the network policy that forward the connections of the guest's gateways to istiod. " +
				"Same format as --guest-api-peers.",
		},
		{
			&o.metrics, "metrics-peers", usual.Metrics, "Peers of the network policy that collect istiod's metrics. " +
				"Same format as --guest-api-peers. " +
				"An empty value means none.",
		},
		{&o.dns, "dns-peers", usual.DNS, "Peers of the network policy that resolve DNS names for istiod's pod. " +
			"Same format as --guest-api-peers."},
	} {
		texts := make([]string, 0, len(f.usual))
		for _, p := range f.usual {
			texts = append(texts, p.String())
		}
		flags.StringSliceVar(f.into, f.name, texts, f.usage)
	}
}

// config returns the network policies of the Config. The returned error joins all invalid flags.
func (o *peerOptions) config() (model.NetworkPolicies, error) {
	if !o.on {
		return model.NoPolicies{}, nil
	}
	var errs []error
	parse := func(flag string, texts []string) []model.Peer {
		var out []model.Peer
		for _, text := range texts {
			p, err := model.ParsePeer(text)
			if err != nil {
				errs = append(errs, fmt.Errorf("--%s: %w", flag, err))
				continue
			}
			out = append(out, p)
		}
		return out
	}
	peers := model.Peers{
		GuestAPI: parse("guest-api-peers", o.guestAPI), XDS: parse("xds-peers", o.xds),
		Metrics: parse("metrics-peers", o.metrics), DNS: parse("dns-peers", o.dns),
	}
	return peers, errors.Join(errs...)
}
