package controller

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/throttle"
)

// refusals is when ListenerSets get the condition that istiod ignores them.
type refusals struct {
	writes throttle.Limiter
	// retry is when the writes are tried again after one failed. last is the ListenerSet that was tried last: one that
	// cannot be written does not keep the others from being written.
	retry throttle.Backoff
	last  types.NamespacedName
}

// next returns the ListenerSets to write now: those after the last one, and then the first ones again.
func (r *refusals) next(all []model.ListenerSet) []model.ListenerSet {
	after := slices.IndexFunc(all, func(l model.ListenerSet) bool { return l.Key.String() > r.last.String() })
	if after > 0 {
		all = slices.Concat(all[after:], all[:after])
	}
	return all[:min(len(all), foreignPerPass)]
}

// refusable returns the ListenerSets that get the condition now, and when the next one does. Zero: no other one does.
// Beside OpenShift's ingress operator, which can be one that writes the condition, the operator goes first. What it has
// written stays, but it replaces what hypergate has written. A time in the future is that of another clock.
func refusable(guest model.GuestObservation, now time.Time) (due []model.ListenerSet, wait time.Duration) {
	for _, l := range guest.ListenerSets {
		age := now.Sub(l.Created)
		if guest.IngressOperator == model.Present && age < operatorRefuses && age > -operatorRefuses {
			wait = soonest(wait, operatorRefuses-age)
			continue
		}
		due = append(due, l)
	}
	return due, wait
}

// refuseListenerSets writes the condition of ListenerSets that do not have it. Another istiod beside hypergate's may
// serve them.
func (e *execution) refuseListenerSets(ctx context.Context, plan desired.Plan) {
	r := &e.memory.refusals
	if !plan.Installed || e.outcome.migration.mode.IsBeside() {
		return
	}
	now := e.clock.Now()
	all, later := refusable(e.observed.guest, now)
	if later > 0 {
		e.requeueAfter(later)
	}
	if len(all) == 0 {
		return
	}
	if wait := max(r.retry.Wait(now), r.writes.Wait(now)); wait > 0 {
		e.requeueAfter(wait)
		return
	}
	next := r.next(all)
	objects := make([]model.ForeignObject, 0, len(next))
	of := map[types.UID]model.ListenerSet{}
	for _, l := range next {
		objects, of[l.UID] = append(objects, l.ForeignObject), l
	}
	did := e.patchForeign(ctx, model.ReasonRefuseListenerSet, objects, func(o model.ForeignObject) (model.ForeignPatch, error) {
		return model.RefusePatch(of[o.UID], now)
	})
	r.last = next[len(next)-1].Key
	if len(did.denied) > 0 || len(did.succeeded) == 0 {
		e.requeueAfter(r.retry.Failed(now, refuseRetry, maxRefuseRetry))
	} else {
		r.retry.Reset() // the events of what was written wake the next pass
	}
}
