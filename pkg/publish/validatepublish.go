package publish

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hypergate/hypergate/pkg/leakcheck"
	"github.com/hypergate/hypergate/pkg/model"
)

// ValidateFlags checks where istiod is published, or how it is to be.
func ValidateFlags(c model.Config, add func(ok bool, flag, format string, args ...any)) {
	way, at, parent := c.Publish.Strategy, c.Publish.At, c.Publish.Gateway
	by, _ := Find(way)
	if c.Topology == model.TopologyStandalone {
		add(way == model.PublishAddress, "publish", "%q: a standalone cluster's gateways reach istiod by its Service", way)
	}
	if way == model.PublishAddress {
		add(model.IsHost(c.XDS.Host) && c.XDS.Port != 0, "xds-address", "%q is no host:port that the guest's gateways can reach istiod at", c.XDS)
		return
	}
	add(slices.Contains(Strategies(), way), "publish", "%q is none of %v", way, Strategies())
	add(at.Host == "" || model.IsHost(at.Host), "publish-host", "%q is no host name or address", at.Host)
	add(at.Host != "" || !by.host.required, "publish-host", "a %s needs a host name that leads to its Gateway", by.route.gvk.Kind)
	add(!leakcheck.NamesNamespace(c, at.Host), "publish-host", "%q names the management namespace, and every gateway of the guest shows this host: take another", at.Host)
	isAddress := len(validation.IsValidIP(nil, at.Host)) == 0
	add(!isAddress || by.host.address || way == model.PublishAuto, "publish-host", "%q is an address, and a %s is found by name", at.Host, way)
	if by.parent {
		add(model.IsLabel(parent.Namespace) && model.IsHost(parent.Name), "publish-gateway", "\"%s/%s\" is no <namespace>/<name> of a Gateway on the management cluster", parent.Namespace, parent.Name)
		return
	}
	add(parent == model.ParentGateway{}, "publish-gateway", "is for --publish=%s only", model.PublishTLSRoute)
}
