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
	moving := 0
	for _, g := range i.Gateways {
		if g.deployed() && !g.Skip {
			moving++
		}
	}
	gateways := fmt.Sprintf("%d Gateways", moving)
	if moving == 1 {
		gateways = "1 Gateway"
	}
	istiod := i.istiod().String()
	out := []PlannedWrite{
		{StandBy, "", WriteHosted, "installed, and serves configuration"},
		{Hold, gateways, WriteHold, "held"},
		{Lead, "", WriteHosted, "also deploys Gateways and writes status"},
		{Lead, istiod, WriteReplicas, "0, until the hosted istiod has the lock"},
	}
	if moving > 0 && i.version().Minor >= followsFrom {
		out = append(out, PlannedWrite{Lead, istiod, WriteReplicas, fmt.Sprintf("%d again", i.Origin.Deployment.Wanted)})
	}
	return append(out,
		PlannedWrite{Roll, gateways, WriteRelease, "released one after another"},
		PlannedWrite{Roll, gateways, WriteHold, "held again after each has moved"},
		PlannedWrite{Park, istiod, WriteReplicas, "0"},
		PlannedWrite{
			Park, "ValidatingWebhookConfiguration " + OriginWebhook(i.Revision, i.Namespace), WriteWebhook, "Ignore",
		},
		PlannedWrite{Park, gateways, WriteRelease, "released"},
	)
}
