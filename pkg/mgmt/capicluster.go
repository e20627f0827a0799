package mgmt

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/desired"
)

// What Cluster API's contract names (kubernetes-sigs/cluster-api api/core/v1beta2, util/secret, util/annotations). The annotation pauses whatever its value.
const (
	clusterNameLabel   = "cluster.x-k8s.io/cluster-name"
	pausedAnnotation   = "cluster.x-k8s.io/paused"
	kubeconfigSuffix   = "-kubeconfig"
	initializedKnownBy = "ControlPlaneInitialized"
)

// capiCluster is what is read of a Cluster, in either version of the API: each has only a part of the status.
type capiCluster struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Paused bool `json:"paused"`
	} `json:"spec"`
	Status struct {
		// ControlPlaneReady is v1beta1's, Initialization v1beta2's; both have the condition.
		ControlPlaneReady bool `json:"controlPlaneReady"`
		Initialization    struct {
			ControlPlaneInitialized bool `json:"controlPlaneInitialized"`
		} `json:"initialization"`
		Conditions []struct {
			Type   string                 `json:"type"`
			Status corev1.ConditionStatus `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

// capiKind is the Cluster of a name.
func capiKind(name string) controlPlaneKind {
	return controlPlaneKind{
		kind: "Cluster", resource: schema.GroupResource{Group: "cluster.x-k8s.io", Resource: "clusters"}, versions: []string{"v1beta2", "v1beta1"},
		selector: "metadata.name=" + name, read: readCluster,
	}
}

// readCluster reads a Cluster. An error means that nothing of it can be relied on.
func readCluster(u *unstructured.Unstructured) (desired.ControlPlane, error) {
	var c capiCluster
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &c); err != nil {
		return desired.ControlPlane{}, fmt.Errorf("reading Cluster %s (%s): it is not as this hypergate knows it, so that a newer one is needed: %w", u.GetName(), u.GetAPIVersion(), err)
	}
	out := desired.ControlPlane{
		ReportedBy: desired.ClusterAPI, APIVersion: u.GetAPIVersion(), Name: c.Metadata.Name, UID: c.Metadata.UID,
		Stage: desired.Uninitialized, Deleting: c.Metadata.DeletionTimestamp != nil,
	}
	if _, paused := c.Metadata.Annotations[pausedAnnotation]; paused || c.Spec.Paused {
		out.PausedUntil = desired.PausedForNow
	}
	initialized := c.Status.ControlPlaneReady || c.Status.Initialization.ControlPlaneInitialized
	for _, condition := range c.Status.Conditions {
		initialized = initialized || condition.Type == initializedKnownBy && condition.Status == corev1.ConditionTrue
	}
	if initialized {
		out.Stage = desired.Initialized
	}
	return out, nil
}

// clusterOf is the name of the Cluster that a Secret with a kubeconfig belongs to; empty if it says none.
func clusterOf(secret *corev1.Secret) string {
	if name := secret.Labels[clusterNameLabel]; name != "" {
		return name
	}
	name, contract := strings.CutSuffix(secret.Name, kubeconfigSuffix)
	if !contract {
		return ""
	}
	return name
}
