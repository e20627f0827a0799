package controller

import (
	"context"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/rollout"
)

// rollGateways carries out a step of a rollout of gateways, and keeps what follows from it.
func (e *execution) rollGateways(ctx context.Context, d rolloutStep) {
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
		did = e.patchGateways(ctx, model.ReasonHoldGateway, s.Gateways)
	case rollout.Release:
		if did = e.patchGateways(ctx, model.ReasonReleaseGateway, []model.Gateway{s.Gateway}); did.count > 0 {
			memo = memo.AfterRelease(s.Gateway, e.clock.Now())
		}
	case rollout.ReleaseAll:
		did = e.patchGateways(ctx, model.ReasonReleaseGateway, s.Gateways)
	}
	if did.forbidden {
		memo = memo.AfterRefusal(d.evidence, d.step)
	}
	e.memory.rollout = memo
	e.outcome.rollout = memo.Report(d.evidence, d.step)
	e.requeueAfter(rollout.Again(d.step))
}

// patched is what became of patches of Gateways.
type patched struct {
	// count is how many Gateways were patched.
	count int
	// forbidden reports whether hypergate may not patch Gateways.
	forbidden bool
}

// patchGateways patches the first Gateways of a list, side by side. The next pass patches the rest. A Gateway that has
// changed meanwhile is patched again in the next pass, after it was observed.
func (e *execution) patchGateways(ctx context.Context, why model.ForeignReason, all []model.Gateway) patched {
	ctx, over := e.inGuest(ctx)
	defer over()
	all = all[:min(len(all), foreignPerPass)]
	errs, sent := make([]error, len(all)), 0
	var writing errgroup.Group
	writing.SetLimit(foreignAtOnce)
	for i, g := range all {
		now := e.clock.Now()
		if wait := e.memory.foreignPatches.Wait(now); wait > 0 {
			e.requeueAfter(wait)
			break
		}
		e.memory.foreignPatches.Take(now)
		sent++
		writing.Go(func() error {
			patch, err := model.NewForeignPatch(why, e.config.Revision, g.ForeignObject)
			if err == nil {
				err = e.guest.PatchForeign(ctx, patch)
			}
			errs[i] = err
			return nil
		})
	}
	_ = writing.Wait() // errs has the errors
	return e.notePatches(ctx, why, all[:sent], errs)
}

// notePatches logs what became of patches. A failure is logged once, until its cause changes.
func (e *execution) notePatches(ctx context.Context, why model.ForeignReason, all []model.Gateway, errs []error) patched {
	var out patched
	var failed error
	for i := range all {
		switch err := errs[i]; {
		case err == nil:
			out.count++
		case apierrors.IsForbidden(err):
			out.forbidden, failed = true, err
		case apierrors.IsConflict(err), apierrors.IsNotFound(err): // it has changed, or is gone
		default:
			failed = err
		}
	}
	log := logr.FromContextOrDiscard(ctx)
	if out.count > 0 {
		log.Info("Patched Gateways", "why", why, "first", all[0].Key.String(), "count", out.count)
	}
	if failed == nil {
		e.memory.rolloutLogged = lastLogged{}
		return out
	}
	cause := apply.Classify(failed, "patch", schema.GroupResource{Group: "gateway.networking.k8s.io", Resource: "gateways"})
	if e.memory.rolloutLogged.isNew(cause.String()) {
		log.Info("Patching Gateways failed", "why", why, "err", failed.Error())
	}
	return out
}
