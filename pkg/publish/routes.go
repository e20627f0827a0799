package publish

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/model"
)

// TLSRouteVersions returns the versions of the Gateway API's TLSRoute that have the fields used here, the preferred one
// first. Which versions a cluster serves depends on its Gateway API: 1.5 has the first version, and the experimental
// channel up to 1.4 has the others.
func TLSRouteVersions() []string { return []string{"v1", "v1alpha3", "v1alpha2"} }

// externalDNSHostname is the annotation that requests a DNS name from external-dns (hypershift api/hypershift/v1beta1,
// ExternalDNSHostnameAnnotation).
const externalDNSHostname = "external-dns.alpha.kubernetes.io/hostname"

// Service returns the Service that leads only to istiod's xDS. It does not have HyperShift's label for webhooks,
// because then the guest's administrator could point other webhooks at it.
func (s Strategy) Service(cfg model.Config, plane model.ControlPlane) *unstructured.Unstructured {
	port := map[string]any{"name": xdsPortName, "port": int64(XDSPort), "targetPort": int64(XDSPort), "protocol": "TCP"}
	spec := map[string]any{"selector": cfg.IstiodPods(), "ports": []any{port}}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Service", "spec": spec}}
	u.SetNamespace(cfg.MgmtNamespace)
	u.SetName(cfg.XDSService())
	u.SetLabels(map[string]string{"app": "istiod"})
	s.expose(cfg, plane, u, port)
	return u
}

// asClusterIP makes the Service reachable within the management cluster, for a route.
func asClusterIP(_ model.Config, _ model.ControlPlane, service *unstructured.Unstructured, _ map[string]any) {
	setType(service, "ClusterIP")
}

// asLoadBalancer makes the Service a load balancer for the clients of the guest's API server.
func asLoadBalancer(cfg model.Config, plane model.ControlPlane, service *unstructured.Unstructured, _ map[string]any) {
	spec := setType(service, "LoadBalancer")
	if len(plane.AllowedCIDRs) > 0 {
		ranges := make([]any, 0, len(plane.AllowedCIDRs))
		for _, block := range plane.AllowedCIDRs {
			ranges = append(ranges, block)
		}
		spec["loadBalancerSourceRanges"] = ranges
	}
	if cfg.Publish.At.Host != "" {
		service.SetAnnotations(map[string]string{externalDNSHostname: cfg.Publish.At.Host})
	}
}

// asNodePort makes the Service reachable on a port of the nodes.
func asNodePort(cfg model.Config, _ model.ControlPlane, service *unstructured.Unstructured, port map[string]any) {
	setType(service, "NodePort")
	if cfg.Publish.At.Port != 0 {
		port["nodePort"] = int64(cfg.Publish.At.Port)
	}
}

// setType sets the type of a Service and returns its spec.
func setType(service *unstructured.Unstructured, name string) map[string]any {
	spec, _ := service.Object["spec"].(map[string]any)
	spec["type"] = name
	return spec
}

// XDSPort is the port on which istiod serves xDS over TLS.
const XDSPort = 15012

const xdsPortName = "tls-xds"

// passthroughRoute returns a route that forwards connections by their host name (SNI) without terminating TLS. Gateways
// see istiod's own certificate.
func passthroughRoute(cfg model.Config, route routeKind, gvk schema.GroupVersionKind, host string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": route.spec(cfg, host)}}
	u.SetGroupVersionKind(gvk)
	u.SetNamespace(cfg.MgmtNamespace)
	u.SetName(cfg.XDSService())
	u.SetLabels(map[string]string{"app": "istiod"})
	return u
}

// Route returns the route to the Service for a host, and its kind. version is the version of TLSRoutes that the cluster
// serves. Both results are nil if the strategy has no route.
func (s Strategy) Route(cfg model.Config, version, host string) (*unstructured.Unstructured, []model.Kind) {
	kinds := s.kind(cfg, version)
	if len(kinds) == 0 {
		return nil, nil
	}
	return passthroughRoute(cfg, s.route, kinds[0].GVK, host), kinds
}

// MakesService reports whether hypergate creates a Service for the strategy. routeExists is whether the control plane
// operator's Route exists, which makes hypergate's Service unnecessary.
func (s Strategy) MakesService(routeExists bool) bool {
	return s.expose != nil && (s.evidence != EvidenceRoutes || !routeExists)
}

// IsDirect reports whether clients reach istiod's pod without another pod of the cluster in between.
func (s Strategy) IsDirect() bool { return s.direct }

// IsTunnel reports whether gateways connect to relays in the guest, so that no other pod has to reach istiod's xDS.
func (s Strategy) IsTunnel() bool { return s.tunnel }

// routeSpec returns the spec of an OpenShift Route.
func routeSpec(cfg model.Config, host string) map[string]any {
	return map[string]any{
		"host": host,
		"to":   map[string]any{"kind": "Service", "name": cfg.XDSService(), "weight": int64(100)},
		"port": map[string]any{"targetPort": xdsPortName},
		"tls":  map[string]any{"termination": "passthrough", "insecureEdgeTerminationPolicy": "None"},
	}
}

// tlsRouteSpec returns the spec of a TLSRoute of the Gateway API.
func tlsRouteSpec(cfg model.Config, host string) map[string]any {
	parent := map[string]any{"namespace": cfg.Publish.Gateway.Namespace, "name": cfg.Publish.Gateway.Name}
	if cfg.Publish.Gateway.Listener != "" {
		parent["sectionName"] = cfg.Publish.Gateway.Listener
	}
	return map[string]any{
		"parentRefs": []any{parent},
		"hostnames":  []any{host},
		"rules":      []any{map[string]any{"backendRefs": []any{map[string]any{"name": cfg.XDSService(), "port": int64(XDSPort)}}}},
	}
}

// Clients returns the addresses that are allowed to reach istiod through a load balancer or a port of the nodes, as
// peers of a NetworkPolicy. They are the addresses that are allowed to reach the guest's API server: all of them,
// unless the HostedControlPlane restricts them. HyperShift's own policies for such Services do the same
// (hypershift-operator/controllers/hostedcluster/network_policies.go).
func Clients(plane model.ControlPlane) []any {
	blocks := plane.AllowedCIDRs
	if len(blocks) == 0 {
		blocks = []string{"0.0.0.0/0", "::/0"}
	}
	out := make([]any, 0, len(blocks))
	for _, block := range blocks {
		out = append(out, map[string]any{"ipBlock": map[string]any{"cidr": block}})
	}
	return out
}
