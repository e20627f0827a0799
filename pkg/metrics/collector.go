package metrics

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Options describe this process.
type Options struct {
	Values Values
	// Version is the version of hypergate, Istio that of istiod's charts.
	Version, Istio, Revision, Topology string
	// Now is the clock. Nil means the system's.
	Now func() time.Time
}

// Collector exports the metrics. It is safe for concurrent use.
type Collector struct {
	options     Options
	definitions map[string]Definition
	descs       map[string]*prometheus.Desc
	requests    map[string]*requests

	passes, writes, repairs *prometheus.CounterVec
	install, durations      *prometheus.HistogramVec

	// last is the state of the last pass, complete the time at which everything was last as planned. It is the zero
	// time while everything is. Both are nil before this pod leads.
	last     atomic.Pointer[State]
	complete atomic.Pointer[time.Time]
}

var _ prometheus.Collector = &Collector{}

// New returns the collector of this process.
func New(o Options) *Collector {
	if o.Now == nil {
		o.Now = time.Now
	}
	c := &Collector{
		options: o, definitions: map[string]Definition{}, descs: map[string]*prometheus.Desc{}, requests: map[string]*requests{},
	}
	for _, d := range Definitions(o.Values) {
		c.definitions[d.Name] = d
		c.descs[d.Name] = prometheus.NewDesc(d.Name, d.Help, d.labelNames(), nil)
	}
	c.passes, c.writes = c.counter("hypergate_reconciliations_total"), c.counter("hypergate_writes_total")
	c.repairs = c.counter("hypergate_repairs_total")
	c.install, c.durations = c.histogram("hypergate_install_duration_seconds"), c.histogram("hypergate_api_request_duration_seconds")
	for _, outcome := range outcomes() {
		c.passes.WithLabelValues(outcome)
	}
	c.install.WithLabelValues()
	for _, side := range sides() {
		c.requests[side] = &requests{side: side, durations: c.durations, now: o.Now}
	}
	return c
}

func (d Definition) labelNames() []string {
	out := make([]string, 0, len(d.Labels))
	for _, label := range d.Labels {
		out = append(out, label.Name)
	}
	return out
}

func (c *Collector) counter(name string) *prometheus.CounterVec {
	d := c.definitions[name]
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.Name, Help: d.Help}, d.labelNames())
}

func (c *Collector) histogram(name string) *prometheus.HistogramVec {
	d := c.definitions[name]
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: d.Name, Help: d.Help, Buckets: d.Buckets}, d.labelNames())
}

// Lead notes that this pod leads. From now on, the state is exported: it is unknown before the end of the first pass.
func (c *Collector) Lead() {
	now := c.options.Now()
	c.complete.CompareAndSwap(nil, &now)
	c.last.CompareAndSwap(nil, &State{})
}

// Set exports the state after a pass.
func (c *Collector) Set(s State) { c.last.Store(&s) }

// Pass counts a pass.
func (c *Collector) Pass(outcome Outcome) {
	c.passes.WithLabelValues(string(outcome)).Inc()
	last := c.complete.Load()
	switch {
	case outcome == Complete:
		c.complete.Store(&time.Time{})
	case last == nil || last.IsZero():
		now := c.options.Now()
		c.complete.Store(&now)
	}
}

// Writes counts write requests for an object.
func (c *Collector) Writes(side, kind, verdict string, n int) {
	if n > 0 {
		c.writes.WithLabelValues(c.restricted("hypergate_writes_total", side, c.kind(side, kind), verdict)...).Add(float64(n))
	}
}

// Repair counts an object that another client had changed or deleted, and that was restored.
func (c *Collector) Repair(side, kind string) {
	c.repairs.WithLabelValues(c.restricted("hypergate_repairs_total", side, c.kind(side, kind))...).Inc()
}

// Installed notes how long an installation took.
func (c *Collector) Installed(took time.Duration) {
	c.install.WithLabelValues().Observe(took.Seconds())
}

// kind returns a kind as it is exported: each side has its own list.
func (c *Collector) kind(side, kind string) string {
	return Label{Values: c.options.Values.Kinds[side]}.admits(kind)
}

// restricted returns the values of labels as they are exported.
func (c *Collector) restricted(name string, values ...string) []string {
	for i, label := range c.definitions[name].Labels {
		values[i] = label.admits(values[i])
	}
	return values
}

// Describe sends the descriptions of the metrics.
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range c.descs {
		descs <- desc
	}
}

// Collect sends the series.
func (c *Collector) Collect(series chan<- prometheus.Metric) {
	s := samples{definitions: c.definitions, values: map[sample]float64{}}
	state := c.last.Load()
	s.set("hypergate_build_info", 1, c.options.Version, c.options.Istio, c.options.Revision, c.options.Topology)
	s.set("hypergate_leader", boolean(state != nil))
	for side, r := range c.requests {
		r.addTo(s, side)
	}
	c.durations.Collect(series)
	if state != nil {
		c.passes.Collect(series)
		c.writes.Collect(series)
		c.repairs.Collect(series)
		c.install.Collect(series)
		s.ofState(*state)
		s.setTime("hypergate_last_complete_timestamp_seconds", c.lastComplete())
	}
	for key, value := range s.values {
		labels := key.labels[:len(c.definitions[key.name].Labels)]
		metric, err := prometheus.NewConstMetric(c.descs[key.name], prometheus.GaugeValue, value, labels...)
		if err != nil { // a label that is not UTF-8
			metric = prometheus.NewInvalidMetric(c.descs[key.name], err)
		}
		series <- metric
	}
}

// lastComplete returns when everything was last as planned: now, if the last pass was complete. At rest there are no
// passes, and the watches begin one when something changes.
func (c *Collector) lastComplete() time.Time {
	if last := c.complete.Load(); last != nil && !last.IsZero() {
		return *last
	}
	return c.options.Now()
}

// NeedLeaderElection returns false: a pod without the Lease has metrics as well.
func (c *Collector) NeedLeaderElection() bool { return false }

// Start registers the metrics until ctx ends. If one process runs two controllers, as only tests do, the metrics of the
// first one are exported.
//
// It removes Go's own metrics, which controller-runtime registers: they are two thirds of the bytes of a scrape, and
// nothing reads them.
func (c *Collector) Start(ctx context.Context) error {
	metrics.Registry.Unregister(collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsAll)))
	err := metrics.Registry.Register(c)
	if _, another := errors.AsType[prometheus.AlreadyRegisteredError](err); another {
		return nil
	}
	if err != nil {
		return fmt.Errorf("registering the metrics: %w", err)
	}
	<-ctx.Done()
	metrics.Registry.Unregister(c)
	return nil
}
