package model

import (
	"net/http"
	"net/url"
	"strings"
)

// Request is what routes know about a request.
type Request struct {
	Method, Scheme string
	// Authority is the host with its port, if it has one.
	Authority string
	// Path is the path without the query, as it is matched. RawQuery is the query without the question mark.
	Path, RawQuery string
	Header         http.Header
	// Random is a number below a million, for Match.Fraction.
	Random uint32
}

// GRPC reports whether the request is a gRPC request.
func (r *Request) GRPC() bool { return IsGRPC(r.Header) }

// IsGRPC reports whether the content type is that of gRPC.
func IsGRPC(header http.Header) bool {
	kind := header.Get("Content-Type")
	return kind == "application/grpc" || strings.HasPrefix(kind, "application/grpc+")
}

// HostFor returns the virtual host for an authority, or nil. An exact domain is better than a suffix wildcard,
// that is better than a prefix wildcard, and a longer wildcard is better than a shorter one
// (envoy.config.route.v3.VirtualHost.domains).
func (t *RouteTable) HostFor(authority string) *VirtualHost {
	name := strings.ToLower(authority)
	if t.IgnorePort {
		name = WithoutPort(name)
	}
	var best *VirtualHost
	rank := 0
	for _, host := range t.Hosts {
		for _, domain := range host.Domains {
			if r := domainRank(strings.ToLower(domain), name); r > rank {
				best, rank = host, r
			}
		}
	}
	return best
}

const (
	exactRank  = 3 << 20
	suffixRank = 2 << 20
	prefixRank = 1 << 20
)

func domainRank(domain, name string) int {
	switch {
	case domain == "*":
		return 1
	case domain == name:
		return exactRank
	case strings.HasPrefix(domain, "*"):
		if suffix := domain[1:]; strings.HasSuffix(name, suffix) && len(name) > len(suffix) {
			return suffixRank + len(suffix)
		}
	case strings.HasSuffix(domain, "*"):
		if prefix := domain[:len(domain)-1]; strings.HasPrefix(name, prefix) && len(name) > len(prefix) {
			return prefixRank + len(prefix)
		}
	}
	return 0
}

// WithoutPort removes the port from an authority.
func WithoutPort(authority string) string {
	colon := strings.LastIndexByte(authority, ':')
	if colon < 0 || strings.HasSuffix(authority, "]") {
		return authority
	}
	for _, digit := range authority[colon+1:] {
		if digit < '0' || digit > '9' {
			return authority
		}
	}
	return authority[:colon]
}

// RouteFor returns the first route that takes the request, or nil.
func (v *VirtualHost) RouteFor(r *Request) *Route {
	for _, route := range v.Routes {
		if route.Match.Takes(r) {
			return route
		}
	}
	return nil
}

// Takes reports whether all parts of the condition hold.
func (m *Match) Takes(r *Request) bool {
	if !m.Path.Takes(r.Path) || m.GRPC && !r.GRPC() || m.Fraction > 0 && r.Random >= m.Fraction {
		return false
	}
	for _, header := range m.Headers {
		if !header.Takes(r) {
			return false
		}
	}
	if len(m.Query) == 0 {
		return true
	}
	query := queryOf(r.RawQuery)
	for _, q := range m.Query {
		value, present := query[q.Name]
		if !present || !q.Match.Takes(value) {
			return false
		}
	}
	return true
}

// queryOf returns the first value of each parameter.
func queryOf(raw string) map[string]string {
	first := map[string]string{}
	for pair := range strings.SplitSeq(raw, "&") {
		key, value, _ := strings.Cut(pair, "=")
		if _, known := first[key]; known || pair == "" {
			continue
		}
		if decoded, err := url.QueryUnescape(value); err == nil {
			value = decoded
		}
		first[key] = value
	}
	return first
}

// Takes reports whether the path, without a query, matches.
func (p *PathMatch) Takes(path string) bool {
	_, ok := p.matched(path)
	return ok
}

// matched returns the part of the path that a rewrite of the prefix replaces.
func (p *PathMatch) matched(path string) (string, bool) {
	value, compared := p.Value, path
	if p.IgnoreCase {
		value, compared = strings.ToLower(value), strings.ToLower(path)
	}
	switch p.Kind {
	case PathExact:
		return path, compared == value
	case PathSegments:
		rest, ok := strings.CutPrefix(compared, value)
		return path[:min(len(value), len(path))], ok && (rest == "" || rest[0] == '/')
	case PathRegex:
		loc := p.Regex.FindStringIndex(path)
		return path, loc != nil && loc[0] == 0 && loc[1] == len(path)
	case PathPrefix:
	}
	return path[:min(len(value), len(path))], strings.HasPrefix(compared, value)
}

// Takes reports whether the string matches.
func (s *StringMatch) Takes(text string) bool {
	value := s.Value
	if s.IgnoreCase {
		value, text = strings.ToLower(value), strings.ToLower(text)
	}
	switch s.Kind {
	case StringPrefix:
		return strings.HasPrefix(text, value)
	case StringSuffix:
		return strings.HasSuffix(text, value)
	case StringContains:
		return strings.Contains(text, value)
	case StringRegex:
		return s.Regex.MatchString(text)
	case StringAny:
		return true
	case StringExact:
	}
	return text == value
}

// Takes reports whether the condition on the header holds. Several values of one header are compared as one string,
// separated by commas.
func (h *HeaderMatch) Takes(r *Request) bool {
	value, present := r.header(h.Name)
	var holds bool
	switch {
	case h.Absent:
		holds = !present
	case present || h.MissingIsEmpty:
		holds = h.Match.Takes(value)
	case h.Match.Kind == StringAny:
		holds = false
	default:
		return false // Envoy: a missing header does not match, not even inverted.
	}
	return holds != h.Invert
}

func (r *Request) header(name string) (string, bool) {
	switch name {
	case ":method":
		return r.Method, true
	case ":authority", "host":
		return r.Authority, true
	case ":scheme":
		return r.Scheme, true
	case ":path":
		if r.RawQuery == "" {
			return r.Path, true
		}
		return r.Path + "?" + r.RawQuery, true
	}
	values := r.Header.Values(name)
	return strings.Join(values, ","), len(values) > 0
}
