package xds

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Config is what a proxy was told, reduced to what a reader or a test asks about. Everything is sorted by name, but virtual hosts and
// routes, whose order is Envoy's order of matching.
type Config struct {
	Listeners []Listener
	Routes    []RouteConfig
	Clusters  []string
	Endpoints []Endpoints
	Secrets   []Secret
}

// Listener is a port that the proxy listens on.
type Listener struct {
	Name, Address string
	Port          uint32
	Chains        []FilterChain
}

// FilterChain is what happens to a connection: TLS with a certificate for those server names, then routes. Both may be absent.
type FilterChain struct {
	SNI, Secrets []string
	RouteName    string
}

// RouteConfig is a set of virtual hosts.
type RouteConfig struct {
	Name         string
	VirtualHosts []VirtualHost
}

// VirtualHost is what some host names have in common.
type VirtualHost struct {
	Domains []string
	Routes  []Route
}

// PathMatch is how a route compares paths.
type PathMatch string

const (
	// Exact is the very path.
	Exact PathMatch = "exact"
	// Prefix is the path and everything below it.
	Prefix PathMatch = "prefix"
	// Regex is a regular expression over the whole path.
	Regex PathMatch = "regex"
)

// Route sends requests to clusters, or answers them itself.
type Route struct {
	Match PathMatch
	Path  string
	// Conditional: headers or the query decide too.
	Conditional bool
	Clusters    []string
	// Answer is not empty when the proxy answers itself: a redirect, or a fixed status.
	Answer string
}

// Endpoints are the host:port addresses behind a cluster.
type Endpoints struct {
	Cluster   string
	Addresses []string
}

// Secret is a certificate for a listener.
type Secret struct {
	Name   string
	HasKey bool
}

// Reach returns the addresses that a request for host and path, coming in at port, would be sent to; for a TLS port host is the server
// name too. The error names the first missing link: listener, certificate, route, or endpoints. Regular expressions and conditional
// routes are passed over.
func (c *Config) Reach(port uint32, host, path string) ([]string, error) {
	i := slices.IndexFunc(c.Listeners, func(l Listener) bool { return l.Port == port })
	if i < 0 {
		return nil, fmt.Errorf("no listener on port %d, of %d listeners", port, len(c.Listeners))
	}
	listener := c.Listeners[i]
	i = slices.IndexFunc(listener.Chains, func(f FilterChain) bool { return len(f.SNI) == 0 || bestDomain(f.SNI, host) > 0 })
	if i < 0 {
		return nil, fmt.Errorf("listener %s has no filter chain for server name %s", listener.Name, host)
	}
	for _, name := range listener.Chains[i].Secrets {
		if !slices.Contains(c.Secrets, Secret{Name: name, HasKey: true}) {
			return nil, fmt.Errorf("listener %s lacks its certificate %s", listener.Name, name)
		}
	}
	route := c.route(listener.Chains[i].RouteName, host, path)
	switch {
	case route == nil:
		return nil, fmt.Errorf("route %s of listener %s does not lead %s%s anywhere", listener.Chains[i].RouteName, listener.Name, host, path)
	case route.Answer != "":
		return nil, fmt.Errorf("the proxy itself answers %s%s: %s", host, path, route.Answer)
	}
	var addresses []string
	for _, e := range c.Endpoints {
		if slices.Contains(route.Clusters, e.Cluster) {
			addresses = append(addresses, e.Addresses...)
		}
	}
	if len(addresses) == 0 {
		return nil, fmt.Errorf("no endpoints in %s, to which %s%s leads", strings.Join(route.Clusters, ", "), host, path)
	}
	return addresses, nil
}

// route is the first unconditional route for the path in the virtual host that fits best, or nil.
func (c *Config) route(name, host, path string) *Route {
	var best VirtualHost
	length := 0
	for _, config := range c.Routes {
		for _, candidate := range config.VirtualHosts {
			if fit := bestDomain(candidate.Domains, host); config.Name == name && fit > length {
				best, length = candidate, fit
			}
		}
	}
	i := slices.IndexFunc(best.Routes, func(r Route) bool { return !r.Conditional && r.matches(path) })
	if i < 0 {
		return nil
	}
	return &best.Routes[i]
}

func (r Route) matches(path string) bool {
	if r.Match == Exact {
		return path == r.Path
	}
	return r.Match == Prefix && (path == r.Path || strings.HasPrefix(path, strings.TrimSuffix(r.Path, "/")+"/"))
}

// bestDomain is how well the best of the domains fits the host: more than any wildcard when equal, else the wildcard's length, 0 for none.
func bestDomain(domains []string, host string) int {
	best := 0
	for _, domain := range domains {
		suffix, wildcard := strings.CutPrefix(domain, "*")
		switch {
		case domain == host:
			best = max(best, len(host)+1)
		case wildcard && strings.HasSuffix(host, suffix):
			best = max(best, len(domain))
		}
	}
	return best
}

// Print writes the way of a request, as a person reads it: listener, certificate, host, path, cluster, endpoints.
func (c *Config) Print(w io.Writer) {
	for _, l := range c.Listeners {
		fmt.Fprintf(w, "listener %s on %s:%d\n", l.Name, l.Address, l.Port)
		for _, chain := range l.Chains {
			c.printChain(w, chain)
		}
	}
}

func (c *Config) printChain(w io.Writer, chain FilterChain) {
	if len(chain.Secrets) > 0 {
		state := "not received"
		if slices.ContainsFunc(c.Secrets, func(s Secret) bool { return s.HasKey && slices.Contains(chain.Secrets, s.Name) }) {
			state = "received"
		}
		fmt.Fprintf(w, "  TLS for %s, certificate %s (%s)\n", strings.Join(chain.SNI, ", "), strings.Join(chain.Secrets, ", "), state)
	}
	for _, config := range c.Routes {
		if config.Name != chain.RouteName {
			continue
		}
		for _, host := range config.VirtualHosts {
			fmt.Fprintf(w, "  route %s: %s\n", config.Name, strings.Join(host.Domains, ", "))
			for _, route := range host.Routes {
				c.printRoute(w, route)
			}
		}
	}
}

func (c *Config) printRoute(w io.Writer, route Route) {
	condition := ""
	if route.Conditional {
		condition = " with headers or query"
	}
	fmt.Fprintf(w, "    %s %s%s -> %s%s\n", route.Match, route.Path, condition, strings.Join(route.Clusters, ", "), route.Answer)
	for _, e := range c.Endpoints {
		if slices.Contains(route.Clusters, e.Cluster) {
			fmt.Fprintf(w, "      endpoints %s\n", strings.Join(e.Addresses, ", "))
		}
	}
}

// String is what Print writes.
func (c *Config) String() string {
	var text strings.Builder
	c.Print(&text)
	return text.String()
}
