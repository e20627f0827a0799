package adversary

import (
	"slices"
	"time"
)

// Request is a request that a server received.
type Request struct {
	At                  time.Time
	Method, Path, Query string
}

// String returns the request without its time.
func (r Request) String() string { return r.Method + " " + r.Path + "?" + r.Query }

// Log returns all requests since the start, in order of arrival.
func (s *Server) Log() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Requests returns the requests with this method since the start, each as method, path and query.
func (s *Server) Requests(method string) []string {
	var out []string
	for _, r := range s.Log() {
		if r.Method == method {
			out = append(out, r.String())
		}
	}
	return out
}
