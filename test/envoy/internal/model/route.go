package model

import (
	"regexp"
	"time"
)

// RouteTable is a route configuration.
type RouteTable struct {
	Name  string
	Hosts []*VirtualHost
	// IgnorePort reports whether the port in a request's host is ignored.
	IgnorePort bool
	Headers    HeaderChanges
}

// VirtualHost has the routes for a group of domains.
type VirtualHost struct {
	Name    string
	Domains []string
	Routes  []*Route
	// HTTPSOnly reports whether requests over plain text are redirected to https.
	HTTPSOnly bool
	Headers   HeaderChanges
	// AttemptCount reports whether requests get the header x-envoy-attempt-count.
	AttemptCount bool
	CORS         *CORS
	Retry        *Retry
}

// Route is a condition with an action.
type Route struct {
	Name    string
	Match   Match
	Action  Action
	Headers HeaderChanges
	CORS    *CORS
	// Processor is nil if requests go to no external processor.
	Processor *Processor
}

// Processor is an external processor (ext_proc), which gets a request before it is forwarded: its headers and its
// whole body.
type Processor struct {
	Cluster string
	// FailOpen reports whether a request is forwarded as it is if the processor fails.
	FailOpen bool
}

// Match is the condition of a route. All of its parts must hold.
type Match struct {
	Path    PathMatch
	Headers []HeaderMatch
	Query   []QueryMatch
	// GRPC reports whether only gRPC requests match.
	GRPC bool
	// Fraction is the part of requests that match, in a million. 0 means all.
	Fraction uint32
}

// PathKind is how a path is compared.
type PathKind int

// The kinds. PathSegments is a prefix of whole segments.
const (
	PathPrefix PathKind = iota
	PathExact
	PathSegments
	PathRegex
)

// PathMatch compares the path without the query.
type PathMatch struct {
	Kind       PathKind
	Value      string
	Regex      *regexp.Regexp
	IgnoreCase bool
}

// StringKind is how a string is compared.
type StringKind int

// The kinds.
const (
	StringExact StringKind = iota
	StringPrefix
	StringSuffix
	StringContains
	StringRegex
	StringAny
)

// StringMatch compares a string.
type StringMatch struct {
	Kind       StringKind
	Value      string
	Regex      *regexp.Regexp
	IgnoreCase bool
}

// HeaderMatch is a condition on a header. The names :method, :authority, :scheme and :path are parts of the request.
type HeaderMatch struct {
	Name string
	// Absent is for a condition that the header is missing.
	Absent bool
	Match  StringMatch
	// Invert reverses the condition.
	Invert bool
	// MissingIsEmpty compares a missing header as the empty string.
	MissingIsEmpty bool
}

// QueryMatch is a condition on a query parameter.
type QueryMatch struct {
	Name  string
	Match StringMatch
}

// Action is what a route does: *Forward, *Redirect or *Direct.
type Action interface{ action() }

func (*Forward) action()  {}
func (*Redirect) action() {}
func (*Direct) action()   {}

// Forward sends the request to a cluster.
type Forward struct {
	Clusters []Destination
	// NotFound is the status if the cluster does not exist.
	NotFound int
	// Timeout is the time from the end of the request to the end of the response. 0 means no limit.
	Timeout time.Duration
	// GRPCTimeout is how the header grpc-timeout is obeyed.
	GRPCTimeout GRPCTimeout
	// IdleTimeout ends a request without data. 0 means no limit.
	IdleTimeout time.Duration
	Retry       *Retry
	Path        PathRewrite
	// Host replaces the host. HostOfEndpoint replaces it by the endpoint's name.
	Host           string
	HostOfEndpoint bool
	// ForwardedHost reports whether the former host goes to X-Forwarded-Host.
	ForwardedHost bool
	Mirrors       []Mirror
	// Upgrades overrides HTTP.Upgrades, by the protocol in lower case.
	Upgrades map[string]bool
}

// Destination is a cluster with a weight, and what is changed for it alone.
type Destination struct {
	Weighted
	Headers HeaderChanges
	Host    string
}

// GRPCTimeout is how the header grpc-timeout limits gRPC requests.
type GRPCTimeout struct {
	// Obey reports whether the header counts instead of Forward.Timeout.
	Obey bool
	// Max is the limit. 0 means no limit.
	Max time.Duration
}

// PathRewrite changes the path. Only one of Prefix and Regex is set.
type PathRewrite struct {
	// Prefix replaces what the route matched, if it is not empty.
	Prefix string
	Regex  *regexp.Regexp
	// Substitution is in the syntax of regexp.Expand.
	Substitution string
}

// Mirror sends a copy of the request to a cluster and drops the response.
type Mirror struct {
	Cluster string
	// Fraction is the part of the requests, in a million.
	Fraction uint32
	// KeepHost reports whether the host is sent without the suffix -shadow.
	KeepHost bool
}

// Retry is when and how often a request is sent again.
type Retry struct {
	On       RetryOn
	Statuses []int
	// Attempts is the number of retries after the first try.
	Attempts int
	// TryTimeout limits one try. 0 means no limit.
	TryTimeout time.Duration
	// Base and Max limit the random time between two tries.
	Base, Max time.Duration
	// OtherHosts reports whether a retry avoids endpoints that were tried before, and in how many picks.
	OtherHosts bool
	HostPicks  int
}

// RetryOn is a set of conditions.
type RetryOn uint

// The conditions of Envoy's x-envoy-retry-on and x-envoy-retry-grpc-on.
const (
	OnConnectFailure RetryOn = 1 << iota
	OnRefusedStream
	OnReset
	OnResetBeforeRequest
	On5xx
	OnGatewayError
	OnRetriable4xx
	OnStatuses
	OnGRPCCancelled
	OnGRPCDeadline
	OnGRPCInternal
	OnGRPCExhausted
	OnGRPCUnavailable
)

// Redirect answers with a Location.
type Redirect struct {
	Status int
	Scheme string
	HTTPS  bool
	Host   string
	Port   uint32
	// Path replaces the path, or Prefix replaces what the route matched, or Regex is substituted.
	Path       string
	Rewrite    PathRewrite
	StripQuery bool
}

// Direct answers with a fixed response.
type Direct struct {
	Status int
	Body   []byte
}

// CORS answers preflight requests and marks responses.
type CORS struct {
	Origins          []StringMatch
	Methods, Headers string
	Expose, MaxAge   string
	Credentials      bool
	// ForwardPreflight reports whether preflight requests of other origins go to the backend.
	ForwardPreflight bool
}

// HeaderAction is how a header is added.
type HeaderAction int

// The actions.
const (
	HeaderAppend HeaderAction = iota
	HeaderAddIfAbsent
	HeaderSet
	HeaderSetIfPresent
)

// HeaderValue is a header to add. Value is literal.
type HeaderValue struct {
	Name, Value string
	Action      HeaderAction
	KeepEmpty   bool
}

// HeaderChanges are applied in this order: remove, then add.
type HeaderChanges struct {
	RequestRemove  []string
	RequestAdd     []HeaderValue
	ResponseRemove []string
	ResponseAdd    []HeaderValue
}
