package desired

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Way is a way to publish istiod's xDS to the guest's nodes.
type Way string

const (
	// WayAddress: somebody else publishes istiod, and says where.
	WayAddress Way = ""
	// WayAuto follows the way in which the guest's API server is published, or the one by which its nodes come.
	WayAuto Way = "auto"
	// WayRoute is a passthrough Route of OpenShift.
	WayRoute Way = "route"
	// WayTLSRoute is the Gateway API's, on the management cluster.
	WayTLSRoute Way = "tlsroute"
	// WayLoadBalancer is a Service of this type.
	WayLoadBalancer Way = "loadbalancer"
	// WayNodePort is a port of the management cluster's nodes.
	WayNodePort Way = "nodeport"
)

// Publish is how istiod's xDS gets to the guest's nodes. The zero value: somebody else publishes it, at Config.XDS.
type Publish struct {
	Way Way
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

// Exposure is what the management side shows of the ways to istiod.
type Exposure struct {
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

// Publication is where istiod is published, as far as that is known: exactly one of the values below. The interface is sealed.
type Publication interface{ isPublication() }

type (
	// Published says that gateways reach it there.
	Published struct{ At HostPort }
	// Awaited says that it is not known yet. Why is for everybody's eyes.
	Awaited struct{ Why string }
	// Impossible says that somebody of the management side must do something first. Why is for the management side only.
	Impossible struct{ Why string }
)

func (Published) isPublication()  {}
func (Awaited) isPublication()    {}
func (Impossible) isPublication() {}

// routerPort is where routers tell connections apart by name. A load balancer has a port for istiod alone.
const routerPort = 443

// PublishingWay is the way in which istiod is published: the one that is asked for, or for WayAuto the one of the guest's API server. An error says what
// stands in the way, in words for the management side.
//
// Where a private link or HyperShift's shared ingress is what the guest's nodes come by, it is always a Route, the control plane operator's. Elsewhere, an
// API server that is published by a Route of HyperShift's own router makes no difference: that router serves Routes that it knows by name, so that
// only the Route that the control plane operator makes can be one of its own; ours is for the management cluster's router.
//
// A load balancer of the cluster on which a guest's nodes are virtual machines is out of their reach, while it answers to this side: HyperShift's policy
// virt-launcher lets them out to some pods of the control plane and not to istiod's (hostedcluster/network_policies.go).
func (c Config) PublishingWay(plane ControlPlane) (Way, error) {
	switch {
	case c.Topology != TopologyHosted:
		return WayAddress, nil
	case c.Publish.Way != WayAuto:
		return c.Publish.Way, nil
	case !plane.Exists():
		return "", errors.New("--publish=auto follows the HostedControlPlane, and there is none: give --xds-address, or another --publish")
	case slices.Contains([]string{"IBMCloud"}, plane.Platform):
		return "", fmt.Errorf("--publish=auto knows no way on platform %s, which routes to its control planes by itself: publish port %d of Service %s there, and give --xds-address",
			plane.Platform, xdsPort, c.IstiodName())
	}
	server := plane.service("APIServer")
	if plane.linked() || plane.SharedIngress || server.Strategy == "Route" {
		return WayRoute, nil
	}
	switch server.Strategy {
	case "LoadBalancer":
		if plane.VMsBeside {
			return "", errors.New("--publish=auto follows the guest's API server, a load balancer, and HyperShift's network policy virt-launcher keeps the guest's nodes, virtual machines of this cluster, from one that leads to istiod: " +
				"give --publish=route with a --publish-host that leads to the management cluster's router, --publish=loadbalancer where that policy is not in force, or --xds-address")
		}
		return WayLoadBalancer, nil
	case "NodePort":
		return WayNodePort, nil
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

// publication is where istiod is published.
func publication(cfg Config, hosted Hosted) Publication {
	way, err := cfg.PublishingWay(hosted.ControlPlane)
	if err != nil {
		return Impossible{err.Error()}
	}
	if problem := hosted.Exposure.Problem; problem != "" {
		return Impossible{problem}
	}
	by, known := strategyOf(way)
	if !known {
		return Impossible{fmt.Sprintf("there is no publish strategy %q: give one of %v, or --xds-address", way, PublishWays())}
	}
	if way == WayAddress {
		return by.at(cfg, hosted) // it is checked with the flags
	}
	return checked(cfg, hosted, by.at(cfg, hosted))
}

// checked refuses a place that gateways could not use, or that tells them too much.
func checked(cfg Config, hosted Hosted, out Publication) Publication {
	published, known := out.(Published)
	host := published.At.Host
	switch {
	case !known:
		return out
	case !isHost(host):
		return Impossible{fmt.Sprintf("%q, under which istiod would be published, is no host name or address: give --publish-host", host)}
	case namesNamespace(cfg, host) && hosted.Exposure.ControlPlaneRoute.Exists:
		return Impossible{fmt.Sprintf("%q, the host of Route %s, names the management namespace, and every gateway of the guest shows it: let the HostedControlPlane publish Ignition "+
			"under a hostname, from which that of the Route follows, or publish istiod yourself and give --xds-address", host, ControlPlaneRoute)}
	case namesNamespace(cfg, host):
		return Impossible{fmt.Sprintf("%q, under which istiod would be published, names the management namespace, and every gateway of the guest shows it: give --publish-host", host)}
	}
	return out
}

func routePublication(cfg Config, hosted Hosted) Publication {
	plane, seen := hosted.ControlPlane, hosted.Exposure
	switch found := seen.ControlPlaneRoute; {
	case found.Exists && found.Host != "":
		return Published{HostPort{found.Host, routerPort}}
	case found.Exists:
		return Awaited{"a host for the Route by which istiod is published (management side)"}
	}
	if why := cfg.notByOurs(plane); why != "" {
		return Impossible{why}
	}
	host := cfg.routeHost(plane)
	if seen.Refused.Reason != "" && seen.Refused.Host == host {
		return Impossible{fmt.Sprintf("the router refuses Route %s for %s (%s): give another --publish-host", cfg.XDSService(), host, seen.Refused.Reason)}
	}
	if host == "" {
		return Impossible{fmt.Sprintf("HostedControlPlane %s names no host from which one for istiod could follow (spec.services: Ignition or APIServer, by Route with a hostname): "+
			"give --publish-host, a name that leads to the management cluster's router", plane.Name)}
	}
	return Published{HostPort{host, orPort(cfg.Publish.At.Port, routerPort)}}
}

// notByOurs is why no Route of ours leads the guest's nodes to istiod, where they come by a router of HyperShift's own: that serves Routes which it knows by
// name. Who asks for a Route and says under which host, knows of another router. A host of HyperShift's own domain leads to HyperShift's.
func (c Config) notByOurs(plane ControlPlane) string {
	const unknown = " serves Routes that it knows by name, and it knows none for istiod: HyperShift needs a Route \"" + ControlPlaneRoute +
		"\" of the control plane operator, and a case for it in "
	const privateRouter = "the guest's nodes reach their control plane by a private link, behind which HyperShift's own router" + unknown +
		"control-plane-operator/controllers/hostedcontrolplane/v2/router/config.go (see deploy/cpo); "
	const yourself = "or publish istiod yourself and give --xds-address"
	elsewhere := c.Publish.Way != WayAuto && c.Publish.At.Host != ""
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

func tlsRoutePublication(cfg Config, hosted Hosted) Publication {
	if hosted.Exposure.TLSRouteVersion == "" {
		return Awaited{"TLSRoutes on the management side"}
	}
	return Published{HostPort{cfg.Publish.At.Host, orPort(cfg.Publish.At.Port, routerPort)}}
}

func loadBalancerPublication(cfg Config, hosted Hosted) Publication {
	switch {
	case hosted.ControlPlane.private():
		return Impossible{"the guest's nodes reach their control plane by a private link, which no load balancer of ours is behind: publish istiod there yourself and give --xds-address"}
	case hosted.Exposure.LoadBalancer == "":
		return Awaited{"an address for istiod's load balancer (management side)"}
	case cfg.Publish.At.Host != "":
		return Published{HostPort{cfg.Publish.At.Host, xdsPort}}
	}
	return Published{HostPort{hosted.Exposure.LoadBalancer, xdsPort}}
}

func nodePortPublication(cfg Config, hosted Hosted) Publication {
	host := cfg.Publish.At.Host
	for _, part := range []string{"APIServer", "Ignition", "Konnectivity"} {
		if s := hosted.ControlPlane.service(part); host == "" && s.Strategy == "NodePort" {
			host = s.Host
		}
	}
	switch {
	case host == "":
		return Impossible{"nobody says at which address the management cluster's nodes are reached (spec.services of the HostedControlPlane: nodePort.address): give --publish-host"}
	case hosted.Exposure.NodePort == 0:
		return Awaited{"a port for istiod on the nodes (management side)"}
	}
	return Published{HostPort{host, hosted.Exposure.NodePort}}
}

func orPort(given, otherwise uint16) uint16 {
	if given != 0 {
		return given
	}
	return otherwise
}

// namesNamespace says that a host gives the management namespace away.
func namesNamespace(cfg Config, host string) bool {
	return cfg.Topology == TopologyHosted && len(cfg.MgmtNamespace) >= shortest && containsWord(host, cfg.MgmtNamespace) && !knownToGuest(cfg.MgmtNamespace, cfg, Guest{})
}
