package desired_test

import (
	"strings"
	"testing"

	"github.com/hypergate/hypergate/pkg/model"
)

// TestStandaloneNamespace checks the plan of a standalone cluster where istiod has a namespace of its own, as it does
// beside an istiod that was there before: no object of the management side is in the system namespace, and webhooks and
// gateways reach istiod in its own one. With sidecar injection, there are two webhook configurations.
func TestStandaloneNamespace(t *testing.T) {
	t.Parallel()
	cfg := config(model.TopologyStandalone)
	cfg.MgmtNamespace, cfg.SidecarInjection = "hypergate-system", true
	cfg.XDS.Host = "istiod-openshift-gateway.hypergate-system.svc"
	plan := compute(t, cfg, embedded(t), installed(t), withForeignCRDs(withClasses("openshift-default")))
	for _, o := range plan.Mgmt {
		if o.Key().Namespace != cfg.MgmtNamespace {
			t.Errorf("%s is not in the namespace of istiod", o)
		}
	}
	if len(plan.Admission) != 2 {
		t.Errorf("%d webhook configurations, want 2", len(plan.Admission))
	}
	for _, o := range plan.Admission {
		text := string(o.JSON())
		if strings.Contains(text, `"namespace":"openshift-ingress"`) || !strings.Contains(text, `"namespace":"hypergate-system"`) {
			t.Errorf("the webhooks of %s do not call istiod's Service in its namespace:\n%s", o, text)
		}
	}
	if len(plan.Mgmt) == 0 {
		t.Error("no object of the management side")
	}
	for _, o := range plan.Mgmt {
		if strings.Contains(string(o.JSON()), "istiod-openshift-gateway.openshift-ingress") {
			t.Errorf("%s has the address of the istiod that was there before", o)
		}
	}
}
