package proxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"

	"github.com/hypergate/hypergate/test/envoy/internal/model"
)

const (
	// maxPools limits the pools of connections of an endpoint. There is more than one if the SNI follows the request.
	maxPools = 128
	// idlePerHost is the number of unused connections to keep.
	idlePerHost = 1024
)

// endpoint is a model.Host with its connections.
type endpoint struct {
	cluster *cluster
	host    model.Host
	// tls is nil for plain text.
	tls     *model.ClientTLS
	active  atomic.Int64
	healthy atomic.Bool

	mu    sync.Mutex
	pools map[poolKey]*http.Transport
}

// poolKey is what connections of one pool have in common.
type poolKey struct {
	protocol model.Protocol
	sni      string
}

func newEndpoint(c *cluster, host model.Host) *endpoint {
	return &endpoint{cluster: c, host: host, tls: c.config.TLSFor(host.Labels), pools: map[poolKey]*http.Transport{}}
}

// dialError is an error before a request was sent.
type dialError struct{ error }

func (e dialError) Unwrap() error { return e.error }

func (e *endpoint) dial(ctx context.Context) (net.Conn, error) {
	dialer := net.Dialer{Timeout: e.cluster.config.ConnectTimeout}
	conn, err := dialer.DialContext(ctx, e.host.Network, e.host.Address)
	if err != nil {
		e.cluster.proxy.Stats.Add("cluster."+e.cluster.config.Name+".upstream_cx_connect_fail", 1)
		return nil, dialError{err}
	}
	return &counted{Conn: conn}, nil
}

// counted is a connection that counts what is written.
type counted struct {
	net.Conn

	written atomic.Int64
}

// Write implements io.Writer.
func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n))
	return n, err
}

// CloseWrite ends the sending direction.
func (c *counted) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// sentOnce returns a trace that calls again when net/http sends a request a second time although a part of it was
// written. net/http does that for GET on a connection that the server closes. Envoy does not: it is up to the route.
func sentOnce(again func()) *httptrace.ClientTrace {
	var last *counted
	var before int64
	return &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		conn := info.Conn
		if secure, ok := conn.(*tls.Conn); ok {
			conn = secure.NetConn()
		}
		if last != nil && last.written.Load() > before {
			again()
		}
		if last, _ = conn.(*counted); last != nil {
			before = last.written.Load()
		}
	}}
}

func (e *endpoint) dialTLS(ctx context.Context, sni string, alpn []string) (net.Conn, error) {
	config, err := e.cluster.proxy.clientTLS(e.tls, sni, alpn)
	if err != nil {
		return nil, dialError{err}
	}
	conn, err := e.dial(ctx)
	if err != nil {
		return nil, err
	}
	secure := tls.Client(conn, config)
	ctx, cancel := context.WithTimeout(ctx, e.cluster.config.ConnectTimeout)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		e.cluster.proxy.Stats.Add("cluster."+e.cluster.config.Name+".ssl.connection_error", 1)
		return nil, dialError{fmt.Errorf("TLS error: %w", err)}
	}
	return secure, nil
}

// roundTrip sends a request. protocol is HTTP1, HTTP2 or AutoProtocol.
func (e *endpoint) roundTrip(r *http.Request, protocol model.Protocol) (*http.Response, error) {
	r.URL.Scheme, r.URL.Host = "http", e.host.Address
	if e.host.Network == "unix" {
		r.URL.Host = "unix"
	}
	key := poolKey{protocol: protocol}
	if e.tls != nil {
		r.URL.Scheme, key.sni = "https", e.tls.ServerName
		if e.tls.SNIFromHost && key.sni == "" {
			key.sni = model.WithoutPort(r.Host)
		}
	}
	return e.pool(key).RoundTrip(r)
}

func (e *endpoint) pool(key poolKey) *http.Transport {
	e.mu.Lock()
	defer e.mu.Unlock()
	pool := e.pools[key]
	if pool == nil {
		for old, unused := range e.pools {
			if len(e.pools) < maxPools {
				break
			}
			unused.CloseIdleConnections()
			delete(e.pools, old)
		}
		pool = e.newPool(key)
		e.pools[key] = pool
	}
	return pool
}

func (e *endpoint) newPool(key poolKey) *http.Transport {
	pool := &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return e.dial(ctx) },
		DisableCompression: true, MaxIdleConnsPerHost: idlePerHost, IdleConnTimeout: e.cluster.config.IdleTimeout,
		Protocols: new(http.Protocols),
	}
	alpn := []string{"http/1.1"}
	switch key.protocol {
	case model.HTTP2:
		alpn = []string{"h2"}
		pool.Protocols.SetHTTP2(true)
		pool.Protocols.SetUnencryptedHTTP2(true)
	case model.AutoProtocol:
		alpn = []string{"h2", "http/1.1"}
		pool.Protocols.SetHTTP1(true)
		pool.Protocols.SetHTTP2(true)
	case model.HTTP1, model.SameProtocol:
		pool.Protocols.SetHTTP1(true)
	}
	if e.tls != nil && len(e.tls.ALPN) > 0 {
		alpn = e.tls.ALPN
	}
	pool.DialTLSContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return e.dialTLS(ctx, key.sni, alpn) }
	return pool
}

// closeIdle closes unused connections.
func (e *endpoint) closeIdle() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, pool := range e.pools {
		pool.CloseIdleConnections()
	}
}
