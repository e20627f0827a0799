package controller

import (
	"cmp"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/rollout"
)

// rolloutStep is the step of a rollout of gateways, with what it was decided from.
type rolloutStep struct {
	step     rollout.Step
	evidence rollout.Evidence
	// memo is the memory of the decision, with what the evidence adds to it.
	memo rollout.Memo
}

// withRollout adds the step of a rollout of gateways to a decision.
func (d decider) withRollout(o observation, c converge) converge {
	wanted, has := d.settings.evidence(c.plan.IstiodConfig.Hash(), o.mgmt.IstiodConfig.Hash(), c.plan.GatewaySettings)
	e := rollout.Evidence{
		Now: o.now, Mode: cmp.Or(d.config.GatewayRollout, model.OneByOne),
		Wanted: wanted, Has: has, Installed: c.plan.Installed,
		Istiod: o.mgmt.Istiod, Rollout: o.mgmt.Rollout, Gateways: o.guest.Gateways,
	}
	memo := d.rollout.Before(e)
	c.rollout = rolloutStep{step: rollout.Decide(e, memo), evidence: e, memo: memo}
	return c
}
