package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/desired"
)

// How an object drifts.
const (
	changed = "changed"
	deleted = "deleted"
)

// drift is one object that drifted and was restored.
type drift struct {
	id, how string
	took    time.Duration
	// writes are those of the object; besides is everything else that hypergate sent.
	writes  int
	besides []event
}

// istiodGone says that istiod itself was deleted: hypergate then has more to do than to restore one object.
func (d drift) istiodGone() bool { return d.how == deleted && strings.Contains(d.id, "deployments") }

// measureDrift changes and deletes every managed object in turn, and waits each time until it is restored.
func measureDrift(ctx context.Context, w *world, r *report) error {
	members, err := w.members(ctx)
	if err != nil {
		return err
	}
	if err := w.quiet(ctx); err != nil {
		return err
	}
	var all []drift
	for range w.opts.driftRounds {
		for _, m := range members {
			for _, how := range []string{changed, deleted} {
				d, err := w.drift(ctx, m, how)
				if err != nil {
					return fmt.Errorf("%s %s: %w", m.id(), how, err)
				}
				all = append(all, d)
			}
		}
	}
	r.addDrift(all)
	return nil
}

// members are the managed objects of both sides. The CRDs of the Gateway API are left out: deleting one deletes the GatewayClass.
func (w *world) members(ctx context.Context) ([]body, error) {
	var out []body
	for _, s := range w.sides() {
		for _, k := range s.kinds {
			list, err := s.objects.Resource(gvr(k)).List(ctx, metav1.ListOptions{LabelSelector: desired.OwnerLabel + "=" + w.cfg.OwnerValue(s.name)})
			if err != nil {
				return nil, fmt.Errorf("listing what is managed: %w", err)
			}
			for _, u := range list.Items {
				if k.Kept && !strings.HasSuffix(u.GetName(), istioCRDs) {
					continue
				}
				change, err := changeOf(&u)
				if err != nil {
					return nil, err
				}
				out = append(out, body{side: s, resource: gvr(k), namespace: u.GetNamespace(), name: u.GetName(), json: change})
			}
		}
	}
	return out, nil
}

// changeOf is a JSON patch of a field that hypergate applies, one per kind.
func changeOf(u *unstructured.Unstructured) ([]byte, error) {
	paths := map[string]struct {
		path  string
		value any
	}{
		"ServiceAccount":                 {"/automountServiceAccountToken", true},
		"Secret":                         {"/data/" + firstKey(u), "ZHJpZnRlZA=="},
		"ConfigMap":                      {"/data/" + firstKey(u), "drifted"},
		"Service":                        {"/spec/ports/0/name", "drifted"},
		"Deployment":                     {"/spec/replicas", 2},
		"ClusterRole":                    {"/rules", []any{}},
		"Role":                           {"/rules", []any{}},
		"ClusterRoleBinding":             {"/subjects/0/name", "drifted"},
		"RoleBinding":                    {"/subjects/0/name", "drifted"},
		"CustomResourceDefinition":       {"/spec/names/categories", []any{"drifted"}},
		"ValidatingWebhookConfiguration": {"/webhooks/0/sideEffects", "NoneOnDryRun"},
	}
	change, known := paths[u.GetKind()]
	if !known {
		return nil, fmt.Errorf("hypergate manages %s %s, and the bench knows no field of that kind to change: add one to hack/bench/drift.go", u.GetKind(), u.GetName())
	}
	return json.Marshal([]any{map[string]any{"op": "replace", "path": change.path, "value": change.value}})
}

// firstKey is the first key of an object's data, as it stands in a JSON patch.
func firstKey(u *unstructured.Unstructured) string {
	data, _, _ := unstructured.NestedMap(u.Object, "data")
	keys := slices.Sorted(maps.Keys(data))
	if len(keys) == 0 {
		return ""
	}
	return strings.ReplaceAll(strings.ReplaceAll(keys[0], "~", "~0"), "/", "~1")
}

