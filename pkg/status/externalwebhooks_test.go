package status_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
)

// TestExternalWebhooks checks that the guest learns that another party writes its webhooks, and that only the
// management side learns where that party finds what it needs.
func TestExternalWebhooks(t *testing.T) {
	t.Parallel()
	const secret = "gw-webhook-openshift-gateway"
	const another = "; another party writes the webhooks that check Istio's resources"
	done := apply.ReportOf(apply.Applied(deployment))
	installed := status.Result{
		Plan: desired.Plan{Installed: true}, Istiod: model.Available, Since: since, Mgmt: done, Guest: done, ExternalWebhooks: true,
		WebhookSecret: secret,
	}
	checkCondition(t, installed, status.ControllerInstalled, want{metav1.ConditionTrue, status.ReasonInstalled, serves + another})
	removed := installed
	removed.Plan.Installed = false
	condition := find(t, status.Conditions(model.GatewayClass{Name: "c"}, removed, nil, now), status.ControllerInstalled)
	if strings.Contains(condition.Message, another) {
		t.Errorf("without an installation: %q", condition.Message)
	}
	checkControlPlane(t, map[string]controlPlaneCase{
		"another party writes the webhooks": {
			with(serving(), func(r *status.Result) { r.WebhookSecret = secret }),
			but(func(t *reported) {
				t.available.message = serves + "; another party writes the webhooks: their URL and CA bundle are in Secret " + secret
			}),
		},
	})
}
