package publish

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hypergate/hypergate/pkg/leakcheck"
	"github.com/hypergate/hypergate/pkg/model"
)

// EndpointState is what is known about the endpoint of istiod: exactly one of the types below. The interface is sealed.
//
//sumtype:decl
type EndpointState interface{ isEndpointState() }

type (
	// EndpointKnown means that gateways reach istiod at At.
	EndpointKnown struct{ At model.HostPort }
	// EndpointPending means that the endpoint is not known yet. Why is what hypergate waits for. It is safe to show in
	// the guest.
	EndpointPending struct{ Why string }
	// EndpointUnavailable means that an administrator of the management side must act first. Why is the reason. It must
	// not be shown in the guest.
	EndpointUnavailable struct{ Why string }
)

func (EndpointKnown) isEndpointState()       {}
func (EndpointPending) isEndpointState()     {}
func (EndpointUnavailable) isEndpointState() {}

// routerPort is the port on which routers distinguish connections by their host name (SNI). A load balancer does not
// need it: it has a port for istiod only.
const routerPort = 443

// StrategyFor returns the strategy by which istiod is published: the one that the flags set, or for PublishAuto the one
// by which the guest's API server is published. An error is the reason why there is none, for the management side only.
//
// If the guest's nodes use a private link or HyperShift's shared ingress, the strategy is always PublishRoute, with the
// Route of the control plane operator. HyperShift's own router serves only Routes that it knows by name. So a Route
// that hypergate creates is for the management cluster's default router.
//
// If the guest's nodes are virtual machines of the management cluster, they cannot reach a load balancer of that
// cluster, although the management side can. HyperShift's network policy virt-launcher allows egress from them to some
// pods of the control plane, but not to istiod's (hostedcluster/network_policies.go).
//
// In these cases, and for platforms with their own routing, PublishAuto selects the tunnel if it has an image for the
// relays.
func StrategyFor(c model.Config, plane model.ControlPlane) (model.PublishStrategy, error) {
	if WhyTunnel(c, plane) != "" {
		return model.PublishTunnel, nil
	}
	switch {
	case c.Topology != model.TopologyHosted:
		return model.PublishAddress, nil
	case c.Publish.Strategy != model.PublishAuto:
		return c.Publish.Strategy, nil
	case !plane.Exists():
		return "", errors.New("--publish=auto requires a HostedControlPlane, which does not exist: set --xds-address or another --publish")
	case plane.Platform == ibmCloud:
		return "", fmt.Errorf("--publish=auto has no strategy for platform %s, which has its own routing to control planes: publish "+
			"port %d of Service %s there, and set --xds-address; "+
			"or set --publish=tunnel and --relay-image", plane.Platform, XDSPort, c.IstiodName())
	}
	server := serviceOf(plane, "APIServer")
	if isLinked(plane) || plane.SharedIngress || server.Strategy == "Route" {
		return model.PublishRoute, nil
	}
	switch server.Strategy {
	case "LoadBalancer":
		if plane.VirtualMachinesInNamespace {
			return "", errors.New("--publish=auto follows the guest's API server, which a load balancer publishes. The guest's nodes " +
				"are virtual machines of this cluster, and HyperShift's network policy virt-launcher does not let them reach a load " +
				"balancer for istiod: set --publish=route with a --publish-host that leads to the management cluster's router; or " +
				"--publish=loadbalancer, if that policy is not in force; or --xds-address; " +
				"or --publish=tunnel and --relay-image")
		}
		return model.PublishLoadBalancer, nil
	case "NodePort":
		return model.PublishNodePort, nil
	}
	return "", fmt.Errorf("--publish=auto follows the guest's API server, but hypergate does not support its publishing strategy (%q in "+
		"spec.services of HostedControlPlane %s): set another --publish, or --xds-address", server.Strategy, plane.Name)
}

// WhyTunnel returns why PublishAuto selects the tunnel. It is empty if it does not, or if the flags select a strategy.
func WhyTunnel(c model.Config, plane model.ControlPlane) string {
	if c.Topology != model.TopologyHosted || c.Publish.Strategy != model.PublishAuto || c.Publish.RelayImage == "" || !plane.Exists() {
		return ""
	}
	byLoadBalancer := serviceOf(plane, "APIServer").Strategy == "LoadBalancer"
	switch {
	case plane.Platform == ibmCloud:
		return "platform " + plane.Platform + " has its own routing to control planes"
	case isLinked(plane):
		return "the guest's nodes reach their control plane over a private link"
	case plane.SharedIngress:
		return "the guest's nodes reach their control plane through HyperShift's shared ingress"
	case plane.VirtualMachinesInNamespace && byLoadBalancer:
		return "the guest's nodes are virtual machines of this cluster, which cannot reach a load balancer for istiod"
	}
	return ""
}

// UsesTunnel reports whether istiod is published by the tunnel.
func UsesTunnel(c model.Config, plane model.ControlPlane) bool {
	name, err := StrategyFor(c, plane)
	strategy, _ := Find(name)
	return err == nil && strategy.tunnel
}

