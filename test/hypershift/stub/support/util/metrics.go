// Package util stands for HyperShift's package of that name.
package util

import prometheusoperatorv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"

// ApplyClusterIDLabelToPodMonitor adds the label _id with the ID of a hosted cluster to targets and to metrics.
func ApplyClusterIDLabelToPodMonitor(endpoint *prometheusoperatorv1.PodMetricsEndpoint, clusterID string) {
	label := prometheusoperatorv1.RelabelConfig{TargetLabel: "_id", Action: "replace", Replacement: &clusterID}
	endpoint.RelabelConfigs = append(endpoint.RelabelConfigs, label)
	endpoint.MetricRelabelConfigs = append(endpoint.MetricRelabelConfigs, label)
}
