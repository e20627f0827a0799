package guest_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/test/fakeapi"
)

const (
	routeCRD   = "httproutes.gateway.networking.k8s.io"
	ruleCRD    = "destinationrules.networking.istio.io"
	ownerLabel = "gateway.hypergate.dev/owner"
	ourLabel   = ", labels: {" + ownerLabel + ": openshift-gateway.guest}"
)

var theRoutes = fakeapi.Collection{
	Path: "/apis/gateway.networking.k8s.io/v1/httproutes", APIVersion: "gateway.networking.k8s.io/v1", Kind: "HTTPRoute",
}

// embedded returns the charts with the CRDs for the comparison.
var embedded = func() func(testing.TB) *charts.Source {
	load := sync.OnceValues(charts.Embedded)
	return func(tb testing.TB) *charts.Source {
		tb.Helper()
		source, err := load()
		if err != nil {
			tb.Fatal(err)
		}
		return source
	}
}()

// wanted caches the CRDs that hypergate installs, by name. Reading one takes longer than most tests.
var wanted sync.Map

// wantedCRD returns a copy of a CRD as hypergate would install it.
func wantedCRD(tb testing.TB, name string) *unstructured.Unstructured {
	tb.Helper()
	if known, ok := wanted.Load(name); ok {
		return known.(*unstructured.Unstructured).DeepCopy()
	}
	var u *unstructured.Unstructured
	var err error
	if bundle := crds.GatewayAPI(); bundle.Has(name) {
		u, err = bundle.Object(name)
	} else {
		var list []*unstructured.Unstructured
		if list, err = desired.IstioCRDs(embedded(tb), []string{name}); err == nil {
			u = list[0]
		}
	}
	if err != nil {
		tb.Fatal(err)
	}
	wanted.Store(name, u)
	return u.DeepCopy()
}

// wholeCRD returns a CRD that hypergate would install, modified by change, in the form that the API server returns.
func wholeCRD(tb testing.TB, name string, change ...func(*unstructured.Unstructured)) string {
	tb.Helper()
	u := wantedCRD(tb, name)
	u.SetUID("u-1")
	u.SetGeneration(1)
	set(u, []any{map[string]any{"type": "Established", "status": "True"}}, "status", "conditions")
	set(u, []any{"v1"}, "status", "storedVersions")
	for _, do := range change {
		do(u)
	}
	text, err := json.Marshal(u.Object)
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

func set(u *unstructured.Unstructured, value any, path ...string) {
	if err := unstructured.SetNestedField(u.Object, value, path...); err != nil {
		panic(err)
	}
}

// withField adds a field to the spec of one version. Newer or experimental CRDs have such fields.
func withField(version, field string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
		for _, v := range versions {
			if v := v.(map[string]any); v["name"] == version {
				_ = unstructured.SetNestedField(v, map[string]any{"type": "string"},
					"schema", "openAPIV3Schema", "properties", "spec", "properties", field)
			}
		}
		set(u, versions, "spec", "versions")
		u.SetGeneration(u.GetGeneration() + 1)
	}
}

func withLabel(key, value string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{key: value}) }
}

// fact returns the current facts about a CRD.
func (f *fixture) fact(name string) crds.Fact {
	f.Helper()
	return f.observed().CRDs[name]
}

// eventuallyFact waits until the CRD has the given content state, and returns the facts about it.
func (f *fixture) eventuallyFact(name string, content crds.Content) crds.Fact {
	f.Helper()
	f.Eventually(func() crds.Content { return f.fact(name).Content }).Should(gomega.Equal(content))
	return f.fact(name)
}

// reads returns the number of requests that read the whole CRD.
func (f *fixture) reads(name string) int {
	return len(slices.DeleteFunc(f.api.Requests(theCRDs), func(r string) bool {
		return !strings.Contains(r, "fieldSelector=metadata.name%3D"+name) || strings.Contains(r, "watch=")
	}))
}

// quiet waits until the API server has received no request during 50 checks, 10 ms apart. The guest runs in the same
// process. A delay of the process therefore delays the checks, too.
func (f *fixture) quiet() {
	f.Helper()
	before, quiet := -1, 0
	f.Eventually(func() int {
		if now := len(f.api.Requests(fakeapi.Collection{})); now != before {
			before, quiet = now, 0
		} else {
			quiet++
		}
		return quiet
	}).Should(gomega.BeNumerically(">=", 50))
}