// ibmCloud is a platform whose routing to control planes is not HyperShift's.
const ibmCloud = "IBMCloud"

// serviceOf returns how a part of the control plane is published. It returns the zero value if the HostedControlPlane
// does not specify it.
func serviceOf(c model.ControlPlane, name string) model.PublishedService {
	if i := slices.IndexFunc(c.Services, func(s model.PublishedService) bool { return s.Service == name }); i >= 0 {
		return c.Services[i]
	}
	return model.PublishedService{}
}

// isPrivate reports whether the guest's nodes reach the control plane only over the cloud's private link.
func isPrivate(c model.ControlPlane) bool { return c.EndpointAccess == "Private" }

// isLinked reports whether the guest's nodes reach the control plane over a private link.
//
// They do so even if other clients have public access (support/netutil/visibility.go, IsPrivateHCP). Nothing shows
// whether these nodes can reach a public address. That the management side can reach it proves nothing about the nodes.
func isLinked(c model.ControlPlane) bool {
	return isPrivate(c) || c.EndpointAccess == "PublicAndPrivate"
}

// derivedHost returns a host for istiod next to the hosts under which HyperShift publishes other parts of the control
// plane. It is in the same domain, whose names lead to the same router. Its first label contains the infrastructure ID,
// by which the guest identifies itself. It is empty if there is nothing to derive it from.
func derivedHost(c model.ControlPlane) string {
	for _, part := range []string{"Ignition", "APIServer"} {
		_, domain, _ := strings.Cut(serviceOf(c, part).Host, ".")
		if s := serviceOf(c, part); s.Strategy == "Route" && c.InfraID != "" && domain != "" {
			return hostLabel(c.InfraID) + "." + domain
		}
	}
	return ""
}

// hostLabel returns the first label of a host for istiod. A label that would be too long has a hash instead of its end.
func hostLabel(infraID string) string {
	label := "istiod-" + infraID
	if len(label) <= validation.DNS1123LabelMaxLength {
		return label
	}
	sum := sha256.Sum256([]byte(infraID))
	suffix := "-" + hex.EncodeToString(sum[:4])
	return strings.TrimRight(label[:validation.DNS1123LabelMaxLength-len(suffix)], "-.") + suffix
}

// EndpointOf returns the endpoint of istiod, as far as it is known.
func EndpointOf(cfg model.Config, mgmt model.ManagementObservation) EndpointState {
	name, err := StrategyFor(cfg, mgmt.ControlPlane)
	if err != nil {
		return EndpointUnavailable{err.Error()}
	}
	if problem := mgmt.Endpoints.Problem; problem != "" {
		return EndpointUnavailable{problem}
	}
	strategy, known := Find(name)
	if !known {
		return EndpointUnavailable{fmt.Sprintf("%q is not a publish strategy: set --publish to one of %v, or set --xds-address",
			name, Strategies())}
	}
	if name == model.PublishAddress {
		return strategy.at(cfg, mgmt) // validated with the flags
	}
	return validEndpoint(cfg, mgmt, strategy.at(cfg, mgmt))
}

// validEndpoint returns EndpointUnavailable instead of an endpoint that gateways cannot use, or whose host reveals the
// management namespace. It returns all other states unchanged.
func validEndpoint(cfg model.Config, mgmt model.ManagementObservation, out EndpointState) EndpointState {
	published, known := out.(EndpointKnown)
	host := published.At.Host
	switch {
	case !known:
		return out
	case !model.IsHost(host):
		return EndpointUnavailable{fmt.Sprintf("%q, the host under which istiod would be published, is not a host name or address: set "+
			"--publish-host", host)}
	case leakcheck.NamesNamespace(cfg, host) && mgmt.Endpoints.ControlPlaneRoute.Exists:
		return EndpointUnavailable{fmt.Sprintf("%q, the host of Route %s, contains the name of the management namespace, and every "+
			"gateway of the guest would show it: publish Ignition under a hostname in the HostedControlPlane, because the host of the "+
			"Route follows from it; or publish istiod yourself and set --xds-address", host, model.ControlPlaneRoute)}
	case leakcheck.NamesNamespace(cfg, host):
		return EndpointUnavailable{fmt.Sprintf("%q, the host under which istiod would be published, contains the name of the management "+
			"namespace, and every gateway of the guest would show it: set --publish-host", host)}
	}
	return out
}

func routeEndpoint(cfg model.Config, mgmt model.ManagementObservation) EndpointState {
	plane, seen := mgmt.ControlPlane, mgmt.Endpoints
	switch found := seen.ControlPlaneRoute; {
	case found.Exists && found.Host != "":
		return EndpointKnown{model.HostPort{Host: found.Host, Port: routerPort}}
	case found.Exists:
		return EndpointPending{"a host for the Route that publishes istiod (management side)"}
	}
	if problem := routeProblem(cfg, plane); problem != "" {
		return EndpointUnavailable{problem}
	}
	host := routeHost(cfg, plane)
	if seen.Refused.Reason != "" && seen.Refused.Host == host {
		return EndpointUnavailable{fmt.Sprintf("the router rejects Route %s with host %s (%s): set another --publish-host",
			cfg.XDSService(), host, seen.Refused.Reason)}
	}
	switch {
	case host == "" && !plane.Exists():
		return EndpointUnavailable{"istiod's host cannot be derived without a HostedControlPlane: set --publish-host to a name " +
			"that leads to the management cluster's router"}
	case host == "":
		return EndpointUnavailable{fmt.Sprintf("HostedControlPlane %s has no infrastructure ID or no host to derive istiod's host from "+
			"(spec.services: Ignition or APIServer of type Route with a hostname): set --publish-host to a name that leads to the "+
			"management cluster's router", plane.Name)}
	}
	return EndpointKnown{model.HostPort{Host: host, Port: orPort(cfg.Publish.At.Port, routerPort)}}
}

