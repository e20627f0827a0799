package model

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
