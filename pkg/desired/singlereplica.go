package desired

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
)

// electionEnv is the variable that disables istiod's leader elections (pilot/pkg/leaderelection). istiod then starts
// the leader's work at once.
const electionEnv = "ENABLE_LEADER_ELECTION"

// istiodReplicas returns the number of istiod's pods.
func istiodReplicas(h model.ManagementObservation) int64 {
	if h.ControlPlane.Exists() {
		return h.ControlPlane.Replicas()
	}
	return 1
}

// singleReplica disables leader election if there is only one istiod. istiod has three elections in the guest, which
// cost 0.8 requests per second together, and a single istiod always wins them. Without elections, two istiods of
// different versions would overwrite each other's writes in the guest. So the old pod must end before the new one
// starts (strategy Recreate).
func singleReplica(u *unstructured.Unstructured, _ model.Config, mgmt model.ManagementObservation, _ model.GuestObservation) error {
	if istiodReplicas(mgmt) > 1 {
		return nil
	}
	_, container, err := istiodPod(u)
	if err != nil {
		return err
	}
	env, _ := container["env"].([]any)
	container["env"] = append(env, map[string]any{"name": electionEnv, "value": "false"})
	// istiod stops its work in the guest immediately when it receives the signal to end. With the default of 10 seconds
	// it would then wait for gateways to close their connections, which they do not do.
	args, _ := container["args"].([]any)
	container["args"] = append(args, "--shutdownDuration=1s")
	return unstructured.SetNestedMap(u.Object, map[string]any{"type": "Recreate"}, "spec", "strategy")
}
