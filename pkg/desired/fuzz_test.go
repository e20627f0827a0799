package desired_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
)

// FuzzCompute checks that for all flags one of three things happens: Validate refuses the Config, or Compute refuses
// the whole plan, or the plan accounts for every rendered object and all invariants hold. The names of classes, which
// the guest's users choose, must not cause a refusal.
func FuzzCompute(f *testing.F) {
	f.Add("openshift-gateway", "clusters-guest1", "openshift-ingress", "openshift.io/gateway-controller/v1", "istiod.apps.example.com",
		"istiod", "openshift-default", "second", uint16(0))
	f.Add("1", "a-1", "istio-system", "example.com/$(POD_NAME)", "192.0.2.1", "192.0.2.1", "true", "null", uint16(0xffff))
	f.Add("revision-tag-default", "a", "b", "e.x/'{{ fail }}", "::1", "::1", strings.Repeat("x", 253), "a: b", uint16(0x2))
	f.Add("sidecar-injector", "null", "1e3", "a/b", "a.1", "a.1", "---", "", uint16(0x5))
	source := rendering(f)
	f.Fuzz(func(t *testing.T, revision, mgmtNS, guestNS, controller, xdsHost, webhookHost, class1, class2 string, bits uint16) {
		cfg := config(model.TopologyHosted)
		cfg.Revision, cfg.MgmtNamespace, cfg.GuestNamespace, cfg.ControllerName = revision, mgmtNS, guestNS, controller
		cfg.XDS.Host, cfg.WebhookHost = xdsHost, webhookHost
		if bits&1 != 0 {
			cfg.Topology, cfg.MgmtNamespace = model.TopologyStandalone, guestNS
		}
		cfg.SidecarInjection = bits&2 != 0
		cfg.IstioResources = model.KnownIstioResources()[:int(bits>>2)%(len(model.KnownIstioResources())+1)]
		mgmt := model.ManagementObservation{CA: testCA(t), Istiod: model.Availability(int(bits>>8) % 3)}
		guest := withForeignCRDs(withClasses(class1, class2))
		guest.Namespace = model.Presence(int(bits>>11) & 1)

		recorded := &recordingSource{ChartSource: source}
		plan, err := desired.Compute(cfg, recorded, mgmt, guest)
		if invalid := desired.Validate(cfg); invalid != nil {
			if err == nil {
				t.Fatalf("there is a plan for flags that are invalid: %v", invalid)
			}
			return
		}
		if err != nil {
			checkRefusal(t, cfg, mgmt, plan, err)
			return
		}
		if class1 == class2 {
			return // impossible in the guest's API
		}
		if diff := accounting(cfg, recorded.rendered, ownObjects(cfg, guest), plan); diff != "" {
			t.Errorf("-expected +planned:\n%s", diff)
		}
		checkPlan(t, cfg, mgmt, plan)
	})
}

// checkRefusal checks that a refused plan is empty, and that the names of classes did not cause the refusal.
func checkRefusal(t *testing.T, cfg model.Config, mgmt model.ManagementObservation, plan desired.Plan, err error) {
	t.Helper()
	if diff := cmp.Diff(desired.Plan{}, plan, cmp.AllowUnexported(model.MgmtObject{}, model.GuestObject{})); diff != "" {
		t.Errorf("a refused plan is not empty:\n%s", diff)
	}
	if _, plainErr := desired.Compute(cfg, rendering(t), mgmt, withForeignCRDs(withClasses("openshift-default"))); plainErr == nil {
		t.Errorf("the names of GatewayClasses refuse the plan: %v", err)
	}
}