// drift makes one object drift, and waits until it is restored and the controller is silent again.
func (w *world) drift(ctx context.Context, o body, how string) (drift, error) {
	m, err := w.mark()
	if err != nil {
		return drift{}, err
	}
	client := o.side.objects.Resource(o.resource).Namespace(o.namespace)
	if how == changed {
		_, err = client.Patch(ctx, o.name, types.JSONPatchType, o.json, metav1.PatchOptions{FieldManager: "somebody"})
	} else {
		err = client.Delete(ctx, o.name, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
	}
	if err != nil {
		return drift{}, err
	}
	const silence = 300 * time.Millisecond
	var requests []event
	err = w.until(ctx, "it is restored", func(context.Context) (bool, error) {
		if requests, err = w.requests(m); err != nil {
			return false, err
		}
		return slices.ContainsFunc(requests, func(e event) bool { return restores(e, o) }) && time.Since(requests[len(requests)-1].StageTimestamp) > silence, nil
	})
	if err != nil {
		return drift{}, err
	}
	events, err := w.since(m)
	if err != nil {
		return drift{}, err
	}
	d := drift{id: o.id(), how: how}
	restored := slices.IndexFunc(events, func(e event) bool { return restores(e, o) })
	d.took = events[restored].StageTimestamp.Sub(eventTime(events[:restored], o, how))
	for _, e := range requests {
		if e.kind() == kindWrite && e.id() == o.id() {
			d.writes++
		} else {
			d.besides = append(d.besides, e)
		}
	}
	if o.resource == deployments {
		err = w.untilProven(ctx) // what istiod's absence has set going is not the next object's
	}
	return d, err
}

func restores(e event, o body) bool {
	return e.byController() && e.kind() == kindWrite && e.id() == o.id() && e.succeeded()
}

// eventTime is when the drift was complete. A CRD that is deleted goes when the API server has taken its finalizer away, not with the request.
func eventTime(before []event, o body, how string) time.Time {
	var at time.Time
	for _, e := range before {
		ours := e.UserAgent == benchAgent && e.ObjectRef.Subresource == ""
		finalizer := how == deleted && o.resource.Resource == "customresourcedefinitions" && !e.byController()
		if e.id() == o.id() && (ours || finalizer) {
			at = e.StageTimestamp
		}
	}
	return at
}

func (r *report) addDrift(all []drift) {
	var took []time.Duration
	once, more, gone := 0, map[string]int{}, map[string]int{}
	byObject := map[string][]time.Duration{}
	for _, d := range all {
		took = append(took, d.took)
		byObject[d.id+" "+d.how] = append(byObject[d.id+" "+d.how], d.took)
		switch text := fmt.Sprintf("%s %s: %d to itself, besides: %s", d.id, d.how, d.writes, describe(d.besides)); {
		case d.istiodGone():
			gone[text]++
		case d.writes == 1 && len(d.besides) == 0:
			once++
		default:
			more[text]++
		}
	}
	exact := len(more) == 0
	r.add(row{
		What: fmt.Sprintf("one drifted object, %d kinds of drift, %d samples", len(byObject), len(all)), Bar: "exactly 1 write",
		Measured: fmt.Sprintf("1 write, nothing else: %d; more: %d", once, total(more)), Met: &exact,
		Values: map[string]any{"exactlyOneWrite": once, "more": more, "istiodDeleted": gone},
	})
	p50, p99 := percentile(took, 50), percentile(took, 99)
	r.add(row{What: "  from event to restored, p50", Bar: "<= 30 ms", Measured: ms(p50), Met: new(p50 <= 30*time.Millisecond), Values: map[string]any{"ms": milliseconds(took)}})
	r.add(row{What: "  from event to restored, p99", Bar: "<= 100 ms", Measured: ms(p99), Met: new(p99 <= 100*time.Millisecond)})
	var slow []string
	for _, name := range slices.Sorted(maps.Keys(byObject)) {
		slow = append(slow, fmt.Sprintf("  %-80s %s", name, spread(byObject[name])))
	}
	r.note("Drift, from the completion of the foreign request (a deleted CRD: from when it is gone) to the completion of the write that restores the object:\n%s", strings.Join(slow, "\n"))
	if len(more) > 0 {
		r.note("Drift that cost more than one write:\n  %s", strings.Join(slices.Sorted(maps.Keys(more)), "\n  "))
	}
	r.note("Where istiod's Deployment itself was deleted, istiod is away for a moment, and status and webhook follow (not counted above):\n  %s",
		strings.Join(slices.Sorted(maps.Keys(gone)), "\n  "))
}

func total(counts map[string]int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}
