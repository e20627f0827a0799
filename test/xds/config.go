package xds

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Config is the configuration of a proxy, reduced to the values that a reader or a test needs. Everything is sorted
// by name, except virtual hosts and routes. These keep the order in which Envoy matches them.
type Config struct {
	Listeners []Listener
	Routes    []RouteConfig
	Clusters  []string
	Endpoints []Endpoints
	Secrets   []Secret
}

// Listener is a port on which the proxy listens.
type Listener struct {
	Name, Address string
	Port          uint32
	Chains        []FilterChain
}

// FilterChain is the handling of a connection: TLS with a certificate for the server names, then routes. Both are
// optional.
type FilterChain struct {
	SNI, Secrets []string
	RouteName    string
}

// RouteConfig is a set of virtual hosts.
type RouteConfig struct {
	Name         string
	VirtualHosts []VirtualHost
}

// VirtualHost holds the routes of some host names.
type VirtualHost struct {
	Domains []string
	Routes  []Route
}

// PathMatch is the way in which a route compares paths.
type PathMatch string

const (
	// Exact matches only the path itself.
	Exact PathMatch = "exact"
	// Prefix matches the path and everything below it.
	Prefix PathMatch = "prefix"
	// Regex matches the whole path with a regular expression.
	Regex PathMatch = "regex"
)

// Route sends requests to clusters, or answers them.
type Route struct {
	Match PathMatch
	Path  string
	// Conditional means that headers or the query are also conditions.
	Conditional bool
	Clusters    []string
	// Answer is set if the proxy answers itself: a redirect, or a fixed status.
	Answer string
}

// Endpoints are the host:port addresses of a cluster.
type Endpoints struct {
	Cluster   string
	Addresses []string
}

// Secret is a certificate for a listener.
type Secret struct {
	Name   string
	HasKey bool
}

// Reach returns the addresses to which the proxy sends a request for host and path that arrives at port. For a TLS
// port, host is also the server name. The error names the first missing link: listener, certificate, route, or
// endpoints. Regular expressions and conditional routes are ignored.
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
		return nil, fmt.Errorf("route %s of listener %s does not lead %s%s anywhere", listener.Chains[i].RouteName,
			listener.Name, host, path)
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

// route returns the first unconditional route for the path in the best matching virtual host, or nil.
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

// bestDomain returns a score for the best match of the host among the domains. An equal domain has a higher score
// than any wildcard. A wildcard's score is its length. 0 means no match.
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

// Print writes the path of a request in a readable form: listener, certificate, host, path, cluster, endpoints.
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

// String returns the text that Print writes.
func (c *Config) String() string {
	var text strings.Builder
	c.Print(&text)
	return text.String()
}
