package apply_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/test/cluster/planes"
	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/hang"
)

// plane is the one API server that all tests of this package share. Each test uses its own namespace, names and
// owner.
var plane *planes.Plane

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		os.Exit(m.Run())
	}
	os.Exit(withPlane(m))
}

func withPlane(m *testing.M) int {
	dir, err := os.MkdirTemp("", "hypergate-apply-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if plane, err = planes.StartPlane(context.Background(), "apply", filepath.Join(dir, "apply"), false); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer plane.Stop()
	return m.Run()
}

const (
	manager  = "hypergate"
	ownerKey = "gateway.hypergate.dev/owner"
)

// kinds returns the table that most tests use: every kind that hypergate applies, on either side.
func kinds() []apply.Kind {
	kind := func(apiVersion, kind, resource string, namespaced bool) apply.Kind {
		return apply.Kind{GVK: schema.FromAPIVersionAndKind(apiVersion, kind), Resource: resource, Namespaced: namespaced, Prune: true}
	}
	shared := func(k apply.Kind) apply.Kind {
		k.Prune, k.Barrier = false, true
		return k
	}
	first := func(k apply.Kind) apply.Kind {
		k.Barrier = true
		return k
	}
	const rbac, admission = "rbac.authorization.k8s.io/v1", "admissionregistration.k8s.io/v1"
	return []apply.Kind{
		shared(kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", false)),
		shared(kind("v1", "Namespace", "namespaces", false)),
		kind("v1", "ServiceAccount", "serviceaccounts", true),
		kind(rbac, "ClusterRole", "clusterroles", false),
		first(kind(rbac, "Role", "roles", true)),
		kind(rbac, "ClusterRoleBinding", "clusterrolebindings", false),
		kind(rbac, "RoleBinding", "rolebindings", true),
		kind("v1", "Secret", "secrets", true),
		kind("v1", "ConfigMap", "configmaps", true),
		kind("v1", "Service", "services", true),
		kind("apps/v1", "Deployment", "deployments", true),
		kind(admission, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", false),
		kind(admission, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", false),
	}
}

// object is an apply.Object made from YAML.
type object struct {
	u    *unstructured.Unstructured
	body []byte
}

func (o object) GVK() schema.GroupVersionKind { return o.u.GroupVersionKind() }
func (o object) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: o.u.GetNamespace(), Name: o.u.GetName()}
}
func (o object) JSON() []byte { return o.body }

// fixture is the part of the API server that one test uses: a namespace, an owner, a client that counts and an admin
// client that does not count.
type fixture struct {
	*gomega.WithT
	t         testing.TB
	namespace string
	owner     string
	cfg       *rest.Config
	admin     dynamic.Interface
	requests  *requests
	notified  chan struct{}
	logged    *atomic.Int64 // number of lines
}

func newFixture(tb testing.TB) *fixture {
	tb.Helper()
	if plane == nil {
		tb.Skip("needs an API server")
	}
	admin, err := dynamic.NewForConfig(plane.Config)
	if err != nil {
		tb.Fatal(err)
	}
	w := (&fixture{
		admin: admin, cfg: rest.CopyConfig(plane.Config), requests: &requests{}, notified: make(chan struct{}, 1), logged: &atomic.Int64{},
	}).in(tb)
	w.cfg.Wrap(w.requests.count)
	w.namespace = w.create("{apiVersion: v1, kind: Namespace, metadata: {generateName: test-}}").GetName()
	w.owner = w.namespace
	return w
}

// in returns the same world for a subtest.
func (w *fixture) in(tb testing.TB) *fixture {
	tb.Helper()
	out := *w
	out.t, out.WithT = tb, hang.Gomega(tb)
	out.SetDefaultEventuallyPollingInterval(5 * time.Millisecond)
	return &out
}

// parse makes an object from YAML. NS is replaced by the namespace of the test. In names of cluster-scoped objects,
// NS is a prefix that is unique to the test.
func (w *fixture) parse(text string) *unstructured.Unstructured {
	w.t.Helper()
	return fromyaml.Object(w.t, strings.ReplaceAll(text, "NS", w.namespace))
}

// object makes an object with the owner label.
func (w *fixture) object(text string) object {
	w.t.Helper()
	u := w.parse(text)
	labels := map[string]string{ownerKey: w.owner}
	maps.Copy(labels, u.GetLabels())
	u.SetLabels(labels)
	return w.bare(u)
}

// bare makes an object as it is.
func (w *fixture) bare(u *unstructured.Unstructured) object {
	w.t.Helper()
	body, err := json.Marshal(u.Object)
	if err != nil {
		w.t.Fatal(err)
	}
	return object{u, body}
}

// cluster makes a Cluster that is not started. The changes can replace any option, such as the kinds.
func (w *fixture) cluster(change ...func(*apply.Options)) *apply.Cluster {
	w.t.Helper()
	opts := apply.Options{Name: "test", FieldManager: manager, OwnerKey: ownerKey, OwnerValue: w.owner, Kinds: kinds()}
	for _, f := range change {
		f(&opts)
	}
	c, err := apply.New(w.cfg, opts)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *fixture) start(c *apply.Cluster) {
	w.t.Helper()
	log := funcr.New(func(string, string) { w.logged.Add(1) }, funcr.Options{})
	err := c.Start(klog.NewContext(w.t.Context(), log), func() {
		select {
		case w.notified <- struct{}{}:
		default:
		}
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// started makes and starts a Cluster, and waits until its watches have shown all objects.
func (w *fixture) started(change ...func(*apply.Options)) *apply.Cluster {
	w.t.Helper()
	c := w.cluster(change...)
	w.start(c)
	w.Eventually(c.Synced).Should(gomega.BeTrue())
	return c
}

// settle waits until the watches of the Cluster have shown exactly the given objects, and drops a pending
// notification.
func (w *fixture) settle(c *apply.Cluster, objs []object) {
	w.t.Helper()
	w.Eventually(c.Members).Should(gomega.ConsistOf(apply.IDs(objs)))
	select {
	case <-w.notified:
	default:
	}
}

// rests is settle, and also drops notifications that come late: the tracker sends one after it has changed, without its
// lock. It waits until none has come during 50 looks. A delay of the process also delays these.
func (w *fixture) rests(c *apply.Cluster, objs []object) {
	w.t.Helper()
	w.settle(c, objs)
	quiet := 0
	w.Eventually(func() int {
		select {
		case <-w.notified:
			quiet = 0
		default:
			quiet++
		}
		return quiet
	}).Should(gomega.BeNumerically(">=", 50))
}

// converge works like the controller: it applies after each notification, until done. It returns the number of
// writes.
func (w *fixture) converge(c *apply.Cluster, objs []object, done func() bool) int {
	w.t.Helper()
	writes := 0
	w.Eventually(func() (bool, error) {
		select {
		case <-w.notified:
			r := apply.Apply(w.t.Context(), c, objs)
			writes += r.Writes()
			return r.Err() == nil && done(), r.Err()
		default:
			return writes > 0 && done(), nil
		}
	}).Should(gomega.BeTrue(), "not restored after %d writes", &writes)
	return writes
}

func (w *fixture) resource(o *unstructured.Unstructured) dynamic.ResourceInterface {
	w.t.Helper()
	for _, k := range kinds() {
		if k.GVK == o.GroupVersionKind() {
			r := w.admin.Resource(k.GVK.GroupVersion().WithResource(k.Resource))
			if k.Namespaced {
				return r.Namespace(o.GetNamespace())
			}
			return r
		}
	}
	w.t.Fatalf("no kind %s in the table", o.GroupVersionKind())
	return nil
}

// create makes an object as another client.
func (w *fixture) create(text string) *unstructured.Unstructured {
	w.t.Helper()
	u := w.parse(text)
	got, err := w.resource(u).Create(w.t.Context(), u, metav1.CreateOptions{FieldManager: "third-party"})
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

// createAsUs makes an object as an earlier process of ours.
func (w *fixture) createAsUs(text string) *unstructured.Unstructured {
	w.t.Helper()
	u := w.parse(text)
	got, err := w.resource(u).Apply(w.t.Context(), u.GetName(), u, metav1.ApplyOptions{FieldManager: manager})
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

// patch changes an object as another client.
func (w *fixture) patch(o object, patch string, subresources ...string) {
	w.t.Helper()
	_, err := w.resource(o.u).Patch(w.t.Context(), o.u.GetName(), types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: "third-party"}, subresources...)
	if err != nil {
		w.t.Fatalf("patching %s with %s: %v", o.u.GetName(), patch, err)
	}
}

func (w *fixture) remove(o object) {
	w.t.Helper()
	if err := w.resource(o.u).Delete(w.t.Context(), o.u.GetName(), metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// live reads an object. It returns nil if there is none.
func (w *fixture) live(o *unstructured.Unstructured) *unstructured.Unstructured {
	w.t.Helper()
	got, err := w.resource(o).Get(w.t.Context(), o.GetName(), metav1.GetOptions{})
	if meta.IsNoMatchError(err) || err != nil && strings.Contains(err.Error(), "not found") {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

// requests counts the requests that a client sends.
type requests struct {
	reads, writes atomic.Int64
	// before is called with each request before it is sent.
	before atomic.Pointer[func(*http.Request)]
}

func (r *requests) count(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		switch {
		case req.Method != http.MethodGet:
			r.writes.Add(1)
		case req.URL.Query().Get("watch") == "":
			r.reads.Add(1)
		}
		if before := r.before.Load(); before != nil {
			(*before)(req)
		}
		return next.RoundTrip(req)
	})
}

func (r *requests) reset() {
	r.reads.Store(0)
	r.writes.Store(0)
}

func (r *requests) String() string {
	return fmt.Sprintf("%d reads, %d writes", r.reads.Load(), r.writes.Load())
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
