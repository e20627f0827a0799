package controller

import (
	"context"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
)

// patched is what became of patches of objects of other owners.
type patched struct {
	// count is how many objects were patched.
	count int
	// refused is an object whose patch would be refused again, and the cause. NoCause: there was none. A missing
	// permission comes first. A webhook or a policy can deny a patch with the same code, 403: see apply.Classify.
	refused model.ForeignObject
	cause   apply.Cause
}

// patchForeign patches the first objects of a list, side by side. The next pass patches the rest. An object that has
// changed meanwhile is patched again in a later pass, after it was observed.
func (e *execution) patchForeign(
	ctx context.Context, why model.ForeignReason, all []model.ForeignObject, patchOf func(model.ForeignObject) (model.ForeignPatch, error),
) patched {
	ctx, over := e.inGuest(ctx)
	defer over()
	all = all[:min(len(all), foreignPerPass)]
	errs, sent := make([]error, len(all)), 0
	var writing errgroup.Group
	writing.SetLimit(foreignAtOnce)
	for i, of := range all {
		now := e.clock.Now()
		if wait := e.memory.foreignPatches.Wait(now); wait > 0 {
			e.requeueAfter(wait)
			break
		}
		e.memory.foreignPatches.Take(now)
		sent++
		writing.Go(func() error {
			patch, err := patchOf(of)
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
func (e *execution) notePatches(ctx context.Context, why model.ForeignReason, all []model.ForeignObject, errs []error) patched {
	var out patched
	var failed error
	var first types.NamespacedName
	for i := range all {
		switch err := errs[i]; {
		case err == nil:
			if out.count++; out.count == 1 {
				first = all[i].Key
			}
		case apierrors.IsConflict(err), apierrors.IsNotFound(err): // it has changed, or is gone
		default:
			failed = err
			cause := apply.Classify(err, "patch", foreignResource(why))
			if !cause.Class().IsTransient() && out.cause.Class() != apply.Forbidden {
				out.refused, out.cause = all[i], cause
			}
		}
	}
	log := logr.FromContextOrDiscard(ctx)
	if out.count > 0 {
		log.Info("Patched objects of other owners", "why", why, "first", first.String(), "count", out.count)
	}
	if failed == nil {
		e.memory.foreignLogged = lastLogged{}
		return out
	}
	if cause := apply.Classify(failed, "patch", foreignResource(why)); e.memory.foreignLogged.isNew(cause.String()) {
		log.Info("Patching objects of other owners failed", "why", why, "err", failed.Error())
	}
	return out
}

// foreignResource returns the resource that is patched for a reason.
func foreignResource(why model.ForeignReason) schema.GroupResource {
	for _, w := range model.ForeignWrites() {
		if w.Reason == why {
			return w.GVR().GroupResource()
		}
	}
	return schema.GroupResource{}
}
