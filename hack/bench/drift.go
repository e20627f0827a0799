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

	"github.com/hypergate/hypergate/pkg/model"
)

// Ways in which an object drifts.
const (
	changed = "changed"
	deleted = "deleted"
)

// drift is one object that drifted and was restored.
type drift struct {
	id, how string
	took    time.Duration
	// writes is the number of writes to the object. besides lists writes and dry runs of other objects.
	writes  int
	besides []event
	reads   int
}

// lost returns what was lost in addition to the object, which justifies more writes. It is empty if nothing else was
// lost.
func (d drift) lost() string {
	switch {
	case d.how == deleted && strings.Contains(d.id, "deployments"):
		return "istiod itself was away: status and webhook follow"
	case d.how == deleted && strings.HasPrefix(d.id, "guest serviceaccounts"):
		return "istiod's token died with its account: a new one and its Secret"
	default:
		return ""
	}
}

// measureDrift changes and deletes every managed object in turn, and waits each time until it is restored.
func measureDrift(ctx context.Context, w *environment, r *report) error {
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
	floor, err := w.bareDrift(ctx, members)
	if err != nil {
		return fmt.Errorf("measuring the floor: %w", err)
	}
	r.addDrift(all, floor)
	return nil
}

// bareDrift makes the same objects drift without a controller, and restores each with one bare apply.
func (w *environment) bareDrift(ctx context.Context, members []body) ([]time.Duration, error) {
	w.stopPlayer()
	w.installedAt = nil
	if err := w.stopController(); err != nil {
		return nil, err
	}
	objects, err := w.installation()
	if err != nil {
		return nil, err
	}
	var out []time.Duration
	for round := range w.opts.driftRounds + 1 {
		for _, o := range objects {
			i := slices.IndexFunc(members, func(m body) bool { return m.id() == o.id() })
			if i < 0 {
				return nil, fmt.Errorf("%s is not there", o.id())
			}
			took, err := w.bareRestore(ctx, members[i], o)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", o.id(), err)
			}
			if round > 0 { // the first round replaces objects of another CA and token
				out = append(out, took)
			}
		}
	}
	return out, nil
}

func (w *environment) bareRestore(ctx context.Context, change, object body) (time.Duration, error) {
	m, err := w.mark()
	if err != nil {
		return 0, err
	}
	client := object.side.meta.Resource(object.resource).Namespace(object.namespace)
	foreign := metav1.PatchOptions{FieldManager: "third-party"}
	if _, err := client.Patch(ctx, object.name, types.JSONPatchType, change.json, foreign); err != nil {
		return 0, err
	}
	own := metav1.PatchOptions{FieldManager: model.FieldManager, Force: new(true)}
	if _, err := client.Patch(ctx, object.name, types.ApplyPatchType, object.json, own); err != nil {
		return 0, err
	}
	var patches []event
	start := time.Now()
	err = w.until(ctx, "the audit log shows both", func(context.Context) (bool, error) {
		patches, err = w.since(m)
		patches = slices.DeleteFunc(patches, func(e event) bool { return e.Verb != "patch" || e.UserAgent != benchAgent })
		return len(patches) == 2 && time.Since(start) > silence, err
	})
	if err != nil {
		return 0, err
	}
	return patches[1].StageTimestamp.Sub(patches[0].StageTimestamp), nil
}

// silence is the time without requests before the next object drifts.
const silence = 300 * time.Millisecond

