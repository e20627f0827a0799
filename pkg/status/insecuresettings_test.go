package status_test

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
)

// TestInsecureSettings: each message of the condition reports insecure settings, and these do not change the status.
func TestInsecureSettings(t *testing.T) {
	const one = "; 1 of hypergate's settings is insecure: see Insecure settings in docs/security.md"
	const three = "; 3 of hypergate's settings are insecure: see Insecure settings in docs/security.md"
	done := apply.ReportOf(apply.Applied(deployment))
	for name, tc := range map[string]struct {
		result status.Result
		want   want
	}{
		"it serves": {
			status.Result{
				Plan: desired.Plan{Installed: true}, Istiod: model.Available, Since: since, Mgmt: done, Guest: done,
				InsecureSettings: 1,
			},
			want{metav1.ConditionTrue, status.ReasonInstalled, serves + one},
		},
		"it waits": {
			status.Result{Plan: desired.Plan{Installed: true}, Istiod: model.Absent, Mgmt: done, Guest: done, InsecureSettings: 3},
			want{metav1.ConditionUnknown, status.ReasonPending, "waiting for istiod to become available" + three},
		},
		"it is refused": {
			status.Result{PlanProblem: errors.New("secret-object"), InsecureSettings: 1},
			want{metav1.ConditionFalse, status.ReasonInstallFailed, "the plan was rejected and nothing was changed" +
				one + askOperator},
		},
	} {
		t.Run(name, func(t *testing.T) { checkCondition(t, tc.result, status.ControllerInstalled, tc.want) })
	}
}
