package apply

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// pruneAttempts is the maximum number of attempts to delete an object that changes at the same time.
	pruneAttempts = 3
	// pruneLimit is how many objects one call of Prune deletes. Any client of the cluster can make objects that look
	// like ours.
	pruneLimit = 200
	// pruneAgain is when the caller must call again for the rest, and pruneLater if too many were deleted before.
	pruneAgain = 100 * time.Millisecond
	pruneLater = time.Second
	// failuresKept is how many failures of a call are reported in full. In a larger number, the first ones usually
	// explain the others.
	failuresKept = 100
)

// Prune deletes every member that is not in keep. A member carries the owner label, and Prune deletes it only if our
// field manager applied fields to it. It deletes only prunable kinds, one kind after the other, in the reverse order of
// Kinds. Each object is deleted by the UID and resourceVersion that are known of it. While an object of a kind with
// Foreground exists, objects of the kinds before it in Kinds stay: its pods still run, and a NetworkPolicy limits them.
//
// Prune deletes nothing until the watches of all prunable kinds have shown their objects. Until then, the report has
// one outcome for each kind that is missing. keep must name everything that was applied to this cluster, by all calls
// of Apply. An empty keep deletes all objects.
//
// The report has an outcome for each object that was deleted, that could not be deleted, that is still being deleted,
// or that was written and deleted too often. One call deletes at most pruneLimit objects, and the calls together one
// object every deletionEvery after a burst. Objects that were tried longest ago come first. For the rest, the report
// has one skipped outcome, and the caller must call again after Report.RetryAfter. The number of failed outcomes is at
// most failuresKept; the objects are the same in each call, for as long as they fail.
func (c *Cluster) Prune(ctx context.Context, keep ...ID) Report {
	if missing := c.unsynced(); len(missing) > 0 {
		return Report{outcomes: missing}
	}
	kept := make([]map[types.NamespacedName]bool, len(c.opts.Kinds))
	for i := range kept {
		kept[i] = map[types.NamespacedName]bool{}
	}
	for _, id := range keep {
		if kind, ok := c.kinds[id.GVK]; ok {
			kept[kind][id.Key] = true
		}
	}
	var victims []victim
	for kind, k := range slices.Backward(c.opts.Kinds) {
		if !k.Prune {
			continue
		}
		of := c.tracker.victims(kind, kept[kind])
		victims = append(victims, of...)
		if k.Foreground && len(of) > 0 {
			break // its dependents, for example pods, still need the objects of the kinds before it
		}
	}
	outcomes := c.pruneVictims(ctx, victims)
	return Report{outcomes: outcomes, stopped: stopped(ctx, outcomes)}
}

// unsynced returns an outcome for each prunable kind whose watch has not shown its objects.
func (c *Cluster) unsynced() []Outcome {
	var out []Outcome
	for i, k := range c.opts.Kinds {
		if !k.Prune || c.tracker.synced(i) {
			continue
		}
		id := ID{GVK: k.GVK}
		if p := c.tracker.problem(i); p != nil {
			out = append(out, Failed(id, p.Cause,
				fmt.Errorf("pruning the %s cluster: not all kinds are watched yet: %w", c.opts.Name, p.err)))
			continue
		}
		out = append(out, Waiting(id))
	}
	return out
}

// pruneVictims deletes as many of the victims as one call can, one kind after the other.
func (c *Cluster) pruneVictims(ctx context.Context, victims []victim) []Outcome {
	var outcomes []Outcome
	victims = slices.DeleteFunc(victims, func(v victim) bool {
		if v.terminating && len(outcomes) < pruneLimit { // more of them say nothing new
			outcomes = append(outcomes, v.pause.waiting(c.victimID(v)))
		}
		return v.terminating
	})
	b := c.tracker.beginDeletes(victims)
	tried := make([]Outcome, len(b.delete))
	var running errgroup.Group
	running.SetLimit(c.opts.Concurrency)
	for i, at := range b.delete {
		v := victims[at]
		if i > 0 && v.kind != victims[b.delete[i-1]].kind {
			_ = running.Wait() // tried holds the errors
		}
		running.Go(func() error {
			tried[i] = c.remove(ctx, v.kind, c.victimID(v), v)
			c.tracker.endedDelete(v.kind, tried[i])
			return nil
		})
	}
	_ = running.Wait()
	for i, at := range b.delete {
		b.known[at] = tried[i]
	}
	c.tracker.endDeletes(victims, &b)
	return append(outcomes, c.pruned(victims, b)...)
}

func (c *Cluster) victimID(v victim) ID { return ID{c.opts.Kinds[v.kind].GVK, v.key} }

// pruned returns the outcomes of a batch. The last one is for all victims that the batch says nothing about.
func (c *Cluster) pruned(victims []victim, b batch) []Outcome {
	var outcomes []Outcome
	var rest *victim
	for i, v := range victims {
		if o, known := b.known[i]; known {
			outcomes = append(outcomes, o)
		} else if rest == nil {
			rest = &v
		}
	}
	if rest != nil {
		outcomes = append(outcomes, Skipped(ID{GVK: c.opts.Kinds[rest.kind].GVK}).after(b.again).withWrites(b.omittedWrites))
	}
	return outcomes
}

// remove deletes one member. If the member changed since the watch showed it, remove reads it again and deletes it
// only if it is still a victim: it has the same UID, carries the owner label, and has fields that we applied.
func (c *Cluster) remove(ctx context.Context, kind int, id ID, v victim) Outcome {
	if ctx.Err() != nil {
		return Skipped(id)
	}
	k := c.opts.Kinds[kind]
	fail := func(verb string, err error, writes int) Outcome {
		return c.notDeleted(ctx, k, id, verb, err).withWrites(writes)
	}
	done := func(o Outcome, writes int) Outcome {
		c.tracker.forget(kind, v.key, v.uid)
		return o.withWrites(writes)
	}
	for attempt := 1; ; attempt++ {
		err := c.delete(ctx, k, v)
		switch {
		case err == nil && k.Foreground:
			// The tracker does not forget the object: it exists until the watch shows that it is gone.
			return Waiting(id).withWrites(attempt)
		case err == nil, apierrors.IsNotFound(err):
			return done(Deleted(id), attempt)
		case !apierrors.IsConflict(err) || attempt == pruneAttempts:
			return fail("delete", err, attempt)
		}
		now, err := c.look(ctx, k, v.key)
		switch {
		case apierrors.IsNotFound(err):
			return done(Deleted(id), attempt)
		case err != nil:
			return fail("get", err, attempt)
		case now.UID != v.uid, !c.labelled(now), c.fields().hash(now.ManagedFields) == 0:
			return done(Unchanged(id), attempt)
		case now.DeletionTimestamp != nil:
			return Waiting(id).withWrites(attempt)
		}
		v.rv = now.ResourceVersion
	}
}

// notDeleted returns the outcome of a deletion that failed, or that was cut off because the call ended.
func (c *Cluster) notDeleted(ctx context.Context, k Kind, id ID, verb string, err error) Outcome {
	if cutOff(ctx, err) {
		return Skipped(id)
	}
	return Failed(id, Classify(err, verb, k.resource()), fmt.Errorf("deleting %s from the %s cluster: %w", id, c.opts.Name, err))
}

func (c *Cluster) delete(ctx context.Context, k Kind, v victim) error {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	propagation := metav1.DeletePropagationBackground
	if k.Foreground {
		propagation = metav1.DeletePropagationForeground
	}
	return c.resource(k, v.key.Namespace).Delete(ctx, v.key.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &v.uid, ResourceVersion: &v.rv},
		PropagationPolicy: &propagation,
	})
}
