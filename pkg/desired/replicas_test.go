package desired_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
)

// replicasCase is an installation, and what its istiod should be.
type replicasCase struct {
	topology       model.Topology
	flag           int64
	infrastructure model.InfrastructureTopology
	plane, secret  bool
	want           int64
	budget         bool
}

// TestReplicas checks how many istiods there are with and without a HostedControlPlane, how two of them are replaced,
// and whether they have a disruption budget.
func TestReplicas(t *testing.T) {
	t.Parallel()
	hosted, alone := model.TopologyHosted, model.TopologyStandalone
	for name, tc := range map[string]replicasCase{
		"hosted, no flag":                   {topology: hosted, want: 1},
		"hosted, a guest of several nodes":  {topology: hosted, infrastructure: model.SeveralNodes, want: 1},
		"Cluster API, no flag":              {topology: hosted, secret: true, want: 1},
		"Cluster API, one":                  {topology: hosted, secret: true, flag: 1, want: 1},
		"Cluster API, two":                  {topology: hosted, secret: true, flag: 2, want: 2, budget: true},
		"two without permission for one":    {topology: hosted, flag: 2, want: 2},
		"a HostedControlPlane has priority": {topology: hosted, secret: true, plane: true, flag: 2, want: 1},
		"standalone":                        {topology: alone, want: 1},
		"standalone, a single node":         {topology: alone, infrastructure: model.SingleNode, want: 1},
		"standalone, several nodes":         {topology: alone, infrastructure: model.SeveralNodes, want: 2, budget: true},
		"the flag has priority":             {topology: alone, flag: 1, infrastructure: model.SeveralNodes, want: 1},
		"two on a single node":              {topology: alone, flag: 2, infrastructure: model.SingleNode, want: 2, budget: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkReplicas(t, tc)
		})
	}
}

func checkReplicas(t *testing.T, tc replicasCase) {
	t.Helper()
	cfg, mgmt, guest := config(tc.topology), installed(t), withForeignCRDs(withClasses("demo"))
	cfg.Replicas, guest.Infrastructure = tc.flag, tc.infrastructure
	if tc.secret {
		cfg.GuestKubeconfigSecret = "guest1-kubeconfig"
	}
	if tc.plane {
		mgmt = withControlPlane(t, func(*model.ControlPlane) {})
	}
	var istiod, budget *unstructured.Unstructured
	for _, o := range mgmtObjects(compute(t, cfg, embedded(t), mgmt, guest)) {
		u, err := o.Unstructured()
		if err != nil {
			t.Fatal(err)
		}
		switch u.GetKind() {
		case "Deployment":
			istiod = u
		case "PodDisruptionBudget":
			budget = u
		}
	}
	if (budget != nil) != tc.budget {
		t.Errorf("the disruption budget is %v", budget)
	}
	spec, _, _ := unstructured.NestedMap(istiod.Object, "spec")
	surge, _, _ := unstructured.NestedInt64(spec, "strategy", "rollingUpdate", "maxSurge")
	unavailable, isRolled, _ := unstructured.NestedInt64(spec, "strategy", "rollingUpdate", "maxUnavailable")
	_, isSpread, _ := unstructured.NestedMap(spec, "template", "spec", "affinity", "podAntiAffinity")
	_, sleeps, _ := unstructured.NestedInt64(containerOf(t, istiod), "lifecycle", "preStop", "sleep", "seconds")
	if replicas, _, _ := unstructured.NestedInt64(spec, "replicas"); replicas != tc.want {
		t.Errorf("%d replicas, want %d", replicas, tc.want)
	}
	if two := tc.want == 2; isRolled != two || isSpread != two || sleeps != two || two && (surge != 1 || unavailable != 0) {
		t.Errorf("surge %d, unavailable %d (%t), spread %t, waits before its end %t", surge, unavailable, isRolled, isSpread, sleeps)
	}
	if budget != nil {
		pods, _, _ := unstructured.NestedStringMap(budget.Object, "spec", "selector", "matchLabels")
		labels, _, _ := unstructured.NestedStringMap(spec, "template", "metadata", "labels")
		for key, value := range pods {
			if labels[key] != value {
				t.Errorf("the budget is for pods with %s %q, and istiod's have %q", key, value, labels[key])
			}
		}
	}
}

// containerOf returns istiod's container.
func containerOf(t *testing.T, istiod *unstructured.Unstructured) map[string]any {
	t.Helper()
	containers, _, err := unstructured.NestedSlice(istiod.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) == 0 {
		t.Fatalf("%d containers: %v", len(containers), err)
	}
	out, _ := containers[0].(map[string]any)
	return out
}
