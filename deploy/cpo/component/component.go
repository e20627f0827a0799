// Package hypergate is the component that runs hypergate for a hosted control plane. hypergate installs istiod in the
// control plane's namespace, and what istiod needs in the hosted cluster, for OpenShift's Gateway API implementation.
package hypergate

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	"github.com/openshift/hypershift/control-plane-operator/featuregates"
	"github.com/openshift/hypershift/support/capabilities"
	component "github.com/openshift/hypershift/support/controlplane-component"
	"github.com/openshift/hypershift/support/podspec"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	ComponentName = "hypergate"

	// Conditions that hypergate sets on the HostedControlPlane, and their reasons once nothing is installed.
	availableCondition   = "gateway.hypergate.dev/Available"
	progressingCondition = "gateway.hypergate.dev/Progressing"
	notEnabledReason     = "NotEnabled"
	asExpectedReason     = "AsExpected"

	// removalIDVariable is the variable of hypergate's container with the ID of a removal.
	removalIDVariable = "REMOVAL_ID"
)

var _ component.ComponentOptions = &hypergate{}

type hypergate struct{}

// IsRequestServing implements controlplanecomponent.ComponentOptions. istiod, which serves requests, is an operand.
func (h *hypergate) IsRequestServing() bool {
	return false
}

// MultiZoneSpread implements controlplanecomponent.ComponentOptions.
func (h *hypergate) MultiZoneSpread() bool {
	return false
}

// NeedsManagementKASAccess implements controlplanecomponent.ComponentOptions.
func (h *hypergate) NeedsManagementKASAccess() bool {
	return true
}

// NewComponent returns the component. The gateways of the hosted cluster reach istiod by a tunnel through the hosted
// cluster's own API server, so that the component needs no Route, no load balancer and no DNS name.
func NewComponent() component.ControlPlaneComponent {
	return component.NewDeploymentComponent(ComponentName, &hypergate{}).
		WithManifestAdapter("podmonitor.yaml", component.WithAdaptFunction(adaptPodMonitor)).
		WithManifestAdapter("istiod-podmonitor.yaml", component.WithAdaptFunction(adaptPodMonitor)).
		WithPredicate(predicate).
		WithAdaptFunction(adaptDeployment).
		InjectServiceAccountKubeConfig(guestKubeconfig()).
		MonitorOperandsRolloutStatus().
		Build()
}

// guestKubeconfig returns the options of the client certificate with which hypergate connects to the hosted cluster.
func guestKubeconfig() component.ServiceAccountKubeConfigOpts {
	return component.ServiceAccountKubeConfigOpts{
		Name:          "hypergate",
		Namespace:     "openshift-ingress",
		MountPath:     "/etc/kubernetes",
		ContainerName: ComponentName,
	}
}

// predicate reports whether hypergate runs. It runs with the feature gate, if the hosted cluster has the capability
// Ingress, which is immutable.
//
// If the feature gate is turned off, hypergate stays until it has removed what it installed in both clusters. The
// framework does not know these objects, and cannot delete those in the hosted cluster. A Deployment that was deleted
// meanwhile removed nothing, so the component stays while its ControlPlaneComponent exists, which the framework deletes
// last.
func predicate(cpContext component.WorkloadContext) (bool, error) {
	if !capabilities.IsIngressCapabilityEnabled(cpContext.HCP.Spec.Capabilities) {
		return false, nil
	}
	if isEnabled() {
		return true, nil
	}
	existing := &appsv1.Deployment{}
	if exists, err := find(cpContext, existing); err != nil || exists {
		return err == nil && !hasRemovedAll(cpContext.HCP, removalID(existing)), err
	}
	return find(cpContext, &hyperv1.ControlPlaneComponent{})
}

// find reads an object with the name of the component. It reports whether the object exists.
func find(cpContext component.WorkloadContext, into client.Object) (bool, error) {
	err := cpContext.Client.Get(cpContext, client.ObjectKey{Namespace: cpContext.HCP.Namespace, Name: ComponentName}, into)
	return err == nil, client.IgnoreNotFound(err)
}

func isEnabled() bool {
	return featuregates.Gate().Enabled(featuregates.GatewayAPIControlPlane)
}

// hasRemovedAll reports whether hypergate reports that it is not enabled, and that it has removed everything. The
// conditions of an earlier removal stay until hypergate writes others. So conditions without the ID of this one do not
// count. hypergate writes all of its conditions at once.
func hasRemovedAll(hcp *hyperv1.HostedControlPlane, id string) bool {
	available := meta.FindStatusCondition(hcp.Status.Conditions, availableCondition)
	progressing := meta.FindStatusCondition(hcp.Status.Conditions, progressingCondition)
	return id != "" && available != nil && available.Reason == notEnabledReason &&
		strings.Contains(available.Message, "--removal-id="+id+")") && progressing != nil &&
		progressing.Status == metav1.ConditionFalse && progressing.Reason == asExpectedReason
}

// removalID returns the ID of the removal for which a Deployment runs. It is empty if hypergate is enabled.
func removalID(deployment *appsv1.Deployment) string {
	id := ""
	podspec.UpdateContainer(ComponentName, deployment.Spec.Template.Spec.Containers, func(c *corev1.Container) {
		for _, variable := range c.Env {
			if variable.Name == removalIDVariable {
				id = variable.Value
			}
		}
	})
	return id
}

// currentRemovalID returns the ID of the removal that runs, or a new one. It is empty if hypergate is enabled. The UID
// and the generation of the Deployment before this removal are those of no other one. If that was deleted, the ID is
// random: the ControlPlaneComponent can be the same in several removals. The new Deployment keeps the ID.
func currentRemovalID(cpContext component.WorkloadContext) (string, error) {
	if isEnabled() {
		return "", nil
	}
	existing := &appsv1.Deployment{}
	if exists, err := find(cpContext, existing); err != nil || exists {
		return cmp.Or(removalID(existing), fmt.Sprintf("%s-%d", existing.UID, existing.Generation)), err
	}
	if exists, err := find(cpContext, &hyperv1.ControlPlaneComponent{}); err != nil || !exists {
		return "", err // HyperShift's fixtures are rendered without a predicate
	}
	return string(uuid.NewUUID()), nil
}

func adaptDeployment(cpContext component.WorkloadContext, deployment *appsv1.Deployment) error {
	id, err := currentRemovalID(cpContext)
	if err != nil {
		return err
	}
	setEnv(deployment, map[string]string{
		"INSTALL":         strconv.FormatBool(isEnabled()),
		removalIDVariable: id,
		// These run here, so that registry overrides apply.
		"PILOT_IMAGE":   cpContext.ReleaseImageProvider.GetImage("istio-pilot"),
		"SIDECAR_IMAGE": cpContext.ReleaseImageProvider.GetImage("hypergate"),
		// These run in the hosted cluster, so that registry overrides must not apply.
		"PROXY_IMAGE": cpContext.UserReleaseImageProvider.GetImage("istio-proxyv2"),
		"RELAY_IMAGE": cpContext.UserReleaseImageProvider.GetImage("hypergate"),
		// MonitorOperandsRolloutStatus compares istiod's version with this one.
		"RELEASE_VERSION": cpContext.ReleaseImageProvider.Version(),
	})
	return nil
}

func setEnv(deployment *appsv1.Deployment, values map[string]string) {
	podspec.UpdateContainer(ComponentName, deployment.Spec.Template.Spec.Containers, func(c *corev1.Container) {
		for name, value := range values {
			podspec.UpsertEnvVar(c, corev1.EnvVar{Name: name, Value: value})
		}
	})
}
