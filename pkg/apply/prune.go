package apply

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// pruneAttempts is the maximum number of attempts to delete an object that changes at the same time.
const pruneAttempts = 3

// Prune deletes every member that is not in keep. A member carries the owner label, and Prune deletes it only if our
// field manager applied fields to it. It deletes only prunable kinds, one kind after the other, in the reverse order of
// Kinds. Each object is deleted by the UID and resourceVersion that are known of it.
//
// Prune deletes nothing until the watches of all prunable kinds have shown their objects. Until then, the report has
// one outcome for each kind that is missing. keep must name everything that was applied to this cluster, by all calls
// of Apply. An empty keep deletes all objects.
//
// The report has an outcome for each object that was deleted, or that could not be deleted. It also has one for each
// object that is still being deleted, or that was written and deleted too often.
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
	var outcomes []Outcome
	for kind, k := range slices.Backward(c.opts.Kinds) {
		if k.Prune {
			outcomes = append(outcomes, c.pruneKind(ctx, kind, kept[kind])...)
		}
	}
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
				fmt.Errorf("pruning the %s cluster: not before all kinds are watched: %w", c.opts.Name, p.err)))
			continue
		}
		out = append(out, Waiting(id))
	}
	return out
}

func (c *Cluster) pruneKind(ctx context.Context, kind int, kept map[types.NamespacedName]bool) []Outcome {
	victims := c.tracker.victims(kind, kept)
	outcomes := make([]Outcome, len(victims))
	var running errgroup.Group
	running.SetLimit(c.opts.Concurrency)
	for i, v := range victims {
		id := ID{c.opts.Kinds[kind].GVK, v.key}
		if v.terminating {
			outcomes[i] = Waiting(id)
			continue
		}
		running.Go(func() error {
			pause := c.tracker.beginDelete(kind, v.key)
			if pause.wait > 0 {
				outcomes[i] = pause.outcome(id)
				return nil
			}
			outcomes[i] = c.remove(ctx, kind, id, v)
			c.tracker.ended(kind, outcomes[i])
			return nil
		})
	}
	_ = running.Wait() // outcomes hold the errors
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