func TestOwnerOfAGuestCRD(t *testing.T) {
	managed := func(manager, operation string) string {
		return ", managedFields: [{manager: " + manager + ", operation: " + operation +
			", apiVersion: v1, fieldsV1: {'f:spec': {'f:versions': {}}}}]"
	}
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theClasses)
		api.Put(theCRDs,
			crd("gateways.gateway.networking.k8s.io", ourLabel),
			crd("grpcroutes.gateway.networking.k8s.io", ", labels: {gateway.hypergate.dev/owner: other.guest}"),
			crd("httproutes.gateway.networking.k8s.io", managed("hypergate", "Apply")),
			crd("referencegrants.gateway.networking.k8s.io", managed("kubectl", "Apply")),
			crd("backendtlspolicies.gateway.networking.k8s.io", managed("ingress-operator", "Update")),
			crd("wasmplugins.extensions.istio.io", ourLabel+", deletionTimestamp: 2026-11-21T12:00:00Z"),
			crd("things.example.com", ""),
			crd("virtualservices.networking.istio.io", ""),
		)
	})
	owners, phases := map[string]string{}, map[string]crds.DeletionState{}
	for name, fact := range f.observed().CRDs {
		owners[strings.SplitN(name, ".", 2)[0]] = fact.Owner.String()
		if fact.Metadata.Deletion != crds.NotDeleting {
			phases[name] = fact.Metadata.Deletion
		}
	}
	want := map[string]string{
		"gateways": "hypergate", "grpcroutes": "third party", "httproutes": "hypergate", "referencegrants": "third party: kubectl",
		"backendtlspolicies": "ingress-operator", "wasmplugins": "hypergate",
	}
	if diff := cmp.Diff(want, owners); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]crds.DeletionState{"wasmplugins.extensions.istio.io": crds.Terminating}, phases); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestContentOfAGuestCRD(t *testing.T) {
	var pause sync.RWMutex
	f := startWith(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theClasses)
		api.Put(theRoutes)
		api.Put(theCRDs,
			wholeCRD(t, classCRD),
			wholeCRD(t, routeCRD, withField("v1", "secretSauce")),
			wholeCRD(t, ruleCRD),
			crd("gateways.gateway.networking.k8s.io", ""),
			crd("things.example.com", ""),
		)
	}, func(next http.RoundTripper) http.RoundTripper { return pausing{next, &pause} })
	same := f.eventuallyFact(classCRD, crds.Read)
	if !same.Same() || same.Definition.State != crds.Established || len(same.Definition.Served) == 0 {
		t.Errorf("the CRD is equal to hypergate's, but the facts are %+v", same)
	}
	if same := f.eventuallyFact(ruleCRD, crds.Read); !same.Same() || same.Metadata.Version != charts.EmbeddedVersion {
		t.Errorf("the CRD is equal to Istio's, but the facts are %+v", same)
	}
	other := f.eventuallyFact(routeCRD, crds.Read)
	want := crds.Difference{Lost: []crds.Field{{Path: "spec.secretSauce", Versions: []string{"v1"}}}}
	if diff := cmp.Diff(want, other.Difference); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if broken := f.eventuallyFact("gateways.gateway.networking.k8s.io", crds.Unreadable); !strings.Contains(broken.Why, "it has no spec") {
		t.Errorf("Why = %q", broken.Why)
	}
	f.Expect(f.reads("things.example.com")).To(gomega.BeZero(), "its content is not read")

	t.Log("another label does not change the content, but causes a read")
	f.api.Put(theCRDs, wholeCRD(t, classCRD, withLabel("some", "label")))
	f.Eventually(func() int { return f.reads(classCRD) }).Should(gomega.Equal(2))
	f.Expect(f.fact(classCRD).Content).To(gomega.Equal(crds.Read))
	f.quiet()
	f.Expect(f.reads(classCRD)).To(gomega.Equal(2), "it is read once for each change, and not at rest")

	t.Log("the result for an earlier spec does not count")
	pause.Lock()
	f.api.Put(theCRDs, wholeCRD(t, classCRD, withField("v1", "another")))
	f.eventuallyFact(classCRD, crds.Unread)
	pause.Unlock()
	f.Eventually(func() []crds.Field { return f.fact(classCRD).Difference.Lost }).Should(gomega.HaveLen(1))

	t.Log("the result for a deleted CRD does not count")
	f.api.Put(theCRDs)
	f.Eventually(func() map[string]crds.Fact { return f.observed().CRDs }).Should(gomega.BeEmpty())
}

// TestReadsWaitForAPauseInEvents checks that a read waits for a pause in the events. An installation causes several
// events for each CRD, and reads must not compete with its writes.
func TestReadsWaitForAPauseInEvents(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theCRDs)
	})
	f.observed()
	whole, before := wholeCRD(t, routeCRD), time.Now()
	f.api.Put(theCRDs, whole)
	f.Eventually(func() int { return f.reads(routeCRD) }).WithPolling(time.Millisecond).Should(gomega.Equal(1))
	// the event arrived after before
	f.Expect(time.Since(before)).To(gomega.BeNumerically(">=", 250*time.Millisecond))
}

// pausing holds the reads of CRDs while the lock is held.
type pausing struct {
	next  http.RoundTripper
	pause *sync.RWMutex
}

func (p pausing) RoundTrip(request *http.Request) (*http.Response, error) {
	if readsACRD(request) {
		p.pause.RLock()
		defer p.pause.RUnlock()
	}
	return p.next.RoundTrip(request)
}

// readsACRD reports whether a request is for the whole CRD.
func readsACRD(request *http.Request) bool {
	return strings.HasSuffix(request.URL.Path, "/customresourcedefinitions") && request.URL.Query().Get("fieldSelector") != ""
}

// refusing answers the reads of CRDs with an error while on is set.
type refusing struct {
	next http.RoundTripper
	on   *atomic.Bool
}

func (r refusing) RoundTrip(request *http.Request) (*http.Response, error) {
	if r.on.Load() && readsACRD(request) {
		request = request.Clone(request.Context())
		request.URL.Path = "/refused"
	}
	return r.next.RoundTrip(request)
}

func TestAForbiddenCRDIsReportedAndRetried(t *testing.T) {
	refused := &atomic.Bool{}
	refused.Store(true)
	f := startWith(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theCRDs, wholeCRD(t, routeCRD))
		api.Fail(fakeapi.Collection{Path: "/refused"}, forbidden("customresourcedefinitions.apiextensions.k8s.io"))
	}, func(next http.RoundTripper) http.RoundTripper { return refusing{next, refused} })
	f.Expect(f.eventuallyFact(routeCRD, crds.Unreadable).Why).To(
		gomega.Equal("not allowed to list customresourcedefinitions.apiextensions.k8s.io (RBAC)"),
	)
	refused.Store(false)
	f.eventuallyFact(routeCRD, crds.Read)
}
