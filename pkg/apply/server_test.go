package apply_test

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/test/cluster/planes"
)

// realCauseCase is an object, what prevents it, and the class and the text of the cause.
type realCauseCase struct {
	prepare func(*fixture)
	object  string
	class   apply.ErrorClass
	want    string
}

// The errors of a real API server, and their causes. Every case has a second object, which must be applied
// nevertheless.
func TestRealCauses(t *testing.T) {
	t.Parallel()
	checkRealCauses(t, map[string]realCauseCase{
		"invalid": {
			object: `{apiVersion: v1, kind: Service, metadata: {name: x, namespace: NS}, spec: {ports: [{port: 99999, targetPort: 1}]}}`,
			class:  apply.Invalid, want: "rejected as invalid: spec.ports[0].port",
		},
		"immutable": {
			prepare: func(w *fixture) {
				o := w.object(`{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: NS}, immutable: true, data: {a: b}}`)
				if r := apply.Apply(w.t.Context(), w.cluster(), []object{o}); r.Err() != nil {
					w.t.Fatal(r.Err())
				}
			},
			object: `{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: NS}, immutable: true, data: {a: c}}`,
			class:  apply.Invalid, want: "rejected as invalid: data",
		},
		"unknown field": {
			object: `{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: NS}, what: {}}`,
			class:  apply.Invalid, want: "rejected as invalid",
		},
		"namespace missing": {
			object: `{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: NS-absent}}`,
			class:  apply.NamespaceMissing, want: "the namespace does not exist",
		},
		"namespace terminating": {
			prepare: func(w *fixture) {
				u := w.create(`{apiVersion: v1, kind: Namespace, metadata: {name: NS-old}}`)
				w.remove(w.bare(u)) // it remains: there is no namespace controller
			},
			object: `{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: NS-old}}`,
			class:  apply.NamespaceTerminating, want: "the namespace is being deleted",
		},
		"not served": {
			object: `{apiVersion: example.com/v1, kind: Thing, metadata: {name: x, namespace: NS}}`,
			class:  apply.NotServed, want: "the API server does not serve things.example.com",
		},
	})
}

// TestRealCausesOfAdmission continues TestRealCauses: webhooks, policies and permissions.
func TestRealCausesOfAdmission(t *testing.T) {
	t.Parallel()
	const guard = `rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps], scope: "*"}]`
	const configMap = `{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: NS}}`
	checkRealCauses(t, map[string]realCauseCase{
		"webhook is gone": {
			prepare: func(w *fixture) {
				w.create(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: NS-gone}, ` +
					`webhooks: [{name: gone.example.com, sideEffects: None,
					admissionReviewVersions: [v1], failurePolicy: Fail, ` +
					`clientConfig: {url: "https://127.0.0.1:1/"}, ` +
					`namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}, ` + guard + `}]}`)
			},
			object: configMap,
			class:  apply.Denied, want: "denied by the admission webhook gone.example.com, which could not be called",
		},
		"policy": {
			prepare: func(w *fixture) {
				policies := schema.GroupVersionResource{
					Group: "admissionregistration.k8s.io", Version: "v1",
					Resource: "validatingadmissionpolicies",
				}
				for resource, text := range map[string]string{
					"validatingadmissionpolicies": `{apiVersion: admissionregistration.k8s.io/v1, ` +
						`kind: ValidatingAdmissionPolicy, metadata: {name: NS-guard}, spec: {validations: [{expression: "false"}],
						matchConstraints: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}, ` +
						`resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}}}`,
					"validatingadmissionpolicybindings": `{apiVersion: admissionregistration.k8s.io/v1, ` +
						`kind: ValidatingAdmissionPolicyBinding, metadata: {name: NS-guard}, ` +
						`spec: {policyName: NS-guard, validationActions: [Deny]}}`,
				} {
					policies.Resource = resource
					if _, err := w.admin.Resource(policies).Create(w.t.Context(), w.parse(text), metav1.CreateOptions{}); err != nil {
						w.t.Fatal(err)
					}
				}
			},
			object: configMap,
			class:  apply.Denied, want: "denied by the admission policy NS-guard",
		},
		"role beyond our own permissions": {
			prepare: func(w *fixture) { w.limit("nothing") },
			object: `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: x, namespace: NS}, ` +
				`rules: [{apiGroups: [""], resources: [nodes], verbs: ["*"]}]}`,
			class: apply.Forbidden, want: "not allowed to escalate roles.rbac.authorization.k8s.io (RBAC)",
		},
		"no permission to create": {
			prepare: func(w *fixture) { w.limit("configmaps", "get", "patch") },
			object:  configMap,
			class:   apply.Forbidden, want: "not allowed to create configmaps (RBAC)",
		},
	})
}

func checkRealCauses(t *testing.T, cases map[string]realCauseCase) {
	t.Helper()
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			if test.prepare != nil {
				test.prepare(w)
			}
			thing := apply.Kind{
				GVK:      schema.FromAPIVersionAndKind("example.com/v1", "Thing"),
				Resource: "things", Namespaced: true, Prune: true,
			}
			other := w.object(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: other, namespace: NS}}`)
			objs := []object{w.object(test.object), other}
			want := strings.ReplaceAll(test.want, "NS", w.namespace)
			// Webhooks and policies take effect with a short delay. Until then, the object is applied, and the test
			// removes it.
			w.Eventually(func() string {
				c := w.cluster(func(o *apply.Options) { o.Kinds = append(o.Kinds, thing) })
				r := apply.Apply(t.Context(), c, objs)
				if r.Outcomes()[1].Verdict() == apply.VerdictFailed {
					t.Errorf("the other object: %v", r.Outcomes()[1].Err())
				}
				if bad := r.Outcomes()[0]; bad.Verdict() != apply.VerdictFailed {
					w.remove(objs[0])
				}
				cause := r.Outcomes()[0].Cause()
				return cause.Class().String() + ": " + cause.String()
			}).Should(gomega.Equal(test.class.String() + ": " + want))
		})
	}
}

