// Package admin serves the admin endpoints of Envoy that pilot-agent and tests use.
//
// Like Envoy's, they need no credentials, and listen on the address of the bootstrap configuration (loopback).
package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/hypergate/hypergate/test/envoy/internal/proxy"
	"github.com/hypergate/hypergate/test/envoy/internal/stats"
)

const (
	requestTimeout = 10 * time.Second
	maxHeaderBytes = 16 << 10
)

// State is Envoy's server state, with the numbers of the statistic server.state.
type State int64

// The states.
const (
	Live            State = 0
	PreInitializing State = 2
	Initializing    State = 3
)

// String returns Envoy's name.
func (s State) String() string {
	switch s {
	case Live:
		return "LIVE"
	case PreInitializing:
		return "PRE_INITIALIZING"
	case Initializing:
		return "INITIALIZING"
	}
	return "UNKNOWN"
}

// Server has what the endpoints show and do.
type Server struct {
	Stats *stats.Set
	Proxy *proxy.Proxy
	State func() State
	// Dump returns the active configuration.
	Dump func() any
	// Quit ends the program.
	Quit func()
	// Started is when the program began.
	Started time.Time
}

// HTTP returns the server for the endpoints.
func (s *Server) HTTP() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", s.ready)
	mux.HandleFunc("GET /server_info", s.info)
	mux.HandleFunc("GET /stats", s.stats)
	mux.HandleFunc("GET /stats/prometheus", func(w http.ResponseWriter, _ *http.Request) { s.Stats.Prometheus(w) })
	mux.HandleFunc("GET /listeners", s.listeners)
	mux.HandleFunc("GET /clusters", s.clusters)
	mux.HandleFunc("GET /config_dump", func(w http.ResponseWriter, _ *http.Request) { write(w, s.Dump()) })
	mux.HandleFunc("POST /drain_listeners", s.drain)
	mux.HandleFunc("POST /quitquitquit", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "OK")
		s.Quit()
	})
	return &http.Server{
		Handler: mux, ReadHeaderTimeout: requestTimeout, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout,
		MaxHeaderBytes: maxHeaderBytes,
	}
}

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	if s.State() != Live {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprintln(w, s.State())
}

func (s *Server) info(w http.ResponseWriter, _ *http.Request) {
	write(w, map[string]any{
		"version": "hypergate-stand-in", "state": s.State().String(),
		"uptime_current_epoch": fmt.Sprintf("%.0fs", time.Since(s.Started).Seconds()),
	})
}

// stats knows the parameters usedonly, which always holds, filter and format.
func (s *Server) stats(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if query.Get("format") == "prometheus" {
		s.Stats.Prometheus(w)
		return
	}
	var filter *regexp.Regexp
	if text := query.Get("filter"); text != "" {
		var err error
		if filter, err = regexp.Compile(text); err != nil {
			http.Error(w, "Invalid regex: "+err.Error(), http.StatusBadRequest)
			return
		}
	}
	s.Stats.Text(w, filter)
}

func (s *Server) listeners(w http.ResponseWriter, _ *http.Request) {
	for _, l := range s.Proxy.Listeners() {
		fmt.Fprintf(w, "%s::%s\n", l.Name, l.Address)
	}
}

func (s *Server) clusters(w http.ResponseWriter, _ *http.Request) {
	for _, e := range s.Proxy.Endpoints() {
		health := "healthy"
		if !e.Healthy {
			health = "/failed_eds_health"
		}
		fmt.Fprintf(w, "%s::%s::rq_active::%d\n%s::%s::health_flags::%s\n", e.Cluster, e.Address, e.Active, e.Cluster, e.Address, health)
	}
}

// drain knows the parameters graceful and skip_exit. All listeners of a gateway are outbound listeners, and
// inboundonly is for sidecars.
func (s *Server) drain(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	switch {
	case query.Has("inboundonly"):
		http.Error(w, "inboundonly is not supported", http.StatusBadRequest)
		return
	case query.Has("graceful"):
		s.Proxy.Drain(query.Has("skip_exit"))
	case query.Has("skip_exit"):
		http.Error(w, "skip_exit requires graceful", http.StatusBadRequest)
		return
	default:
		s.Proxy.StopListeners()
	}
	fmt.Fprintln(w, "OK")
}

func write(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", " ")
	_ = encoder.Encode(value) // An error means that the client has gone.
}
