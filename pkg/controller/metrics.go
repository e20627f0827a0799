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

// crdMetrics shows what is known of the guest's CRDs, also while no GatewayClass has a status to say it in. The series are made from the last
// result when somebody asks, so that none is stale, and none costs anything while nobody does. The zero value is ready.
type crdMetrics struct{ last atomic.Pointer[crdFindings] }

// crdFindings is what of a result is shown.
type crdFindings struct {
	mode      crds.Mode
	decisions []crds.CRD
	inUse     map[string]int
}

// keep takes the result of a pass. While a plan is refused nothing is known of decisions. What is still looked for is as it was.
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
	return prometheus.NewDesc("hypergate_guest_unsupported_objects", "Objects of the guest that use what is served there and istiod does not heed.", []string{"crd"}, nil)
}

func managementModeDesc() *prometheus.Desc {
	return prometheus.NewDesc("hypergate_guest_management_mode", "Whether hypergate looks after the guest's CRDs and its installation. 1 for the mode that holds.", []string{"mode"}, nil)
}

var _ prometheus.Collector = &crdMetrics{}

// Describe names the metrics.
func (m *crdMetrics) Describe(descs chan<- *prometheus.Desc) {
	descs <- crdInfoDesc()
	descs <- unsupportedObjectsDesc()
	descs <- managementModeDesc()
}

// Collect makes the series.
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
		gauge(crdInfoDesc(), 1, crd.Name, ownerLabel(crd.Owner.Kind), string(crd.Verdict), string(crd.Reason), versionLabel(crd.Metadata.Version), crd.Wanted.Version)
	}
	for crd, count := range last.inUse {
		gauge(unsupportedObjectsDesc(), count, crd)
	}
}

// ownerLabel is the kind of an owner. Its name is not told: the guest has many.
func ownerLabel(kind crds.OwnerKind) string {
	if kind == crds.Unowned {
		return "none"
	}
	return string(kind)
}

// versionLabel is a version that a CRD claims. An annotation says what the guest likes, and each value would be a series of its own.
func versionLabel(claimed string) string {
	if claimed == "" || regexp.MustCompile(`^v?[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}$`).MatchString(claimed) {
		return claimed
	}
	return "other"
}

// Start shows the metrics while this process leads, and until ctx ends: it is a runnable of the manager. Of two controllers in one process,
// which only tests have, the first one is shown.
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
