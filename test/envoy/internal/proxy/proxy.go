package proxy

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hypergate/hypergate/test/envoy/internal/config"
	"github.com/hypergate/hypergate/test/envoy/internal/model"
	"github.com/hypergate/hypergate/test/envoy/internal/stats"
)

// maxConnections limits the connections of clients, over all listeners.
const maxConnections = 16384

// PodHeader is the response header that names the pod of the gateway. Envoy has no such header.
const PodHeader = "X-Gateway-Pod"

// Options configure a Proxy.
type Options struct {
	// DrainTime is how long connections drain. Immediately reports whether each response ends its connection
	// meanwhile, or with a growing probability.
	DrainTime   time.Duration
	Immediately bool
	// NoDrain makes Drain do nothing. It is for tests that must see what a missing drain costs.
	NoDrain bool
	// Pod is the value of the response header PodHeader. If it is empty, there is no such header.
	Pod   string
	Stats *stats.Set
	Log   *slog.Logger
}

// Proxy executes snapshots.
type Proxy struct {
	Options

	// ctx ends with Close.
	ctx    context.Context //nolint:containedctx // It is the life of the proxy.
	cancel context.CancelFunc
	// slots limits connections.
	slots   chan struct{}
	drained atomic.Pointer[time.Time]

	clusters atomic.Pointer[map[string]*cluster]
	routes   atomic.Pointer[map[string]*model.RouteTable]
	secrets  atomic.Pointer[map[model.SecretRef]*model.Secret]

	mu        sync.Mutex
	listeners map[string]*listener
	stopped   bool
}

// New returns a Proxy without listeners.
func New(options Options) *Proxy {
	p := &Proxy{Options: options, slots: make(chan struct{}, maxConnections), listeners: map[string]*listener{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.clusters.Store(&map[string]*cluster{})
	p.routes.Store(&map[string]*model.RouteTable{})
	p.secrets.Store(&map[model.SecretRef]*model.Secret{})
	return p
}

// Apply executes a snapshot. Listeners open once the snapshot is live.
func (p *Proxy) Apply(s *config.Snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.secrets.Store(&s.Secrets)
	p.routes.Store(&s.Routes)
	gone := p.applyClusters(s.Clusters)
	if s.Live && !p.stopped {
		p.applyListeners(s.Listeners)
	}
	for _, c := range gone { // After the listeners, so that no new connection needs them.
		c.close()
	}
}

// applyClusters returns the clusters that are not used by new requests any more.
func (p *Proxy) applyClusters(wanted map[string]config.Cluster) (gone []*cluster) {
	old, now := *p.clusters.Load(), map[string]*cluster{}
	for name, w := range wanted {
		c := old[name]
		if c == nil || c.config.Key != w.Key {
			c = newCluster(p, w.Cluster)
		}
		if w.Endpoints != nil && w.Discovery != model.StrictDNS && w.Discovery != model.LogicalDNS {
			c.setEndpoints(w.Endpoints)
		}
		now[name] = c
	}
	p.clusters.Store(&now)
	for name, c := range old {
		if now[name] != c {
			gone = append(gone, c)
		}
	}
	return gone
}

func (p *Proxy) applyListeners(wanted map[string]*model.Listener) {
	for name, l := range p.listeners {
		if w := wanted[name]; w == nil || !slices.Equal(w.Addresses, l.addresses) {
			l.close()
			delete(p.listeners, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		l := p.listeners[name]
		if l == nil {
			l = newListener(p, wanted[name])
			p.listeners[name] = l
		}
		l.update(wanted[name])
	}
}

// Drain starts the graceful drain of all listeners. After the drain time the sockets are closed, unless keep is
// set. It does nothing if a drain has begun before, or with NoDrain.
func (p *Proxy) Drain(keep bool) {
	now := time.Now()
	if p.NoDrain || !p.drained.CompareAndSwap(nil, &now) {
		return
	}
	p.Log.Info("draining", "time", p.DrainTime)
	if !keep {
		time.AfterFunc(p.DrainTime, p.StopListeners)
	}
}

// StopListeners closes all listening sockets. Connections stay.
func (p *Proxy) StopListeners() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	for _, l := range p.listeners {
		l.stop()
	}
}

// ending reports whether a response must end its connection, because a drain has begun at that time.
func (p *Proxy) ending(began *time.Time) bool {
	if began == nil {
		return false
	}
	return p.Immediately || rand.N(max(p.DrainTime, 1)) < time.Since(*began) //nolint:gosec // It protects nothing.
}

// Close ends all connections.
func (p *Proxy) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	p.cancel()
	for _, l := range p.listeners {
		l.stop()
		l.closeConnections()
	}
	for _, c := range *p.clusters.Load() {
		c.close()
	}
}

// Listener is a line of the admin endpoint /listeners.
type Listener struct{ Name, Address string }

// Listeners returns the open sockets.
func (p *Proxy) Listeners() []Listener {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []Listener
	for _, name := range slices.Sorted(maps.Keys(p.listeners)) {
		for _, address := range p.listeners[name].bound() {
			all = append(all, Listener{Name: name, Address: address})
		}
	}
	return all
}

// Endpoint is a line of the admin endpoint /clusters.
type Endpoint struct {
	Cluster, Address string
	Healthy          bool
	Active           int64
}

// Endpoints returns the endpoints of all clusters.
func (p *Proxy) Endpoints() []Endpoint {
	clusters := *p.clusters.Load()
	var all []Endpoint
	for _, name := range slices.Sorted(maps.Keys(clusters)) {
		all = append(all, clusters[name].list()...)
	}
	return all
}
