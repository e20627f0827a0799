package controller

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/throttle"
)

// classes is what was written to the GatewayClasses of our controller name, by their names.
type classes struct {
	byName map[string]*class
	// beyond is for those that are not managed, because there are too many.
	beyond throttle.Limiter
	// turn counts the statuses that were tried to be written.
	turn uint64
}

// class is what was written to one of them.
type class struct {
	writes throttle.Limiter
	// often is what was logged of who else writes its status, when it changed too often.
	often lastLogged
	// tried is the turn of the last attempt. Zero: there was none.
	tried uint64
	// changes is how many attempts in a row found that the class had changed meanwhile.
	changes int
	// unwritten is why the last attempt failed. The zero value: it did not, or the class is not managed. The number of
	// such classes has no limit, so their causes are not kept.
	unwritten apply.Cause
}

func newClasses() classes {
	return classes{byName: map[string]*class{}, beyond: throttle.NewLimiter(throttle.Rate{Burst: beyondBurst, Every: beyondEvery})}
}

// get returns what was written to one of them.
func (c *classes) get(name string) *class {
	if c.byName[name] == nil {
		c.byName[name] = &class{writes: throttle.NewLimiter(throttle.Rate{Burst: statusBurst, Every: statusEvery})}
	}
	return c.byName[name]
}

// keep forgets all classes but these.
func (c *classes) keep(those []model.GatewayClass) {
	kept := make(map[string]bool, len(those))
	for _, class := range those {
		kept[class.Name] = true
	}
	maps.DeleteFunc(c.byName, func(name string, _ *class) bool { return !kept[name] })
}

// unwritten returns the managed classes whose conditions could not be written, by name.
func (c *classes) unwritten() (out []status.UnwrittenClass) {
	for _, name := range slices.Sorted(maps.Keys(c.byName)) {
		if cause := c.byName[name].unwritten; cause.Class() != apply.NoCause {
			out = append(out, status.UnwrittenClass{Class: name, Cause: cause})
		}
	}
	return out
}

// isCurrent notes that a class has the conditions that it should have.
func (c *classes) isCurrent(name string) {
	if known := c.byName[name]; known != nil {
		known.unwritten = apply.Cause{}
	}
}

// try notes that the status of a class is written.
func (c *classes) try(written *class, now time.Time) {
	c.turn++
	written.tried = c.turn
	written.writes.Take(now)
}

// versionFor returns the version of a class that its conditions are written to: the one that the watch shows. known is
// false if that one has another spec than this pass decided for, or is gone. Then the next pass decides.
//
// Without this, a pass that began before a change of the spec could write conditions of the former generation after
// it. A client that waits for the new generation would read them as the answer to its change. A class that changes
// again and again gets its conditions nevertheless: after mostChanges, they are written to any version.
func (c *class) versionFor(class model.GatewayClass, shown guest.ClassStatus) (version string, known bool) {
	switch {
	case shown.UID != class.UID: // it was deleted, and perhaps another one has its name
		return "", false
	case c.changes >= mostChanges:
		return "", true
	case shown.Generation != class.Generation:
		c.changes++
		return "", false
	default:
		return shown.ResourceVersion, true
	}
}

// noteAnswer notes how a write to a class ended, and reports whether the class had changed meanwhile. beyond is the
// same as in dueStatus.
func (c *class) noteAnswer(err error, beyond bool) (changed bool) {
	if _, changed = errors.AsType[guest.ClassChangedError](err); changed {
		c.changes++
		return true
	}
	c.changes = 0
	cause := apply.Classify(err, "patch", schema.GroupResource{Group: gatewayv1.GroupName, Resource: "gatewayclasses/status"})
	switch {
	case beyond:
		c.unwritten = apply.Cause{}
	case cause.Class() != apply.Cancelled: // the end of a pass shows nothing about the class
		c.unwritten = cause
	}
	return false
}

// logOften logs, once, that the conditions change too often: another client rewrites them, or hypergate observes
// something that changes. Clients that write as hypergate does, by a patch under a name of their own, are named.
func (c *class) logOften(ctx context.Context, name string, writers map[string]string) {
	if who := strings.Join(status.OtherWriters(writers), ", "); c.often.isNew(who) {
		logr.FromContextOrDiscard(ctx).Info(
			"The conditions of a GatewayClass change too often; they are written at a limited rate",
			"class", name, "otherFieldManagers", who, "every", statusEvery.String())
	}
}

// dueStatus is a class whose conditions differ from the plan.
type dueStatus struct {
	class *class
	// beyond reports whether the class is not managed, because there are too many.
	beyond bool
	write  guest.ClassConditions
}

// existing returns the classes without the one that a preview assumes.
func (r *Reconciler) existing(all []model.GatewayClass) []model.GatewayClass {
	if r.assumedClass != "" && len(all) == 1 && all[0].UID == "" {
		return nil
	}
	return all
}

// dueStatuses returns the classes to be written, those first that were not tried for longest, as many as one pass
// writes. requeue is when the next ones are due. Zero: there are none.
func (r *Reconciler) dueStatuses(ctx context.Context, res status.Result) (due []dueStatus, requeue time.Duration) {
	now, c := r.clock.Now(), &r.reports.classes
	res.Classes = r.existing(res.Classes)
	all := slices.Concat(res.Classes, res.Beyond)
	c.keep(all)
	wanted := status.OfClasses(res)
	for i, class := range all {
		beyond := i >= len(res.Classes)
		shown := r.guest.ClassStatus(class.Name)
		conditionsOf := wanted.Of
		if beyond {
			conditionsOf = wanted.Beyond
		}
		previous, conditions, theirs := status.KeepForeignConditions(
			shown.Conditions, conditionsOf(class, shown.Conditions, now), res.PlanProblem,
			res.Migration.Beside || res.OthersServe, shown.Writers, shown.Applied)
		if status.Same(previous, conditions) {
			c.isCurrent(class.Name)
			continue
		}
		written := c.get(class.Name)
		if written.writes.Wait(now) > 0 {
			written.logOften(ctx, class.Name, shown.Writers)
			requeue = soonest(requeue, statusEvery)
			continue
		}
		if wait := c.beyond.Wait(now); beyond && wait > 0 {
			requeue = soonest(requeue, wait)
			continue
		}
		version, known := written.versionFor(class, shown)
		if !known {
			requeue = soonest(requeue, passSpacing)
			continue
		}
		if beyond {
			c.beyond.Take(now)
		}
		due = append(due, dueStatus{written, beyond, guest.ClassConditions{
			Class: class.Name, ResourceVersion: version, Conditions: conditions, Theirs: theirs,
		}})
	}
	slices.SortStableFunc(due, func(a, b dueStatus) int { return cmp.Compare(a.class.tried, b.class.tried) })
	if len(due) > statusesPerPass {
		return due[:statusesPerPass], soonest(requeue, passSpacing)
	}
	return due, requeue
}