func TestNoResponse(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*rest.Config)
		class  apply.ErrorClass
		want   string
	}{
		"connection refused": {
			func(c *rest.Config) { c.Host = "https://127.0.0.1:1" },
			apply.Unreachable, "the API server cannot be reached: connection refused",
		},
		"no such name": {
			func(c *rest.Config) { c.Host = "https://secret-host.invalid" },
			apply.Unreachable, "the API server cannot be reached: its host name does not resolve",
		},
		"not trusted": {
			func(c *rest.Config) { c.CAData = nil },
			apply.Unreachable, "the API server cannot be reached: its certificate is not trusted",
		},
		"expired token": {
			func(c *rest.Config) { c.CertData, c.KeyData, c.BearerToken = nil, nil, "expired" },
			apply.Unauthorized, "the API server does not accept the credentials",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			test.change(w.cfg)
			c := w.cluster()
			w.start(c)
			objs := w.sample()
			r := apply.Apply(t.Context(), c, objs)
			for _, o := range r.Outcomes() {
				if got := o.Cause(); got.Class() != test.class || got.String() != test.want {
					t.Errorf("%s: %s %q, want %s %q", o.ID(), got.Class(), got, test.class, test.want)
				}
			}
			w.Eventually(c.WatchProblems).Should(gomega.HaveLen(len(kinds())))
			if got := c.WatchProblems()[0].Cause; got.Class() != test.class || got.String() != test.want {
				t.Errorf("watch: %s %q, want %s %q", got.Class(), got, test.class, test.want)
			}
			if c.Known() {
				t.Error("an outage counts as knowledge")
			}
		})
	}
}

// An API server that accepts connections and never responds must not delay the caller once per object.
func TestAnUnresponsiveServerDelaysOnce(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	release := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(silent.Close)
	t.Cleanup(func() { close(release) })
	w.cfg = &rest.Config{Host: silent.URL}
	c := w.cluster(func(o *apply.Options) { o.Concurrency, o.Timeout = 2, 300*time.Millisecond })
	objs := w.sample()
	r := apply.Apply(t.Context(), c, objs)
	if got := r.Failures()[0].Cause().String(); got != "the API server cannot be reached: timed out" ||
		r.Count(apply.VerdictSkipped) < len(objs)-2 || r.Complete() {
		t.Errorf("%s, %q: %v", r, got, r.Err())
	}
}

// The API server goes away and comes back. Only the changed object is written, and a caller that waits for a
// notification gets one.
func TestOutage(t *testing.T) {
	t.Parallel()
	shared := newFixture(t)
	own, err := planes.StartPlane(t.Context(), "outage", filepath.Join(t.TempDir(), "outage"), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Stop)
	w := *shared
	w.cfg = rest.CopyConfig(own.Config)
	w.cfg.Wrap(w.requests.count)
	c := w.started()
	// Namespaced objects are left out: their namespace is on the other API server.
	objs := slices.DeleteFunc(w.sample(), func(o object) bool { return o.Key().Namespace != "" })
	if r := apply.Apply(t.Context(), c, objs); r.Err() != nil {
		t.Fatal(r.Err())
	}
	w.settle(c, objs)

	own.StopAPI()
	w.Eventually(c.WatchProblems).Should(gomega.HaveLen(len(kinds())))
	changed := w.object(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: NS-x}, rules: []}`)
	objs[slices.IndexFunc(objs, func(o object) bool { return o.GVK() == changed.GVK() })] = changed
	r := apply.Apply(t.Context(), c, objs)
	if len(r.Failures()) != 1 || r.Failures()[0].Cause().Class() != apply.Unreachable ||
		r.Count(apply.VerdictUnchanged) != len(objs)-1 {
		t.Errorf("during the outage: %s: %v", r, r.Err())
	}
	if !c.Synced() || !c.Known() {
		t.Error("what the watches had shown is forgotten")
	}

	select {
	case <-w.notified:
	default:
	}
	if err := own.StartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Eventually(w.notified).Should(gomega.Receive())
	w.Eventually(c.WatchProblems).Should(gomega.BeEmpty())
	if r := apply.Apply(t.Context(), c, objs); !r.Complete() || r.Writes() != 1 {
		t.Errorf("after the outage: %s, %d writes: %v", r, r.Writes(), r.Err())
	}
	w.settle(c, objs)
	if r := apply.Apply(t.Context(), c, objs); r.Writes() != 0 {
		t.Errorf("after the watches came back: %s", r)
	}
}
