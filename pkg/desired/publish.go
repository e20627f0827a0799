package desired

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// PublishStrategy is a way to publish istiod's xDS to the guest's nodes.
type PublishStrategy string

const (
	// PublishAddress: somebody else publishes istiod, and says where.
	PublishAddress PublishStrategy = ""
	// PublishAuto follows the way in which the guest's API server is published, or the one by which its nodes come.
	PublishAuto PublishStrategy = "auto"
	// PublishRoute is a passthrough Route of OpenShift.
	PublishRoute PublishStrategy = "route"
	// PublishTLSRoute is the Gateway API's, on the management cluster.
	PublishTLSRoute PublishStrategy = "tlsroute"
	// PublishLoadBalancer is a Service of this type.
	PublishLoadBalancer PublishStrategy = "loadbalancer"
	// PublishNodePort is a port of the management cluster's nodes.
	PublishNodePort PublishStrategy = "nodeport"
)

// Publish is how istiod's xDS gets to the guest's nodes. The zero value: somebody else publishes it, at Config.XDS.
type Publish struct {
	Strategy PublishStrategy
	// At is the host, and the port, under which istiod is published, as far as they are given: the host of a Route, the name that external-dns gives a
	// load balancer, the address of a node and the port there. What is not given follows from the HostedControlPlane, or from what the cluster hands out.
	At HostPort
	// Gateway is the Gateway that a TLSRoute is for.
	Gateway ParentGateway
}

// ParentGateway is a Gateway of the management cluster, and a listener of it; an empty Listener means any that fits.
type ParentGateway struct{ Namespace, Name, Listener string }

// XDSService is the name of the Service that publishes istiod's xDS. It is no part of a webhook's host: HyperShift would delete that webhook.
func (c Config) XDSService() string { return "xds-" + c.Revision }

// ControlPlaneRoute is the name of the Route by which HyperShift's control plane operator publishes istiod, once it knows it. Such a Route is used, and
// not touched: its host, and through which router it is reached, are HyperShift's to say.
const ControlPlaneRoute = "istiod"

// ObservedEndpoints is what the management side shows of the ways to istiod.
type ObservedEndpoints struct {
	// NodePort and LoadBalancer are what the cluster handed out to Service Config.XDSService; 0 and empty before.
	NodePort     uint16
	LoadBalancer string
	// ControlPlaneRoute is the control plane operator's Route, Refused what routers say of ours.
	ControlPlaneRoute FoundRoute
	Refused           RefusedRoute
	// Problem is why the way cannot be gone at all, in words for the management side; empty when it can.
	Problem string
	// TLSRouteVersion is the version of TLSRoutes that the cluster serves, where they are the way.
	TLSRouteVersion string
}

// RefusedRoute is a Route of ours that no router serves: the host that it has, and the reason in its status. The zero value: there is none.
type RefusedRoute struct{ Host, Reason string }

// FoundRoute is a Route that somebody else made; the zero value: there is none.
type FoundRoute struct {
	Exists bool
	// Host is where it is served; empty as long as nobody says.
	Host string
}

// EndpointState is where istiod is published, as far as that is known: exactly one of the values below. The interface is sealed.
type EndpointState interface{ isEndpointState() }

