package proxy

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hypergate/hypergate/test/envoy/internal/model"
)

const (
	handshakeTimeout = 15 * time.Second
	// headerTimeout is the time for the headers of a request. Envoy has no limit by default. net/http also ends a
	// connection then that had no request, and can answer 400 to one that arrives just then. Clients must have ended
	// such a connection before.
	headerTimeout  = 24 * time.Hour
	maxStreams     = 1024
	defaultIdle    = time.Hour
	acceptedUnread = 64
)

// chain runs a filter chain.
type chain struct {
	proxy  *Proxy
	config *model.FilterChain
	// server is nil for a TCP proxy. accepted hands connections to it.
	server   *http.Server
	accepted chan net.Conn
	closed   chan struct{}
	// drained is when the chain began to drain, or nil.
	drained atomic.Pointer[time.Time]

	mu    sync.Mutex
	conns map[*tracked]bool
	ended bool
}

func newChain(l *listener, config *model.FilterChain) *chain {
	c := &chain{
		proxy: l.proxy, config: config, conns: map[*tracked]bool{},
		accepted: make(chan net.Conn, acceptedUnread), closed: make(chan struct{}),
	}
	if http, ok := config.Filter.(*model.HTTP); ok {
		c.server = c.newServer(http)
		go func() { _ = c.server.Serve(c) }() // It ends when the chain is closed.
	}
	return c
}

func (c *chain) newServer(config *model.HTTP) *http.Server {
	idle := config.IdleTimeout
	if idle == 0 {
		idle = defaultIdle
	}
	server := &http.Server{
		Handler:           &handler{proxy: c.proxy, chain: c, config: config},
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idle, MaxHeaderBytes: config.MaxHeaderBytes,
		Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ErrorLog: slog.NewLogLogger(c.proxy.Log.Handler(), slog.LevelDebug),
		// The context of a request lives as long as its connection. It ends with Close.
		BaseContext: func(net.Listener) context.Context { return c.proxy.ctx },
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	return server
}

// Accept implements net.Listener for the server.
func (c *chain) Accept() (net.Conn, error) {
	select {
	case conn := <-c.accepted:
		return conn, nil
	case <-c.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (c *chain) Close() error { return nil }

// Addr implements net.Listener.
func (c *chain) Addr() net.Addr { return &net.TCPAddr{} }

// serve takes over the connection.
func (c *chain) serve(conn *tracked) {
	if !c.add(conn) {
		_ = conn.Close()
		return
	}
	var stream net.Conn = conn
	if c.config.TLS != nil {
		secure := tls.Server(conn, c.proxy.serverTLS(c.config.TLS))
		ctx, cancel := context.WithTimeout(c.proxy.ctx, handshakeTimeout)
		err := secure.HandshakeContext(ctx)
		cancel()
		if err != nil {
			c.proxy.Stats.Add("ssl.connection_error", 1)
			c.proxy.Log.Debug("a TLS handshake has failed", "error", err)
			_ = conn.Close()
			return
		}
		stream = secure
	}
	if filter, ok := c.config.Filter.(*model.TCP); ok {
		c.proxy.forwardTCP(stream, filter)
		return
	}
	select {
	case c.accepted <- stream:
	case <-c.closed:
		_ = conn.Close()
	}
}

func (c *chain) add(conn *tracked) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	c.conns[conn] = true
	release := conn.closed
	conn.closed = func() {
		release()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.conns, conn)
	}
	return true
}

// drain makes each response end its connection, and closes all connections after that time.
func (c *chain) drain(after time.Duration) {
	now := time.Now()
	if c.drained.CompareAndSwap(nil, &now) {
		time.AfterFunc(after, c.closeConnections)
	}
}

// ending reports whether a response must end its connection.
func (c *chain) ending() bool {
	return c.proxy.ending(c.drained.Load()) || c.proxy.ending(c.proxy.drained.Load())
}

func (c *chain) closeConnections() {
	c.mu.Lock()
	if !c.ended {
		c.ended = true
		close(c.closed)
	}
	open := make([]*tracked, 0, len(c.conns))
	for conn := range c.conns {
		open = append(open, conn)
	}
	c.mu.Unlock()
	for _, conn := range open {
		_ = conn.Close()
	}
}
