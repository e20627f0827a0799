package adversary

import (
	"slices"
	"time"
)

// Request is a request that a server got.
type Request struct {
	At                  time.Time
	Method, Path, Query string
}

// String is the request without its time.
func (r Request) String() string { return r.Method + " " + r.Path + "?" + r.Query }

// Log is all requests since the start, in the order in which they came.
func (s *Server) Log() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Requests are the requests with this method since the start, each as method, path and query.
func (s *Server) Requests(method string) []string {
	var out []string
	for _, r := range s.Log() {
		if r.Method == method {
			out = append(out, r.String())
		}
	}
	return out
}
