package controller

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
)

// trial is a dry run of the defaults of a class.
type trial struct {
	// next is when the next one is due. last is what became of the last one.
	next time.Time
	last apply.Outcome
}

// withoutDefaults returns a plan without the defaults of some classes.
func (e *execution) withoutDefaults(plan desired.Plan, classes []string) desired.Plan {
	if len(classes) == 0 {
		return plan
	}
	plan.Guest = slices.DeleteFunc(slices.Clone(plan.Guest), func(o model.GuestObject) bool {
		return slices.ContainsFunc(classes, func(class string) bool { return e.isDefaultsOf(o, class) })
	})
	return plan
}

func (e *execution) isDefaultsOf(o model.GuestObject, class string) bool {
	return o.GVK().Kind == "ConfigMap" && o.Key().Name == e.config.ClassDefaultsName(class)
}

// tryDefaults asks the guest whether it would accept the defaults that it has refused for so long that Gateways are not
// held for them any more. If it would, the next pass holds Gateways, and then writes them. What the guest answers is
// returned as for a write.
func (e *execution) tryDefaults(ctx context.Context, plan desired.Plan, d rolloutStep) (report apply.Report) {
	ctx, over := e.inGuest(ctx)
	defer over()
	now, before := e.clock.Now(), e.memory.trials
	e.memory.trials = map[string]trial{}
	for class, t := range before {
		if t.next.After(now) {
			e.memory.trials[class] = t
		}
	}
	for _, class := range d.memo.Withheld(d.evidence) {
		at := slices.IndexFunc(plan.Guest, func(o model.GuestObject) bool { return e.isDefaultsOf(o, class) })
		if at < 0 {
			continue
		}
		t, waits := e.memory.trials[class]
		if !waits {
			t = e.try(ctx, plan.Guest[at], class)
			e.memory.trials[class] = t
		}
		report = report.And(apply.ReportOf(t.last))
		e.requeueAfter(max(t.next.Sub(now), time.Millisecond))
	}
	return report
}

// try sends the defaults of a class as a dry run.
func (e *execution) try(ctx context.Context, defaults model.GuestObject, class string) trial {
	id, now := apply.ID{GVK: defaults.GVK(), Key: defaults.Key()}, e.clock.Now()
	err := e.guest.TryDefaults(ctx, defaults)
	if err != nil {
		cause := apply.Classify(err, "patch", schema.GroupResource{Resource: "configmaps"})
		return trial{now.Add(trialEvery), apply.Failed(id, cause, err)}
	}
	e.memory.rollout = e.memory.rollout.AfterAccepted(class)
	e.requeueAfter(time.Millisecond)
	return trial{now.Add(trialAccepted), apply.Waiting(id)}
}
