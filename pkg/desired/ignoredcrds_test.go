package desired_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
)

// TestIgnoredCRDs checks that istiod serves all of its kinds, except those whose CRDs do not serve the version that it
// reads. The annotations of the pod template show these. The webhook, istiod's role and the templates of gateways stay
// as they are.
func TestIgnoredCRDs(t *testing.T) {
	t.Parallel()
	const wasm, filters = "wasmplugins.extensions.istio.io", "envoyfilters.networking.istio.io"
	const rules, pools = "destinationrules.networking.istio.io", model.InferencePoolCRD
	since := time.Date(2026, 2, 3, 4, 5, 6, 0, time.FixedZone("", 3600))
	guest := withForeignCRDs(withClasses("demo"))
	served := compute(t, config(model.TopologyHosted), embedded(t), installed(t), guest)
	for _, want := range []struct {
		ignored  []string
		since    time.Time
		included string
		pools    string
		// crds and at are the annotations.
		crds, at any
	}{
		{nil, since, wasm + "," + rules + "," + filters, "true", nil, nil},
		{[]string{rules}, time.Time{}, wasm + "," + filters, "true", rules, nil},
		{[]string{rules}, since, wasm + "," + filters, "true", rules, "2026-02-03T03:05:06Z"},
		{[]string{pools}, since, wasm + "," + rules + "," + filters, "false", pools, "2026-02-03T03:05:06Z"},
		{[]string{rules, filters, pools, wasm}, time.Time{}, "", "false", strings.Join([]string{rules, filters, pools, wasm}, ","), nil},
	} {
		guest.IgnoredCRDs, guest.IgnoredSince = want.ignored, want.since
		plan := compute(t, config(model.TopologyHosted), embedded(t), installed(t), guest)
		deployment := theOnly(t, mgmtObjects(plan), "Deployment")
		for name, value := range map[string]any{model.IgnoredCRDsAnnotation: want.crds, model.IgnoredSinceAnnotation: want.at} {
			if got := at(deployment, "spec", "template", "metadata", "annotations", name); got != value {
				t.Errorf("%v: the annotation %s is %v, want %v", want.ignored, name, got, value)
			}
		}
		for name, value := range map[string]string{
			"PILOT_INCLUDE_RESOURCES": want.included, "ENABLE_GATEWAY_API_INFERENCE_EXTENSION": want.pools,
		} {
			if got := env(t, plan, name); got != value {
				t.Errorf("%v: %s is %q, want %q", want.ignored, name, got, value)
			}
		}
		if diff := cmp.Diff(texts(othersThanDeployments(served)), texts(othersThanDeployments(plan))); diff != "" {
			t.Errorf("%v: other objects change:\n%s", want.ignored, diff)
		}
	}
}

// othersThanDeployments returns the objects of both sides, without Deployments.
func othersThanDeployments(plan desired.Plan) []anObject {
	all := slices.Concat(mgmtObjects(plan), guestObjects(plan))
	return slices.DeleteFunc(all, func(o anObject) bool { return o.GVK().Kind == "Deployment" })
}
