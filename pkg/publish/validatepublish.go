package publish

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hypergate/hypergate/pkg/leakcheck"
	"github.com/hypergate/hypergate/pkg/model"
)

// ValidateFlags checks the flags that determine the endpoint of istiod and the publish strategy. It calls add for each
// rule, with ok false if the flag breaks the rule.
func ValidateFlags(c model.Config, add func(ok bool, flag, format string, args ...any)) {
	name, at, parent := c.Publish.Strategy, c.Publish.At, c.Publish.Gateway
	strategy, _ := Find(name)
	if c.Topology == model.TopologyStandalone {
		add(name == model.PublishAddress, "publish",
			"%q: a standalone cluster's gateways reach istiod at its Service: remove the flag", name)
	}
	if name == model.PublishAddress {
		add(model.IsHost(c.XDS.Host) && c.XDS.Port != 0, "xds-address",
			"%q is not a host:port at which the guest's gateways can reach istiod", c.XDS)
		return
	}
	add(slices.Contains(Strategies(), name), "publish", "%q is not one of %v", name, Strategies())
	add(at.Host == "" || model.IsHost(at.Host), "publish-host", "%q is not a host name or address", at.Host)
	add(at.Host != "" || !strategy.host.required, "publish-host",
		"a %s requires a host name that leads to its Gateway", strategy.route.gvk.Kind)
	add(at.Host == "" || !strategy.host.unused, "publish-host", "is not used with --publish=%s: remove it", name)
	add(c.Publish.RelayImage != "" || !strategy.tunnel, "relay-image",
		"is required with --publish=%s: hypergate's image, from a registry that the guest's nodes can pull from", name)
	add(!leakcheck.NamesNamespace(c, at.Host), "publish-host",
		"%q contains the name of the management namespace, and every gateway of the guest would show this host: set another host", at.Host)
	isAddress := len(validation.IsValidIP(nil, at.Host)) == 0
	add(!isAddress || strategy.host.address || name == model.PublishAuto, "publish-host",
		"%q is an address, but --publish=%s requires a host name", at.Host, name)
	if strategy.parent {
		add(model.IsLabel(parent.Namespace) && model.IsHost(parent.Name), "publish-gateway",
			"\"%s/%s\" is not the <namespace>/<name> of a Gateway on the management cluster", parent.Namespace, parent.Name)
		return
	}
	add(parent == model.ParentGateway{}, "publish-gateway", "is allowed only with --publish=%s", model.PublishTLSRoute)
}
