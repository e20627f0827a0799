package desired_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
)

// besideVariables returns the variables of istiod that differ beside another istiod, and the mode of the pod template.
func besideVariables(t *testing.T, plan desired.Plan) map[string]string {
	t.Helper()
	var d appsv1.Deployment
	for _, o := range plan.Workload {
		if o.GVK().Kind != "Deployment" {
			continue
		}
		if err := json.Unmarshal(o.JSON(), &d); err != nil {
			t.Fatal(err)
		}
	}
	out := map[string]string{"mode": d.Spec.Template.Annotations[model.IstiodModeAnnotation], "strategy": string(d.Spec.Strategy.Type)}
	for _, container := range d.Spec.Template.Spec.Containers {
		for _, v := range container.Env {
			switch v.Name {
			case "ENABLE_LEADER_ELECTION", "PILOT_ENABLE_GATEWAY_API_STATUS", "PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER", "POD_NAME",
				"HOSTED_POD_NAME":
				out[v.Name] = v.Value
				if v.ValueFrom != nil {
					out[v.Name] = "from " + v.ValueFrom.FieldRef.FieldPath
				}
			}
		}
	}
	return out
}

// TestIstiodBesideAnotherOne checks what an installation has in each mode: istiod's elections and duties, and nothing
// in the guest that the other istiod also has.
func TestIstiodBesideAnotherOne(t *testing.T) {
	hosted := map[string]string{
		"strategy": "Recreate", "POD_NAME": "hosted:$(HOSTED_POD_NAME)", "HOSTED_POD_NAME": "from metadata.name",
	}
	with := func(base map[string]string, more ...string) map[string]string {
		out := maps.Clone(base)
		for i := 0; i < len(more); i += 2 {
			out[more[i]] = more[i+1]
		}
		return out
	}
	status, deployments := "PILOT_ENABLE_GATEWAY_API_STATUS", "PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER"
	for mode, want := range map[model.IstiodMode]map[string]string{
		model.IstiodAlone: {
			"strategy": "Recreate", "mode": "", "ENABLE_LEADER_ELECTION": "false", "POD_NAME": "from metadata.name",
			status: "true", deployments: "true",
		},
		model.IstiodServing: with(hosted, "mode", "Serving", "ENABLE_LEADER_ELECTION", "false", status, "false", deployments, "false"),
		model.IstiodLeading: with(hosted, "mode", "Leading", status, "true", deployments, "true"),
	} {
		m := installed(t)
		m.IstiodMode = mode
		plan := compute(t, config(model.TopologyHosted), embedded(t), m, withClasses("openshift-default"))
		if diff := cmp.Diff(want, besideVariables(t, plan)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", mode, diff)
		}
		defaults := slices.DeleteFunc(names(guestObjects(plan)), func(name string) bool { return !strings.Contains(name, "gatewayclass") })
		shared := len(defaults) + len(plan.Admission) + len(plan.CRDs) + len(plan.Adopted) + len(plan.Protection) + len(plan.Decisions)
		if beside := mode.IsBeside(); beside != (shared == 0) {
			t.Errorf("%q: class defaults %v, %d webhooks, %d CRDs, %d adopted, %d policies, %d decisions", mode, defaults,
				len(plan.Admission), len(plan.CRDs), len(plan.Adopted), len(plan.Protection), len(plan.Decisions))
		}
	}
}

// TestClassDefaultsBesideAnotherOne checks when hypergate's defaults of a class are in the guest. While the other
// istiod leads, they would replace pods. Without them, the removal of the other one's would.
func TestClassDefaultsBesideAnotherOne(t *testing.T) {
	for _, c := range []struct {
		mode         model.IstiodMode
		exist, wants bool
	}{
		{model.IstiodAlone, false, true},
		{model.IstiodLeading, true, true},
		{model.IstiodLeading, false, false},
		{model.IstiodServing, true, false},
		{model.IstiodNone, true, false},
	} {
		m, guest := installed(t), withClasses("openshift-default")
		m.IstiodMode, guest.DefaultsExist = c.mode, c.exist
		if plan := compute(t, config(model.TopologyHosted), embedded(t), m, guest); (len(plan.ClassTemplates) > 0) != c.wants {
			t.Errorf("%q, defaults exist %t: hypergate's are planned %t", c.mode, c.exist, len(plan.ClassTemplates) > 0)
		}
	}
}

// TestIstiodIsRemovedBesideAnotherOne checks that nothing is planned for a guest that goes back to its own istiod,
// although a GatewayClass requests it.
func TestIstiodIsRemovedBesideAnotherOne(t *testing.T) {
	m := installed(t)
	m.IstiodMode = model.IstiodNone
	plan := compute(t, config(model.TopologyHosted), embedded(t), m, withClasses("openshift-default"))
	if n := len(plan.Mgmt) + len(plan.Workload) + len(plan.Guest) + len(plan.CRDs) + len(plan.Protection); plan.Installed || n > 0 {
		t.Errorf("installed %t, %d objects", plan.Installed, n)
	}
}
