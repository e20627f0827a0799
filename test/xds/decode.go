package xds

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
)

// newConfig reduces Envoy's resources to the values of a Config.
func newConfig(types map[string]*subscription) *Config {
	return &Config{
		Clusters:  collect(types[clusterType].resources, func(c *clusterv3.Cluster) string { return c.GetName() }),
		Endpoints: collect(types[endpointType].resources, newEndpoints),
		Listeners: collect(types[listenerType].resources, newListener),
		Routes:    collect(types[routeType].resources, newRoutes),
		Secrets: collect(types[secretType].resources, func(s *tlsv3.Secret) Secret {
			return Secret{Name: s.GetName(), HasKey: len(s.GetTlsCertificate().GetPrivateKey().GetInlineBytes()) > 0}
		}),
	}
}

// collect converts the resources of one type, in the order of their names.
func collect[From proto.Message, To any](resources map[string]proto.Message, convert func(From) To) []To {
	var all []To
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		if resource, ok := resources[name].(From); ok {
			all = append(all, convert(resource))
		}
	}
	return all
}

func newListener(l *listenerv3.Listener) Listener {
	socket := l.GetAddress().GetSocketAddress()
	listener := Listener{Name: l.GetName(), Address: socket.GetAddress(), Port: socket.GetPortValue()}
	for _, c := range l.GetFilterChains() {
		chain := FilterChain{SNI: c.GetFilterChainMatch().GetServerNames()}
		for _, filter := range c.GetFilters() {
			manager := &hcmv3.HttpConnectionManager{}
			if filter.GetTypedConfig().UnmarshalTo(manager) == nil { // otherwise it is another kind of filter
				chain.RouteName = manager.GetRds().GetRouteConfigName()
			}
		}
		context := &tlsv3.DownstreamTlsContext{}
		if c.GetTransportSocket().GetTypedConfig().UnmarshalTo(context) == nil { // otherwise it is plain text
			for _, secret := range context.GetCommonTlsContext().GetTlsCertificateSdsSecretConfigs() {
				chain.Secrets = append(chain.Secrets, secret.GetName())
			}
		}
		listener.Chains = append(listener.Chains, chain)
	}
	return listener
}

func newRoutes(r *routev3.RouteConfiguration) RouteConfig {
	config := RouteConfig{Name: r.GetName()}
	for _, v := range r.GetVirtualHosts() {
		host := VirtualHost{Domains: v.GetDomains()}
		for _, route := range v.GetRoutes() {
			host.Routes = append(host.Routes, newRoute(route))
		}
		config.VirtualHosts = append(config.VirtualHosts, host)
	}
	return config
}

func newRoute(r *routev3.Route) Route {
	match := r.GetMatch()
	route := Route{Conditional: len(match.GetHeaders())+len(match.GetQueryParameters()) > 0}
	switch match.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Path:
		route.Match, route.Path = Exact, match.GetPath()
	case *routev3.RouteMatch_SafeRegex:
		route.Match, route.Path = Regex, match.GetSafeRegex().GetRegex()
	default:
		// Envoy distinguishes a prefix of path segments (as in the Gateway API) from a prefix of characters (which
		// Istio uses for "/").
		route.Match, route.Path = Prefix, cmp.Or(match.GetPathSeparatedPrefix(), match.GetPrefix())
	}
	switch action := r.GetRoute(); {
	case r.GetRedirect() != nil:
		route.Answer = "redirect"
	case r.GetDirectResponse() != nil:
		route.Answer = fmt.Sprintf("status %d", r.GetDirectResponse().GetStatus())
	case action.GetCluster() != "":
		route.Clusters = []string{action.GetCluster()}
	default:
		for _, weighted := range action.GetWeightedClusters().GetClusters() {
			route.Clusters = append(route.Clusters, weighted.GetName())
		}
	}
	return route
}

func newEndpoints(e *endpointv3.ClusterLoadAssignment) Endpoints {
	endpoints := Endpoints{Cluster: e.GetClusterName()}
	for _, locality := range e.GetEndpoints() {
		for _, endpoint := range locality.GetLbEndpoints() {
			endpoints.Addresses = append(endpoints.Addresses, hostPort(endpoint.GetEndpoint().GetAddress().GetSocketAddress()))
		}
	}
	slices.Sort(endpoints.Addresses)
	return endpoints
}

func hostPort(a *corev3.SocketAddress) string {
	return net.JoinHostPort(a.GetAddress(), strconv.Itoa(int(a.GetPortValue())))
}

// endpointNames returns the names under which the clusters' endpoints are requested.
func endpointNames(clusters map[string]proto.Message) map[string]bool {
	names := map[string]bool{}
	for _, c := range collect(clusters, func(c *clusterv3.Cluster) *clusterv3.Cluster { return c }) {
		if c.GetType() == clusterv3.Cluster_EDS {
			names[cmp.Or(c.GetEdsClusterConfig().GetServiceName(), c.GetName())] = true
		}
	}
	return names
}

// referredTo returns the routes and the secrets that listeners name. It includes only secrets that istiod serves. A
// proxy gets its own certificate from the agent beside it.
func referredTo(listeners map[string]proto.Message) (routes, secrets map[string]bool) {
	routes, secrets = map[string]bool{}, map[string]bool{}
	for _, listener := range collect(listeners, newListener) {
		for _, chain := range listener.Chains {
			if chain.RouteName != "" {
				routes[chain.RouteName] = true
			}
			for _, name := range chain.Secrets {
				if strings.HasPrefix(name, "kubernetes") || strings.HasPrefix(name, "configmap:") {
					secrets[name] = true
				}
			}
		}
	}
	return routes, secrets
}
