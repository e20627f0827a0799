package controller

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/status"
)

// crdMetrics exports what is known of the guest's CRDs, also while there is no GatewayClass with a status. The series
// are computed from the last result at each scrape, so no series is stale. The zero value is ready to use.
type crdMetrics struct{ last atomic.Pointer[crdFindings] }

// crdFindings is the part of a result that is exported.
type crdFindings struct {
	mode      crds.Mode
	decisions []crds.CRD
	inUse     map[string]int
}

// keep stores the result of a pass. While there is no plan, there are no decisions. While the search for objects is
// under way, the last counts stay.
func (m *crdMetrics) keep(res status.Result) {
	inUse := res.InUseTotals
	if last := m.last.Load(); res.Searching && last != nil {
		inUse = last.inUse
	}
	m.last.Store(&crdFindings{mode: res.Plan.Mode, decisions: res.Plan.Decisions, inUse: inUse})
}

func crdInfoDesc() *prometheus.Desc {
	return prometheus.NewDesc("hypergate_guest_crd_info", "What hypergate has decided about a CRD of the guest, and why. Always 1.",
		[]string{"crd", "owner", "verdict", "reason", "installed_version", "wanted_version"}, nil)
}

func unsupportedObjectsDesc() *prometheus.Desc {
	return prometheus.NewDesc("hypergate_guest_unsupported_objects",
		"Objects in the guest that use API fields which the guest serves and istiod ignores.", []string{"crd"}, nil)
}

func managementModeDesc() *prometheus.Desc {
	return prometheus.NewDesc("hypergate_guest_management_mode",
		"Whether hypergate manages the guest's CRDs and its installation. 1 for the mode in effect.", []string{"mode"}, nil)
}

var _ prometheus.Collector = &crdMetrics{}

// Describe sends the descriptions of the metrics.
func (m *crdMetrics) Describe(descs chan<- *prometheus.Desc) {
	descs <- crdInfoDesc()
	descs <- unsupportedObjectsDesc()
	descs <- managementModeDesc()
}

// Collect sends the series.
func (m *crdMetrics) Collect(series chan<- prometheus.Metric) {
	last := m.last.Load()
	if last == nil {
		return
	}
	gauge := func(desc *prometheus.Desc, value int, labels ...string) {
		metric, err := prometheus.NewConstMetric(desc, prometheus.GaugeValue, float64(value), labels...)
		if err != nil {
			metric = prometheus.NewInvalidMetric(desc, err)
		}
		series <- metric
	}
	if last.mode != "" {
		gauge(managementModeDesc(), 1, string(last.mode))
	}
	for _, crd := range last.decisions {
		gauge(crdInfoDesc(), 1, crd.Name, ownerLabel(crd.Owner.Kind), string(crd.Verdict), string(crd.Reason),
			versionLabel(crd.Metadata.Version), crd.Wanted.Version)
	}
	for crd, count := range last.inUse {
		gauge(unsupportedObjectsDesc(), count, crd)
	}
}

// ownerLabel returns the kind of an owner. Its name is not exported: a guest can have many owners.
func ownerLabel(kind crds.OwnerKind) string {
	if kind == crds.Unowned {
		return "none"
	}
	return string(kind)
}

// versionLabel returns the version that a CRD claims, or "other". The claim is an annotation that the guest's admin can
// set to any value, and each value would be a separate series.
func versionLabel(claimed string) string {
	if claimed == "" || regexp.MustCompile(`^v?[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}$`).MatchString(claimed) {
		return claimed
	}
	return "other"
}

// Start registers the metrics until ctx ends. It is a runnable of the manager, so it runs only while this process
// leads. If one process runs two controllers, as only tests do, the metrics of the first one are exported.
func (m *crdMetrics) Start(ctx context.Context) error {
	err := metrics.Registry.Register(m)
	if _, another := errors.AsType[prometheus.AlreadyRegisteredError](err); another {
		return nil
	}
	if err != nil {
		return fmt.Errorf("registering the metrics: %w", err)
	}
	<-ctx.Done()
	metrics.Registry.Unregister(m)
	return nil
}
