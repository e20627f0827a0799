package app

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/hypergate/hypergate/pkg/desired"
)

// peerOptions are the flags about network policies.
type peerOptions struct {
	on                          bool
	guestAPI, xds, metrics, dns []string
}

func (o *peerOptions) addFlags(flags *pflag.FlagSet) {
	usual := desired.HyperShiftPeers()
	flags.BoolVar(&o.on, "network-policies", true, "hosted: fence istiod's pod in. With false, the kind is not touched at all (for a role that may not), and a policy of an earlier run stays")
	for _, f := range []struct {
		into  *[]string
		name  string
		usual []desired.Peer
		usage string
	}{
		{&o.guestAPI, "guest-api-peers", usual.GuestAPI, "who the guest's kube-apiserver is, in the network policy of istiod's pod: it calls the webhook, and istiod calls it. " +
			"Each is pods:<label>=<value> (of istiod's namespace), namespaces:<label>=<value> or an address or a block of addresses (CIDR)"},
		{&o.xds, "xds-peers", usual.XDS, "who passes the guest's gateways on to istiod, in the network policy; the same forms"},
		{&o.metrics, "metrics-peers", usual.Metrics, "who collects istiod's metrics, in the network policy; the same forms; an empty value means nobody"},
		{&o.dns, "dns-peers", usual.DNS, "who resolves names for istiod's pod, in the network policy; the same forms"},
	} {
		texts := make([]string, 0, len(f.usual))
		for _, p := range f.usual {
			texts = append(texts, p.String())
		}
		flags.StringSliceVar(f.into, f.name, texts, f.usage)
	}
}

// config turns the flags into what is planned. The error joins all that is wrong.
func (o *peerOptions) config() (desired.NetworkPolicies, error) {
	if !o.on {
		return desired.NoPolicies{}, nil
	}
	var errs []error
	parse := func(flag string, texts []string) []desired.Peer {
		var out []desired.Peer
		for _, text := range texts {
			p, err := desired.ParsePeer(text)
			if err != nil {
				errs = append(errs, fmt.Errorf("--%s: %w", flag, err))
				continue
			}
			out = append(out, p)
		}
		return out
	}
	peers := desired.Peers{
		GuestAPI: parse("guest-api-peers", o.guestAPI), XDS: parse("xds-peers", o.xds),
		Metrics: parse("metrics-peers", o.metrics), DNS: parse("dns-peers", o.dns),
	}
	return peers, errors.Join(errs...)
}
