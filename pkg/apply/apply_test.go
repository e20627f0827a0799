package apply_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/pkg/apply"
)

// sample returns one object per kind, each with a patch by which another manager changes one of our fields.
func sample() []struct{ object, change string } {
	return []struct{ object, change string }{
		{
			`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.NS.example.com}, ` +
				`spec: {group: NS.example.com, scope: Namespaced,
				names: {plural: things, singular: thing, kind: Thing, listKind: ThingList},
				versions: [{name: v1, served: true, storage: true, ` +
				`schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object}}}}}]}}`,
			`{"spec":{"names":{"listKind":"Things"}}}`,
		},
		{
			`{apiVersion: v1, kind: Namespace, metadata: {name: NS-more, annotations: {a: ours}}}`,
			`{"metadata":{"annotations":{"a":"theirs"}}}`,
		},
		{
			`{apiVersion: v1, kind: ServiceAccount, metadata: {name: x, namespace: NS}, automountServiceAccountToken: false}`,
			`{"automountServiceAccountToken":true}`,
		},
		{
			`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: NS-x}, ` +
				`rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}`,
			`{"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["*"]}]}`,
		},
		{
			`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: x, namespace: NS}, ` +
				`rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}`,
			`{"rules":[]}`,
		},
		{
			`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: NS-x}, ` +
				`roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NS-x},
				subjects: [{kind: ServiceAccount, name: x, namespace: NS}]}`,
			`{"subjects":[]}`,
		},
		{
			`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: x, namespace: NS}, ` +
				`roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: x},
				subjects: [{kind: ServiceAccount, name: x, namespace: NS}]}`,
			`{"subjects":null}`,
		},
		{`{apiVersion: v1, kind: Secret, metadata: {name: x, namespace: NS}, data: {key: b3Vycw==}}`, `{"data":{"key":"dGhlaXJz"}}`},
		{`{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: NS}, data: {key: ours, other: ours}}`, `{"data":{"key":null}}`},
		{
			`{apiVersion: v1, kind: Service, metadata: {name: x, namespace: NS}, spec: {selector: {app: x}, ` +
				`ports: [{name: https, port: 443}]}}`,
			`{"spec":{"selector":{"app":"y"}}}`,
		},
		{
			`{apiVersion: apps/v1, kind: Deployment, metadata: {name: x, namespace: NS}, spec: {replicas: 1, ` +
				`selector: {matchLabels: {app: x}},
				template: {metadata: {labels: {app: x}}, spec: {containers: [{name: x, image: ours}]}}}}`,
			`{"spec":{"replicas":3}}`,
		},
		{
			`{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: NS-x}, ` +
				`webhooks: [{name: x.NS.example.com, sideEffects: None, admissionReviewVersions: [v1],
				failurePolicy: Ignore, clientConfig: {url: "https://127.0.0.1:1/x"}, ` +
				`rules: [{apiGroups: [NS.example.com], apiVersions: [v1], operations: [CREATE], resources: [things]}]}]}`,
			`{"webhooks":[]}`,
		},
		{
			`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: NS-x}, ` +
				`webhooks: [{name: x.NS.example.com, sideEffects: None, admissionReviewVersions: [v1],
				failurePolicy: Ignore, clientConfig: {url: "https://127.0.0.1:1/x"}, ` +
				`rules: [{apiGroups: [NS.example.com], apiVersions: [v1], operations: [CREATE], resources: [things]}]}]}`,
			`{"webhooks":null}`,
		},
	}
}

func (w *fixture) sample() []object {
	w.t.Helper()
	var objs []object
	for _, s := range sample() {
		objs = append(objs, w.object(s.object))
	}
	return objs
}

