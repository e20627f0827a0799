package hypershift_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/test/hypershift"
)

// ready returns a Deployment of one replica, which is ready or not.
func ready(name string, is bool) appsv1.Deployment {
	out := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 2}}
	out.Spec.Replicas = new(int32(1))
	out.Status = appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}
	if !is {
		out.Status.ReadyReplicas, out.Status.AvailableReplicas, out.Status.UnavailableReplicas = 0, 0, 1
	}
	return out
}

// TestBackupWithoutAGatewayClass checks that HyperShift's test of backup and restore passes where hypergate or istiod
// do not exist, with the entries that hypergate needs in the registry, and that it waits for those that exist. The
// entry of another component is required as before.
func TestBackupWithoutAGatewayClass(t *testing.T) {
	required := hypershift.Workload{Type: "Deployment", Name: "router"}
	all := append(hypershift.Workloads(), required)
	router := ready("router", true)
	const istiod = "istiod-openshift-gateway"
	only := func(others ...appsv1.Deployment) []appsv1.Deployment {
		return append([]appsv1.Deployment{router}, others...)
	}
	for name, tc := range map[string]struct {
		minor   string
		exist   []appsv1.Deployment
		exclude []string
		want    string
	}{
		"without a GatewayClass":           {"4.23", only(ready("hypergate", true)), nil, ""},
		"without the feature":              {"4.23", only(), nil, ""},
		"with a GatewayClass":              {"4.23", only(ready("hypergate", true), ready(istiod, true)), nil, ""},
		"istiod is not ready":              {"4.23", only(ready(istiod, false)), nil, "deployment " + istiod + " is not ready"},
		"hypergate is not ready":           {"5.0", only(ready("hypergate", false)), nil, "deployment hypergate is not ready"},
		"an older release, not ready":      {"4.9", only(ready(istiod, false)), nil, ""},
		"a required workload":              {"4.23", nil, nil, "failed to get deployment router"},
		"a required workload, excluded":    {"4.23", nil, []string{"router"}, ""},
		"a required workload is not ready": {"4.23", []appsv1.Deployment{ready("router", false)}, nil, "deployment router is not ready"},
	} {
		t.Run(name, func(t *testing.T) {
			err := hypershift.ValidateDeploymentsReadiness(all, tc.minor, tc.exist, tc.exclude...)
			if got := errorText(err); !strings.HasPrefix(got, tc.want) || (tc.want == "") != (err == nil) {
				t.Errorf("the error is %q, want %q", got, tc.want)
			}
		})
	}
}

// TestEntriesMustBeOptional checks that the same entries without the new field fail where there is no GatewayClass.
func TestEntriesMustBeOptional(t *testing.T) {
	for _, w := range hypershift.Workloads() {
		w.Optional = false
		err := hypershift.ValidateDeploymentsReadiness([]hypershift.Workload{w}, "4.23", nil)
		if !strings.Contains(errorText(err), w.Name) {
			t.Errorf("%s is required, and the error is %v", w.Name, err)
		}
	}
}

// TestEntriesSelectThePods checks that each entry has the name of a Deployment whose pods it selects.
func TestEntriesSelectThePods(t *testing.T) {
	deployments := []*appsv1.Deployment{hypergate(t), istiod(t, newPlanner(t), variants()["single replica"].plane)}
	for _, w := range hypershift.Workloads() {
		i := slices.IndexFunc(deployments, func(d *appsv1.Deployment) bool { return d.Name == w.Name })
		if i < 0 {
			t.Errorf("there is no Deployment %s", w.Name)
			continue
		}
		for key, value := range w.PodSelector {
			if got := deployments[i].Spec.Template.Labels[key]; got != value {
				t.Errorf("%s: the pods have %s=%q", w.Name, key, got)
			}
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
