package migration

import "fmt"

// PlannedWrite is what a migration writes in a phase, in a plan.
type PlannedWrite struct {
	Phase Phase `json:"phase"`
	// Object is the object of the guest, or a number of Gateways. It is empty for the hosted istiod.
	Object string `json:"object,omitempty"`
	Write  Write  `json:"write"`
	// Effect is the value that is written.
	Effect string `json:"effect"`
}

// Writes returns what a migration forward writes, in the order of its phases. Each of them is in Permitted. Without an
// origin, there are none.
func (i Inventory) Writes() []PlannedWrite {
	if i.Origin.Deployment == nil {
		return []PlannedWrite{}
	}
	deployed, skipped := 0, 0
	for _, g := range i.Gateways {
		if g.deployed() {
			deployed++
		}
		if g.deployed() && g.Skip {
			skipped++
		}
	}
	moving := deployed - skipped
	all, gateways := countedGateways(deployed), countedGateways(moving)
	istiod := i.istiod().String()
	out := []PlannedWrite{
		{StandBy, "", WriteHosted, "installed, and serves configuration"},
		{Hold, all, WriteHold, "held"},
		{Lead, "", WriteHosted, "also deploys Gateways and writes status"},
		{Lead, istiod, WriteReplicas, "0, until the hosted istiod has the lock"},
	}
	if moving > 0 && i.version().Minor >= followsFrom {
		out = append(out, PlannedWrite{Lead, istiod, WriteReplicas, fmt.Sprintf("%d again", i.Origin.Deployment.Wanted)})
	}
	out = append(out,
		PlannedWrite{Roll, gateways, WriteRelease, "released one after another"},
		PlannedWrite{Roll, gateways, WriteHold, "held again after each has moved"},
		PlannedWrite{Roll, "a Gateway that fails", WriteTemplate, "that of before"},
	)
	if skipped > 0 {
		return out // the istiod in the guest keeps its pods, and the Gateways stay held
	}
	return append(out,
		PlannedWrite{Park, istiod, WriteReplicas, "0"},
		PlannedWrite{
			Park, "ValidatingWebhookConfiguration " + OriginWebhook(i.Revision, i.Namespace), WriteWebhook, "Ignore",
		},
		PlannedWrite{Park, all, WriteRelease, "released"},
		PlannedWrite{Done, "", WriteHosted, "alone, with class defaults, webhook and CRDs of hypergate"},
	)
}

// countedGateways returns a number of Gateways as a text.
func countedGateways(n int) string {
	if n == 1 {
		return "1 Gateway"
	}
	return fmt.Sprintf("%d Gateways", n)
}
