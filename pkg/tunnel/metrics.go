package tunnel

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// traffic counts bytes.
type traffic struct{ toIstiod, toGateways atomic.Int64 }

type relayCounts struct {
	traffic

	tunnels, rejected, evicted    atomic.Int64
	gateways, turnedAway, streams atomic.Int64
}

type sidecarCounts struct {
	traffic

	open, streams, refused, failed atomic.Int64
	reconnects                     map[Reason]*atomic.Int64 // the keys never change
}

func newReconnects() map[Reason]*atomic.Int64 {
	counts := map[Reason]*atomic.Int64{}
	for _, reason := range reasons() {
		counts[reason] = &atomic.Int64{}
	}
	return counts
}

func (c *sidecarCounts) reconnect(reason Reason) { c.reconnects[reason].Add(1) }

// family is a metric with all its samples.
type family struct {
	name, kind, help string
	samples          []sample
}

// sample is one value. label is the only label and its value, or empty.
type sample struct {
	label string
	value float64
}

func gauge(name, help string, samples ...sample) family { return family{name, "gauge", help, samples} }

func counter(name, help string, samples ...sample) family {
	return family{name, "counter", help, samples}
}

func count(n *atomic.Int64) sample { return sample{value: float64(n.Load())} }

// labelled returns a sample with one label. The value has only characters of a Kubernetes name, or is a constant.
func labelled(label, value string, n float64) sample {
	return sample{fmt.Sprintf(`{%s=%q}`, label, value), n}
}

// exposition returns metrics in the Prometheus text format, version 0.0.4. The client library of Prometheus would add
// 4.4 MB to a binary of 7 MB.
func exposition(families []family) string {
	var out strings.Builder
	for _, f := range families {
		fmt.Fprintf(&out, "# HELP %s %s\n# TYPE %s %s\n", f.name, f.help, f.name, f.kind)
		for _, s := range f.samples {
			fmt.Fprintf(&out, "%s%s %g\n", f.name, s.label, s.value)
		}
	}
	return out.String()
}

func (t *traffic) family(name string) family {
	return counter(name, "Bytes of gateways, by direction.",
		labelled("direction", "to_istiod", float64(t.toIstiod.Load())),
		labelled("direction", "to_gateways", float64(t.toGateways.Load())))
}

func (r *Relay) metrics() []family {
	r.mu.Lock()
	held := float64(len(r.sessions))
	r.mu.Unlock()
	c := &r.counts
	return []family{
		gauge("hypergate_relay_tunnels", "Tunnels that the relay holds.", sample{value: held}),
		counter("hypergate_relay_tunnels_total", "Tunnels that were opened.", count(&c.tunnels)),
		counter("hypergate_relay_rejected_total", "Rejected connections on the port for tunnels.", count(&c.rejected)),
		counter("hypergate_relay_evicted_total", "Of these, connections that were closed for a newer one.", count(&c.evicted)),
		gauge("hypergate_relay_gateways", "Connections of gateways.", count(&c.gateways)),
		counter("hypergate_relay_gateways_rejected_total", "Rejected connections of gateways.", count(&c.turnedAway)),
		counter("hypergate_relay_streams_total", "Streams that were opened.", count(&c.streams)),
		c.family("hypergate_relay_bytes_total"),
	}
}

func (s *Sidecar) metrics() []family {
	up := gauge("hypergate_tunnel_up", "Whether there is a tunnel to a relay that accepts streams.")
	trip := gauge("hypergate_tunnel_round_trip_seconds", "Round trip of the last keepalive.")
	for _, to := range s.relays {
		one := to.current.Load()
		is := 0.0
		if one != nil && one.serves() {
			is = 1
			trip.samples = append(trip.samples, labelled("relay", to.relay, time.Duration(one.roundTrip.Load()).Seconds()))
		}
		up.samples = append(up.samples, labelled("relay", to.relay, is))
	}
	c := &s.counts
	again := counter("hypergate_tunnel_reconnects_total", "Attempts that failed and tunnels that ended, by reason.")
	for _, reason := range reasons() {
		again.samples = append(again.samples, labelled("reason", string(reason), float64(c.reconnects[reason].Load())))
	}
	return []family{
		up, trip, again,
		gauge("hypergate_tunnel_streams", "Open streams of all tunnels.", count(&c.open)),
		counter("hypergate_tunnel_streams_total", "Streams that relays opened.", count(&c.streams)),
		counter("hypergate_tunnel_streams_refused_total", "Streams beyond the limit of a tunnel.", count(&c.refused)),
		counter("hypergate_tunnel_target_failures_total", "Streams for which istiod accepted no connection.", count(&c.failed)),
		c.family("hypergate_tunnel_bytes_total"),
	}
}

// Handler serves /healthz, /readyz and /metrics of a relay. See Ready.
func (r *Relay) Handler() http.Handler { return handler(r.Ready, r.metrics) }

// Handler serves /healthz, /readyz and /metrics of a sidecar. It is always ready: istiod's pod does not depend on it.
func (s *Sidecar) Handler() http.Handler { return handler(func() bool { return true }, s.metrics) }

func handler(ready func() bool, metrics func() []family) http.Handler {
	mux := http.NewServeMux()
	write := func(w http.ResponseWriter, body string) { _, _ = io.WriteString(w, body) } // the client may be gone
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { write(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready() {
			w.WriteHeader(http.StatusServiceUnavailable)
			write(w, "no tunnel\n")
			return
		}
		write(w, "ok\n")
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		write(w, exposition(metrics()))
	})
	return mux
}
