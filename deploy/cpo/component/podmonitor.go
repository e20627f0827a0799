package hypergate

import (
	"slices"

	component "github.com/openshift/hypershift/support/controlplane-component"
	"github.com/openshift/hypershift/support/metrics"
	"github.com/openshift/hypershift/support/util"

	prometheusoperatorv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
)

// adaptPodMonitor limits a PodMonitor to the namespace, keeps the metrics of the metrics set, and adds the label _id
// with the ID of the hosted cluster, as for all components.
func adaptPodMonitor(cpContext component.WorkloadContext, podMonitor *prometheusoperatorv1.PodMonitor) error {
	podMonitor.Spec.NamespaceSelector = prometheusoperatorv1.NamespaceSelector{MatchNames: []string{cpContext.HCP.Namespace}}
	for i := range podMonitor.Spec.PodMetricsEndpoints {
		endpoint := &podMonitor.Spec.PodMetricsEndpoints[i]
		// The set SRE can be one slice for all endpoints, and the label is appended.
		endpoint.MetricRelabelConfigs = slices.Clone(metrics.HypergateRelabelConfigs(cpContext.MetricsSet))
		util.ApplyClusterIDLabelToPodMonitor(endpoint, cpContext.HCP.Spec.ClusterID)
	}
	return nil
}
