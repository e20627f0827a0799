package proxy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hypergate/hypergate/test/envoy/internal/model"
)

var (
	errTimeout = errors.New("upstream request timeout")
	errNoHosts = errors.New("no healthy upstream")
	errReset   = errors.New("the endpoint has closed the connection")
)

// resetBefore is the beginning of Envoy's body for such a response.
const resetBefore = "upstream connect error or disconnect/reset before headers. reset reason: "

// mirrorTimeout limits a mirrored request if the route has no timeout.
const mirrorTimeout = time.Minute

// forward sends the request to one of the clusters of the route.
func (x *exchange) forward(action *model.Forward) {
	if x.upgrade != "" && !x.upgradeAllowed(action) {
		x.reply(http.StatusForbidden, "the upgrade is not allowed")
		return
	}
	var weights []uint32
	for _, destination := range action.Clusters {
		weights = append(weights, destination.Weight)
	}
	destination := &action.Clusters[chooseRandomly(weights)]
	c := (*x.proxy.clusters.Load())[destination.Cluster]
	if c == nil {
		x.proxy.Log.Warn("a route names a cluster that does not exist", "cluster", destination.Cluster)
		x.reply(action.NotFound, "")
		return
	}
	answer, ok := x.process()
	if !ok {
		return
	}
	ctx, cancel := context.WithCancelCause(x.r.Context())
	defer cancel(nil)
	t := &attempts{exchange: x, action: action, cluster: c, began: time.Now(), hinted: answer.hinted(c)}
	startTimer := x.timer(action, cancel)
	defer startTimer.stop()
	if x.hasBody() {
		t.body = newSpool(x.r.Body, startTimer.start)
	} else {
		startTimer.start()
	}
	out, err := x.outgoing(action, destination)
	if err != nil {
		x.reply(http.StatusBadRequest, err.Error())
		return
	}
	if answer != nil {
		answer.headers.ApplyRequest(out.header)
	}
	x.mirror(action, out, t.body)
	proxy := &httputil.ReverseProxy{
		Rewrite:      func(p *httputil.ProxyRequest) { out.apply(p.Out) },
		Transport:    t,
		ErrorLog:     slog.NewLogLogger(x.proxy.Log.Handler(), slog.LevelDebug),
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, err error) { x.fail(r.Context(), err) },
	}
	proxy.ModifyResponse = func(response *http.Response) error {
		x.response(response, destination, t)
		if response.ContentLength != 0 {
			// A response without a body must not be flushed: gRPC needs its headers and its end in one frame.
			proxy.FlushInterval = -1
		}
		return nil
	}
	proxy.ServeHTTP(x.w, x.r.WithContext(ctx))
}

// hasBody reports whether the request has a body that is sent on.
func (x *exchange) hasBody() bool {
	return x.r.Body != nil && x.r.Body != http.NoBody && x.r.ContentLength != 0 && x.upgrade == ""
}

// fail answers for a request without a response.
func (x *exchange) fail(ctx context.Context, err error) {
	if cause := context.Cause(ctx); errors.Is(cause, errTimeout) {
		err = cause
	}
	var dialled dialError
	switch {
	case errors.Is(err, errTimeout):
		x.reply(http.StatusGatewayTimeout, errTimeout.Error())
	case errors.Is(err, errNoHosts):
		x.reply(http.StatusServiceUnavailable, errNoHosts.Error())
	case x.r.Context().Err() != nil: // The client has gone.
		x.reply(http.StatusServiceUnavailable, "downstream has gone")
	case errors.As(err, &dialled):
		x.reply(http.StatusServiceUnavailable,
			resetBefore+"remote connection failure, transport failure reason: "+err.Error())
	default:
		x.reply(http.StatusServiceUnavailable,
			resetBefore+"connection termination: "+err.Error())
	}
}

// response changes a response before it goes to the client.
func (x *exchange) response(response *http.Response, destination *model.Destination, t *attempts) {
	x.proxy.Stats.Add("http."+x.config.StatPrefix+".downstream_rq_"+strconv.Itoa(response.StatusCode/100)+"xx", 1)
	response.Header.Set("X-Envoy-Upstream-Service-Time", strconv.FormatInt(time.Since(t.began).Milliseconds(), 10))
	x.changeResponse(response.Header, destination)
	x.finish(response.Header)
	if value := response.Header.Get("Connection"); value == "close" {
		// ReverseProxy passes on the headers of the response as they are after this function.
		x.w.Header().Set("Connection", value)
		response.Header.Del("Connection")
	}
}

// outgoing is the request for the endpoint, apart from its body.
type outgoing struct {
	url    *url.URL
	host   string
	header http.Header
	method string
}

func (o *outgoing) apply(r *http.Request) {
	r.URL, r.Host, r.Header = o.url, o.host, o.header
}

