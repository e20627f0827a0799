package desired_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/model"
)

// TestInferencePools checks that istiod serves InferencePools, except in a guest whose CRD does not serve the version
// that istiod reads. The annotation of the pod template shows it.
func TestInferencePools(t *testing.T) {
	t.Parallel()
	ended := time.Date(2026, 2, 3, 4, 5, 6, 0, time.FixedZone("", 3600))
	for _, want := range []struct {
		pools      model.InferencePools
		ended      time.Time
		value      string
		annotation any
	}{
		{model.PoolsReadable, ended, "true", nil},
		{model.PoolsUnknown, ended, "true", nil},
		{model.PoolsUnreadable, time.Time{}, "false", "true"},
		{model.PoolsUnreadable, ended, "false", "2026-02-03T03:05:06Z"},
	} {
		pools, guest := want.pools, withForeignCRDs(withClasses("demo"))
		guest.InferencePools, guest.PoolsEnded = pools, want.ended
		deployment := theOnly(t, mgmtObjects(compute(t, config(model.TopologyHosted), embedded(t), installed(t), guest)), "Deployment")
		got := at(deployment, "spec", "template", "metadata", "annotations", model.IgnoredPoolsAnnotation)
		if got != want.annotation {
			t.Errorf("%d: the annotation is %v, want %v", pools, got, want.annotation)
		}
		env, _ := at(deployment, "spec", "template", "spec", "containers", 0, "env").([]any)
		wanted := map[string]any{"name": "ENABLE_GATEWAY_API_INFERENCE_EXTENSION", "value": want.value}
		if !slices.ContainsFunc(env, func(variable any) bool { return cmp.Equal(variable, wanted) }) {
			t.Errorf("%d: the environment is %v, want %v in it", pools, env, wanted)
		}
	}
}
