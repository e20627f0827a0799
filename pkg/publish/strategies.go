package publish

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/model"
)

// Strategy is everything that hypergate knows about one strategy to publish istiod. To add a strategy, add a constant
// in package model and a row in allStrategies. Other code compares only names: StrategyFor, which selects a strategy,
// and flags, examples and reports that belong to one strategy. ValidateFlags rejects a strategy without a row, and such
// a strategy publishes nothing.
type Strategy struct {
	name model.PublishStrategy
	// flag is true if --publish can select the strategy. The others follow from something else.
	flag bool
	// at returns the endpoint of istiod.
	at func(model.Config, model.ManagementObservation) EndpointState
	// expose makes the Service for istiod's xDS reachable. port is the only port of the Service. expose is nil if
	// hypergate creates no such Service.
	expose func(cfg model.Config, plane model.ControlPlane, service *unstructured.Unstructured, port map[string]any)
	// direct is true if clients reach istiod's pod without another pod of the cluster in between. Then the network
	// policy must admit their addresses.
	direct bool
	// route is the kind of route that leads to the Service. The zero value means that there is none.
	route routeKind
	// evidence is the part of the management cluster that at depends on.
	evidence Evidence
	// host is the rule for --publish-host.
	host hostRule
	// parent is true if --publish-gateway names the parent of the route.
	parent bool
	// tunnel is true if gateways connect to relays in the guest, and istiod's pod connects to the relays. Then no other
	// pod has to reach istiod's xDS.
	tunnel bool
}

// routeKind is a kind of route, with the function that returns the spec of such a route.
type routeKind struct {
	gvk      schema.GroupVersionKind // without a version if that depends on the cluster
	resource string
	spec     func(cfg model.Config, host string) map[string]any
}

// hostRule is the rule for --publish-host: whether it is required, whether it can be an IP address, and whether it has
// no meaning at all.
type hostRule struct{ required, address, unused bool }

// Evidence is the part of the management cluster that the endpoint of istiod depends on.
type Evidence int

const (
	// EvidenceNone means that the endpoint depends on nothing in the management cluster.
	EvidenceNone Evidence = iota
	// EvidenceService is what the cluster allocates to Service Config.XDSService.
	EvidenceService
	// EvidenceRoutes is the Route of the control plane operator and hypergate's own Route.
	EvidenceRoutes
	// EvidenceTLSRoutes is the version of TLSRoutes that the cluster serves.
	EvidenceTLSRoutes
)

// allStrategies returns the table of all strategies.
func allStrategies() []Strategy {
	return []Strategy{
		{
			name: model.PublishAddress,
			at:   func(cfg model.Config, _ model.ManagementObservation) EndpointState { return EndpointKnown{cfg.XDS} },
		},
		{
			name: model.PublishRoute, flag: true, at: routeEndpoint, expose: asClusterIP, evidence: EvidenceRoutes,
			route: routeKind{schema.GroupVersionKind{Group: "route.openshift.io", Version: "v1", Kind: "Route"}, "routes", routeSpec},
		},
		{
			name: model.PublishTLSRoute, flag: true, at: tlsRouteEndpoint, expose: asClusterIP, evidence: EvidenceTLSRoutes,
			route: routeKind{schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Kind: "TLSRoute"}, "tlsroutes", tlsRouteSpec},
			host:  hostRule{required: true}, parent: true,
		},
		{
			name: model.PublishLoadBalancer, flag: true, at: loadBalancerEndpoint, expose: asLoadBalancer, direct: true,
			evidence: EvidenceService,
		},
		{
			name: model.PublishNodePort, flag: true, at: nodePortEndpoint, expose: asNodePort, direct: true, evidence: EvidenceService,
			host: hostRule{address: true},
		},
		{
			name: model.PublishTunnel, flag: true, at: tunnelEndpoint, tunnel: true, host: hostRule{unused: true},
		},
	}
}

// Find returns the strategy of a name, and whether it exists. PublishAuto has none: it represents one of the others.
func Find(name model.PublishStrategy) (Strategy, bool) {
	all := allStrategies()
	if i := slices.IndexFunc(all, func(s Strategy) bool { return s.name == name }); i >= 0 {
		return all[i], true
	}
	return Strategy{}, false
}

// Strategies returns the valid values of --publish, the default first.
func Strategies() []model.PublishStrategy {
	out := []model.PublishStrategy{model.PublishAuto}
	for _, s := range allStrategies() {
		if s.flag {
			out = append(out, s.name)
		}
	}
	return out
}

// EvidenceOf returns the part of the management cluster that the endpoint of istiod depends on.
func EvidenceOf(name model.PublishStrategy) Evidence {
	s, _ := Find(name)
	return s.evidence
}

// kind returns the kind of the route, or nil if there is none. version is used if the version depends on the cluster.
func (s Strategy) kind(cfg model.Config, version string) []model.Kind {
	if s.route.spec == nil {
		return nil
	}
	gvk := s.route.gvk
	if gvk.Version == "" {
		gvk.Version = version
	}
	return []model.Kind{{GVK: gvk, Resource: s.route.resource, Namespaced: true, Names: []string{cfg.XDSService()}}}
}

// RouteKinds returns the kinds that publish a Service outside of the cluster with a strategy. A TLSRoute has
// tlsRouteVersion, the version that the cluster serves. These kinds are not in MgmtKinds, because the management
// cluster does not have to serve them if another strategy is in use.
func RouteKinds(c model.Config, strategy model.PublishStrategy, tlsRouteVersion string) []model.Kind {
	s, _ := Find(strategy)
	return s.kind(c, tlsRouteVersion)
}

// OtherRouteKinds returns the route kinds of all strategies but one, in each version that a cluster can serve.
func OtherRouteKinds(c model.Config, strategy model.PublishStrategy) []model.Kind {
	out := []model.Kind{}
	for _, s := range allStrategies() {
		switch {
		case s.name == strategy:
		case s.route.gvk.Version != "":
			out = append(out, s.kind(c, "")...)
		default:
			for _, version := range TLSRouteVersions() {
				out = append(out, s.kind(c, version)...)
			}
		}
	}
	return out
}
