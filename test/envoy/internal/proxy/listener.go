package proxy

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hypergate/hypergate/test/envoy/internal/model"
)

// bindRetry is the time between two attempts to bind an address that is in use.
const bindRetry = time.Second

// listener has the sockets of a model.Listener, and its filter chains.
type listener struct {
	proxy     *Proxy
	name      string
	addresses []string
	config    atomic.Pointer[bound]
	ctx       context.Context //nolint:containedctx // It is the life of the listener.
	cancel    context.CancelFunc

	mu      sync.Mutex
	sockets []net.Listener
	stopped bool
}

// bound is a configuration with the running chains.
type bound struct {
	*model.Listener
	chains map[*model.FilterChain]*chain
}

func newListener(p *Proxy, config *model.Listener) *listener {
	l := &listener{proxy: p, name: config.Name, addresses: config.Addresses}
	l.ctx, l.cancel = context.WithCancel(p.ctx)
	l.config.Store(&bound{Listener: config, chains: map[*model.FilterChain]*chain{}})
	for _, address := range config.Addresses {
		socket, err := l.bind(address)
		if err != nil {
			p.Stats.Add("listener_manager.listener_create_failure", 1)
			p.Log.Error("a listener cannot bind its address and tries again", "listener", l.name, "address", address, "error", err)
		}
		go l.accept(socket, address)
	}
	return l
}

// bind returns the error of the first attempt.
func (l *listener) bind(address string) (net.Listener, error) {
	socket, err := (&net.ListenConfig{}).Listen(l.ctx, network(address), address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return nil, errors.Join(net.ErrClosed, socket.Close())
	}
	l.sockets = append(l.sockets, socket)
	return socket, nil
}

// bindLater tries until the listener stops.
func (l *listener) bindLater(address string) net.Listener {
	ticker := time.NewTicker(bindRetry)
	defer ticker.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return nil
		case <-ticker.C:
		}
		if socket, err := l.bind(address); err == nil {
			return socket
		}
	}
}

func (l *listener) bound() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]string, 0, len(l.sockets))
	for _, socket := range l.sockets {
		all = append(all, socket.Addr().String())
	}
	return all
}

// update replaces the configuration. Chains with the same key stay, the others drain.
func (l *listener) update(config *model.Listener) {
	old := l.config.Load()
	if old.Listener == config && len(old.chains) > 0 {
		return
	}
	byKey := map[string]*chain{}
	for _, c := range old.chains {
		byKey[c.config.Key] = c
	}
	now := &bound{Listener: config, chains: map[*model.FilterChain]*chain{}}
	all := config.Chains
	if config.Default != nil {
		all = append(slices.Clip(all), config.Default)
	}
	for _, filterChain := range all {
		c := byKey[filterChain.Key]
		if c == nil {
			c = newChain(l, filterChain)
		}
		delete(byKey, filterChain.Key)
		now.chains[filterChain] = c
	}
	l.config.Store(now)
	for _, c := range byKey {
		c.drain(l.proxy.DrainTime)
	}
}

func (l *listener) accept(socket net.Listener, address string) {
	if socket == nil {
		if socket = l.bindLater(address); socket == nil {
			return
		}
	}
	for {
		conn, err := socket.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			l.proxy.Log.Warn("accepting failed", "listener", l.name, "error", err)
			continue
		}
		select {
		case l.proxy.slots <- struct{}{}:
			go l.serve(conn)
		default:
			l.proxy.Stats.Add("listener."+l.name+".downstream_cx_overflow", 1)
			_ = conn.Close()
		}
	}
}

// serve inspects a connection and hands it to its chain.
func (l *listener) serve(raw net.Conn) {
	active := "listener." + l.name + ".downstream_cx_active"
	l.proxy.Stats.Add(active, 1)
	l.proxy.Stats.Add("listener."+l.name+".downstream_cx_total", 1)
	conn := &tracked{Conn: raw, closed: func() {
		l.proxy.Stats.Add(active, -1)
		<-l.proxy.slots
	}}
	config := l.config.Load()
	about, err := config.inspect(conn)
	if err != nil {
		l.proxy.Stats.Add("listener."+l.name+".downstream_pre_cx_timeout", 1)
		_ = conn.Close()
		return
	}
	// The configuration may have changed since.
	config = l.config.Load()
	c := config.chains[config.ChainFor(about)]
	if c == nil {
		l.proxy.Stats.Add("listener."+l.name+".no_filter_chain_match", 1)
		_ = conn.Close()
		return
	}
	c.serve(conn)
}

// stop closes the sockets, and leaves the connections.
func (l *listener) stop() {
	l.cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	for _, socket := range l.sockets {
		_ = socket.Close()
	}
	l.sockets = nil
}

// close closes the sockets and drains the connections.
func (l *listener) close() {
	l.stop()
	for _, c := range l.config.Load().chains {
		c.drain(l.proxy.DrainTime)
	}
}

func (l *listener) closeConnections() {
	for _, c := range l.config.Load().chains {
		c.closeConnections()
	}
}

// network returns tcp4 for an IPv4 address, so that 0.0.0.0 does not take the IPv6 port, too.
func network(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil && net.ParseIP(host).To4() != nil {
		return "tcp4"
	}
	return "tcp"
}