func TestSecondApplySendsNothing(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	c, objs := w.started(), w.sample()
	w.requests.reset()

	first := apply.Apply(t.Context(), c, objs)
	if first.Err() != nil || !first.Complete() || first.Count(apply.VerdictApplied) != len(objs) {
		t.Fatalf("first apply: %s: %v", first, first.Err())
	}
	if got := w.requests.writes.Load(); got != int64(len(objs)) || first.Writes() != len(objs) {
		t.Errorf("first apply sent %d writes and reports %d, want one for each of %d objects", got, first.Writes(), len(objs))
	}
	if got := w.requests.reads.Load(); got != 0 {
		t.Errorf("first apply sent %d reads", got)
	}
	for i, o := range first.Outcomes() {
		if o.ID() != apply.IDs(objs)[i] {
			t.Errorf("outcome %d is about %s, want %s", i, o.ID(), apply.IDs(objs)[i])
		}
	}

	for range 2 { // before and after the watches have shown what was written
		w.requests.reset()
		if again := apply.Apply(t.Context(), c, objs); again.Count(apply.VerdictUnchanged) != len(objs) || !again.Complete() {
			t.Errorf("second apply: %s", again)
		}
		if got := w.requests.String(); got != "0 reads, 0 writes" {
			t.Errorf("second apply sent %s", got)
		}
		w.settle(c, objs)
	}
}

func TestARestartAppliesEachObjectOnceUnchanged(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	objs := w.sample()
	if r := apply.Apply(t.Context(), w.cluster(), objs); r.Err() != nil {
		t.Fatal(r.Err())
	}
	before := map[apply.ID]string{}
	for _, o := range objs {
		before[apply.ID{GVK: o.GVK(), Key: o.Key()}] = w.live(o.u).GetResourceVersion()
	}

	restarted := w.started()
	w.requests.reset()
	if r := apply.Apply(t.Context(), restarted, objs); r.Writes() != len(objs) || !r.Complete() || w.requests.reads.Load() != 0 {
		t.Errorf("first apply after a restart: %s, with %s: %v", r, w.requests, r.Err())
	}
	if r := apply.Apply(t.Context(), restarted, objs); r.Writes() != 0 {
		t.Errorf("second apply after a restart: %d writes", r.Writes())
	}
	for _, o := range objs {
		id := apply.ID{GVK: o.GVK(), Key: o.Key()}
		// A CRD gets its conditions, and a namespace its service account, from controllers of the API server.
		if now := w.live(o.u).GetResourceVersion(); now != before[id] && o.GVK().Kind != "CustomResourceDefinition" {
			t.Errorf("%s was changed by the restart: resourceVersion %s, was %s", id, now, before[id])
		}
	}
}

func TestDriftOfEachKindCostsOneWrite(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	c, objs := w.started(), w.sample()
	if r := apply.Apply(t.Context(), c, objs); r.Err() != nil {
		t.Fatal(r.Err())
	}
	for i, s := range sample() {
		o := objs[i]
		drifts := map[string]func(){
			"changed":  func() { w.patch(o, s.change) },
			"stripped": func() { w.patch(o, `{"metadata":{"labels":{"`+ownerKey+`":null}}}`) },
			"unowned":  func() { w.patch(o, `{"metadata":{"managedFields":[{}]}}`) },
			"deleted":  func() { w.remove(o) },
		}
		if o.GVK().Kind == "Namespace" || o.GVK().Kind == "CustomResourceDefinition" {
			// Both remain until a controller has emptied them; see TestATerminatingObjectIsRecreated.
			delete(drifts, "deleted")
		}
		for name, drift := range drifts {
			t.Run(o.GVK().Kind+"/"+name, func(t *testing.T) {
				w := w.in(t)
				w.settle(c, objs)
				w.requests.reset()
				drift()
				writes := w.converge(c, objs, func() bool { return w.isOurs(o) })
				if writes != 1 || w.requests.writes.Load() != 1 {
					t.Errorf("it took %d writes to restore it (%s were sent), want 1", writes, w.requests)
				}
				if r := apply.Apply(t.Context(), c, objs); r.Writes() != 0 {
					t.Errorf("%d more writes after it was restored", r.Writes())
				}
			})
		}
	}
}

// isOurs reports whether another apply of the object would change nothing: a dry run takes over no field and sets no
// field to another value.
func (w *fixture) isOurs(o object) bool {
	w.t.Helper()
	before := w.live(o.u)
	if before == nil {
		return false
	}
	after, err := w.resource(o.u).Apply(w.t.Context(), o.u.GetName(), o.u, dryRun())
	if err != nil {
		w.t.Log(err)
		return false
	}
	before.SetManagedFields(nil)
	after.SetManagedFields(nil)
	return cmp.Equal(before, after)
}

