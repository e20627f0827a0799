package mgmt

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/model"
)

// Names of the Cluster API contract (kubernetes-sigs/cluster-api api/core/v1beta2, util/secret, util/annotations).
// The annotation pauses a Cluster whatever its value is.
const (
	clusterNameLabel   = "cluster.x-k8s.io/cluster-name"
	pausedAnnotation   = "cluster.x-k8s.io/paused"
	kubeconfigSuffix   = "-kubeconfig"
	initializedKnownBy = "ControlPlaneInitialized"
)

// capiCluster is the part of a Cluster that hypergate reads. It fits both versions of the API; each version has only
// a part of the status.
type capiCluster struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Paused bool `json:"paused"`
	} `json:"spec"`
	Status struct {
		// ControlPlaneReady is the field of v1beta1, Initialization the field of v1beta2. Both versions have the
		// condition.
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

// capiKind returns the controlPlaneKind for the Cluster with the given name.
func capiKind(name string) controlPlaneKind {
	return controlPlaneKind{
		kind: "Cluster", resource: schema.GroupResource{Group: "cluster.x-k8s.io", Resource: "clusters"},
		versions: []string{"v1beta2", "v1beta1"},
		selector: "metadata.name=" + name, read: readCluster,
	}
}

// readCluster converts a Cluster to a model.ControlPlane. After an error, no part of the object is reliable.
func readCluster(u *unstructured.Unstructured) (model.ControlPlane, error) {
	var c capiCluster
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &c); err != nil {
		return model.ControlPlane{}, fmt.Errorf(
			"reading Cluster %s (%s): this version of hypergate cannot read it; upgrade hypergate: %w",
			u.GetName(), u.GetAPIVersion(), err,
		)
	}
	out := model.ControlPlane{
		ReportedBy: model.ClusterAPI, APIVersion: u.GetAPIVersion(), Name: c.Metadata.Name, UID: c.Metadata.UID,
		Stage: model.Uninitialized, Deleting: c.Metadata.DeletionTimestamp != nil,
	}
	if _, paused := c.Metadata.Annotations[pausedAnnotation]; paused || c.Spec.Paused {
		out.PausedUntil = model.PausedForNow
	}
	initialized := c.Status.ControlPlaneReady || c.Status.Initialization.ControlPlaneInitialized
	for _, condition := range c.Status.Conditions {
		initialized = initialized || condition.Type == initializedKnownBy && condition.Status == corev1.ConditionTrue
	}
	if initialized {
		out.Stage = model.Initialized
	}
	return out, nil
}

// clusterOf returns the name of the Cluster that a kubeconfig Secret belongs to. It returns an empty string if
// neither the label nor the name of the Secret identifies a Cluster.
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
