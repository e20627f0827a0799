package main

import (
	"context"
	"fmt"
	"time"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
)

// measureRender computes the plan of both sides repeatedly, as the controller does after each change of its
// observation.
func measureRender(ctx context.Context, w *environment, r *report) error {
	if err := w.quiet(ctx); err != nil {
		return err
	}
	ca, err := pki.New(time.Now())
	if err != nil {
		return err
	}
	const samples = 20
	whole, err := timed(samples, func(int) error {
		_, err := desired.Compute(w.cfg, w.source, model.ManagementObservation{CA: ca}, w.seen())
		return err
	})
	if err != nil {
		return err
	}
	// This is the cost for the controller when a GatewayClass is created or deleted.
	planner := desired.NewPlanner(w.cfg, w.source)
	again, err := timed(samples, func(i int) error {
		seen := w.seen()
		seen.Classes[0].Name = fmt.Sprintf("class-%d", i)
		_, err := planner.Compute(model.ManagementObservation{CA: ca}, seen)
		return err
	})
	if err != nil {
		return err
	}
	result := row{
		What: fmt.Sprintf("rendering both sides, warm, median of %d", samples), Bar: "<= 0.33 x floor", Measured: spread(whole),
		Values: map[string]any{"ms": milliseconds(whole), "againMs": milliseconds(again)},
	}
	if r.installFloor > 0 {
		result.Floor = ms(r.installFloor)
		result.Ratio = float64(percentile(whole, 50)) / float64(r.installFloor)
		result.Met = new(result.Ratio <= 0.33)
	}
	r.add(result)
	r.note("Rendering: desired.Compute as a whole, with nothing remembered: both releases, routing, post-rendering, "+
		"the CRDs of both APIs, checks of each object. The floor is that of an installation (part install). "+
		"The controller, which remembers what does not change, computes the plan for another GatewayClass in %s.", spread(again))
	return nil
}

// timed calls f without measuring for a warm-up, and then measures samples calls.
func timed(samples int, f func(i int) error) ([]time.Duration, error) {
	const warmUp = 3
	var took []time.Duration
	for i := range warmUp + samples {
		start := time.Now()
		if err := f(i); err != nil {
			return nil, err
		}
		if i >= warmUp {
			took = append(took, time.Since(start))
		}
	}
	return took, nil
}
