package controller

import (
	"context"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/rollout"
)

// rollGateways carries out a step of a rollout of gateways, and keeps what follows from it. It returns what conditions
// say.
func (e *execution) rollGateways(ctx context.Context, d rolloutStep) rollout.Report {
	switch rollout.WatchingFor(d.step) {
	case rollout.WatchOn:
		e.guest.WatchGateways(true)
	case rollout.WatchOff:
		e.guest.WatchGateways(false)
	case rollout.WatchUnchanged:
	}
	memo := d.memo.After(d.evidence, d.step)
	var did patched
	switch s := d.step.(type) {
	case rollout.Hold:
		did = e.patchGateways(ctx, model.ReasonHoldGateway, s.Gateways...)
	case rollout.Release:
		if did = e.patchGateways(ctx, model.ReasonReleaseGateway, s.Gateway); len(did.succeeded) > 0 {
			memo = memo.AfterRelease(s.Gateway, e.clock.Now())
		}
	case rollout.ReleaseAll:
		did = e.patchGateways(ctx, model.ReasonReleaseGateway, s.Gateways...)
	}
	if did.forbidden {
		memo = memo.AfterForbidden(d.evidence, d.step)
	}
	step := d.step
	if len(did.succeeded)+len(did.denied) > 0 {
		memo = memo.AfterPatches(d.evidence, d.step, did.succeeded, did.denied)
		step = memo.Tried(d.evidence, d.step)
	}
	e.memory.rollout = memo
	e.requeueAfter(rollout.Again(step))
	return memo.Report(d.evidence, step)
}

// noteDefaults notes the classes whose defaults this pass tried to write.
func (e *execution) noteDefaults(d rolloutStep) {
	written := map[string]bool{}
	for _, o := range e.outcome.guest.Outcomes() {
		if o.ID().GVK.Kind == "ConfigMap" && o.Verdict() != apply.VerdictSkipped {
			written[o.ID().Key.Name] = true
		}
	}
	var tried []string
	for _, of := range d.evidence.Defaults {
		if written[e.config.ClassDefaultsName(of.Class)] {
			tried = append(tried, of.Class)
		}
	}
	memo, again := e.memory.rollout.AfterWrites(d.evidence, tried)
	e.memory.rollout = memo
	e.requeueAfter(again)
}

// patchGateways holds or releases the first Gateways of a list.
func (e *execution) patchGateways(ctx context.Context, why model.ForeignReason, all ...model.Gateway) patched {
	objects := make([]model.ForeignObject, 0, len(all))
	for _, g := range all {
		objects = append(objects, g.ForeignObject)
	}
	return e.patchForeign(ctx, why, objects, func(of model.ForeignObject) (model.ForeignPatch, error) {
		if why == model.ReasonHoldGateway {
			return model.HoldPatch(e.config.Revision, of)
		}
		return model.ReleasePatch(of)
	})
}
