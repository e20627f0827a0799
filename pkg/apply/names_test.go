package apply_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/apply"
)

// restrict makes the client of the world a user with permissions only on the Secrets of these names in the namespace
// of the test.
func (w *fixture) restrict(names ...string) {
	w.t.Helper()
	list := "[" + strings.Join(names, ", ") + "]"
	for _, text := range []string{
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: secrets, namespace: NS}, rules: [
			{apiGroups: [""], resources: [secrets], resourceNames: ` + list + `, verbs: [get, list, watch, create, patch, delete]}]}`,
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: secrets, namespace: NS}, ` +
			`roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: secrets},
			subjects: [{kind: User, name: NS, apiGroup: rbac.authorization.k8s.io}]}`,
	} {
		u := w.parse(text)
		if _, err := w.resource(u).Apply(w.t.Context(), u.GetName(), u,
			metav1.ApplyOptions{FieldManager: "third-party", Force: true}); err != nil {
			w.t.Fatal(err)
		}
	}
	w.cfg.Impersonate = rest.ImpersonationConfig{UserName: w.namespace}
	// The API server learns of roles through its own watches, so the permissions take effect with a delay.
	client := kubernetes.NewForConfigOrDie(w.cfg)
	for _, name := range names {
		w.Eventually(func() error {
			_, err := client.CoreV1().Secrets(w.namespace).List(w.t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
			return err
		}).Should(gomega.Succeed())
	}
}

// secrets leaves only the kind Secret, in the namespace of the test, with these names.
func (w *fixture) secrets(names ...string) func(*apply.Options) {
	return func(o *apply.Options) {
		o.Namespace, o.NamespacedOnly = w.namespace, true
		o.Kinds = slices.DeleteFunc(o.Kinds, func(k apply.Kind) bool { return k.GVK.Kind != "Secret" })
		o.Kinds[0].Names = names
	}
}

// secret returns a Secret of ours with the given name.
func (w *fixture) secret(name string) string {
	return `{apiVersion: v1, kind: Secret, metadata: {name: ` + name + `, namespace: NS, ` +
		`labels: {` + ownerKey + `: ` + w.owner + `}}, data: {key: b3Vycw==}}`
}

func TestANamedKindNeedsPermissionForItsNamesOnly(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.restrict("one", "two")
	if _, err := kubernetes.NewForConfigOrDie(w.cfg).CoreV1().Secrets(w.namespace).
		List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("listing all Secrets: %v, want that it is forbidden", err)
	}
	before := w.createAsUs(w.secret("before"))
	c := w.started(w.secrets("one", "two"))
	objs := []object{w.object(w.secret("one")), w.object(w.secret("two"))}
	if r := apply.Apply(t.Context(), c, objs); r.Err() != nil || r.Writes() != 2 {
		t.Fatalf("%s, %d writes: %v", r, r.Writes(), r.Err())
	}
	w.settle(c, objs)
	later := w.createAsUs(w.secret("later"))

	for name, harm := range map[string]func(object){
		"drift":    func(o object) { w.patch(o, `{"data":{"key":"dGhlaXJz"}}`) },
		"unlabel":  func(o object) { w.patch(o, `{"metadata":{"labels":null}}`) },
		"deletion": w.remove,
	} {
		for _, o := range objs {
			harm(o)
			if writes := w.converge(c, objs, func() bool { return w.isOurs(o) }); writes != 1 {
				t.Errorf("%s of %s: %d writes, want 1", name, o.Key().Name, writes)
			}
			w.settle(c, objs)
		}
	}
	if r := apply.Apply(t.Context(), c, objs); r.Writes() != 0 || !r.Complete() {
		t.Errorf("at rest: %s: %v", r, r.Err())
	}

	if r := c.Prune(t.Context()); len(deleted(r)) != len(objs) || !r.Complete() {
		t.Errorf("prune: %v: %v", deleted(r), r.Err())
	}
	w.settle(c, nil)
	if w.live(before) == nil || w.live(later) == nil {
		t.Error("an object of another name was deleted")
	}
	if got := c.WatchProblems(); len(got) != 0 {
		t.Errorf("watch problems = %+v", got)
	}
}

func TestAForbiddenNameDoesNotStopOthers(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.restrict("one")
	c := w.cluster(w.secrets("one", "two"))
	w.start(c)
	w.Eventually(c.Known).Should(gomega.BeTrue())
	if problems := c.WatchProblems(); len(problems) != 1 || problems[0].GVK.Kind != "Secret" ||
		problems[0].Cause.String() != "not allowed to list secrets (RBAC)" || c.Synced() {
		t.Errorf("synced %t; watch problems = %+v, want one, that listing secrets is not allowed", c.Synced(), problems)
	}
	o := w.object(w.secret("one"))
	if r := apply.Apply(t.Context(), c, []object{o}); r.Err() != nil {
		t.Fatal(r.Err())
	}
	w.settle(c, []object{o})
	w.remove(o)
	w.converge(c, []object{o}, func() bool { return w.isOurs(o) })
	if p := c.Prune(t.Context()); p.Writes() != 0 || len(p.Failures()) != 1 {
		t.Errorf("prune: %s, %d writes, want none before all names are known: %v", p, p.Writes(), p.Err())
	}
	if got := w.logged.Load(); got != 1 {
		t.Errorf("%d lines were logged, want 1", got)
	}
	w.restrict("one", "two")
	w.Eventually(c.Synced).Should(gomega.BeTrue())
	w.Eventually(c.WatchProblems).Should(gomega.BeEmpty())
}

// The name alone makes no object ours. Without the owner label, an object of the name is foreign.
func TestANamedObjectWithoutOwnerLabelIsForeign(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	theirs := w.create(`{apiVersion: v1, kind: Secret, metadata: {name: one, namespace: NS}, data: {key: dGhlaXJz}}`)
	c := w.started(w.secrets("one", "two"))
	r := apply.Apply(t.Context(), c, []object{w.object(w.secret("one")), w.object(w.secret("two"))})
	if len(r.Failures()) != 1 || r.Failures()[0].Cause().Class() != apply.Conflict || r.Count(apply.VerdictApplied) != 1 {
		t.Errorf("%s, want a conflict and the other one applied: %v", r, r.Err())
	}
	w.settle(c, []object{w.object(w.secret("two"))})
	if r := c.Prune(t.Context()); len(deleted(r)) != 1 {
		t.Errorf("prune: %v, want one", deleted(r))
	}
	if diff := cmp.Diff(theirs, w.live(theirs)); diff != "" {
		t.Errorf("the foreign object was changed:\n%s", diff)
	}
}
