package proxy

import (
	"crypto/rand"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/hypergate/hypergate/test/envoy/internal/model"
)

// handler serves the requests of one filter chain.
type handler struct {
	proxy  *Proxy
	chain  *chain
	config *model.HTTP
}

// exchange is a request with what was decided about it.
type exchange struct {
	*handler

	w       http.ResponseWriter
	r       *http.Request
	about   *model.Request
	table   *model.RouteTable
	host    *model.VirtualHost
	route   *model.Route
	grpc    bool
	upgrade string
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.proxy.Stats.Add("http."+h.config.StatPrefix+".downstream_rq_total", 1)
	w.Header()["Content-Type"] = nil // Otherwise net/http guesses one for responses that have none.
	x := &exchange{handler: h, w: w, r: r, about: h.about(r), grpc: model.IsGRPC(r.Header), upgrade: upgradeOf(r)}
	if !strings.HasPrefix(x.about.Path, "/") && r.Method != http.MethodConnect && x.about.Path != "*" {
		x.reply(http.StatusBadRequest, "the path is not absolute")
		return
	}
	if x.table = h.table(); x.table == nil {
		x.reply(http.StatusNotFound, "there is no route configuration")
		return
	}
	if x.host = x.table.HostFor(r.Host); x.host == nil {
		x.reply(http.StatusNotFound, "no virtual host matches")
		return
	}
	if x.host.HTTPSOnly && x.about.Scheme == "http" {
		x.redirect(&model.Redirect{Status: http.StatusMovedPermanently, HTTPS: true})
		return
	}
	x.route = x.host.RouteFor(x.about)
	if x.route == nil {
		x.reply(http.StatusNotFound, "no route matches")
		return
	}
	if h.config.CORS && x.preflight() {
		return
	}
	x.act() //nolint:contextcheck // Mirrored requests outlive the request.
}

func (h *handler) table() *model.RouteTable {
	if h.config.Inline != nil {
		return h.config.Inline
	}
	return (*h.proxy.routes.Load())[h.config.RouteName]
}

func (h *handler) about(r *http.Request) *model.Request {
	about := &model.Request{Method: r.Method, Scheme: "http", Authority: r.Host, Header: r.Header, RawQuery: r.URL.RawQuery}
	if r.TLS != nil {
		about.Scheme = "https"
	}
	about.Path = r.URL.EscapedPath()
	if about.Path == "" {
		about.Path = "/"
	}
	if h.config.NormalizePath && strings.HasPrefix(about.Path, "/") {
		about.Path = model.NormalPath(about.Path, h.config.MergeSlashes)
	}
	about.Random = mathrand.Uint32N(1_000_000) //nolint:gosec // It protects nothing.
	return about
}

// upgradeOf returns the protocol of the header "upgrade" in lower case.
func upgradeOf(r *http.Request) string {
	for _, value := range r.Header.Values("Connection") {
		for token := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(token), "upgrade") {
				return strings.ToLower(r.Header.Get("Upgrade"))
			}
		}
	}
	return ""
}

func (x *exchange) cors() *model.CORS {
	if x.route.CORS != nil {
		return x.route.CORS
	}
	return x.host.CORS
}

// preflight reports whether it has answered a preflight request.
func (x *exchange) preflight() bool {
	policy, origin := x.cors(), x.r.Header.Get("Origin")
	if policy == nil || origin == "" || x.r.Method != http.MethodOptions || x.r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	header := policy.Preflight(origin)
	if header == nil && policy.ForwardPreflight {
		return false
	}
	maps.Copy(x.w.Header(), header)
	x.finish(x.w.Header())
	x.w.WriteHeader(http.StatusOK)
	return true
}

func (x *exchange) act() {
	switch action := x.route.Action.(type) {
	case *model.Direct:
		x.finish(x.w.Header())
		x.changeResponse(x.w.Header(), nil)
		if len(action.Body) > 0 && x.w.Header().Get("Content-Type") == "" {
			x.w.Header().Set("Content-Type", "text/plain")
		}
		x.w.Header().Set("Content-Length", strconv.Itoa(len(action.Body)))
		x.w.WriteHeader(action.Status)
		_, _ = x.w.Write(action.Body) // An error means that the client has gone.
	case *model.Redirect:
		x.redirect(action)
	case *model.Forward:
		x.forward(action)
	}
}