type (
	// EndpointKnown says that gateways reach it there.
	EndpointKnown struct{ At HostPort }
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
func (c Config) StrategyFor(plane ControlPlane) (PublishStrategy, error) {
	switch {
	case c.Topology != TopologyHosted:
		return PublishAddress, nil
	case c.Publish.Strategy != PublishAuto:
		return c.Publish.Strategy, nil
	case !plane.Exists():
		return "", errors.New("--publish=auto follows the HostedControlPlane, and there is none: give --xds-address, or another --publish")
	case slices.Contains([]string{"IBMCloud"}, plane.Platform):
		return "", fmt.Errorf("--publish=auto knows no way on platform %s, which routes to its control planes by itself: publish port %d of Service %s there, and give --xds-address",
			plane.Platform, xdsPort, c.IstiodName())
	}
	server := plane.service("APIServer")
	if plane.linked() || plane.SharedIngress || server.Strategy == "Route" {
		return PublishRoute, nil
	}
	switch server.Strategy {
	case "LoadBalancer":
		if plane.VirtualMachinesInNamespace {
			return "", errors.New("--publish=auto follows the guest's API server, a load balancer, and HyperShift's network policy virt-launcher keeps the guest's nodes, virtual machines of this cluster, from one that leads to istiod: " +
				"give --publish=route with a --publish-host that leads to the management cluster's router, --publish=loadbalancer where that policy is not in force, or --xds-address")
		}
		return PublishLoadBalancer, nil
	case "NodePort":
		return PublishNodePort, nil
	}
	return "", fmt.Errorf("--publish=auto follows the guest's API server, and how that is published (%q in spec.services of HostedControlPlane %s) is no way that hypergate knows: "+
		"give another --publish, or --xds-address", server.Strategy, plane.Name)
}

// service is how a part of the control plane is published; the zero value where nothing is said.
func (c ControlPlane) service(name string) PublishedService {
	if i := slices.IndexFunc(c.Services, func(s PublishedService) bool { return s.Service == name }); i >= 0 {
		return c.Services[i]
	}
	return PublishedService{}
}

// private says that the guest's nodes reach the control plane by the cloud's private link only.
func (c ControlPlane) private() bool { return c.EndpointAccess == "Private" }

// linked says that the guest's nodes reach the control plane by a private link. So they do as well where others come in from outside (support/netutil/visibility.go,
// IsPrivateHCP): nothing says whether these nodes get out to a public address, and that this side gets there proves nothing for them.
func (c ControlPlane) linked() bool { return c.private() || c.EndpointAccess == "PublicAndPrivate" }

// derivedHost is the host of istiod beside the hosts under which HyperShift publishes other parts of the control plane: below the same domain, whose
// names lead to the same router, named by what the guest calls itself (its infrastructure's ID). Empty where there is nothing to derive it from.
func (c ControlPlane) derivedHost() string {
	for _, part := range []string{"Ignition", "APIServer"} {
		_, domain, _ := strings.Cut(c.service(part).Host, ".")
		if s := c.service(part); s.Strategy == "Route" && c.InfraID != "" && domain != "" {
			return "istiod-" + c.InfraID + "." + domain
		}
	}
	return ""
}

// endpointState is where istiod is published.
func endpointState(cfg Config, hosted ManagementObservation) EndpointState {
	way, err := cfg.StrategyFor(hosted.ControlPlane)
	if err != nil {
		return EndpointUnavailable{err.Error()}
	}
	if problem := hosted.Endpoints.Problem; problem != "" {
		return EndpointUnavailable{problem}
	}
	by, known := strategyOf(way)
	if !known {
		return EndpointUnavailable{fmt.Sprintf("there is no publish strategy %q: give one of %v, or --xds-address", way, PublishStrategies())}
	}
	if way == PublishAddress {
		return by.at(cfg, hosted) // it is checked with the flags
	}
	return validEndpoint(cfg, hosted, by.at(cfg, hosted))
}

// validEndpoint refuses a place that gateways could not use, or that tells them too much.
func validEndpoint(cfg Config, hosted ManagementObservation, out EndpointState) EndpointState {
	published, known := out.(EndpointKnown)
	host := published.At.Host
	switch {
	case !known:
		return out
	case !isHost(host):
		return EndpointUnavailable{fmt.Sprintf("%q, under which istiod would be published, is no host name or address: give --publish-host", host)}
	case namesNamespace(cfg, host) && hosted.Endpoints.ControlPlaneRoute.Exists:
		return EndpointUnavailable{fmt.Sprintf("%q, the host of Route %s, names the management namespace, and every gateway of the guest shows it: let the HostedControlPlane publish Ignition "+
			"under a hostname, from which that of the Route follows, or publish istiod yourself and give --xds-address", host, ControlPlaneRoute)}
	case namesNamespace(cfg, host):
		return EndpointUnavailable{fmt.Sprintf("%q, under which istiod would be published, names the management namespace, and every gateway of the guest shows it: give --publish-host", host)}
	}
	return out
}

func routeEndpoint(cfg Config, hosted ManagementObservation) EndpointState {
	plane, seen := hosted.ControlPlane, hosted.Endpoints
	switch found := seen.ControlPlaneRoute; {
	case found.Exists && found.Host != "":
		return EndpointKnown{HostPort{found.Host, routerPort}}
	case found.Exists:
		return EndpointPending{"a host for the Route by which istiod is published (management side)"}
	}
	if why := cfg.refusedRoutes(plane); why != "" {
		return EndpointUnavailable{why}
	}
	host := cfg.routeHost(plane)
	if seen.Refused.Reason != "" && seen.Refused.Host == host {
		return EndpointUnavailable{fmt.Sprintf("the router refuses Route %s for %s (%s): give another --publish-host", cfg.XDSService(), host, seen.Refused.Reason)}
	}
	if host == "" {
		return EndpointUnavailable{fmt.Sprintf("HostedControlPlane %s names no host from which one for istiod could follow (spec.services: Ignition or APIServer, by Route with a hostname): "+
			"give --publish-host, a name that leads to the management cluster's router", plane.Name)}
	}
	return EndpointKnown{HostPort{host, orPort(cfg.Publish.At.Port, routerPort)}}
}

// refusedRoutes is why no Route of ours leads the guest's nodes to istiod, where they come by a router of HyperShift's own: that serves Routes which it knows by
// name. Who asks for a Route and says under which host, knows of another router. A host of HyperShift's own domain leads to HyperShift's.
func (c Config) refusedRoutes(plane ControlPlane) string {
	const unknown = " serves Routes that it knows by name, and it knows none for istiod: HyperShift needs a Route \"" + ControlPlaneRoute +
		"\" of the control plane operator, and a case for it in "
	const privateRouter = "the guest's nodes reach their control plane by a private link, behind which HyperShift's own router" + unknown +
		"control-plane-operator/controllers/hostedcontrolplane/v2/router/config.go (see deploy/cpo); "
	const yourself = "or publish istiod yourself and give --xds-address"
	elsewhere := c.Publish.Strategy != PublishAuto && c.Publish.At.Host != ""
	switch {
	case plane.private():
		return privateRouter + yourself
	case plane.linked() && !elsewhere:
		return privateRouter + "or, where the nodes reach public addresses as well, give --publish=loadbalancer, or --publish=route with a --publish-host; " + yourself
	case plane.SharedIngress && !elsewhere:
		return "the guest's nodes reach their control plane by HyperShift's shared ingress (ARO HCP), which" + unknown +
			"sharedingress-config-generator/config.go (see deploy/cpo); or give --publish=loadbalancer, or --publish=route with a --publish-host; " + yourself
	}
	return ""
}

// routeHost is the host of our Route.
func (c Config) routeHost(plane ControlPlane) string {
	if c.Publish.At.Host != "" {
		return c.Publish.At.Host
	}
	return plane.derivedHost()
}

func tlsRouteEndpoint(cfg Config, hosted ManagementObservation) EndpointState {
	if hosted.Endpoints.TLSRouteVersion == "" {
		return EndpointPending{"TLSRoutes on the management side"}
	}
	return EndpointKnown{HostPort{cfg.Publish.At.Host, orPort(cfg.Publish.At.Port, routerPort)}}
}

func loadBalancerEndpoint(cfg Config, hosted ManagementObservation) EndpointState {
	switch {
	case hosted.ControlPlane.private():
		return EndpointUnavailable{"the guest's nodes reach their control plane by a private link, which no load balancer of ours is behind: publish istiod there yourself and give --xds-address"}
	case hosted.Endpoints.LoadBalancer == "":
		return EndpointPending{"an address for istiod's load balancer (management side)"}
	case cfg.Publish.At.Host != "":
		return EndpointKnown{HostPort{cfg.Publish.At.Host, xdsPort}}
	}
	return EndpointKnown{HostPort{hosted.Endpoints.LoadBalancer, xdsPort}}
}

func nodePortEndpoint(cfg Config, hosted ManagementObservation) EndpointState {
	host := cfg.Publish.At.Host
	for _, part := range []string{"APIServer", "Ignition", "Konnectivity"} {
		if s := hosted.ControlPlane.service(part); host == "" && s.Strategy == "NodePort" {
			host = s.Host
		}
	}
	switch {
	case host == "":
		return EndpointUnavailable{"nobody says at which address the management cluster's nodes are reached (spec.services of the HostedControlPlane: nodePort.address): give --publish-host"}
	case hosted.Endpoints.NodePort == 0:
		return EndpointPending{"a port for istiod on the nodes (management side)"}
	}
	return EndpointKnown{HostPort{host, hosted.Endpoints.NodePort}}
}

func orPort(given, otherwise uint16) uint16 {
	if given != 0 {
		return given
	}
	return otherwise
}

// namesNamespace says that a host gives the management namespace away.
func namesNamespace(cfg Config, host string) bool {
	return cfg.Topology == TopologyHosted && len(cfg.MgmtNamespace) >= shortest && containsWord(host, cfg.MgmtNamespace) && !knownToGuest(cfg.MgmtNamespace, cfg, GuestObservation{})
}
