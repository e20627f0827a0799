package desired

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
)

// electionEnv turns istiod's leader elections off (pilot/pkg/leaderelection): it then does at once what only a leader does.
const electionEnv = "ENABLE_LEADER_ELECTION"

// istiodReplicas is how many pods istiod has.
func istiodReplicas(h model.ManagementObservation) int64 {
	if h.ControlPlane.Exists() {
		return h.ControlPlane.Replicas()
	}
	return 1
}

// singleReplica is for one istiod. Its elections are held in the guest, three of them, 0.8 requests a second between them as long as it lives, and it
// wins them all. Without them two of different versions would write over each other in the guest, so that one must be gone before the next begins.
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
	// What istiod does in the guest ends at once when it is told to end; for the default of ten seconds it would wait for gateways to hang up, which they do not.
	args, _ := container["args"].([]any)
	container["args"] = append(args, "--shutdownDuration=1s")
	return unstructured.SetNestedMap(u.Object, map[string]any{"type": "Recreate"}, "spec", "strategy")
}
