package controller

import (
	"context"
	"strings"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/text"
	"github.com/hypergate/hypergate/pkg/throttle"
)

// longestDeniedName is the size limit of an object's namespace and name beside the cause of a denial, in bytes.
const longestDeniedName = 128

// patched is what became of patches of objects of other owners.
type patched struct {
	// succeeded are the objects that were patched.
	succeeded []types.UID
	// forbidden reports whether RBAC does not allow to patch them.
	forbidden bool
	// denied are the causes for which patches of single objects would fail again. A webhook or a policy chooses the
	// code of its answer, for example 403 as without a permission, or 409 as after a change: see apply.Classify.
	denied map[types.UID]string
	// first is the first denial. Without one, it is the zero value.
	first denied
}

// denied is why the guest denies the patch of an object.
type denied struct {
	of types.UID
	// cause has the object and the cause.
	cause string
	// unsent reports whether the patch could not be sent.
	unsent bool
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
		now, limiter := e.clock.Now(), e.limiterOf(why)
		if wait := limiter.Wait(now); wait > 0 {
			e.requeueAfter(wait)
			break
		}
		limiter.Take(now)
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

// limiterOf returns the limit for the writes of a reason. A guest that makes ListenerSets delays no Gateway.
func (e *execution) limiterOf(why model.ForeignReason) *throttle.Limiter {
	if why == model.ReasonRefuseListenerSet {
		return &e.memory.refusals.writes
	}
	return &e.memory.foreignPatches
}

// notePatches logs what became of patches. A failure is logged once, until its cause changes.
func (e *execution) notePatches(ctx context.Context, why model.ForeignReason, all []model.ForeignObject, errs []error) patched {
	out := patched{denied: map[types.UID]string{}}
	var failed error
	var first types.NamespacedName
	for i := range all {
		if errs[i] == nil {
			if out.succeeded = append(out.succeeded, all[i].UID); len(out.succeeded) == 1 {
				first = all[i].Key
			}
		} else if out.addFailure(all[i], why, errs[i]) {
			failed = errs[i]
		}
	}
	log := logr.FromContextOrDiscard(ctx)
	if n := len(out.succeeded); n > 0 {
		log.Info("Patched objects of other owners", "why", why, "first", first.String(), "count", n)
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

// addFailure adds the failure of a patch. It reports whether the failure counts: an object that has changed meanwhile,
// or that is gone, needs no action.
func (p *patched) addFailure(of model.ForeignObject, why model.ForeignReason, err error) bool {
	cause := apply.Classify(err, "patch", foreignResource(why))
	switch class := cause.Class(); {
	case class == apply.Forbidden:
		p.forbidden = true
	case class != apply.Denied && (apierrors.IsConflict(err) || apierrors.IsNotFound(err)):
		return false
	case !class.IsTransient():
		p.denied[of.UID] = cause.String()
	}
	if class := cause.Class(); p.first.cause == "" && (class == apply.Denied || class == apply.Invalid) {
		name := text.Line(strings.TrimPrefix(of.Key.String(), "/"), longestDeniedName)
		p.first = denied{of: of.UID, cause: name + ": " + cause.String()}
	}
	return true
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
