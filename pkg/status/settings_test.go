package status_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
)

func TestSettingsApplied(t *testing.T) {
	t.Parallel()
	for _, c := range status.Conditions(model.GatewayClass{}, status.Result{}, nil, now) {
		if c.Type == status.SettingsApplied {
			t.Errorf("all settings are in use: %+v", c)
		}
	}
	at := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	const delayed = "gateways get the changed proxy settings at 2026-02-03T04:05:06Z, because each change replaces the pods of all gateways"
	const ignored = "gateways ignore a part of the guest's proxy settings: "
	const step = " [correct proxies.config.openshift.io cluster]"
	invalid := []string{"status.httpProxy is not a URL with a host", `entry 1 of status.noProxy ("[x") is neither`}
	const both = `status.httpProxy is not a URL with a host; entry 1 of status.noProxy ("(x") is neither`
	checkCondition(t, status.Result{SettingsAt: at}, status.SettingsApplied,
		want{metav1.ConditionFalse, status.ReasonChangeDelayed, delayed})
	checkCondition(t, status.Result{IgnoredProxy: invalid}, status.SettingsApplied,
		want{metav1.ConditionFalse, status.ReasonInvalidProxy, ignored + both + step})
	checkCondition(t, status.Result{SettingsAt: at, IgnoredProxy: invalid}, status.SettingsApplied,
		want{metav1.ConditionFalse, status.ReasonInvalidProxy, delayed + "; " + ignored + both + step})
}
