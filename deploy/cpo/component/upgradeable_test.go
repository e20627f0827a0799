package hypergate_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hypergate "github.com/hypergate/hypergate/deploy/cpo/component"
)

// TestUpgradeable checks that hypergate's condition can only keep HyperShift from an upgrade, and only while hypergate
// runs.
func TestUpgradeable(t *testing.T) {
	for name, tc := range map[string]struct {
		clusterVersion, ours metav1.ConditionStatus
		runs                 bool
		want                 metav1.ConditionStatus
		reason               string
	}{
		"both are True":             {metav1.ConditionTrue, metav1.ConditionTrue, true, metav1.ConditionTrue, "AsExpected"},
		"hypergate's is False":      {metav1.ConditionTrue, metav1.ConditionFalse, true, metav1.ConditionFalse, "GatewayAPI"},
		"hypergate's is Unknown":    {metav1.ConditionTrue, metav1.ConditionUnknown, true, metav1.ConditionTrue, "AsExpected"},
		"hypergate's is missing":    {metav1.ConditionTrue, "", true, metav1.ConditionTrue, "AsExpected"},
		"hypergate is removed":      {metav1.ConditionTrue, metav1.ConditionFalse, false, metav1.ConditionTrue, "AsExpected"},
		"the version's is False":    {metav1.ConditionFalse, metav1.ConditionTrue, true, metav1.ConditionFalse, "AsExpected"},
		"both are False":            {metav1.ConditionFalse, metav1.ConditionFalse, true, metav1.ConditionFalse, "AsExpected"},
		"the version's is Unknown":  {metav1.ConditionUnknown, metav1.ConditionFalse, true, metav1.ConditionUnknown, "AsExpected"},
		"Unknown, and ours is True": {metav1.ConditionUnknown, metav1.ConditionTrue, true, metav1.ConditionUnknown, "AsExpected"},
	} {
		t.Run(name, func(t *testing.T) {
			var conditions []metav1.Condition
			if tc.ours != "" {
				conditions = []metav1.Condition{
					{Type: "gateway.hypergate.dev/Upgradeable", Status: tc.ours, Reason: "CARotation", Message: "a rotation is under way"},
				}
			}
			before := metav1.Condition{Type: "ClusterVersionUpgradeable", Status: tc.clusterVersion, Reason: "AsExpected", Message: "x"}
			got := hypergate.WithUpgradeable(before, conditions, tc.runs)
			if got.Type != before.Type || got.Status != tc.want || got.Reason != tc.reason {
				t.Errorf("the condition is %+v, want %s, %s", got, tc.want, tc.reason)
			}
			if want := "CARotation: a rotation is under way"; (got.Message == want) != (tc.reason == "GatewayAPI") {
				t.Errorf("the message is %q", got.Message)
			}
		})
	}
}
