package apply_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/apply"
)

// refusedCase is an object that must not be applied, and a part of the error.
type refusedCase struct {
	bad    func(*fixture) object
	change func(*fixture, *apply.Options)
	want   string
}

func TestApplyRefusesTheWholeCallForAForeignObject(t *testing.T) {
	t.Parallel()
	const configMap = `{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: NS}}`
	checkRefused(t, map[string]refusedCase{
		"unknown kind": {
			bad: func(w *fixture) object {
				return w.object(`{apiVersion: v1, kind: Pod, metadata: {name: x, namespace: NS}}`)
			},
			want: "its kind /v1, Kind=Pod is not on this cluster's list",
		},
		"no owner": {
			bad:  func(w *fixture) object { return w.bare(w.parse(configMap)) },
			want: "does not have the label " + ownerKey + "=",
		},
		"owner on the template only": {
			bad: func(w *fixture) object {
				return w.bare(w.parse(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: x, namespace: NS}, ` +
					`spec: {template: {metadata: {labels: {` + ownerKey + `: ` + w.owner + `}}}}}`))
			},
			want: "does not have the label",
		},
		"another namespace": {
			bad:    func(w *fixture) object { return w.object(configMap) },
			change: func(_ *fixture, o *apply.Options) { o.Namespace = "elsewhere" },
			want:   `its namespace is not "elsewhere"`,
		},
		"another name": {
			bad: func(w *fixture) object { return w.object(configMap) },
			change: func(_ *fixture, o *apply.Options) {
				o.Kinds[slices.IndexFunc(o.Kinds, func(k apply.Kind) bool { return k.GVK.Kind == "ConfigMap" })].Names = []string{"y", "z"}
			},
			want: "its name is not on the list of its kind: y, z",
		},
	})
}

func TestApplyRefusesTheWholeCallForAnInvalidObject(t *testing.T) {
	t.Parallel()
	const configMap = `{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: NS}}`
	checkRefused(t, map[string]refusedCase{
		"no namespace": {
			bad:  func(w *fixture) object { return w.object(`{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}`) },
			want: "does not match the scope of its kind (namespaced: true)",
		},
		"namespace on a cluster-scoped kind": {
			bad: func(w *fixture) object {
				return w.object(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: x, namespace: NS}}`)
			},
			want: "does not match the scope of its kind (namespaced: false)",
		},
		"no name": {
			bad: func(w *fixture) object {
				return w.object(`{apiVersion: v1, kind: ConfigMap, metadata: {namespace: NS}}`)
			},
			want: "it has no name",
		},
		"listed twice": {
			bad: func(w *fixture) object {
				return w.object(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: good, namespace: NS}}`)
			},
			want: "listed twice",
		},
		"JSON of another object": {
			bad: func(w *fixture) object {
				o := w.object(configMap)
				o.u.SetName("y")
				return o
			},
			want: "its JSON describes another object",
		},
		"JSON cut off": {
			bad:  func(w *fixture) object { o := w.object(configMap); o.body = o.body[:20]; return o },
			want: "reading its JSON",
		},
		"no object": {
			bad:  func(w *fixture) object { o := w.object(configMap); o.body = []byte("[]"); return o },
			want: "it is not a JSON object",
		},
	})
}

func checkRefused(t *testing.T, cases map[string]refusedCase) {
	t.Helper()
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			c := w.cluster(func(o *apply.Options) {
				if test.change != nil {
					test.change(w, o)
				}
			})
			good := w.object(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: good, namespace: NS}}`)
			r := apply.Apply(t.Context(), c, []object{good, test.bad(w)})
			bad := r.Outcomes()[1]
			if bad.Verdict() != apply.VerdictFailed || bad.Cause().Class() != apply.Refused ||
				!strings.Contains(r.Err().Error(), test.want) {
				t.Errorf("the bad object: %s, %s: %v, want %q", bad.Verdict(), bad.Cause(), r.Err(), test.want)
			}
			if got := r.Outcomes()[0].Verdict(); got != apply.VerdictSkipped && test.change == nil {
				t.Errorf("the good object: %s, want skipped", got)
			}
			if got := w.requests.String(); got != "0 reads, 0 writes" || r.Complete() || r.Writes() != 0 {
				t.Errorf("sent: %s; complete: %t", got, r.Complete())
			}
		})
	}
}

