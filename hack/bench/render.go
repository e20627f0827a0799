package main

import (
	"context"
	"fmt"
	"time"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/pki"
)

// measureRender computes the plan of both sides over and over, as the controller does after each change of what it observes.
func measureRender(ctx context.Context, w *world, r *report) error {
	if err := w.quiet(ctx); err != nil {
		return err
	}
	ca, err := pki.New(time.Now())
	if err != nil {
		return err
	}
	const warmUp, samples = 3, 20
	var took []time.Duration
	for i := range warmUp + samples {
		start := time.Now()
		if _, err := desired.Compute(w.cfg, w.source, desired.Hosted{CA: ca}, w.seen()); err != nil {
			return err
		}
		if i >= warmUp {
			took = append(took, time.Since(start))
		}
	}
	median := percentile(took, 50)
	r.add(row{
		What: fmt.Sprintf("rendering both sides, warm, median of %d", samples), Bar: "<= 30 ms", Measured: spread(took),
		Met: new(median <= 30*time.Millisecond), Values: map[string]any{"ms": milliseconds(took)},
	})
	r.note("Rendering is desired.Compute as a whole: both releases, routing, post-rendering, the CRDs of both APIs, minting.")
	return nil
}
