package migration

// Phase is a part of a migration.
type Phase string

// The phases, in their order.
const (
	// Check: nothing is written. Also the state before a migration, and after a rollback.
	Check Phase = "Check"
	// StandBy: the hosted istiod serves configuration. It takes part in no election, and deploys no Gateway and writes
	// no status. It publishes its roots in a ConfigMap of each namespace, and applies the Services of InferencePools,
	// as every istiod does (pilot/pkg/config/kube/gateway/inferencepool_collection.go).
	StandBy Phase = "StandBy"
	// Hold: all Gateways are held, so that no istiod changes their Deployments.
	Hold Phase = "Hold"
	// Lead: the lock of the controller that deploys Gateways goes to the other istiod.
	Lead Phase = "Lead"
	// Roll: one Gateway after another is deployed by the istiod that leads.
	Roll Phase = "Roll"
	// Park: the origin has no pods, and its webhook blocks nothing.
	Park Phase = "Park"
	// Retire: another party removes the origin.
	Retire Phase = "Retire"
	// Done: the origin does not exist any more.
	Done Phase = "Done"
)

// Phases returns all phases in their order.
func Phases() []Phase { return []Phase{Check, StandBy, Hold, Lead, Roll, Park, Retire, Done} }

// Write is a kind of write. hypergate writes its Memo in each phase but Check.
type Write string

const (
	// WriteHosted changes the installation of the hosted istiod.
	WriteHosted Write = "hosted istiod"
	// WriteHold sets model.HoldAnnotation of a Gateway.
	WriteHold Write = "hold of a Gateway"
	// WriteRelease removes model.HoldAnnotation of a Gateway.
	WriteRelease Write = "release of a Gateway"
	// WriteReplicas changes spec.replicas of the origin's Deployment.
	WriteReplicas Write = "replicas of the origin"
	// WriteWebhook sets failurePolicy of the origin's validating webhook to Ignore.
	WriteWebhook Write = "failure policy of the origin's webhook"
	// WriteTemplate restores the pod template of a Gateway's Deployment from its previous ReplicaSet.
	WriteTemplate Write = "pod template of a Gateway's Deployment"
)

// Permitted returns the only writes of a phase, in both directions.
func Permitted(p Phase) []Write {
	return map[Phase][]Write{
		Check:   nil,
		StandBy: {WriteHosted},
		Hold:    {WriteHold},
		Lead:    {WriteHosted, WriteReplicas, WriteHold},
		Roll:    {WriteHold, WriteRelease, WriteTemplate},
		Park:    {WriteReplicas, WriteWebhook, WriteRelease},
		Retire:  nil,
		Done:    {WriteHosted},
	}[p]
}
