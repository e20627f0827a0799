package proxy

import (
	"context"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hypergate/hypergate/test/envoy/internal/model"
)

// lookupTimeout limits a DNS lookup.
const lookupTimeout = 5 * time.Second

// cluster runs a model.Cluster.
type cluster struct {
	proxy  *Proxy
	config *model.Cluster
	cancel context.CancelFunc
	hosts  atomic.Pointer[hosts]
	next   atomic.Uint64

	mu        sync.Mutex
	current   *model.Endpoints
	endpoints map[string]*endpoint
}

// hosts are the endpoints that take requests, with their weights.
type hosts struct {
	usable  []*endpoint
	weights []uint32
	// equal reports whether all weights are the same.
	equal bool
	all   []*endpoint
}

func newCluster(p *Proxy, config *model.Cluster) *cluster {
	c := &cluster{proxy: p, config: config, endpoints: map[string]*endpoint{}}
	c.hosts.Store(&hosts{})
	ctx, cancel := context.WithCancel(p.ctx)
	c.cancel = cancel
	switch config.Discovery {
	case model.StrictDNS, model.LogicalDNS:
		go c.resolve(ctx)
	case model.Static:
		c.setEndpoints(config.Inline)
	case model.EDS:
	}
	return c
}

// close ends lookups and unused connections. Requests that are under way end as they would have.
func (c *cluster) close() {
	c.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.endpoints {
		e.closeIdle()
	}
}

func hostKey(h model.Host) string {
	var key strings.Builder
	key.WriteString(h.Network + " " + h.Address + " " + h.Hostname)
	if len(h.Labels) > 0 {
		// Only labels that select another TLS would matter, but endpoints with labels are few.
		for _, name := range []string{"tlsMode", "tunnel"} {
			key.WriteString(" " + h.Labels[name])
		}
	}
	return key.String()
}

// setEndpoints replaces the endpoints. Those that stay keep their connections.
func (c *cluster) setEndpoints(from *model.Endpoints) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == from {
		return
	}
	c.current = from
	now := map[string]*endpoint{}
	var rows []row
	for _, locality := range from.Localities {
		sum := uint32(0)
		for _, host := range locality.Hosts {
			sum += host.Weight
		}
		for _, host := range locality.Hosts {
			key := hostKey(host)
			e := c.endpoints[key]
			if e == nil {
				e = newEndpoint(c, host)
			}
			now[key] = e
			weight := uint64(host.Weight)
			if c.config.LocalityWeighted && sum > 0 {
				weight = max(uint64(locality.Weight)*weight*1000/uint64(sum), 1)
			}
			rows = append(rows, row{e, locality.Priority, uint32(min(weight, 1<<31)), host.Healthy})
		}
	}
	for key, e := range c.endpoints {
		if now[key] == nil {
			e.closeIdle()
		}
	}
	c.endpoints = now
	c.hosts.Store(newHosts(rows, c.config.Panic))
}

// row is an endpoint with what decides whether it takes requests.
type row struct {
	*endpoint

	priority uint32
	weight   uint32
	healthy  bool
}

// newHosts selects the healthy endpoints of the first priority that has one. In panic mode, all endpoints of the
// first priority are used if there is no healthy one.
func newHosts(rows []row, panicMode bool) *hosts {
	const none = uint32(1<<32 - 1)
	healthy, lowest := none, none
	for _, r := range rows {
		r.endpoint.healthy.Store(r.healthy)
		lowest = min(lowest, r.priority)
		if r.healthy {
			healthy = min(healthy, r.priority)
		}
	}
	takes := func(r row) bool { return r.healthy && r.priority == healthy }
	if healthy == none {
		takes = func(r row) bool { return panicMode && r.priority == lowest }
	}
	out := &hosts{equal: true}
	for _, r := range rows {
		out.all = append(out.all, r.endpoint)
		if !takes(r) {
			continue
		}
		out.usable = append(out.usable, r.endpoint)
		out.weights = append(out.weights, r.weight)
		out.equal = out.equal && r.weight == out.weights[0]
	}
	return out
}

// pick selects an endpoint, or nil. It tries that often to find one that was not tried before.
func (c *cluster) pick(tried map[*endpoint]bool, picks int) *endpoint {
	h := c.hosts.Load()
	if len(h.usable) == 0 {
		return nil
	}
	var e *endpoint
	for range max(picks, 1) {
		e = c.choose(h)
		if !tried[e] {
			return e
		}
	}
	return e
}

func (c *cluster) choose(h *hosts) *endpoint {
	random := func() *endpoint {
		if h.equal {
			return h.usable[rand.IntN(len(h.usable))] //nolint:gosec // It protects nothing.
		}
		return h.usable[chooseRandomly(h.weights)]
	}
	switch c.config.Balancing {
	case model.LeastRequest:
		one, other := random(), random()
		if other.active.Load() < one.active.Load() {
			return other
		}
		return one
	case model.RoundRobin:
		if !h.equal {
			total := model.Total(h.weights)
			return h.usable[model.Choose(h.weights, c.next.Add(1)%max(total, 1))]
		}
		return h.usable[c.next.Add(1)%uint64(len(h.usable))]
	case model.Random:
	}
	return random()
}

// resolve looks the names up again and again.
func (c *cluster) resolve(ctx context.Context) {
	ticker := time.NewTicker(max(c.config.DNSRefresh, time.Second))
	defer ticker.Stop()
	for {
		if found := c.lookup(ctx); found != nil {
			c.setEndpoints(found)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// lookup returns the endpoints with addresses in place of names. If a name cannot be resolved, it returns nil, and
// the former endpoints stay.
func (c *cluster) lookup(ctx context.Context) *model.Endpoints {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	out := &model.Endpoints{Name: c.config.Name}
	for _, locality := range c.config.Inline.Localities {
		resolved := locality
		resolved.Hosts = nil
		for _, host := range locality.Hosts {
			name, port, err := net.SplitHostPort(host.Address)
			if err != nil {
				return nil
			}
			addresses, err := net.DefaultResolver.LookupHost(ctx, name)
			if err != nil {
				c.proxy.Stats.Add("cluster."+c.config.Name+".update_failure", 1)
				return nil
			}
			if c.config.Discovery == model.LogicalDNS {
				addresses = addresses[:1]
			}
			for _, address := range addresses {
				one := host
				one.Address, one.Hostname = net.JoinHostPort(address, port), name
				resolved.Hosts = append(resolved.Hosts, one)
			}
		}
		out.Localities = append(out.Localities, resolved)
	}
	return out
}

func (c *cluster) list() []Endpoint {
	endpoints := c.hosts.Load().all
	all := make([]Endpoint, 0, len(endpoints))
	for _, e := range endpoints {
		all = append(all, Endpoint{Cluster: c.config.Name, Address: e.host.Address, Healthy: e.healthy.Load(), Active: e.active.Load()})
	}
	return all
}