func TestInvalidOptionsAreRefused(t *testing.T) {
	t.Parallel()
	good := func() apply.Options {
		return apply.Options{Name: "test", FieldManager: manager, OwnerKey: ownerKey, OwnerValue: "x", Kinds: kinds()}
	}
	tests := map[string]struct {
		change func(*apply.Options)
		want   string
	}{
		"good": {func(*apply.Options) {}, ""},
		"no manager": {
			func(o *apply.Options) { o.FieldManager = "" },
			"the field manager and the owner label must be given",
		},
		"no owner":     {func(o *apply.Options) { o.OwnerValue = "" }, "the field manager and the owner label must be given"},
		"no namespace": {func(o *apply.Options) { o.NamespacedOnly, o.Kinds = true, nil }, "needs a namespace"},
		"cluster-scoped kind": {
			func(o *apply.Options) { o.NamespacedOnly, o.Namespace = true, "x" },
			"only namespaced kinds may be applied here",
		},
		"kind twice": {func(o *apply.Options) { o.Kinds = append(o.Kinds, o.Kinds[0]) }, "is listed twice"},
		"empty name": {func(o *apply.Options) { o.Kinds[0].Names = []string{""} }, "a name that is empty or listed twice"},
		"name twice": {
			func(o *apply.Options) { o.Kinds[0].Names = []string{"a", "b", "a"} },
			"a name that is empty or listed twice",
		},
		"two names":                  {func(o *apply.Options) { o.Kinds[0].Names = []string{"b", "a"} }, ""},
		"kind without resource":      {func(o *apply.Options) { o.Kinds[0].Resource = "" }, "is incomplete"},
		"kind without group or kind": {func(o *apply.Options) { o.Kinds[0].GVK = schema.GroupVersionKind{} }, "is incomplete"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := good()
			test.change(&opts)
			_, err := apply.New(&rest.Config{Host: "https://127.0.0.1:1"}, opts)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("err = %v, want %q", err, test.want)
			}
		})
	}
}

func TestStartingTwiceIsAnError(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	c := w.started()
	if err := c.Start(t.Context(), func() {}); err == nil {
		t.Error("no error")
	}
}

func TestCancelledCallStops(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	c := w.cluster(func(o *apply.Options) { o.Concurrency = 1 })
	objs := w.sample()
	ctx, cancel := context.WithCancel(t.Context())
	before := func(req *http.Request) {
		if req.Method == http.MethodPatch && strings.Contains(req.URL.Path, "/secrets/") {
			cancel()
		}
	}
	w.requests.before.Store(&before)
	r := apply.Apply(ctx, c, objs)
	if !errors.Is(r.Err(), context.Canceled) || r.Complete() {
		t.Errorf("%s, complete %t: %v", r, r.Complete(), r.Err())
	}
	if r.Count(apply.VerdictApplied) != 7 || r.Count(apply.VerdictSkipped) != len(objs)-7 || r.Writes() != 8 {
		t.Errorf("%s, want what comes before the Secret applied, and the Secret, which was sent, and the rest skipped", r)
	}
	w.requests.reset()
	if r := c.Prune(ctx); r.Writes() != 0 || r.Complete() {
		t.Errorf("prune: %s", r)
	}
	if r := apply.Apply(ctx, c, objs); r.Count(apply.VerdictUnchanged) != 7 || r.Count(apply.VerdictSkipped) != len(objs)-7 ||
		w.requests.writes.Load() != 0 {
		t.Errorf("apply with a context that ended before: %s, %s", r, w.requests)
	}
	if r := apply.Apply(t.Context(), c, objs); !r.Complete() || r.Writes() != len(objs)-7 {
		t.Errorf("afterwards: %s, %d writes: %v", r, r.Writes(), r.Err())
	}
}
