package publish

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hypergate/hypergate/pkg/leakcheck"
	"github.com/hypergate/hypergate/pkg/model"
)

// EndpointState is where istiod is published, as far as that is known: exactly one of the values below. The interface is sealed.
type EndpointState interface{ isEndpointState() }

type (
	// EndpointKnown says that gateways reach it there.
	EndpointKnown struct{ At model.HostPort }
	// EndpointPending says that it is not known yet. Why is for everybody's eyes.
	EndpointPending struct{ Why string }
	// EndpointUnavailable says that somebody of the management side must do something first. Why is for the management side only.
	EndpointUnavailable struct{ Why string }
)

func (EndpointKnown) isEndpointState()       {}
func (EndpointPending) isEndpointState()     {}
func (EndpointUnavailable) isEndpointState() {}

// routerPort is where routers tell connections apart by name. A load balancer has a port for istiod alone.
const routerPort = 443

// StrategyFor is the way in which istiod is published: the one that is asked for, or for WayAuto the one of the guest's API server. An error says what
// stands in the way, in words for the management side.
//
// Where a private link or HyperShift's shared ingress is what the guest's nodes come by, it is always a Route, the control plane operator's. Elsewhere, an
// API server that is published by a Route of HyperShift's own router makes no difference: that router serves Routes that it knows by name, so that
// only the Route that the control plane operator makes can be one of its own; ours is for the management cluster's router.
//
// A load balancer of the cluster on which a guest's nodes are virtual machines is out of their reach, while it answers to this side: HyperShift's policy
// virt-launcher lets them out to some pods of the control plane and not to istiod's (hostedcluster/network_policies.go).
func StrategyFor(c model.Config, plane model.ControlPlane) (model.PublishStrategy, error) {
	switch {
	case c.Topology != model.TopologyHosted:
		return model.PublishAddress, nil
	case c.Publish.Strategy != model.PublishAuto:
		return c.Publish.Strategy, nil
	case !plane.Exists():
		return "", errors.New("--publish=auto follows the HostedControlPlane, and there is none: give --xds-address, or another --publish")
	case slices.Contains([]string{"IBMCloud"}, plane.Platform):
		return "", fmt.Errorf("--publish=auto knows no way on platform %s, which routes to its control planes by itself: publish port %d of Service %s there, and give --xds-address",
			plane.Platform, XDSPort, c.IstiodName())
	}
	server := serviceOf(plane, "APIServer")
	if isLinked(plane) || plane.SharedIngress || server.Strategy == "Route" {
		return model.PublishRoute, nil
	}
	switch server.Strategy {
	case "LoadBalancer":
		if plane.VirtualMachinesInNamespace {
			return "", errors.New("--publish=auto follows the guest's API server, a load balancer, and HyperShift's network policy virt-launcher keeps the guest's nodes, virtual machines of this cluster, from one that leads to istiod: " +
				"give --publish=route with a --publish-host that leads to the management cluster's router, --publish=loadbalancer where that policy is not in force, or --xds-address")
		}
		return model.PublishLoadBalancer, nil
	case "NodePort":
		return model.PublishNodePort, nil
	}
	return "", fmt.Errorf("--publish=auto follows the guest's API server, and how that is published (%q in spec.services of HostedControlPlane %s) is no way that hypergate knows: "+
		"give another --publish, or --xds-address", server.Strategy, plane.Name)
}

// serviceOf returns how a part of the control plane is published; the zero value where nothing is said.
func serviceOf(c model.ControlPlane, name string) model.PublishedService {
	if i := slices.IndexFunc(c.Services, func(s model.PublishedService) bool { return s.Service == name }); i >= 0 {
		return c.Services[i]
	}
	return model.PublishedService{}
}

// isPrivate reports whether the guest's nodes reach the control plane by the cloud's private link only.
func isPrivate(c model.ControlPlane) bool { return c.EndpointAccess == "Private" }