func (x *exchange) redirect(action *model.Redirect) {
	match := &model.PathMatch{}
	if x.route != nil {
		match = &x.route.Match.Path
	}
	x.finish(x.w.Header())
	x.w.Header().Set("Location", action.Location(match, x.about))
	if x.route != nil {
		x.changeResponse(x.w.Header(), nil)
	}
	x.w.Header().Set("Content-Length", "0")
	x.w.WriteHeader(action.Status)
}

// finish sets what each response has. It ends the connection during a drain.
func (x *exchange) finish(header http.Header) {
	if !x.config.PassServerHeader || header.Get("Server") == "" {
		header.Set("Server", x.config.ServerName)
	}
	if x.proxy.Pod != "" {
		header.Set(PodHeader, x.proxy.Pod)
	}
	if x.route != nil && x.config.CORS {
		if policy, origin := x.cors(), x.r.Header.Get("Origin"); policy != nil && origin != "" {
			policy.Mark(header, origin)
		}
	}
	if x.chain.ending() && x.upgrade == "" {
		// For HTTP/2, net/http sends GOAWAY instead.
		header.Set("Connection", "close")
	}
}

// changeResponse applies the changes of the route, the virtual host and the table, in this order.
func (x *exchange) changeResponse(header http.Header, destination *model.Destination) {
	if destination != nil {
		destination.Headers.ApplyResponse(header)
	}
	x.route.Headers.ApplyResponse(header)
	x.host.Headers.ApplyResponse(header)
	x.table.Headers.ApplyResponse(header)
}

// reply is a response of the proxy itself.
func (x *exchange) reply(status int, reason string) {
	x.proxy.Stats.Add(fmt.Sprintf("http.%s.downstream_rq_%dxx", x.config.StatPrefix, status/100), 1)
	if status >= http.StatusInternalServerError {
		x.proxy.Log.Warn("local reply", "status", status, "reason", reason, "host", x.r.Host, "path", x.about.Path)
	}
	header := x.w.Header()
	x.finish(header)
	if x.grpc {
		header.Set("Content-Type", "application/grpc")
		header.Set("Grpc-Status", strconv.Itoa(grpcStatus(status)))
		header.Set("Grpc-Message", reason)
		x.w.WriteHeader(http.StatusOK)
		return
	}
	body := ""
	if status >= http.StatusInternalServerError {
		body = reason
		header.Set("Content-Type", "text/plain")
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	x.w.WriteHeader(status)
	_, _ = x.w.Write([]byte(body)) // An error means that the client has gone.
}

// grpcStatus is the gRPC status for an HTTP status (Envoy: Grpc::Utility::httpToGrpcStatus).
func grpcStatus(status int) int {
	const internal, unauthenticated, denied, unimplemented, unavailable, unknown = 13, 16, 7, 12, 14, 2
	switch status {
	case http.StatusBadRequest:
		return internal
	case http.StatusUnauthorized:
		return unauthenticated
	case http.StatusForbidden:
		return denied
	case http.StatusNotFound:
		return unimplemented
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return unavailable
	}
	return unknown
}

// upgradeAllowed reports whether the request may switch to its protocol.
func (x *exchange) upgradeAllowed(action *model.Forward) bool {
	if allowed, listed := action.Upgrades[x.upgrade]; listed {
		return allowed
	}
	return slices.Contains(x.config.Upgrades, x.upgrade)
}

// edgeHeaders sets the headers that the proxy at the edge is responsible for.
func (x *exchange) edgeHeaders(header http.Header) {
	if client, _, err := net.SplitHostPort(x.r.RemoteAddr); err == nil && x.config.UseRemoteAddress {
		list := append(slices.Clone(x.r.Header.Values("X-Forwarded-For")), client)
		header.Set("X-Forwarded-For", strings.Join(list, ","))
	}
	if x.config.UseRemoteAddress || header.Get("X-Forwarded-Proto") == "" {
		header.Set("X-Forwarded-Proto", x.about.Scheme)
	}
	header.Del("X-Forwarded-Client-Cert")
	if header.Get("X-Request-Id") == "" {
		header.Set("X-Request-Id", requestID())
	}
}

// requestID returns a random UUID.
func requestID() string {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // It never fails.
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}
