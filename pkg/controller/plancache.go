package controller

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
)

// planCache computes plans. It remembers the last one, and what that was computed from, so that a pass in which nothing
// changed computes nothing.
type planCache struct {
	planner *desired.Planner
	inputs  []byte
	plan    desired.Plan
}

// planFor returns the plan for what was observed, and whether it was computed and not remembered.
func (c *planCache) planFor(m model.ManagementObservation, g model.GuestObservation) (desired.Plan, bool, error) {
	inputs, err := planInputs(m, g)
	if err != nil {
		return desired.Plan{}, false, err
	}
	if c.inputs != nil && bytes.Equal(inputs, c.inputs) {
		return c.plan, false, nil
	}
	plan, err := c.planner.Compute(m, g)
	if err != nil {
		return desired.Plan{}, false, rejectedPlanError{err}
	}
	c.inputs, c.plan = inputs, plan
	return plan, true, nil
}

// planInputs returns what a plan is computed from, as one comparable value. Fields of the observations on which no plan
// depends are not part of their JSON.
func planInputs(m model.ManagementObservation, g model.GuestObservation) ([]byte, error) {
	inputs, err := json.Marshal([]any{m, g})
	if err != nil {
		return nil, fmt.Errorf("comparing observations: %w", err)
	}
	return inputs, nil
}
