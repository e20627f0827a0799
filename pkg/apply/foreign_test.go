package apply_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/test/audit"
	"github.com/hypergate/hypergate/test/deploy"
)

func dryRun() metav1.ApplyOptions {
	return metav1.ApplyOptions{FieldManager: manager, DryRun: []string{metav1.DryRunAll}}
}

func TestForeignObjects(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		theirs, ours string
		conflict     string // empty if it is applied
	}{
		"same name, other content": {
			theirs:   `{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: NS}, data: {key: theirs}}`,
			ours:     `{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: NS}, data: {key: ours}}`,
			conflict: "an object of this name already exists and is managed by third-party",
		},
		"same name, nothing in common": {
			theirs:   `{apiVersion: v1, kind: ServiceAccount, metadata: {name: x, namespace: NS}, secrets: [{name: theirs}]}`,
			ours:     `{apiVersion: v1, kind: ServiceAccount, metadata: {name: x, namespace: NS}, automountServiceAccountToken: false}`,
			conflict: "an object of this name already exists and is managed by third-party",
		},
		"same name, no fields": {
			theirs:   `{apiVersion: v1, kind: ServiceAccount, metadata: {name: x, namespace: NS}}`,
			ours:     `{apiVersion: v1, kind: ServiceAccount, metadata: {name: x, namespace: NS}}`,
			conflict: "an object of this name already exists",
		},
		"shared kind, nothing in common": {
			theirs: `{apiVersion: v1, kind: Namespace, metadata: {name: NS-x, labels: {theirs: theirs}}}`,
			ours:   `{apiVersion: v1, kind: Namespace, metadata: {name: NS-x, labels: {ours: ours}}}`,
		},
		"shared kind, one field in common": {
			theirs:   `{apiVersion: v1, kind: Namespace, metadata: {name: NS-x, labels: {both: theirs}}}`,
			ours:     `{apiVersion: v1, kind: Namespace, metadata: {name: NS-x, labels: {both: ours}}}`,
			conflict: ".metadata.labels.both is managed by third-party",
		},
	}
	for name, test := range tests {
		t.Run(strings.ReplaceAll(name, ",", ""), func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			c := w.started()
			theirs := w.create(test.theirs)
			other := w.object(`{apiVersion: v1, kind: ConfigMap, metadata: {name: other, namespace: NS}}`)
			objs := []object{w.object(test.ours), other}
			r := apply.Apply(t.Context(), c, objs)
			if r.Outcomes()[1].Verdict() != apply.VerdictApplied {
				t.Errorf("the other object: %s: %v", r.Outcomes()[1].Verdict(), r.Err())
			}
			if test.conflict == "" {
				if !r.Complete() {
					t.Errorf("not applied: %v", r.Err())
				}
				if got := w.live(theirs).GetLabels(); got["theirs"] != "theirs" || got["ours"] != "ours" {
					t.Errorf("labels = %v, want both", got)
				}
				return
			}
			cause := r.Outcomes()[0].Cause()
			if cause.Class() != apply.Conflict || cause.String() != test.conflict {
				t.Errorf("cause = %s %q, want Conflict %q", cause.Class(), cause, test.conflict)
			}
			if diff := cmp.Diff(theirs, w.live(theirs)); diff != "" {
				t.Errorf("the foreign object was changed:\n%s", diff)
			}
			if p := c.Prune(t.Context()); p.Count(apply.VerdictDeleted) != 1 || w.live(theirs) == nil {
				t.Errorf("prune: %s; their object is there: %t", p, w.live(theirs) != nil)
			}
		})
	}
}

// Another client removed a field of ours and the owner label while no watch ran. After the restart, only
// managedFields shows that the object is ours.
func TestAnObjectWithoutLabelIsOwnedByManagedFields(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	o := w.object(`{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: NS}, data: {key: ours, other: ours}}`)
	shared := w.object(`{apiVersion: v1, kind: Namespace, metadata: {name: NS-x, labels: {key: ours, other: ours}}}`)
	objs := []object{o, shared}
	if r := apply.Apply(t.Context(), w.cluster(), objs); r.Err() != nil {
		t.Fatal(r.Err())
	}
	w.patch(o, `{"data":{"key":"theirs"},"metadata":{"labels":null}}`)
	w.patch(shared, `{"metadata":{"labels":{"key":"theirs","`+ownerKey+`":null}}}`)
	if r := apply.Apply(t.Context(), w.started(), objs); r.Err() != nil || !w.isOurs(o) || !w.isOurs(shared) {
		t.Errorf("after the restart: %s: %v", r, r.Err())
	}
}

