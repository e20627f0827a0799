package controller

import (
	"cmp"
	"slices"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/rollout"
)

// rolloutStep is the step of a rollout of gateways, with what it was decided from.
type rolloutStep struct {
	step     rollout.Step
	evidence rollout.Evidence
	// memo is the memory of the decision, with what the evidence adds to it.
	memo rollout.Memo
	// waiting are the classes whose changed defaults wait until a migration has ended: it releases all Gateways at
	// once, when they have moved.
	waiting []string
}

// withheld returns the classes whose defaults the pass must not write.
func (s rolloutStep) withheld() []string {
	return slices.Concat(s.waiting, s.memo.Withheld(s.evidence))
}

// changedDefaults returns the classes whose defaults differ for pods from what the guest shows.
func changedDefaults(all []rollout.ClassDefaults) []string {
	var out []string
	for _, d := range all {
		if d.Has != d.Wanted {
			out = append(out, d.Class)
		}
	}
	return out
}

// withRollout adds the step of a rollout of gateways to a decision.
func (d decider) withRollout(o observation, c converge) converge {
	if c.migration.active {
		// The migration decides which Gateways are held. A rollout looks for holds after it.
		c.rollout = rolloutStep{
			step: rollout.Change{}, memo: rollout.Memo{Holds: true}, waiting: changedDefaults(defaultsEvidence(c.plan, o.guest)),
		}
		return c
	}
	e := rollout.Evidence{
		Now: o.now, Mode: cmp.Or(d.config.GatewayRollout, model.OneByOne),
		Wanted: c.plan.IstiodConfig.Hash(), Has: o.mgmt.IstiodConfig.Hash(), Defaults: defaultsEvidence(c.plan, o.guest),
		Installed: c.plan.Installed, Elected: o.mgmt.IstiodWanted > 1,
		Istiod: o.mgmt.Istiod, Rollout: o.mgmt.Rollout, Gateways: o.guest.Gateways, Outage: o.outage,
	}
	memo := d.rollout.Before(e)
	c.rollout = rolloutStep{step: rollout.Decide(e, memo), evidence: e, memo: memo}
	return c
}
