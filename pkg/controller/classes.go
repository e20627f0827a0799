package controller

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/status"
)

// The status of a class is written ten times in a row, and then once in a while: somebody else may rewrite it, and each write wakes istiod.
const (
	statusBurst = 10
	statusEvery = 10 * time.Second
	// beyondBurst and beyondEvery are for all classes together that are not looked after because there are too many.
	beyondBurst = 64
	beyondEvery = time.Second
)

// Statuses of classes in one pass: the guest's admin may make many classes, and a webhook that takes its time for each. What is left has its
// turn in the next pass, before those that had one.
const (
	// statusesAtOnce is how many are written at the same time, as many as objects are.
	statusesAtOnce = 8
	// statusesPerPass is how many are written in one pass.
	statusesPerPass = 64
	// statusTime is how long a pass begins to write them. Each request has its own timeout of three seconds.
	statusTime = 10 * time.Second
)

// classes is what was said to the GatewayClasses that ask for us, by their names.
type classes struct {
	byName map[string]*class
	// beyond is for those that are not looked after.
	beyond limit
	// turn counts the statuses that were tried to be written.
	turn uint64
}

type class struct {
	writes limit
	// contested is what was said of who else writes its status.
	contested lastLogged
	// tried is the turn of the last try; 0: there was none.
	tried uint64
}

func newClasses() classes {
	return classes{byName: map[string]*class{}, beyond: newLimit(beyondBurst, beyondEvery)}
}

// of is what was said to one of them.
func (c *classes) of(name string) *class {
	if c.byName[name] == nil {
		c.byName[name] = &class{writes: newLimit(statusBurst, statusEvery)}
	}
	return c.byName[name]
}

// keep forgets all but those that still ask.
func (c *classes) keep(asking []desired.GatewayClass) {
	still := make(map[string]bool, len(asking))
	for _, class := range asking {
		still[class.Name] = true
	}
	maps.DeleteFunc(c.byName, func(name string, _ *class) bool { return !still[name] })
}

// try notes that the status of a class is written.
func (c *classes) try(said *class, now time.Time) {
	c.turn++
	said.tried = c.turn
	said.writes.take(now)
}

// logContested tells, once, that the status is written again and again. Those who change it as we do, by a patch of their own, are named; hypergate's own name is
// none of them.
func (c *class) logContested(ctx context.Context, name string, writers map[string]string) {
	if who := strings.Join(status.OtherWriters(writers), ", "); c.contested.isNew(who) {
		logr.FromContextOrDiscard(ctx).Info("Somebody else changes the conditions of a GatewayClass again and again; they are put right once in a while only",
			"class", name, "fieldManagers", who, "every", statusEvery.String())
	}
}

// dueStatus is a class whose conditions are not as they should be.
type dueStatus struct {
	name       string
	said       *class
	conditions []metav1.Condition
}

// writeConditions writes the conditions of the classes that are not as they should be, as many as a pass may.
func (r *Reconciler) writeConditions(ctx context.Context, p *pass) error {
	if !r.twoClusters {
		return nil
	}
	due := r.dueStatuses(ctx, p)
	slices.SortStableFunc(due, func(a, b dueStatus) int { return cmp.Compare(a.said.tried, b.said.tried) })
	if len(due) > statusesPerPass {
		due = due[:statusesPerPass]
		p.requeueAfter(passSpacing)
	}
	return r.writeStatuses(ctx, p, due)
}

// dueStatuses are the classes to be written, but for those that were written too often.
func (r *Reconciler) dueStatuses(ctx context.Context, p *pass) []dueStatus {
	res, now := p.result, r.clock.Now()
	all := slices.Concat(res.Classes, res.Beyond)
	r.classes.keep(all)
	wanted := status.OfClasses(res)
	var due []dueStatus
	for i, class := range all {
		previous, writers := r.guest.Conditions(class.Name), r.guest.StatusWriters(class.Name)
		of := wanted.Of
		if i >= len(res.Classes) {
			of = wanted.Beyond
		}
		previous, conditions := status.KeepForeignConditions(previous, of(class, previous, now), res.PlanProblem, writers)
		if status.Same(previous, conditions) {
			continue
		}
		said := r.classes.of(class.Name)
		if said.writes.wait(now) > 0 {
			said.logContested(ctx, class.Name, writers)
			p.requeueAfter(statusEvery)
			continue
		}
		if i >= len(res.Classes) {
			if wait := r.classes.beyond.wait(now); wait > 0 {
				p.requeueAfter(wait)
				continue
			}
			r.classes.beyond.take(now)
		}
		due = append(due, dueStatus{class.Name, said, conditions})
	}
	return due
}

// writeStatuses writes statuses side by side, until one gets no answer: then the others would get none either.
func (r *Reconciler) writeStatuses(ctx context.Context, p *pass, due []dueStatus) error {
	begun := time.Now()
	errs := make([]error, len(due))
	var writing errgroup.Group
	writing.SetLimit(statusesAtOnce)
	var stopped atomic.Bool
	for i, d := range due {
		if stopped.Load() || ctx.Err() != nil {
			break
		}
		if time.Since(begun) > statusTime {
			p.requeueAfter(passSpacing)
			break
		}
		r.classes.try(d.said, r.clock.Now())
		writing.Go(func() error {
			errs[i] = r.guest.ApplyConditions(ctx, d.name, d.conditions)
			if errs[i] != nil && apply.Classify(errs[i], "patch", schema.GroupResource{}).Class().IsTransient() {
				stopped.Store(true)
			}
			return nil
		})
	}
	_ = writing.Wait() // errs holds the errors
	return errors.Join(errs...)
}
