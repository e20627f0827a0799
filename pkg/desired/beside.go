package desired

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
)

// Variables of istiod with which it leaves Gateways to another istiod (pilot/pkg/features/pilot.go).
const (
	gatewayStatusEnv     = "PILOT_ENABLE_GATEWAY_API_STATUS"
	gatewayDeploymentEnv = "PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER"
)

const (
	// podNameEnv is the name by which istiod takes part in elections (pilot/pkg/bootstrap/options.go).
	podNameEnv = "POD_NAME"
	// ownPodNameEnv has the name of the pod.
	ownPodNameEnv = "HOSTED_POD_NAME"
)

// besideAnother configures an istiod that has another istiod of the same revision beside it. Its name in elections
// begins with model.HostedIdentity, so that a Lease shows which of both leads.
//
// An istiod that only serves takes part in no election. It would take the locks for the status of Gateways and for the
// roots in new namespaces from the other istiod, and do nothing about the former. Without elections, it publishes its
// own roots (pilot/pkg/serviceregistry/kube/controller/multicluster.go), in a ConfigMap with a name of its own.
func besideAnother(u *unstructured.Unstructured, _ model.Config, mgmt model.ManagementObservation, _ model.GuestObservation) error {
	mode := mgmt.IstiodMode
	if !mode.IsBeside() {
		return nil
	}
	_, container, err := istiodPod(u)
	if err != nil {
		return err
	}
	podName, err := named(container, "env", podNameEnv)
	if err != nil {
		return err
	}
	if err := removeNamed(container, "env", []string{podNameEnv}); err != nil {
		return err
	}
	env, _ := container["env"].([]any)
	container["env"] = append(env,
		map[string]any{"name": ownPodNameEnv, "valueFrom": podName["valueFrom"]},
		map[string]any{"name": podNameEnv, "value": model.HostedIdentity + "$(" + ownPodNameEnv + ")"})
	if mode == model.IstiodServing {
		for _, name := range []string{gatewayStatusEnv, gatewayDeploymentEnv} {
			variable, err := named(container, "env", name)
			if err != nil {
				return err
			}
			variable["value"] = "false"
		}
		env, _ := container["env"].([]any)
		container["env"] = append(env, map[string]any{"name": electionEnv, "value": "false"})
	}
	return unstructured.SetNestedField(u.Object, string(mode), "spec", "template", "metadata", "annotations", model.IstiodModeAnnotation)
}
