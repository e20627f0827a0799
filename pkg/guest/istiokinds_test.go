package guest_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fakeapi"
)

// realKind returns the CRD of one of Istio's resources as the charts have it, and its objects at the API server.
func realKind(t *testing.T, source *charts.Source, r model.IstioResource) (crd string, objects fakeapi.Collection) {
	t.Helper()
	list, err := source.CRDs([]string{r.CRD()})
	if err != nil || len(list) != 1 {
		t.Fatalf("%s: %d CRDs, %v", r.CRD(), len(list), err)
	}
	u := list[0]
	u.SetUID("u-1")
	u.SetGeneration(1)
	set(u, []any{map[string]any{"type": "Established", "status": "True"}}, "status", "conditions")
	names, _ := u.Object["spec"].(map[string]any)["names"].(map[string]any)
	versions, _ := u.Object["spec"].(map[string]any)["versions"].([]any)
	var served []string
	for _, item := range versions {
		version, _ := item.(map[string]any)
		served = append(served, version["name"].(string))
	}
	newest := served[0]
	if slices.Contains(served, "v1") {
		newest = "v1"
	}
	set(u, []any{newest}, "status", "storedVersions")
	text, err := json.Marshal(u.Object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), fakeapi.Collection{
		Path: "/apis/" + r.Group + "/" + newest + "/" + r.Resource, APIVersion: r.Group + "/" + newest, Kind: names["kind"].(string),
	}
}

// TestEachKindOfIstioThatIsNotServedIsFound checks for each kind that istiod knows: without it among --istio-resources,
// its objects are found, unless they are for an istiod of another revision. The CRDs are the real ones.
func TestEachKindOfIstioThatIsNotServedIsFound(t *testing.T) {
	t.Parallel()
	source, err := charts.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	const others = "{metadata: {namespace: app, name: b, labels: {istio.io/rev: users}}}"
	own := []string{
		"{metadata: {namespace: app, name: a}}", "{metadata: {namespace: app, name: c, labels: {istio.io/rev: openshift-gateway}}}",
	}
	var want []crds.InUse
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		var all []string
		for _, r := range model.KnownIstioResources() {
			crd, objects := realKind(t, source, r)
			all = append(all, crd)
			api.Put(objects, append(own, others)...)
			if !slices.Contains(model.LayeredProductResources(), r) {
				for _, name := range []string{"a", "c"} {
					want = append(want, crds.InUse{CRD: r.CRD(), Namespace: "app", Name: name})
				}
			}
		}
		api.Put(theCRDs, all...)
	})
	slices.SortFunc(want, func(a, b crds.InUse) int {
		if a.Secures() != b.Secures() {
			if a.Secures() {
				return -1
			}
			return 1
		}
		return strings.Compare(a.CRD+a.Name, b.CRD+b.Name)
	})
	f.Expect(want).To(gomega.HaveLen(22))
	f.Eventually(func() string { return cmp.Diff(want, f.observed().InUse) }).Should(gomega.BeEmpty())
	f.Expect(f.observed().Unserved).To(gomega.HaveLen(11))
}

// TestAKindOfIstioThatNoRowKnows checks that a kind of a later Istio is named as well.
func TestAKindOfIstioThatNoRowKnows(t *testing.T) {
	t.Parallel()
	const name = "dragons.security.istio.io"
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theCRDs, crd(name, ""), crd("istiooperators.install.istio.io", ""))
	})
	f.Expect(f.observed().Unserved).To(gomega.Equal([]string{name}))
}

// TestAKindInAGroupOfIstioThatIsNotKnownIsFound checks a kind of a later Istio, which no row of model.IstioKinds has.
func TestAKindInAGroupOfIstioThatIsNotKnownIsFound(t *testing.T) {
	t.Parallel()
	source, err := charts.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	const known, later = "wasmplugins", "laterplugins"
	crd, objects := realKind(t, source, model.IstioResource{Group: "extensions.istio.io", Resource: known})
	objects.Path = strings.ReplaceAll(objects.Path, known, later)
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(objects, "{metadata: {namespace: app, name: a}}")
		api.Put(theCRDs, strings.ReplaceAll(crd, known, later))
	})
	want := []crds.InUse{{CRD: later + ".extensions.istio.io", Namespace: "app", Name: "a"}}
	f.Eventually(func() string { return cmp.Diff(want, f.observed().InUse) }).Should(gomega.BeEmpty())
	f.Expect(f.observed().Unlisted).To(gomega.BeEmpty())

	t.Log("hypergate is not allowed to list it")
	g := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Fail(objects, forbidden(later+".extensions.istio.io"))
		api.Put(theCRDs, strings.ReplaceAll(crd, known, later))
	})
	g.Eventually(func() []string { return g.observed().Unlisted }).Should(gomega.Equal([]string{later + ".extensions.istio.io"}))
	g.Expect(g.observed().SearchingInUse).To(gomega.BeFalse())
}
