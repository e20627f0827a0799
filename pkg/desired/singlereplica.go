package desired

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
)

// electionEnv is the variable that disables istiod's leader elections (pilot/pkg/leaderelection). istiod then starts
// the leader's work at once.
const electionEnv = "ENABLE_LEADER_ELECTION"

// istiodReplicas returns the number of istiod's pods. A HostedControlPlane decides for its namespace. Otherwise the
// flag does. Without it, OpenShift's Infrastructure decides for a standalone cluster. A hosted guest's own
// Infrastructure says nothing about the cluster on which istiod runs.
func istiodReplicas(cfg model.Config, mgmt model.ManagementObservation, guest model.GuestObservation) int64 {
	switch {
	case mgmt.ControlPlane.Exists():
		return mgmt.ControlPlane.Replicas()
	case cfg.Replicas > 0:
		return cfg.Replicas
	case cfg.Topology == model.TopologyStandalone && guest.Infrastructure == model.SeveralNodes:
		return maxReplicas
	}
	return 1
}

// singleReplica disables leader election if there is only one istiod, and no other one beside it. istiod has three
// elections in the guest, which cost 0.8 requests per second together, and a single istiod always wins them. Without
// elections, two istiods of different versions would overwrite each other's writes in the guest. So the old pod must
// end before the new one starts (strategy Recreate). That is also so if only one of both has elections.
//
// An evicted pod can overlap with its successor while it ends. Both have the same version then, and write the same. In
// the moment before the failure policy of the webhook becomes Ignore, the guest's API server rejects writes.
func singleReplica(u *unstructured.Unstructured, cfg model.Config, mgmt model.ManagementObservation, guest model.GuestObservation) error {
	if istiodReplicas(cfg, mgmt, guest) > 1 {
		return nil
	}
	_, container, err := istiodPod(u)
	if err != nil {
		return err
	}
	if !mgmt.IstiodMode.IsBeside() {
		env, _ := container["env"].([]any)
		container["env"] = append(env, map[string]any{"name": electionEnv, "value": "false"})
	}
	// istiod stops its work in the guest immediately when it receives the signal to end. With the default of 10 seconds
	// it would then wait for gateways to close their connections, which they do not do.
	args, _ := container["args"].([]any)
	container["args"] = append(args, "--shutdownDuration=1s")
	return unstructured.SetNestedMap(u.Object, map[string]any{"type": "Recreate"}, "spec", "strategy")
}
