package model

import (
	"crypto/tls"
	"slices"
	"strings"
	"time"
)

// Listener is a listening socket with its filter chains.
type Listener struct {
	Name string
	// Addresses are host:port, the first is the main address.
	Addresses []string
	Chains    []*FilterChain
	// Default takes connections that no other chain takes. It may be nil.
	Default *FilterChain
	// Inspect reports whether the TLS inspector reads the ClientHello. Without it all connections count as plain
	// text.
	Inspect bool
	// InspectTimeout is how long the inspector waits for the ClientHello.
	InspectTimeout time.Duration
	// ContinueOnTimeout reports whether a connection goes on without a ClientHello when InspectTimeout ends.
	ContinueOnTimeout bool
}

// FilterChain is what a listener does with a connection that matches.
type FilterChain struct {
	Name  string
	Match ChainMatch
	// TLS is nil for plain text and for passthrough.
	TLS    *ServerTLS
	Filter Filter
	// Key is equal for two chains with equal configuration. Connections of such a chain survive an update.
	Key string
}

// Filter is the last network filter of a chain: *HTTP or *TCP.
type Filter interface{ filter() }

func (*HTTP) filter() {}
func (*TCP) filter()  {}

// HTTP is Envoy's HTTP connection manager.
type HTTP struct {
	StatPrefix string
	// RouteName is the name of the RouteTable, if Inline is nil.
	RouteName string
	Inline    *RouteTable
	// ServerName is the value of the header "server" in responses.
	ServerName string
	// PassServerHeader reports whether the header "server" of the backend is kept.
	PassServerHeader bool
	// UseRemoteAddress reports whether the proxy is the edge: it sets X-Forwarded-For from the connection.
	UseRemoteAddress bool
	// Upgrades are the allowed protocols of the header "upgrade" in lower case, for example websocket.
	Upgrades []string
	// CORS reports whether the filter that obeys Route.CORS is in the chain.
	CORS bool
	// Process is how external processors are obeyed. nil: the filter that calls them is not in the chain.
	Process *Process
	// NormalizePath reports whether dot segments are removed, and MergeSlashes whether repeated slashes are.
	NormalizePath, MergeSlashes bool
	// MaxHeaderBytes limits the headers of a request.
	MaxHeaderBytes int
	// IdleTimeout ends a connection without requests. 0 means no limit of the configuration.
	IdleTimeout time.Duration
}

// Process is how a filter chain obeys external processors.
type Process struct {
	// Timeout limits the time until each answer.
	Timeout time.Duration
	// Namespaces are those of the metadata that a processor may set.
	Namespaces []string
}

// TCP is Envoy's TCP proxy.
type TCP struct {
	StatPrefix string
	Clusters   []Weighted
	// IdleTimeout ends a connection without data.
	IdleTimeout time.Duration
	// ConnectAttempts is the number of endpoints to try, at least 1.
	ConnectAttempts int
}

// ServerTLS terminates TLS.
type ServerTLS struct {
	Certificates []SecretRef
	// Inline are certificates in the configuration itself.
	Inline []tls.Certificate
	ALPN   []string
	// ClientCA verifies certificates of clients. It may be nil.
	ClientCA      *Validation
	RequireClient bool
	Limits        TLSLimits
}

// TLSLimits are the versions, the cipher suites of TLS 1.2 and the curves of connections, as values of crypto/tls. 0
// and nil mean the default of crypto/tls.
type TLSLimits struct {
	MinVersion, MaxVersion uint16
	CipherSuites           []uint16
	Curves                 []tls.CurveID
}

// ChainMatch says which connections a filter chain takes. An empty field takes all connections.
type ChainMatch struct {
	Port              uint32
	ServerNames       []string
	TransportProtocol string
	ALPN              []string
}

// Connection is what the matching of filter chains knows about a connection.
type Connection struct {
	Port uint32
	// TLS reports whether the inspector saw a ClientHello. ServerName and ALPN are from it.
	TLS        bool
	ServerName string
	ALPN       []string
}

// ChainFor returns the chain that takes the connection, or nil. The order of the criteria, and that the best match of
// one criterion excludes all others, follow the documentation of envoy.config.listener.v3.FilterChainMatch.
func (l *Listener) ChainFor(c Connection) *FilterChain {
	chains := narrow(l.Chains, func(f *FilterChain) int {
		switch f.Match.Port {
		case 0:
			return 1
		case c.Port:
			return 2
		}
		return 0
	})
	chains = narrow(chains, func(f *FilterChain) int { return serverNameRank(f.Match.ServerNames, c.ServerName) })
	protocol := "raw_buffer"
	if c.TLS {
		protocol = "tls"
	}
	chains = narrow(chains, func(f *FilterChain) int {
		switch f.Match.TransportProtocol {
		case "":
			return 1
		case protocol:
			return 2
		}
		return 0
	})
	chains = narrow(chains, func(f *FilterChain) int { return alpnRank(f.Match.ALPN, c.ALPN) })
	if len(chains) == 0 {
		return l.Default
	}
	return chains[0]
}

// narrow returns the chains with the highest rank. Rank 0 means no match.
func narrow(chains []*FilterChain, rank func(*FilterChain) int) []*FilterChain {
	best := make([]*FilterChain, 0, len(chains))
	highest := 1
	for _, chain := range chains {
		switch r := rank(chain); {
		case r > highest:
			best, highest = append(best[:0], chain), r
		case r == highest:
			best = append(best, chain)
		}
	}
	return best
}

// serverNameRank is higher for an exact name than for a wildcard, and higher for a longer wildcard than for a
// shorter.
func serverNameRank(patterns []string, name string) int {
	if len(patterns) == 0 {
		return 1
	}
	best := 0
	for _, pattern := range patterns {
		switch suffix, wildcard := strings.CutPrefix(pattern, "*"); {
		case !wildcard && name == pattern && name != "":
			return 1 << 20
		case wildcard && strings.HasSuffix(name, suffix) && len(name) > len(suffix):
			best = max(best, 1+len(suffix))
		}
	}
	return best
}

func alpnRank(want, offered []string) int {
	if len(want) == 0 {
		return 1
	}
	for i, protocol := range offered {
		if slices.Contains(want, protocol) {
			return 2 + len(offered) - i
		}
	}
	return 0
}
