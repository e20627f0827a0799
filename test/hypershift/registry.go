package hypershift

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
)

// Workload is an entry of HyperShift's registry of control plane workloads
// (test/e2e/v2/internal/workload_registry.go), with the two fields that hypergate's entries need there.
type Workload struct {
	Type, Name  string
	PodSelector map[string]string
	// Optional means that the workload does not exist in every hosted cluster. The pods of one that exists must keep
	// the rules, and a Deployment that exists must be ready.
	Optional bool
	// MinVersion is the first minor version of OpenShift with the workload, such as 4.23. Empty means every version.
	MinVersion string
}

// Workloads returns the entries for hypergate and istiod.
//
// Both are optional. A HostedCluster without the feature gate, or without the capability Ingress, has no hypergate. A
// guest without a GatewayClass has no istiod. HyperShift's registry requires each Deployment in it
// (ValidateControlPlaneDeploymentsReadiness), and the test of backup and restore would fail without this field.
func Workloads() []Workload {
	return []Workload{
		{Type: "Deployment", Name: "hypergate", PodSelector: map[string]string{"app": "hypergate"}, Optional: true, MinVersion: "4.23"},
		{
			Type: "Deployment", Name: "istiod-openshift-gateway", PodSelector: map[string]string{"app": "istiod"},
			Optional: true, MinVersion: "4.23",
		},
	}
}

// ValidateDeploymentsReadiness does what HyperShift's validateControlPlaneWorkloadsByType does for Deployments, and
// respects the two new fields. minor is the version of the hosted cluster. The error names the first Deployment that is
// missing or not ready.
func ValidateDeploymentsReadiness(workloads []Workload, minor string, exist []appsv1.Deployment, exclude ...string) error {
	for _, w := range workloads {
		if w.Type != "Deployment" || slices.Contains(exclude, w.Name) || isOlder(minor, w.MinVersion) {
			continue
		}
		i := slices.IndexFunc(exist, func(d appsv1.Deployment) bool { return d.Name == w.Name })
		switch {
		case i < 0 && w.Optional:
		case i < 0:
			return fmt.Errorf("failed to get deployment %s: it does not exist", w.Name)
		case !isReady(exist[i]):
			return fmt.Errorf("deployment %s is not ready", w.Name)
		}
	}
	return nil
}

// isOlder reports whether a minor version is older than another one. An empty version is not newer than any.
func isOlder(minor, than string) bool {
	var major, other [2]int
	if n, err := fmt.Sscanf(minor, "%d.%d", &major[0], &major[1]); err != nil || n != 2 {
		return false
	}
	if n, err := fmt.Sscanf(than, "%d.%d", &other[0], &other[1]); err != nil || n != 2 {
		return false
	}
	return slices.Compare(major[:], other[:]) < 0
}

// isReady does what HyperShift's podspec.IsDeploymentReady does.
func isReady(d appsv1.Deployment) bool {
	want := int32(0)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	return d.Status.AvailableReplicas == want && d.Status.ReadyReplicas == want && d.Status.UpdatedReplicas == want &&
		d.Status.Replicas == want && d.Status.UnavailableReplicas == 0 && d.Generation == d.Status.ObservedGeneration
}