// outgoing applies the changes of the route.
func (x *exchange) outgoing(action *model.Forward, destination *model.Destination) (*outgoing, error) {
	path := action.Path.Apply(&x.route.Match.Path, x.about.Path)
	raw := path
	if x.r.URL.RawQuery != "" || x.r.URL.ForceQuery {
		raw += "?" + x.r.URL.RawQuery
	}
	target := &url.URL{Path: raw}
	if path != "*" {
		var err error
		if target, err = url.ParseRequestURI(raw); err != nil {
			return nil, err
		}
	}
	out := &outgoing{url: target, host: x.r.Host, header: x.r.Header.Clone(), method: x.r.Method}
	for _, name := range hopByHop(x.r.Header) {
		out.header.Del(name)
	}
	if x.upgrade != "" {
		out.header.Set("Connection", "Upgrade")
		out.header.Set("Upgrade", x.r.Header.Get("Upgrade"))
	}
	if strings.Contains(strings.ToLower(x.r.Header.Get("Te")), "trailers") {
		out.header.Set("Te", "trailers")
	}
	if out.header.Get("User-Agent") == "" {
		out.header["User-Agent"] = []string{""} // Otherwise net/http sends its own.
	}
	x.edgeHeaders(out.header)
	destination.Headers.ApplyRequest(out.header)
	x.route.Headers.ApplyRequest(out.header)
	x.host.Headers.ApplyRequest(out.header)
	x.table.Headers.ApplyRequest(out.header)
	host := destination.Host
	if action.Host != "" {
		host = action.Host
	}
	if host != "" {
		if action.ForwardedHost {
			out.header.Add("X-Forwarded-Host", out.host)
		}
		out.host = host
	}
	return out, nil
}

// hopByHop returns the headers that are about the connection.
func hopByHop(header http.Header) []string {
	names := []string{
		"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade",
	}
	for _, value := range header.Values("Connection") {
		for name := range strings.SplitSeq(value, ",") {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}

// mirror sends copies of the request, and drops the responses.
func (x *exchange) mirror(action *model.Forward, out *outgoing, body *spool) {
	for _, mirror := range action.Mirrors {
		if rand.Uint32N(1_000_000) >= mirror.Fraction { //nolint:gosec // It protects nothing.
			continue
		}
		c := (*x.proxy.clusters.Load())[mirror.Cluster]
		if c == nil {
			continue
		}
		host := out.host
		if !mirror.KeepHost {
			host = shadowHost(host)
		}
		timeout := mirrorTimeout
		if action.Timeout > 0 {
			timeout = action.Timeout
		}
		ctx, cancel := context.WithTimeout(x.proxy.ctx, timeout)
		r := (&http.Request{
			Method: out.method, URL: cloneURL(out.url), Host: host, Header: out.header.Clone(), ContentLength: x.r.ContentLength,
			Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		}).WithContext(ctx)
		if body != nil {
			r.Body = body.reader()
		}
		protocol := x.protocol(c)
		go func() {
			defer cancel()
			e := c.pick(nil, 1)
			if e == nil {
				return
			}
			response, err := e.roundTrip(r, protocol)
			if err != nil {
				x.proxy.Log.Debug("a mirrored request has failed", "cluster", mirror.Cluster, "error", err)
				return
			}
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}()
	}
}

// shadowHost marks the host of a mirrored request.
func shadowHost(host string) string {
	name := model.WithoutPort(host)
	return name + "-shadow" + strings.TrimPrefix(host, name)
}

func cloneURL(u *url.URL) *url.URL {
	c := *u
	return &c
}

// protocol returns what to speak with the cluster for this request.
func (x *exchange) protocol(c *cluster) model.Protocol {
	if c.config.Protocol != model.SameProtocol {
		return c.config.Protocol
	}
	if x.r.ProtoMajor == 2 && x.upgrade == "" {
		return model.HTTP2
	}
	return model.HTTP1
}

// timer limits the time from the end of the request.
type timer struct {
	after  time.Duration
	cancel context.CancelCauseFunc
	done   chan struct{}
}

func (x *exchange) timer(action *model.Forward, cancel context.CancelCauseFunc) *timer {
	return &timer{after: requestTimeout(action, x.grpc, x.r.Header.Get("Grpc-Timeout")), cancel: cancel, done: make(chan struct{})}
}

// start is called at most once.
func (t *timer) start() {
	if t.after <= 0 {
		return
	}
	go func() {
		timer := time.NewTimer(t.after)
		defer timer.Stop()
		select {
		case <-timer.C:
			t.cancel(errTimeout)
		case <-t.done:
		}
	}()
}

func (t *timer) stop() { close(t.done) }

// requestTimeout returns 0 for no limit (envoy.config.route.v3.RouteAction.max_grpc_timeout).
func requestTimeout(action *model.Forward, grpc bool, header string) time.Duration {
	if !grpc || !action.GRPCTimeout.Obey {
		return action.Timeout
	}
	asked := grpcTimeout(header)
	if limit := action.GRPCTimeout.Max; limit > 0 && (asked == 0 || asked > limit) {
		return limit
	}
	return asked
}

// grpcTimeout reads the header grpc-timeout. 0 means that there is none.
func grpcTimeout(header string) time.Duration {
	if header == "" {
		return 0
	}
	units := map[byte]time.Duration{
		'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond,
	}
	unit, ok := units[header[len(header)-1]]
	number, err := strconv.ParseUint(header[:len(header)-1], 10, 27)
	if !ok || err != nil {
		return 0
	}
	return time.Duration(number) * unit
}