// isLinked reports whether the guest's nodes reach the control plane by a private link. So they do as well where others come in from outside (support/netutil/visibility.go,
// IsPrivateHCP): nothing says whether these nodes get out to a public address, and that this side gets there proves nothing for them.
func isLinked(c model.ControlPlane) bool {
	return isPrivate(c) || c.EndpointAccess == "PublicAndPrivate"
}

// derivedHost returns the host of istiod beside the hosts under which HyperShift publishes other parts of the control plane: below the same domain, whose
// names lead to the same router, named by what the guest calls itself (its infrastructure's ID). Empty where there is nothing to derive it from.
func derivedHost(c model.ControlPlane) string {
	for _, part := range []string{"Ignition", "APIServer"} {
		_, domain, _ := strings.Cut(serviceOf(c, part).Host, ".")
		if s := serviceOf(c, part); s.Strategy == "Route" && c.InfraID != "" && domain != "" {
			return "istiod-" + c.InfraID + "." + domain
		}
	}
	return ""
}

// EndpointOf is where istiod is published.
func EndpointOf(cfg model.Config, hosted model.ManagementObservation) EndpointState {
	way, err := StrategyFor(cfg, hosted.ControlPlane)
	if err != nil {
		return EndpointUnavailable{err.Error()}
	}
	if problem := hosted.Endpoints.Problem; problem != "" {
		return EndpointUnavailable{problem}
	}
	by, known := Find(way)
	if !known {
		return EndpointUnavailable{fmt.Sprintf("there is no publish strategy %q: give one of %v, or --xds-address", way, Strategies())}
	}
	if way == model.PublishAddress {
		return by.at(cfg, hosted) // it is checked with the flags
	}
	return validEndpoint(cfg, hosted, by.at(cfg, hosted))
}

// validEndpoint refuses a place that gateways could not use, or that tells them too much.
func validEndpoint(cfg model.Config, hosted model.ManagementObservation, out EndpointState) EndpointState {
	published, known := out.(EndpointKnown)
	host := published.At.Host
	switch {
	case !known:
		return out
	case !model.IsHost(host):
		return EndpointUnavailable{fmt.Sprintf("%q, under which istiod would be published, is no host name or address: give --publish-host", host)}
	case leakcheck.NamesNamespace(cfg, host) && hosted.Endpoints.ControlPlaneRoute.Exists:
		return EndpointUnavailable{fmt.Sprintf("%q, the host of Route %s, names the management namespace, and every gateway of the guest shows it: let the HostedControlPlane publish Ignition "+
			"under a hostname, from which that of the Route follows, or publish istiod yourself and give --xds-address", host, model.ControlPlaneRoute)}
	case leakcheck.NamesNamespace(cfg, host):
		return EndpointUnavailable{fmt.Sprintf("%q, under which istiod would be published, names the management namespace, and every gateway of the guest shows it: give --publish-host", host)}
	}
	return out
}

func routeEndpoint(cfg model.Config, hosted model.ManagementObservation) EndpointState {
	plane, seen := hosted.ControlPlane, hosted.Endpoints
	switch found := seen.ControlPlaneRoute; {
	case found.Exists && found.Host != "":
		return EndpointKnown{model.HostPort{Host: found.Host, Port: routerPort}}
	case found.Exists:
		return EndpointPending{"a host for the Route by which istiod is published (management side)"}
	}
	if why := refusedRoutes(cfg, plane); why != "" {
		return EndpointUnavailable{why}
	}
	host := routeHost(cfg, plane)
	if seen.Refused.Reason != "" && seen.Refused.Host == host {
		return EndpointUnavailable{fmt.Sprintf("the router refuses Route %s for %s (%s): give another --publish-host", cfg.XDSService(), host, seen.Refused.Reason)}
	}
	if host == "" {
		return EndpointUnavailable{fmt.Sprintf("HostedControlPlane %s names no host from which one for istiod could follow (spec.services: Ignition or APIServer, by Route with a hostname): "+
			"give --publish-host, a name that leads to the management cluster's router", plane.Name)}
	}
	return EndpointKnown{model.HostPort{Host: host, Port: orPort(cfg.Publish.At.Port, routerPort)}}
}

