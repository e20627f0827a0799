package desired

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TLSRouteVersions are the versions of the Gateway API's TLSRoute with the fields that are used here, the best first. Which of them a cluster serves depends on
// the Gateway API that it has: 1.5 has the first, and up to 1.4 the experimental channel the others.
func TLSRouteVersions() []string { return []string{"v1", "v1alpha3", "v1alpha2"} }

// ExposureKinds are the kinds that publish a Service beyond the cluster, in a way; a TLSRoute in the version that the cluster serves. They are not among
// MgmtKinds: a management cluster that is asked for another way need not serve them.
func (c Config) ExposureKinds(way Way, tlsRouteVersion string) []Kind {
	names := []string{c.XDSService()}
	switch way {
	case WayRoute:
		return []Kind{{GVK: schema.GroupVersionKind{Group: "route.openshift.io", Version: "v1", Kind: "Route"}, Resource: "routes", Namespaced: true, Names: names}}
	case WayTLSRoute:
		return []Kind{{GVK: schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: tlsRouteVersion, Kind: "TLSRoute"}, Resource: "tlsroutes", Namespaced: true, Names: names}}
	default:
		return nil
	}
}

// externalDNSHostname asks external-dns for a name (hypershift api/hypershift/v1beta1, ExternalDNSHostnameAnnotation).
const externalDNSHostname = "external-dns.alpha.kubernetes.io/hostname"

// addExposure adds what publishes istiod in a way: a Service, whose address the cluster hands out, and a route to it, which comes after the Service
// and goes before it. HyperShift's router stops at a Route whose Service is missing.
func (p *draft) addExposure(way Way, at Publication) error {
	if way == WayAddress || way == WayRoute && p.hosted.Exposure.ControlPlaneRoute.Exists {
		return nil // somebody else does it
	}
	err := p.addMgmt(&p.plan.Mgmt, xdsService(p.cfg, way, p.hosted.ControlPlane))
	published, known := at.(Published)
	kinds := p.cfg.ExposureKinds(way, p.hosted.Exposure.TLSRouteVersion)
	if err != nil || !known || len(kinds) == 0 {
		return err
	}
	u := passthroughRoute(p.cfg, kinds[0], published.At.Host)
	p.hosted.ControlPlane.own(u)
	o, err := mint(u, SideMgmt, p.cfg, kinds)
	if err != nil {
		return fmt.Errorf("publishing istiod: %w", err)
	}
	p.plan.Exposure = append(p.plan.Exposure, MgmtObject{o})
	return nil
}

// xdsService leads to istiod's xDS and to nothing else. HyperShift's label for webhooks is not on it: the guest's admin could aim webhooks of his own
// at it.
func xdsService(cfg Config, way Way, plane ControlPlane) *unstructured.Unstructured {
	entry := map[string]any{"name": xdsPortName, "port": int64(xdsPort), "targetPort": int64(xdsPort), "protocol": "TCP"}
	spec := map[string]any{"selector": istiodPods(cfg), "ports": []any{entry}}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Service", "spec": spec}}
	u.SetNamespace(cfg.MgmtNamespace)
	u.SetName(cfg.XDSService())
	u.SetLabels(map[string]string{"app": "istiod"})
	switch way {
	case WayLoadBalancer:
		spec["type"] = "LoadBalancer"
		if len(plane.AllowedCIDRs) > 0 {
			ranges := make([]any, 0, len(plane.AllowedCIDRs))
			for _, block := range plane.AllowedCIDRs {
				ranges = append(ranges, block)
			}
			spec["loadBalancerSourceRanges"] = ranges
		}
		if cfg.Publish.At.Host != "" {
			u.SetAnnotations(map[string]string{externalDNSHostname: cfg.Publish.At.Host})
		}
	case WayNodePort:
		spec["type"] = "NodePort"
		if cfg.Publish.At.Port != 0 {
			entry["nodePort"] = int64(cfg.Publish.At.Port)
		}
	default:
		spec["type"] = "ClusterIP"
	}
	return u
}

const xdsPortName = "tls-xds"

// passthroughRoute hands connections on by the name that they ask for, without ending TLS: istiod's certificate is what a gateway sees.
func passthroughRoute(cfg Config, kind Kind, host string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(kind.GVK)
	if kind.GVK.Kind == "Route" {
		u.Object["spec"] = map[string]any{
			"host": host,
			"to":   map[string]any{"kind": "Service", "name": cfg.XDSService(), "weight": int64(100)},
			"port": map[string]any{"targetPort": xdsPortName},
			"tls":  map[string]any{"termination": "passthrough", "insecureEdgeTerminationPolicy": "None"},
		}
	} else {
		parent := map[string]any{"namespace": cfg.Publish.Gateway.Namespace, "name": cfg.Publish.Gateway.Name}
		if cfg.Publish.Gateway.Listener != "" {
			parent["sectionName"] = cfg.Publish.Gateway.Listener
		}
		u.Object["spec"] = map[string]any{
			"parentRefs": []any{parent},
			"hostnames":  []any{host},
			"rules":      []any{map[string]any{"backendRefs": []any{map[string]any{"name": cfg.XDSService(), "port": int64(xdsPort)}}}},
		}
	}
	u.SetNamespace(cfg.MgmtNamespace)
	u.SetName(cfg.XDSService())
	u.SetLabels(map[string]string{"app": "istiod"})
	return u
}

// clients are the addresses from which istiod may be reached through a load balancer or a node's port: those that may reach the guest's API server, which are all
// unless the HostedControlPlane says otherwise, as with HyperShift's own policies for such Services (hypershift-operator/controllers/hostedcluster/network_policies.go).
func clients(plane ControlPlane) []any {
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

// fromAnywhere says that a way leads clients to istiod's pod without a pod of the cluster in between.
func (w Way) fromAnywhere() bool { return slices.Contains([]Way{WayLoadBalancer, WayNodePort}, w) }
