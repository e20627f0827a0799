package controller

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/status"
)

// The status of a class is written ten times in a row, and then once in a while: somebody else may rewrite it, and each write wakes istiod.
const (
	sayBurst = 10
	sayEvery = 10 * time.Second
)

// classes is what was said to the GatewayClasses that ask for us, by their names.
type classes map[string]*class

type class struct {
	says limit
	// contested is what was said of who else writes its status.
	contested notice
}

// of is what was said to one of them.
func (c classes) of(name string) *class {
	if c[name] == nil {
		c[name] = &class{says: newLimit(sayBurst, sayEvery)}
	}
	return c[name]
}

// keep forgets all but those that still ask.
func (c classes) keep(asking []desired.GatewayClass) {
	still := make(map[string]bool, len(asking))
	for _, class := range asking {
		still[class.Name] = true
	}
	maps.DeleteFunc(c, func(name string, _ *class) bool { return !still[name] })
}

// tell tells, once, that the status is written again and again. Those who change it as we do, by a patch of their own, are named; hypergate's own name is
// none of them.
func (c *class) tell(ctx context.Context, name string, writers map[string]string) {
	if who := strings.Join(status.OtherWriters(writers), ", "); c.contested.isNews(who) {
		logr.FromContextOrDiscard(ctx).Info("Somebody else changes the conditions of a GatewayClass again and again; they are put right once in a while only",
			"class", name, "fieldManagers", who, "every", sayEvery.String())
	}
}

// writeConditions writes the conditions of each class that are not as they should be.
func (r *Reconciler) writeConditions(ctx context.Context, p *pass) error {
	if !r.guarded {
		return nil
	}
	res, now := p.result, r.clock.Now()
	r.classes.keep(res.Classes)
	var errs []error
	for _, class := range res.Classes {
		previous := r.guest.Conditions(class.Name)
		writers := r.guest.Writers(class.Name)
		previous, conditions := status.Yield(previous, status.Conditions(class, res, previous, now), res.Refused, writers)
		if status.Same(previous, conditions) {
			continue
		}
		said := r.classes.of(class.Name)
		if said.says.wait(now) > 0 {
			said.tell(ctx, class.Name, writers)
			p.again(sayEvery)
			continue
		}
		said.says.take(now)
		err := r.guest.ApplyConditions(ctx, class.Name, conditions)
		errs = append(errs, err)
		if err != nil && apply.Classify(err, "patch", schema.GroupResource{}).Class().Passes() {
			break // the others would get no answer either
		}
	}
	return errors.Join(errs...)
}
