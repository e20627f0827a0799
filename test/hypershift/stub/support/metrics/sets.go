// Package metrics stands for HyperShift's metrics sets: which metrics of a component Prometheus keeps.
package metrics

import (
	"github.com/hypergate/hypergate/test/hypershift"
	prometheusoperatorv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
)

// MetricsSet is the name of a set.
type MetricsSet string

// The sets of HyperShift.
const (
	MetricsSetTelemetry MetricsSet = "Telemetry"
	MetricsSetSRE       MetricsSet = "SRE"
	MetricsSetAll       MetricsSet = "All"
)

// SREConfig is the field `hypergate` of the ConfigMap sre-metric-set, which an administrator writes. HyperShift reads
// it with the fields of the other components.
var SREConfig []prometheusoperatorv1.RelabelConfig

// HypergateRelabelConfigs is the function to add to HyperShift's sets.go. Like most components, hypergate has no metric
// in the set Telemetry. The set All has what alerts and dashboards read, and not those of libraries.
func HypergateRelabelConfigs(set MetricsSet) []prometheusoperatorv1.RelabelConfig {
	name := []prometheusoperatorv1.LabelName{"__name__"}
	switch set {
	case MetricsSetTelemetry:
		return []prometheusoperatorv1.RelabelConfig{{Action: "drop", Regex: "(.*)", SourceLabels: name}}
	case MetricsSetSRE:
		return append([]prometheusoperatorv1.RelabelConfig(nil), SREConfig...)
	case MetricsSetAll:
	}
	return []prometheusoperatorv1.RelabelConfig{{Action: "keep", Regex: hypershift.KeptMetrics, SourceLabels: name}}
}
