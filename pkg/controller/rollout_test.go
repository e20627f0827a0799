package controller

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/rollout"
)

// TestADecisionHasAStepOfTheRollout checks that a decision to converge knows what istiod has and should have, what the
// Gateways are, and what is remembered.
func TestADecisionHasAStepOfTheRollout(t *testing.T) {
	t.Parallel()
	d := newTestDecider(t)
	stepOf := func(d decider, edit func(*observation)) string {
		c, is := d.decide(d.observed(edit)).(converge)
		if !is {
			t.Fatal("no plan is carried out")
		}
		return fmt.Sprintf("%T holds istiod: %t", c.rollout.step, rollout.HoldsIstiod(c.rollout.step))
	}
	first, is := d.decide(d.observed(nil)).(converge)
	if !is || first.plan.IstiodConfig.Hash() == "" {
		t.Fatal("the plan has no configuration of istiod")
	}
	gateway := model.Gateway{
		ForeignObject: model.ForeignObject{Key: types.NamespacedName{Namespace: "n", Name: "g"}, UID: "u", ResourceVersion: "1"},
		Deployment:    model.GatewayDeployment{State: model.DeploymentComplete, Generation: 1, Wanted: 1},
	}
	has := func(config model.IstiodConfig, gateways model.ObservedGateways) func(*observation) {
		return func(o *observation) { o.mgmt.IstiodConfig, o.guest.Gateways = config, gateways }
	}
	nothing := func(o *observation) { o.guest.Classes, o.mgmt.Istiod = nil, model.Absent }
	same, another := first.plan.IstiodConfig, first.plan.IstiodConfig
	another.Image = "0"
	known := model.ObservedGateways{View: model.GatewaysKnown, List: []model.Gateway{gateway}}
	held := gateway
	held.Hold = model.Held
	heldOnly := model.ObservedGateways{View: model.GatewaysKnown, List: []model.Gateway{held}}
	checked, atOnce := d, d
	checked.rollout, atOnce.config.GatewayRollout = rollout.Memo{Checked: true}, model.AllAtOnce
	long := d
	long.rollout = rollout.Memo{KnownSince: start.Add(-time.Minute)}
	for name, c := range map[string]struct {
		decider decider
		edit    func(*observation)
		want    string
	}{
		"a process starts":    {d, has(same, model.ObservedGateways{}), "rollout.Look holds istiod: false"},
		"at rest":             {checked, has(same, model.ObservedGateways{}), "rollout.Done holds istiod: false"},
		"another istiod":      {d, has(another, model.ObservedGateways{}), "rollout.Look holds istiod: true"},
		"Gateways are free":   {d, has(another, known), "rollout.Hold holds istiod: true"},
		"Gateways are held":   {d, has(another, heldOnly), "rollout.Change holds istiod: false"},
		"istiod has changed":  {long, has(same, heldOnly), "rollout.Release holds istiod: false"},
		"all at once":         {atOnce, has(another, known), "rollout.Change holds istiod: false"},
		"no class, no istiod": {d, nothing, "rollout.Done holds istiod: false"},
	} {
		if got := stepOf(c.decider, c.edit); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
