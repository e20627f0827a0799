package publish

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/model"
)

// Strategy is all that hypergate knows of one way to publish istiod. To add a strategy, add a constant and a row of strategies. Nothing else
// distinguishes between them: a strategy without a row is refused by Config.Validate, and publishes nothing.
type Strategy struct {
	name model.PublishStrategy
	// flag: the user can ask for it by --publish. The others follow from something else.
	flag bool
	// at is where istiod is published.
	at func(model.Config, model.ManagementObservation) EndpointState
	// expose makes the Service that leads to istiod's xDS reachable; nil: hypergate makes no such Service. port is the
	// Service's one port.
	expose func(cfg model.Config, plane model.ControlPlane, service *unstructured.Unstructured, port map[string]any)
	// direct: clients reach istiod's pod without a pod of the cluster in between, so that the network policy must admit
	// their addresses.
	direct bool
	// route is the object that leads to the Service; the zero value: there is none.
	route routeKind
	// evidence is what of the management cluster at is computed from.
	evidence Evidence
	// host is what --publish-host may and must be.
	host hostRule
	// parent: --publish-gateway names the parent of the route.
	parent bool
}

// routeKind is a kind of route, and how an object of it is made.
type routeKind struct {
	gvk      schema.GroupVersionKind // without a version where the cluster decides it
	resource string
	spec     func(cfg model.Config, host string) map[string]any
}

// hostRule is what --publish-host may and must be.
type hostRule struct{ required, address bool }

// Evidence is what of the management cluster an address of istiod is computed from.
type Evidence int

const (
	// EvidenceNone: nothing.
	EvidenceNone Evidence = iota
	// EvidenceService is what the cluster allocates to Service Config.XDSService.
	EvidenceService
	// EvidenceRoutes are the Route of the control plane operator and hypergate's own.
	EvidenceRoutes
	// EvidenceTLSRoutes is the version of TLSRoutes that the cluster serves.
	EvidenceTLSRoutes
)

// allStrategies are all ways to publish istiod.
func allStrategies() []Strategy {
	return []Strategy{
		{name: model.PublishAddress, at: func(cfg model.Config, _ model.ManagementObservation) EndpointState { return EndpointKnown{cfg.XDS} }},
		{
			name: model.PublishRoute, flag: true, at: routeEndpoint, expose: asClusterIP, evidence: EvidenceRoutes,
			route: routeKind{schema.GroupVersionKind{Group: "route.openshift.io", Version: "v1", Kind: "Route"}, "routes", routeSpec},
		},
		{
			name: model.PublishTLSRoute, flag: true, at: tlsRouteEndpoint, expose: asClusterIP, evidence: EvidenceTLSRoutes,
			route: routeKind{schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Kind: "TLSRoute"}, "tlsroutes", tlsRouteSpec},
			host:  hostRule{required: true}, parent: true,
		},
		{name: model.PublishLoadBalancer, flag: true, at: loadBalancerEndpoint, expose: asLoadBalancer, direct: true, evidence: EvidenceService},
		{
			name: model.PublishNodePort, flag: true, at: nodePortEndpoint, expose: asNodePort, direct: true, evidence: EvidenceService,
			host: hostRule{address: true},
		},
	}
}

// Find is the row of a way; false if there is none. WayAuto has none: it stands for one of the others.
func Find(way model.PublishStrategy) (Strategy, bool) {
	all := allStrategies()
	if i := slices.IndexFunc(all, func(s Strategy) bool { return s.name == way }); i >= 0 {
		return all[i], true
	}
	return Strategy{}, false
}

// Strategies are the values of --publish, the default first.
func Strategies() []model.PublishStrategy {
	out := []model.PublishStrategy{model.PublishAuto}
	for _, s := range allStrategies() {
		if s.flag {
			out = append(out, s.name)
		}
	}
	return out
}

// EvidenceOf returns what of the management cluster the address of istiod is computed from.
func EvidenceOf(w model.PublishStrategy) Evidence {
	s, _ := Find(w)
	return s.evidence
}

// kind is that of the route, in the version that the cluster serves where that decides.
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

// RouteKinds are the kinds that publish a Service beyond the cluster, in a way; a TLSRoute in the version that the cluster serves. They are not among
// MgmtKinds: a management cluster that is asked for another way need not serve them.
func RouteKinds(c model.Config, way model.PublishStrategy, tlsRouteVersion string) []model.Kind {
	s, _ := Find(way)
	return s.kind(c, tlsRouteVersion)
}

// OtherRouteKinds are those of all ways but one, in each version that a cluster may serve.
func OtherRouteKinds(c model.Config, way model.PublishStrategy) []model.Kind {
	out := []model.Kind{}
	for _, s := range allStrategies() {
		switch {
		case s.name == way:
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
