package model

import (
	"crypto/tls"
	"crypto/x509"
	"time"
)

// Discovery is how a cluster finds its endpoints.
type Discovery int

// The ways to find endpoints. StrictDNS uses all addresses of a name, LogicalDNS the first.
const (
	Static Discovery = iota
	EDS
	StrictDNS
	LogicalDNS
)

// Balancing is how a cluster selects an endpoint.
type Balancing int

// The load balancing policies.
const (
	RoundRobin Balancing = iota
	LeastRequest
	Random
)

// Protocol is what the proxy speaks with endpoints.
type Protocol int

// The protocols. SameProtocol is that of the client's request, AutoProtocol is what ALPN selects.
const (
	HTTP1 Protocol = iota
	HTTP2
	SameProtocol
	AutoProtocol
)

// Cluster is a group of endpoints, and how to speak with them.
type Cluster struct {
	Name      string
	Discovery Discovery
	// ServiceName is the name of the Endpoints, with EDS.
	ServiceName string
	// Inline are the endpoints of a cluster without EDS. With DNS, their addresses contain names.
	Inline    *Endpoints
	Balancing Balancing
	// Hint is the metadata that has the addresses of a request's endpoints. Without such metadata, Balancing counts.
	Hint           MetadataKey
	Protocol       Protocol
	ConnectTimeout time.Duration
	// DNSRefresh is the time between two lookups.
	DNSRefresh time.Duration
	// IdleTimeout closes unused connections.
	IdleTimeout time.Duration
	// TLS is the TLS for endpoints that no row of TLSByLabel takes. nil is plain text.
	TLS *ClientTLS
	// TLSByLabel selects TLS by the labels of an endpoint. The first match counts.
	TLSByLabel []TLSForLabels
	// LocalityWeighted reports whether the weights of localities count.
	LocalityWeighted bool
	// Panic reports whether unhealthy endpoints are used when there are only such.
	Panic bool
	// Key is equal for two clusters with equal configuration.
	Key string
}

// MetadataKey is a value of a request's dynamic metadata.
type MetadataKey struct{ Namespace, Name string }

// TLSForLabels is the TLS for the endpoints that have all Labels. nil TLS is plain text.
type TLSForLabels struct {
	Labels map[string]string
	TLS    *ClientTLS
}

// TLSFor returns the TLS for an endpoint with these labels.
func (c *Cluster) TLSFor(labels map[string]string) *ClientTLS {
	for _, row := range c.TLSByLabel {
		matches := true
		for key, value := range row.Labels {
			matches = matches && labels[key] == value
		}
		if matches {
			return row.TLS
		}
	}
	return c.TLS
}

// ClientTLS originates TLS.
type ClientTLS struct {
	// ServerName is the SNI. With SNIFromHost it is the host of the request.
	ServerName  string
	SNIFromHost bool
	ALPN        []string
	Certificate *SecretRef
	Validation  *Validation
	// SANFromSNI reports whether the certificate must be valid for the SNI.
	SANFromSNI bool
	Limits     TLSLimits
}

// Validation is how a certificate is verified. Without CA and Inline, it accepts all certificates, as Envoy does.
type Validation struct {
	CA *SecretRef
	// Inline are roots, used if CA is nil.
	Inline *x509.CertPool
	// System reports whether the system's roots are used.
	System bool
	// SANs are patterns. If there is one, then one of the certificate's names must match.
	SANs []SANMatch
}

// SANType is the kind of a name in a certificate.
type SANType int

// The kinds of names.
const (
	SANDNS SANType = iota
	SANURI
	SANAny
)

// SANMatch is a pattern for a name in a certificate.
type SANMatch struct {
	Type  SANType
	Match StringMatch
}

// SecretRef names a secret. Agent reports whether it comes from the agent's socket instead of the aggregated stream.
type SecretRef struct {
	Name  string
	Agent bool
}

// Secret is a certificate with a key, or roots.
type Secret struct {
	Name string
	// Pair is nil for roots.
	Pair *tls.Certificate
	// Roots is nil for a certificate.
	Roots *x509.CertPool
	// System reports whether the system's roots are meant.
	System bool
}

// Endpoints are the addresses of a cluster.
type Endpoints struct {
	Name       string
	Localities []Locality
}

// Locality is a group of endpoints with one priority. Priority 0 is used first.
type Locality struct {
	Priority uint32
	Weight   uint32
	Hosts    []Host
}

// Host is one endpoint.
type Host struct {
	// Network is tcp or unix. Address is host:port or a path.
	Network, Address string
	// Hostname is the name of the endpoint, if the configuration has one.
	Hostname string
	Healthy  bool
	Weight   uint32
	// Labels select TLS. See Cluster.TLSFor.
	Labels map[string]string
}

// Weighted is a cluster that takes its part of connections.
type Weighted struct {
	Cluster string
	Weight  uint32
}
