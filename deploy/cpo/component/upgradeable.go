package hypergate

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	upgradeableCondition = "gateway.hypergate.dev/Upgradeable"
	upgradeableReason    = "GatewayAPI"
)

// WithUpgradeable returns the condition ClusterVersionUpgradeable of a HostedControlPlane: that of the cluster version,
// or False if hypergate's own condition is False. The config operator calls it when it sets that condition. conditions
// are those of the HostedControlPlane. runs reports whether the Deployment hypergate exists: the conditions of one that
// was removed do not count. The config operator may read Deployments, but not ControlPlaneComponents.
func WithUpgradeable(ofClusterVersion metav1.Condition, conditions []metav1.Condition, runs bool) metav1.Condition {
	ours := meta.FindStatusCondition(conditions, upgradeableCondition)
	if !runs || ours == nil || ours.Status != metav1.ConditionFalse || ofClusterVersion.Status != metav1.ConditionTrue {
		return ofClusterVersion
	}
	ofClusterVersion.Status, ofClusterVersion.Reason = metav1.ConditionFalse, upgradeableReason
	ofClusterVersion.Message = ours.Reason + ": " + ours.Message
	return ofClusterVersion
}
