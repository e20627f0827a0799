package guestconn

import (
	"context"
	"net"
	"sync"
	"time"
)

// dialer opens a connection.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// connections are the connections of one session. They are closed together.
type connections struct {
	open dialer
	// closed is closed before the connections are.
	closed chan struct{}

	mu   sync.Mutex
	over bool
	all  map[*connection]struct{}
}

const (
	// connectTimeout ends an attempt to connect to the guest's API server. It is that of client-go.
	connectTimeout = 30 * time.Second
	// keepAliveEvery is the interval between the probes of an idle connection. It is that of client-go.
	keepAliveEvery = 30 * time.Second
)

func newConnections(open dialer) *connections {
	if open == nil {
		open = (&net.Dialer{Timeout: connectTimeout, KeepAlive: keepAliveEvery}).DialContext
	}
	return &connections{open: open, closed: make(chan struct{}), all: map[*connection]struct{}{}}
}

// dial opens a connection. If the session has already ended, it closes the connection and returns errReplaced.
func (c *connections) dial(ctx context.Context, network, address string) (net.Conn, error) {
	opened, err := c.open(ctx, network, address)
	if err != nil {
		return nil, err
	}
	conn := &connection{opened, c}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		_ = opened.Close()
		return nil, errReplaced
	}
	c.all[conn] = struct{}{}
	return conn, nil
}

// close closes all connections.
func (c *connections) close() {
	c.mu.Lock()
	all := c.all
	if !c.over {
		close(c.closed)
	}
	c.over, c.all = true, nil
	c.mu.Unlock()
	for conn := range all {
		_ = conn.Conn.Close()
	}
}

// connection is one connection of a session.
type connection struct {
	net.Conn
	of *connections
}

// Close closes the connection and removes it from its session.
func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.all, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
