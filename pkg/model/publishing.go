package model

// PublishStrategy is a strategy to publish istiod's xDS to the guest's nodes.
type PublishStrategy string

const (
	// PublishAddress means that another party publishes istiod, at Config.XDS.
	PublishAddress PublishStrategy = ""
	// PublishAuto selects the strategy by which the guest's API server is published, or by which the guest's nodes
	// reach their control plane.
	PublishAuto PublishStrategy = "auto"
	// PublishRoute is a passthrough Route of OpenShift.
	PublishRoute PublishStrategy = "route"
	// PublishTLSRoute is a TLSRoute of the Gateway API on the management cluster.
	PublishTLSRoute PublishStrategy = "tlsroute"
	// PublishLoadBalancer is a Service of type LoadBalancer.
	PublishLoadBalancer PublishStrategy = "loadbalancer"
	// PublishNodePort is a port on the management cluster's nodes.
	PublishNodePort PublishStrategy = "nodeport"
	// PublishTunnel is a tunnel through the guest's own API server (docs/tunnel.md). Gateways connect to relays in the
	// guest.
	PublishTunnel PublishStrategy = "tunnel"
)

// Publish is how istiod's xDS is published to the guest's nodes. The zero value means that another party publishes
// it, at Config.XDS.
type Publish struct {
	Strategy PublishStrategy
	// At is the host and port from the flags: the host of a Route, the name that external-dns gives a load balancer,
	// or the address and port of a node. What is not set follows from the HostedControlPlane, or from what the
	// cluster allocates.
	At HostPort
	// Gateway is the parent of a TLSRoute.
	Gateway ParentGateway
	// RelayImage is the image of the tunnel's relays in the guest, and SidecarImage that of its sidecar in istiod's
	// pod. Without a RelayImage, PublishAuto never selects the tunnel.
	RelayImage, SidecarImage string
}

// ParentGateway is a Gateway of the management cluster, and one of its listeners. An empty Listener means any that
// fits.
type ParentGateway struct{ Namespace, Name, Listener string }

// XDSService returns the name of the Service that publishes istiod's xDS. The host of a webhook must not begin with it,
// because HyperShift would delete that webhook.
func (c Config) XDSService() string { return "xds-" + c.Revision }

// ControlPlaneRoute is the name of the Route by which HyperShift's control plane operator publishes istiod, if its
// version supports istiod. hypergate uses such a Route and never changes it. HyperShift determines its host and its
// router.
const ControlPlaneRoute = "istiod"

// ObservedEndpoints is what was observed on the management side of the endpoints of istiod.
type ObservedEndpoints struct {
	// NodePort and LoadBalancer are what the cluster allocated to Service Config.XDSService. They are 0 and empty
	// before.
	NodePort     uint16
	LoadBalancer string
	// ControlPlaneRoute is the control plane operator's Route. Refused is hypergate's Route if a router rejects it.
	ControlPlaneRoute FoundRoute
	Refused           RefusedRoute
	// Problem is why the publish strategy cannot be used at all, for the management side only. It is empty if it can.
	Problem string
	// TLSRouteVersion is the version of TLSRoutes that the cluster serves, if the strategy is PublishTLSRoute.
	TLSRouteVersion string
}

// RefusedRoute is a Route of hypergate that no router serves: its host, and the reason from its status. The zero
// value means that there is none.
type RefusedRoute struct{ Host, Reason string }

// FoundRoute is a Route that another party created. The zero value means that there is none.
type FoundRoute struct {
	Exists bool
	// Host is the host at which it is served. It is empty while that is not known.
	Host string
}