// members returns the managed objects of both sides, without the CRDs of the Gateway API: deleting one of these deletes
// the GatewayClass.
func (w *environment) members(ctx context.Context) ([]body, error) {
	var out []body
	for _, s := range w.sides() {
		for _, k := range s.kinds {
			owned := metav1.ListOptions{LabelSelector: model.OwnerLabel + "=" + w.cfg.OwnerValue(s.name)}
			list, err := s.objects.Resource(gvr(k)).List(ctx, owned)
			if err != nil {
				return nil, fmt.Errorf("listing what is managed: %w", err)
			}
			for _, u := range list.Items {
				if k.NeverPrune && !strings.HasSuffix(u.GetName(), istioCRDs) {
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

// changeOf returns a JSON patch of a field that hypergate applies. Each kind has one such field.
func changeOf(u *unstructured.Unstructured) ([]byte, error) {
	paths := map[string]struct {
		path  string
		value any
	}{
		"ServiceAccount":                 {"/automountServiceAccountToken", true},
		"Secret":                         {"/data/" + firstKey(u), "ZHJpZnRlZA=="},
		"ConfigMap":                      {"/data/" + firstKey(u), "drifted"},
		"Service":                        {"/spec/ports/0/name", "drifted"},
		"NetworkPolicy":                  {"/spec/ingress/0/ports/0/port", 1},
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
		return nil, fmt.Errorf("hypergate manages %s %s, and the bench knows no field of that kind to change: "+
			"add one to hack/bench/drift.go", u.GetKind(), u.GetName())
	}
	return json.Marshal([]any{map[string]any{"op": "replace", "path": change.path, "value": change.value}})
}

// firstKey returns the first key of an object's data, escaped for a JSON patch.
func firstKey(u *unstructured.Unstructured) string {
	data, _, _ := unstructured.NestedMap(u.Object, "data")
	keys := slices.Sorted(maps.Keys(data))
	if len(keys) == 0 {
		return ""
	}
	return strings.ReplaceAll(strings.ReplaceAll(keys[0], "~", "~0"), "/", "~1")
}

// drift makes one object drift, and waits until it is restored and the controller is silent again.
func (w *environment) drift(ctx context.Context, o body, how string) (drift, error) {
	m, err := w.begin(ctx, o, how)
	if err != nil {
		return drift{}, err
	}
	var requests []event
	err = w.until(ctx, "it is restored", func(context.Context) (bool, error) {
		if requests, err = w.requests(m); err != nil {
			return false, err
		}
		return w.isRestored(requests, o, how), nil
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
		switch {
		case e.kind() == kindRead:
			d.reads++
		case e.kind() == kindWrite && e.id() == o.id():
			d.writes++
		default:
			d.besides = append(d.besides, e)
		}
	}
	if o.resource == deployments() {
		err = w.untilProven(ctx) // the effects of istiod's absence must not count for the next object
	}
	return d, err
}

// isRestored reports whether an object is restored, and the controller was silent after that.
func (w *environment) isRestored(requests []event, o body, how string) bool {
	return slices.ContainsFunc(requests, func(e event) bool { return restores(e, o) }) && w.tokenStored(requests, o, how) &&
		time.Since(requests[len(requests)-1].StageTimestamp) > silence
}

// tokenStored reports whether a new token was stored, if the drift makes one necessary: its write must not count for
// the next object.
func (w *environment) tokenStored(requests []event, o body, how string) bool {
	if how != deleted || !strings.HasPrefix(o.id(), "guest serviceaccounts") {
		return true
	}
	secret := objectID(model.SideMgmt, "secrets", w.cfg.MgmtNamespace, model.CredentialSecretName)
	return slices.ContainsFunc(requests, func(e event) bool { return e.kind() == kindWrite && e.id() == secret && e.succeeded() })
}

// begin changes or deletes an object.
func (w *environment) begin(ctx context.Context, o body, how string) (mark, error) {
	if o.resource == crds() && how == deleted {
		if err := w.served(ctx); err != nil {
			return mark{}, err
		}
	}
	m, err := w.mark()
	if err != nil {
		return m, err
	}
	client := o.side.objects.Resource(o.resource).Namespace(o.namespace)
	if how == changed {
		_, err = client.Patch(ctx, o.name, types.JSONPatchType, o.json, metav1.PatchOptions{FieldManager: "third-party"})
		return m, err
	}
	return m, client.Delete(ctx, o.name, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
}

func restores(e event, o body) bool {
	return e.byController() && e.kind() == kindWrite && e.id() == o.id() && e.succeeded()
}

// eventTime returns the time at which the drift was complete. A deleted CRD disappears when the API server removes its
// finalizer, not with the request.
func eventTime(before []event, o body, how string) time.Time {
	var at time.Time
	for _, e := range before {
		ours := e.UserAgent == benchAgent && e.ObjectRef.Subresource == ""
		finalizer := how == deleted && o.resource == crds() && !e.byController()
		if e.id() == o.id() && (ours || finalizer) {
			at = e.StageTimestamp
		}
	}
	return at
}

func (r *report) addDrift(all []drift, floor []time.Duration) {
	took, others := make([]time.Duration, 0, len(all)), make([]time.Duration, 0, len(all))
	once, reads, more, justified := 0, 0, map[string]int{}, map[string]int{}
	byObject := map[string][]time.Duration{}
	for _, d := range all {
		took = append(took, d.took)
		if !strings.Contains(d.id, crds().Resource) {
			others = append(others, d.took)
		}
		reads += d.reads
		byObject[d.id+" "+d.how] = append(byObject[d.id+" "+d.how], d.took)
		text := fmt.Sprintf("%s %s: %d to itself, besides: %s", d.id, d.how, d.writes, describe(d.besides))
		switch {
		case d.writes == 1 && len(d.besides) == 0:
			once++
		case d.lost() != "":
			justified[text+"; "+d.lost()]++
		default:
			more[text]++
		}
	}
	r.add(row{
		What:     fmt.Sprintf("one drifted object, %d ways, %d samples", len(byObject), len(all)),
		Bar:      "exactly 1 write in 76 of 80, the rest explained",
		Measured: fmt.Sprintf("exactly 1: %d, more: %d, more since more was lost: %d", once, total(more), total(justified)),
		Met:      new(driftMet(once, len(all), total(more))),
		Values:   map[string]any{"exactlyOneWrite": once, "more": more, "moreWasLost": justified, "reads": reads},
	})
	for _, p := range []struct {
		percent int
		bar     time.Duration
	}{{50, 30 * time.Millisecond}, {99, 100 * time.Millisecond}} {
		is, bare := percentile(took, p.percent), percentile(floor, p.percent)
		r.add(row{
			What: fmt.Sprintf("  from event to restored, p%d", p.percent), Bar: "<= " + p.bar.String(), Measured: ms(is), Floor: ms(bare),
			Ratio: float64(is) / float64(bare), Met: new(is <= p.bar),
			Values: map[string]any{"ms": milliseconds(took), "floorMs": milliseconds(floor)},
		})
	}
	slow := make([]string, 0, len(byObject))
	for _, name := range slices.Sorted(maps.Keys(byObject)) {
		slow = append(slow, fmt.Sprintf("  %-96s %s", name, spread(byObject[name])))
	}
	r.note("Drift, from the completion of the foreign request (a deleted CRD: from when it is gone) to the completion of the write "+
		"that restores the object. "+
		"Without CRDs: p50 %s, p99 %s. %d reads, each before a deleted object is recreated, to see that no other client created it.\n"+
		"Floor: the same change to the same objects, restored at once by one bare apply, with no controller.\n%s",
		ms(percentile(others, 50)), ms(percentile(others, 99)), reads, strings.Join(slow, "\n"))
	r.noteList("Drift that cost more than one write:", more)
	r.noteList("Drift that cost more because more than the object was lost:", justified)
}

// driftMet reports whether at least 76 of 80 objects were restored by exactly one write, and the others are explained:
// more than the object was lost.
func driftMet(once, all, unexplained int) bool { return unexplained == 0 && once*80 >= all*76 }

// noteList adds a note with a line for each text, if there are any.
func (r *report) noteList(title string, texts map[string]int) {
	if len(texts) > 0 {
		r.note("%s\n  %s", title, strings.Join(slices.Sorted(maps.Keys(texts)), "\n  "))
	}
}

func total(counts map[string]int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}
