package proxy

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/hypergate/hypergate/test/envoy/internal/model"
)

// forwardTCP connects the client with an endpoint, until both directions have ended.
func (p *Proxy) forwardTCP(client net.Conn, config *model.TCP) {
	defer func() { _ = client.Close() }()
	weights := make([]uint32, 0, len(config.Clusters))
	for _, c := range config.Clusters {
		weights = append(weights, c.Weight)
	}
	name := config.Clusters[chooseRandomly(weights)].Cluster
	c := (*p.clusters.Load())[name]
	if c == nil {
		p.failTCP(config, name, "the cluster does not exist")
		return
	}
	tried := map[*endpoint]bool{}
	for range config.ConnectAttempts {
		e := c.pick(tried, 1)
		if e == nil {
			p.failTCP(config, name, "no healthy endpoint")
			return
		}
		tried[e] = true
		upstream, err := e.dialStream(p.ctx)
		if err != nil {
			p.failTCP(config, name, err.Error())
			continue
		}
		e.active.Add(1)
		splice(client, upstream, config.IdleTimeout)
		e.active.Add(-1)
		return
	}
}

func (p *Proxy) failTCP(config *model.TCP, cluster, reason string) {
	p.Stats.Add("tcp."+config.StatPrefix+".downstream_cx_no_route", 1)
	p.Log.Warn("a connection has no endpoint", "cluster", cluster, "reason", reason)
}

// dialStream connects for the TCP proxy, with TLS if the cluster has it.
func (e *endpoint) dialStream(ctx context.Context) (net.Conn, error) {
	if e.tls == nil {
		return e.dial(ctx)
	}
	return e.dialTLS(ctx, e.tls.ServerName, e.tls.ALPN)
}

// splice copies in both directions. The end of one direction is passed on. A connection without data in both
// directions ends after the idle time.
func splice(a, b net.Conn, idle time.Duration) {
	defer func() { _ = b.Close() }()
	touch := func() {
		deadline := time.Time{}
		if idle > 0 {
			deadline = time.Now().Add(idle)
		}
		_, _ = a.SetDeadline(deadline), b.SetDeadline(deadline)
	}
	touch()
	var both sync.WaitGroup
	for _, direction := range [][2]net.Conn{{a, b}, {b, a}} {
		both.Go(func() {
			from, to := direction[0], direction[1]
			_, err := io.Copy(to, touching{from, touch})
			half, ok := to.(interface{ CloseWrite() error })
			if err != nil || !ok {
				_, _ = from.Close(), to.Close()
				return
			}
			_ = half.CloseWrite()
		})
	}
	both.Wait()
}

// touching calls a function after each read.
type touching struct {
	io.Reader

	touch func()
}

// Read implements io.Reader.
func (t touching) Read(p []byte) (int, error) {
	n, err := t.Reader.Read(p)
	if n > 0 {
		t.touch()
	}
	return n, err
}

// chooseRandomly returns an index by weight.
func chooseRandomly(weights []uint32) int {
	total := model.Total(weights)
	if total == 0 {
		return 0
	}
	return model.Choose(weights, rand.N(total)) //nolint:gosec // It protects nothing.
}