func TestForeignChangesCauseNoRequests(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	c, objs := w.started(), w.sample()
	if r := apply.Apply(t.Context(), c, objs); r.Err() != nil {
		t.Fatal(r.Err())
	}
	for i, o := range objs {
		t.Run(o.GVK().Kind, func(t *testing.T) {
			w := w.in(t)
			w.settle(c, objs)
			w.patch(o, `{"metadata":{"labels":{"theirs":"yes"},"annotations":{"theirs":"yes"}}}`)
			if o.GVK().Kind == "Deployment" {
				w.patch(o, `{"status":{"replicas":1,"observedGeneration":1}}`, "status")
			}
			if o.GVK().Kind == "ConfigMap" {
				w.patch(o, `{"data":{"theirs":"yes"}}`)
			}
			// Events of one kind come in order: when the watch shows this, it has shown the others.
			w.requests.reset()
			w.patch(o, sample()[i].change)
			if writes := w.converge(c, objs, func() bool { return w.isOurs(o) }); writes != 1 {
				t.Errorf("%d writes, want only the one that restores our own field", writes)
			}
			if w.live(o.u).GetLabels()["theirs"] != "yes" {
				t.Error("the label of the other manager is gone")
			}
		})
	}
}

func TestAStatusWriteDoesNotNotify(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	c, objs := w.started(), w.sample()
	if r := apply.Apply(t.Context(), c, objs); r.Err() != nil {
		t.Fatal(r.Err())
	}
	w.rests(c, objs)
	w.requests.reset()
	for _, o := range objs {
		w.patch(o, `{"metadata":{"annotations":{"theirs":"yes"}}}`)
	}
	w.Consistently(w.notified, "300ms").ShouldNot(gomega.Receive())
	if got := w.requests.String(); got != "0 reads, 0 writes" {
		t.Errorf("at rest: %s", got)
	}
	at := slices.IndexFunc(objs, func(o object) bool { return o.GVK().Kind == "ConfigMap" })
	w.patch(objs[at], sample()[at].change)
	writes := w.converge(c, objs, func() bool { return w.isOurs(objs[at]) })
	if got := w.requests.String(); writes != 1 || got != "0 reads, 1 writes" {
		t.Errorf("after a change of our own field: %d writes, and %s were sent; want only the one that restores it", writes, got)
	}
}

func TestATerminatingObjectIsRecreated(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	c := w.started()
	o := w.object(`{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: NS, finalizers: [example.com/slow]}}`)
	objs := []object{o}
	if r := apply.Apply(t.Context(), c, objs); r.Err() != nil {
		t.Fatal(r.Err())
	}
	w.rests(c, objs)
	old := w.live(o.u).GetUID()
	w.remove(o)
	w.Eventually(w.notified).Should(gomega.Receive())
	w.requests.reset()
	r := apply.Apply(t.Context(), c, objs)
	if r.Count(apply.VerdictWaiting) != 1 || r.Complete() || r.Err() != nil {
		t.Errorf("while it is being deleted: %s, complete %t: %v", r, r.Complete(), r.Err())
	}
	if got := w.requests.String(); got != "0 reads, 0 writes" {
		t.Errorf("while it is being deleted: %s", got)
	}
	w.patch(o, `{"metadata":{"finalizers":null}}`)
	writes := w.converge(c, objs, func() bool { now := w.live(o.u); return now != nil && now.GetUID() != old })
	if writes != 1 {
		t.Errorf("%d writes to create it again, want 1", writes)
	}
}

// Without a watch, only the responses of the API server show that an object is being deleted.
func TestATerminatingObjectWithoutAWatch(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	o := w.object(`{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: NS, finalizers: [example.com/slow]}}`)
	c := w.cluster()
	if r := apply.Apply(t.Context(), c, []object{o}); r.Err() != nil {
		t.Fatal(r.Err())
	}
	w.remove(o)
	changed := w.object(`{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: NS, finalizers: [example.com/slow]}, ` +
		`data: {a: b}}`)
	for _, test := range []struct {
		cluster *apply.Cluster
		writes  int
	}{{c, 1}, {w.cluster(), 0}} {
		if r := apply.Apply(t.Context(), test.cluster, []object{changed}); r.Count(apply.VerdictWaiting) != 1 || r.Writes() != test.writes {
			t.Errorf("%s, %d writes, want it to wait after %d writes: %v", r, r.Writes(), test.writes, r.Err())
		}
	}
}