func TestAForbiddenKindDoesNotStopOthers(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.limit("secrets")
	c := w.cluster()
	w.start(c)
	objs := w.sample()
	secret := slices.IndexFunc(objs, func(o object) bool { return o.GVK().Kind == "Secret" })

	r := apply.Apply(t.Context(), c, objs)
	if got := r.Count(apply.VerdictApplied); got != len(objs)-1 {
		t.Errorf("%s, want all but one applied: %v", r, r.Err())
	}
	failures := r.Failures()
	if len(failures) != 1 || failures[0].ID() != apply.IDs(objs)[secret] {
		t.Fatalf("failures = %v, want the Secret", failures)
	}
	if got := failures[0].Cause(); got.Class() != apply.Forbidden || got.String() != "not allowed to get secrets (RBAC)" {
		t.Errorf("cause = %s %q, want Forbidden, with verb and resource", got.Class(), got)
	}

	w.Eventually(c.WatchProblems).ShouldNot(gomega.BeEmpty())
	problem := c.WatchProblems()[0]
	if len(c.WatchProblems()) != 1 || problem.GVK.Kind != "Secret" ||
		problem.Cause.String() != "not allowed to list secrets (RBAC)" || problem.Err() == nil {
		t.Errorf("watch problems = %+v, want that listing secrets is not allowed", c.WatchProblems())
	}
	if c.Synced() {
		t.Error("synced, although Secrets are not watched")
	}
	w.Eventually(c.Known).Should(gomega.BeTrue(), "nothing is known, although waiting will not help")

	// The watch is tried more than once.
	attempts := &requests{}
	before := func(req *http.Request) {
		if strings.Contains(req.URL.Path, "/secrets") {
			attempts.reads.Add(1)
		}
	}
	w.requests.before.Store(&before)
	w.Eventually(attempts.reads.Load).Should(gomega.BeNumerically(">", 2))

	// The failed watch of one kind can hide members, so nothing is pruned.
	w.Eventually(func() int { return len(c.Members()) }).Should(gomega.Equal(len(objs) - 1))
	w.requests.reset()
	p := c.Prune(t.Context())
	if p.Writes() != 0 || p.Complete() || len(p.Failures()) != 1 || p.Failures()[0].Cause().Class() != apply.Forbidden {
		t.Errorf("prune: %s, %d writes: %v", p, p.Writes(), p.Err())
	}
	if got := w.requests.writes.Load(); got != 0 {
		t.Errorf("prune sent %d writes", got)
	}

	if got := w.logged.Load(); got != 1 {
		t.Errorf("%d lines were logged, want 1 however often the watch is tried", got)
	}

	// Once it is allowed, the watch recovers without a restart.
	w.limit("nothing")
	w.Eventually(c.Synced).Should(gomega.BeTrue())
	w.Eventually(c.WatchProblems).Should(gomega.BeEmpty())
	if r := apply.Apply(t.Context(), c, objs); r.Err() != nil || r.Writes() != 1 {
		t.Errorf("after the permission came: %s, %d writes: %v", r, r.Writes(), r.Err())
	}
}

func TestAKindThatCannotBeWatched(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.limit("secrets", "get", "list", "create", "patch")
	c := w.started()
	w.Eventually(c.WatchProblems).Should(gomega.HaveLen(1))
	if got := c.WatchProblems()[0].Cause; got.String() != "not allowed to watch secrets (RBAC)" {
		t.Errorf("the problem is %q, want that watching secrets is not allowed", got)
	}
}

// limit makes the client of the world a user with all permissions on every kind except one. On that kind, the user
// has only the given verbs. It returns when the API server uses the role, about which it learns through its watches.
func (w *fixture) limit(without string, verbs ...string) {
	w.t.Helper()
	user := w.namespace
	role := w.parse(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: NS-limited}, rules: []}`)
	var rules []any
	for _, k := range kinds() {
		allowed := []string{"get", "list", "watch", "create", "patch", "delete"}
		if k.Resource == without {
			allowed = verbs
		}
		for _, verb := range allowed {
			rules = append(rules, map[string]any{"apiGroups": []any{k.GVK.Group}, "resources": []any{k.Resource}, "verbs": []any{verb}})
		}
	}
	// With this rule, the user can write the roles of the sample.
	rules = append(rules, map[string]any{"apiGroups": []any{""}, "resources": []any{"pods"}, "verbs": []any{"get"}})
	role.Object["rules"] = rules
	binding := w.parse(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: NS-limited}, ` +
		`roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NS-limited},
		subjects: [{kind: User, name: ` + user + `, apiGroup: rbac.authorization.k8s.io}]}`)
	for _, o := range []object{w.bare(role), w.bare(binding)} {
		if _, err := w.resource(o.u).Apply(context.Background(), o.u.GetName(), o.u,
			metav1.ApplyOptions{FieldManager: "third-party", Force: true}); err != nil {
			w.t.Fatal(err)
		}
	}
	roles, err := audit.RolesOf([]*unstructured.Unstructured{role})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := deploy.TakesEffect(w.t.Context(), plane.Config, user, audit.Permissions(roles), true); err != nil {
		w.t.Fatal(err)
	}
	w.cfg.Impersonate = rest.ImpersonationConfig{UserName: user}
}
