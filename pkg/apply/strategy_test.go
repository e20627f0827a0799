package apply_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/apply"
)

// TestChangeOfDeploymentStrategy changes a Deployment from the strategy RollingUpdate to Recreate and back. The API
// server fills in fields for RollingUpdate that it refuses for Recreate.
func TestChangeOfDeploymentStrategy(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	c := w.started()
	deployment := func(strategy string) []object {
		return []object{w.object(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: x, namespace: NS}, ` +
			`spec: {replicas: 1, strategy: ` + strategy +
			`, selector: {matchLabels: {app: x}}, template: {metadata: {labels: {app: x}}, spec: {containers: [{name: x, image: x}]}}}}`)}
	}
	for _, strategy := range []string{
		`{type: RollingUpdate, rollingUpdate: {maxSurge: 100%, maxUnavailable: 25%}}`, `{type: Recreate}`,
		`{rollingUpdate: {maxSurge: 1, maxUnavailable: 1}}`, `{type: Recreate}`,
	} {
		objs := deployment(strategy)
		if r := apply.Apply(t.Context(), c, objs); !r.Complete() {
			t.Fatalf("%s: %s: %v", strategy, r, r.Err())
		}
		got, _, _ := unstructured.NestedMap(w.live(objs[0].u).Object, "spec", "strategy")
		if want, _, _ := unstructured.NestedMap(objs[0].u.Object, "spec", "strategy"); want["type"] == "Recreate" {
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
	}
}