// routeProblem returns why a Route of hypergate does not lead the guest's nodes to istiod. It is empty if there is no
// such reason.
//
// If the nodes reach the control plane through HyperShift's own router, that router serves only Routes that it knows by
// name. If the flags request a Route with a host, the user has another router. A host in HyperShift's own domain leads
// to HyperShift's router.
func routeProblem(c model.Config, plane model.ControlPlane) string {
	const unknown = " serves only Routes whose names it knows, and istiod's is not among them: add the Route \"" +
		model.ControlPlaneRoute + "\" to the control plane operator, and a case for it to "
	const privateRouter = "the guest's nodes reach their control plane over a private link, behind which HyperShift's own router" +
		unknown + "control-plane-operator/controllers/hostedcontrolplane/v2/router/config.go (see deploy/cpo); "
	const yourself = "or set --publish=tunnel and --relay-image; or publish istiod yourself and set --xds-address"
	elsewhere := c.Publish.Strategy != model.PublishAuto && c.Publish.At.Host != ""
	switch {
	case isPrivate(plane):
		return privateRouter + yourself
	case isLinked(plane) && !elsewhere:
		return privateRouter + "or, if the nodes can also reach public addresses, set --publish=loadbalancer, or --publish=route with a " +
			"--publish-host; " + yourself
	case plane.SharedIngress && !elsewhere:
		return "the guest's nodes reach their control plane through HyperShift's shared ingress (ARO HCP), which" + unknown +
			"sharedingress-config-generator/config.go (see deploy/cpo); or set --publish=loadbalancer, or --publish=route with a " +
			"--publish-host; " + yourself
	}
	return ""
}

// routeHost returns the host of hypergate's Route. It is empty if it cannot be derived.
func routeHost(c model.Config, plane model.ControlPlane) string {
	if c.Publish.At.Host != "" {
		return c.Publish.At.Host
	}
	return derivedHost(plane)
}

// tunnelEndpoint returns the Service of the relays. It is known from the start.
func tunnelEndpoint(cfg model.Config, _ model.ManagementObservation) EndpointState {
	return EndpointKnown{model.HostPort{Host: cfg.RelayHost(), Port: model.GatewaysPort}}
}

func tlsRouteEndpoint(cfg model.Config, mgmt model.ManagementObservation) EndpointState {
	if mgmt.Endpoints.TLSRouteVersion == "" {
		return EndpointPending{"the version of TLSRoutes that is served (management side)"}
	}
	return EndpointKnown{model.HostPort{Host: cfg.Publish.At.Host, Port: orPort(cfg.Publish.At.Port, routerPort)}}
}

func loadBalancerEndpoint(cfg model.Config, mgmt model.ManagementObservation) EndpointState {
	switch {
	case isPrivate(mgmt.ControlPlane):
		return EndpointUnavailable{"the guest's nodes reach their control plane over a private link, and hypergate's load balancer is " +
			"not behind that link: publish istiod there yourself and set --xds-address"}
	case mgmt.Endpoints.LoadBalancer == "":
		return EndpointPending{"an address for istiod's load balancer (management side)"}
	case cfg.Publish.At.Host != "":
		return EndpointKnown{model.HostPort{Host: cfg.Publish.At.Host, Port: XDSPort}}
	}
	return EndpointKnown{model.HostPort{Host: mgmt.Endpoints.LoadBalancer, Port: XDSPort}}
}

func nodePortEndpoint(cfg model.Config, mgmt model.ManagementObservation) EndpointState {
	host := cfg.Publish.At.Host
	for _, part := range []string{"APIServer", "Ignition", "Konnectivity"} {
		if s := serviceOf(mgmt.ControlPlane, part); host == "" && s.Strategy == "NodePort" {
			host = s.Host
		}
	}
	switch {
	case host == "":
		return EndpointUnavailable{"the address of the management cluster's nodes is not known (spec.services of the " +
			"HostedControlPlane has no nodePort.address): set --publish-host"}
	case mgmt.Endpoints.NodePort == 0:
		return EndpointPending{"a port for istiod on the nodes (management side)"}
	}
	return EndpointKnown{model.HostPort{Host: host, Port: mgmt.Endpoints.NodePort}}
}

// orPort returns port, or fallback if port is 0.
func orPort(port, fallback uint16) uint16 {
	if port != 0 {
		return port
	}
	return fallback
}