// refusedRoutes is why no Route of ours leads the guest's nodes to istiod, where they come by a router of HyperShift's own: that serves Routes which it knows by
// name. Who asks for a Route and says under which host, knows of another router. A host of HyperShift's own domain leads to HyperShift's.
func refusedRoutes(c model.Config, plane model.ControlPlane) string {
	const unknown = " serves Routes that it knows by name, and it knows none for istiod: HyperShift needs a Route \"" + model.ControlPlaneRoute +
		"\" of the control plane operator, and a case for it in "
	const privateRouter = "the guest's nodes reach their control plane by a private link, behind which HyperShift's own router" + unknown +
		"control-plane-operator/controllers/hostedcontrolplane/v2/router/config.go (see deploy/cpo); "
	const yourself = "or publish istiod yourself and give --xds-address"
	elsewhere := c.Publish.Strategy != model.PublishAuto && c.Publish.At.Host != ""
	switch {
	case isPrivate(plane):
		return privateRouter + yourself
	case isLinked(plane) && !elsewhere:
		return privateRouter + "or, where the nodes reach public addresses as well, give --publish=loadbalancer, or --publish=route with a --publish-host; " + yourself
	case plane.SharedIngress && !elsewhere:
		return "the guest's nodes reach their control plane by HyperShift's shared ingress (ARO HCP), which" + unknown +
			"sharedingress-config-generator/config.go (see deploy/cpo); or give --publish=loadbalancer, or --publish=route with a --publish-host; " + yourself
	}
	return ""
}

// routeHost is the host of our Route.
func routeHost(c model.Config, plane model.ControlPlane) string {
	if c.Publish.At.Host != "" {
		return c.Publish.At.Host
	}
	return derivedHost(plane)
}

func tlsRouteEndpoint(cfg model.Config, hosted model.ManagementObservation) EndpointState {
	if hosted.Endpoints.TLSRouteVersion == "" {
		return EndpointPending{"TLSRoutes on the management side"}
	}
	return EndpointKnown{model.HostPort{Host: cfg.Publish.At.Host, Port: orPort(cfg.Publish.At.Port, routerPort)}}
}

func loadBalancerEndpoint(cfg model.Config, hosted model.ManagementObservation) EndpointState {
	switch {
	case isPrivate(hosted.ControlPlane):
		return EndpointUnavailable{"the guest's nodes reach their control plane by a private link, which no load balancer of ours is behind: publish istiod there yourself and give --xds-address"}
	case hosted.Endpoints.LoadBalancer == "":
		return EndpointPending{"an address for istiod's load balancer (management side)"}
	case cfg.Publish.At.Host != "":
		return EndpointKnown{model.HostPort{Host: cfg.Publish.At.Host, Port: XDSPort}}
	}
	return EndpointKnown{model.HostPort{Host: hosted.Endpoints.LoadBalancer, Port: XDSPort}}
}

func nodePortEndpoint(cfg model.Config, hosted model.ManagementObservation) EndpointState {
	host := cfg.Publish.At.Host
	for _, part := range []string{"APIServer", "Ignition", "Konnectivity"} {
		if s := serviceOf(hosted.ControlPlane, part); host == "" && s.Strategy == "NodePort" {
			host = s.Host
		}
	}
	switch {
	case host == "":
		return EndpointUnavailable{"nobody says at which address the management cluster's nodes are reached (spec.services of the HostedControlPlane: nodePort.address): give --publish-host"}
	case hosted.Endpoints.NodePort == 0:
		return EndpointPending{"a port for istiod on the nodes (management side)"}
	}
	return EndpointKnown{model.HostPort{Host: host, Port: hosted.Endpoints.NodePort}}
}

func orPort(given, otherwise uint16) uint16 {
	if given != 0 {
		return given
	}
	return otherwise
}
