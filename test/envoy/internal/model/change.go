package model

import (
	"net/http"
	"strconv"
	"strings"
)

// ApplyRequest changes the headers of a request.
func (c *HeaderChanges) ApplyRequest(header http.Header) {
	applyHeaders(header, c.RequestRemove, c.RequestAdd)
}

// ApplyResponse changes the headers of a response.
func (c *HeaderChanges) ApplyResponse(header http.Header) {
	applyHeaders(header, c.ResponseRemove, c.ResponseAdd)
}

func applyHeaders(header http.Header, remove []string, add []HeaderValue) {
	for _, name := range remove {
		header.Del(name)
	}
	for _, h := range add {
		present := len(header.Values(h.Name)) > 0
		switch {
		case h.Value == "" && !h.KeepEmpty:
		case h.Action == HeaderAppend:
			header.Add(h.Name, h.Value)
		case h.Action == HeaderSet, h.Action == HeaderAddIfAbsent && !present, h.Action == HeaderSetIfPresent && present:
			header.Set(h.Name, h.Value)
		}
	}
}

// Apply returns the new path for a path that the route has matched. Both are without a query.
func (p *PathRewrite) Apply(match *PathMatch, path string) string {
	switch {
	case p.Regex != nil:
		return p.Regex.ReplaceAllString(path, p.Substitution)
	case p.Prefix != "":
		matched, _ := match.matched(path)
		return p.Prefix + path[len(matched):]
	}
	return path
}

// Location returns the value of the header Location.
func (d *Redirect) Location(match *PathMatch, r *Request) string {
	scheme := r.Scheme
	switch {
	case d.Scheme != "":
		scheme = d.Scheme
	case d.HTTPS:
		scheme = "https"
	}
	host, port := d.Host, ""
	if d.Port != 0 {
		port = ":" + strconv.FormatUint(uint64(d.Port), 10)
	}
	if host == "" {
		host = hostFor(r, scheme, port != "")
	}
	path, query := d.newPath(match, r.Path), r.RawQuery
	if before, after, found := strings.Cut(d.Path, "?"); found {
		path, query = before, after
	} else if d.StripQuery {
		query = ""
	}
	if query != "" {
		path += "?" + query
	}
	return scheme + "://" + host + port + path
}

// hostFor returns the request's host, without its port if the port is replaced or is the default of the old scheme.
func hostFor(r *Request, scheme string, newPort bool) string {
	host := WithoutPort(r.Authority)
	old := strings.TrimPrefix(r.Authority, host)
	standard := r.Scheme == "https" && old == ":443" || r.Scheme == "http" && old == ":80"
	if newPort || scheme != r.Scheme && standard {
		return host
	}
	return r.Authority
}

func (d *Redirect) newPath(match *PathMatch, path string) string {
	if d.Path != "" {
		return d.Path
	}
	return d.Rewrite.Apply(match, path)
}

// Choose returns the index of a weight. random is below the sum of the weights.
func Choose(weights []uint32, random uint64) int {
	for i, weight := range weights {
		if random < uint64(weight) {
			return i
		}
		random -= uint64(weight)
	}
	return len(weights) - 1
}

// Total returns the sum of the weights.
func Total(weights []uint32) uint64 {
	var total uint64
	for _, weight := range weights {
		total += uint64(weight)
	}
	return total
}

// Preflight returns the headers that answer a preflight request, or nil if the origin is not allowed to do it.
func (c *CORS) Preflight(origin string) http.Header {
	if !c.allows(origin) {
		return nil
	}
	header := http.Header{}
	c.mark(header, origin)
	for name, value := range map[string]string{
		"Access-Control-Allow-Methods": c.Methods,
		"Access-Control-Allow-Headers": c.Headers,
		"Access-Control-Max-Age":       c.MaxAge,
	} {
		if value != "" {
			header.Set(name, value)
		}
	}
	return header
}

// Mark sets the headers of a response to a request with an origin.
func (c *CORS) Mark(header http.Header, origin string) {
	if !c.allows(origin) {
		return
	}
	c.mark(header, origin)
	if c.Expose != "" {
		header.Set("Access-Control-Expose-Headers", c.Expose)
	}
}

func (c *CORS) mark(header http.Header, origin string) {
	header.Set("Access-Control-Allow-Origin", origin)
	if c.Credentials {
		header.Set("Access-Control-Allow-Credentials", "true")
	}
}

func (c *CORS) allows(origin string) bool {
	for _, match := range c.Origins {
		if match.Takes(origin) {
			return true
		}
	}
	return false
}

// NormalPath removes dot segments, and repeated slashes if merge is set. The path has no query and begins with a
// slash.
func NormalPath(path string, merge bool) string {
	if !strings.Contains(path, "/.") && (!merge || !strings.Contains(path, "//")) {
		return path
	}
	segments := strings.Split(path[1:], "/")
	last := segments[len(segments)-1]
	if last == "." || last == ".." {
		segments = append(segments, "") // The path of a folder ends with a slash.
	}
	var kept []string
	for i, segment := range segments {
		switch {
		case segment == "..":
			kept = kept[:max(len(kept)-1, 0)]
		case segment == ".", segment == "" && merge && i < len(segments)-1:
		default:
			kept = append(kept, segment)
		}
	}
	return "/" + strings.Join(kept, "/")
}
