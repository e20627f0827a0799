package guest_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fakeapi"
)

const (
	gatewayCRD = "gateways.gateway.networking.k8s.io"
	meshCRD    = "xmeshes.gateway.networking.x-k8s.io"
)

var (
	theGateways = fakeapi.Collection{
		Path: "/apis/gateway.networking.k8s.io/v1/gateways", APIVersion: "gateway.networking.k8s.io/v1", Kind: "Gateway",
	}
	theMeshes = fakeapi.Collection{
		Path: "/apis/gateway.networking.x-k8s.io/v1alpha1/xmeshes", APIVersion: "gateway.networking.x-k8s.io/v1alpha1", Kind: "XMesh",
	}
)

func route(name, spec string) string {
	return fmt.Sprintf("{metadata: {namespace: app, name: %s}, spec: {%s}}", name, spec)
}

// TestUnsupportedFieldsInUseAreFound checks that exactly the objects that set an unknown field are reported, and that
// the search ends with the difference.
func TestUnsupportedFieldsInUseAreFound(t *testing.T) {
	other := wholeCRD(t, routeCRD, withField("v1", "secretSauce"), withField("v1", "spice"))
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theRoutes, route("plain", "hostnames: [a.example.com]"))
		api.Put(theCRDs, wholeCRD(t, routeCRD))
	})
	f.eventuallyFact(routeCRD, crds.Read)
	f.quiet()
	f.Expect(f.api.Requests(theRoutes)).To(gomega.BeEmpty(), "without a difference no object is looked at")

	f.api.Put(theCRDs, other)
	f.Eventually(func() crds.Use { return f.fact(routeCRD).Use }).Should(gomega.Equal(crds.Unused))
	f.Expect(f.observed().InUse).To(gomega.BeEmpty())

	f.api.Put(theRoutes, route("plain", "hostnames: [a.example.com]"),
		route("spiced", "spice: hot"), route("secret", "spice: hot, secretSauce: yes-please"))
	f.Eventually(func() crds.Use { return f.fact(routeCRD).Use }).Should(gomega.Equal(crds.Used))
	spice, sauce := crds.Field{Path: "spec.spice", Versions: []string{"v1"}}, crds.Field{Path: "spec.secretSauce", Versions: []string{"v1"}}
	want := []crds.InUse{
		{CRD: routeCRD, Namespace: "app", Name: "secret", Fields: []crds.Field{sauce, spice}},
		{CRD: routeCRD, Namespace: "app", Name: "spiced", Fields: []crds.Field{spice}},
	}
	f.Eventually(func() string { return cmp.Diff(want, f.observed().InUse) }).Should(gomega.BeEmpty())

	t.Log("another difference starts another search: earlier results do not count")
	f.api.Put(theCRDs, wholeCRD(t, routeCRD, withField("v1", "salt")))
	f.Eventually(func() crds.Use { return f.fact(routeCRD).Use }).Should(gomega.Equal(crds.Unused))
	f.Expect(f.observed().InUse).To(gomega.BeEmpty())

	f.api.Put(theCRDs, wholeCRD(t, routeCRD))
	f.Eventually(func() bool { return f.fact(routeCRD).Same() }).Should(gomega.BeTrue())
	f.quiet()
	before := len(f.api.Requests(theRoutes))
	f.api.Put(theRoutes)
	f.quiet()
	f.Expect(f.api.Requests(theRoutes)).To(gomega.HaveLen(before), "the search has ended")
}

// TestUseIsUnknownWithoutListPermission checks that the use of a field is unknown if hypergate is not allowed to list
// the objects.
func TestUseIsUnknownWithoutListPermission(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Fail(theRoutes, forbidden("httproutes"))
		api.Put(theCRDs, wholeCRD(t, routeCRD, withField("v1", "spice")))
	})
	f.eventuallyFact(routeCRD, crds.Read)
	f.Eventually(f.guest.WatchProblems).Should(gomega.ContainElement(gomega.HaveField("GVK.Kind", "HTTPRoute")))
	f.Expect(f.fact(routeCRD).Use).To(gomega.Equal(crds.Unsearched))
	f.api.Put(theRoutes)
	f.api.Fail(theRoutes, nil)
	f.Eventually(func() crds.Use { return f.fact(routeCRD).Use }).Should(gomega.Equal(crds.Unused))
}

// TestGatewaysOfOtherControllersAreIgnored checks that Gateways of other controllers are not reported, because those
// controllers can support the field. A field that would be lost counts for any controller.
func TestGatewaysOfOtherControllersAreIgnored(t *testing.T) {
	gateway := func(name, class string) string {
		return route(name, "spice: hot, gatewayClassName: "+class)
	}
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theClasses, class("ours", config().ControllerName, ""), class("theirs", "example.com/other", ""))
		api.Put(theGateways, gateway("a", "theirs"))
		api.Put(theCRDs, wholeCRD(t, classCRD), wholeCRD(t, gatewayCRD, withField("v1", "spice")))
	})
	f.Eventually(func() crds.Use { return f.fact(gatewayCRD).Use }).Should(gomega.Equal(crds.Used))
	f.Expect(f.observed().InUse).To(gomega.BeEmpty())
	f.api.Put(theGateways, gateway("a", "theirs"), gateway("b", "ours"))
	f.Eventually(func() []crds.InUse { return f.observed().InUse }).Should(gomega.ConsistOf(gomega.HaveField("Name", "b")))
}

// TestOnlyRoutesOfOwnGatewaysCount checks that a route counts if it can be attached to a Gateway of hypergate's
// classes.
func TestOnlyRoutesOfOwnGatewaysCount(t *testing.T) {
	to := func(name, parents string) string { return route(name, "spice: hot, parentRefs: ["+parents+"]") }
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theClasses, class("ours", config().ControllerName, ""), class("theirs", "example.com/other", ""))
		api.Put(theGateways, "{metadata: {namespace: app, name: ours}, spec: {gatewayClassName: ours}}",
			"{metadata: {namespace: infra, name: theirs}, spec: {gatewayClassName: theirs}}")
		api.Put(theRoutes,
			to("a-ours", "{name: ours}"), to("b-theirs", "{name: theirs, namespace: infra}"),
			to("c-both", "{name: theirs, namespace: infra}, {name: ours, kind: Gateway}"),
			to("d-service", "{name: ours, kind: Service, group: ''}"), to("e-nothing", ""),
			to("f-nowhere", "{name: nowhere}"), to("g-set", "{name: s, kind: ListenerSet}"))
		api.Put(theCRDs, wholeCRD(t, classCRD), wholeCRD(t, gatewayCRD), wholeCRD(t, routeCRD))
	})
	f.eventuallyFact(routeCRD, crds.Read)
	f.quiet()
	f.Expect(f.api.Requests(theGateways)).To(gomega.BeEmpty(), "Gateways are listed only if CRDs differ")
	names := func() []string {
		seen := f.observed()
		if seen.SearchingInUse {
			return nil
		}
		var out []string
		for _, use := range seen.InUse {
			out = append(out, use.Name)
		}
		return out
	}
	f.api.Put(theCRDs, wholeCRD(t, classCRD), wholeCRD(t, gatewayCRD), wholeCRD(t, routeCRD, withField("v1", "spice")))
	f.Eventually(names).Should(gomega.Equal([]string{"a-ours", "c-both", "d-service", "e-nothing", "g-set"}))
	f.Expect(f.fact(routeCRD).Use).To(gomega.Equal(crds.Used))
	t.Log("one Gateway appears, and another one changes to a foreign class")
	f.api.Put(theGateways, "{metadata: {namespace: app, name: nowhere}, spec: {gatewayClassName: ours}}",
		"{metadata: {namespace: app, name: ours}, spec: {gatewayClassName: theirs}}")
	f.Eventually(names).Should(gomega.Equal([]string{"d-service", "e-nothing", "f-nowhere", "g-set"}))
	t.Log("hypergate is not allowed to list Gateways: all routes count")
	g := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theRoutes, to("a", "{name: theirs}"))
		api.Fail(theGateways, forbidden("gateways.gateway.networking.k8s.io"))
		api.Put(theCRDs, wholeCRD(t, gatewayCRD), wholeCRD(t, routeCRD, withField("v1", "spice")))
	})
	g.Eventually(func() []crds.InUse { return g.observed().InUse }).Should(gomega.HaveLen(1))
	g.Eventually(func() bool { return g.observed().SearchingInUse }).Should(gomega.BeFalse())
}

// TestAFieldOfOnlyOneVersionIsFound checks a field that only one version has, if another version is read first.
func TestAFieldOfOnlyOneVersionIsFound(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		beta := theRoutes
		beta.Path, beta.APIVersion = "/apis/gateway.networking.k8s.io/v1beta1/httproutes", "gateway.networking.k8s.io/v1beta1"
		api.Put(beta, route("a", "old: yes-please"))
		api.Put(theRoutes, route("a", "first: a, second: b"))
		api.Put(theCRDs, wholeCRD(t, routeCRD, withField("v1", "first"), withField("v1", "second"), withField("v1beta1", "old")))
	})
	f.Eventually(func() []crds.InUse { return f.observed().InUse }).Should(gomega.ConsistOf(gomega.HaveField("Fields", gomega.HaveLen(3))))
}

// meshKind returns a CRD of an experimental kind of the Gateway API.
func meshKind(tb testing.TB) string {
	tb.Helper()
	return unknownKind(tb, "gateway.networking.x-k8s.io", "xmeshes", "XMesh", "v1alpha1")
}

// unknownKind returns the CRD of a kind of the Gateway API that istiod does not know, with one version.
func unknownKind(tb testing.TB, group, plural, kind, version string) string {
	tb.Helper()
	return kindOf(tb, group, plural, kind, []string{version}, nil)
}

// kindOf returns the CRD of a kind with versions that are served, and others that are not. The first one is stored.
func kindOf(tb testing.TB, group, plural, kind string, served, unserved []string) string {
	tb.Helper()
	return wholeCRD(tb, gatewayCRD, func(u *unstructured.Unstructured) {
		u.SetName(plural + "." + group)
		set(u, group, "spec", "group")
		set(u, map[string]any{
			"plural": plural, "kind": kind, "singular": strings.ToLower(kind), "listKind": kind + "List",
		}, "spec", "names")
		var versions []any
		for i, name := range slices.Concat(served, unserved) {
			all, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
			version := all[0].(map[string]any)
			version["name"], version["served"], version["storage"] = name, i < len(served), i == 0
			versions = append(versions, version)
		}
		set(u, versions, "spec", "versions")
	})
}

func TestUnsupportedKindsInUseAreFound(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theMeshes, route("m", ""))
		api.Put(theCRDs, meshKind(t),
			crd("tlsroutes.gateway.networking.k8s.io", ", deletionTimestamp: 2026-11-21T12:00:00Z"), crd("things.example.com", ""))
	})
	f.Expect(f.observed().Unserved).To(gomega.Equal([]string{meshCRD}))
	want := []crds.InUse{{CRD: meshCRD, Namespace: "app", Name: "m"}}
	f.Eventually(func() string { return cmp.Diff(want, f.observed().InUse) }).Should(gomega.BeEmpty())

	t.Log("all are counted, and 100 are listed")
	var many []string
	for i := range 250 {
		many = append(many, route(fmt.Sprintf("m%03d", i), ""))
	}
	f.api.Put(theMeshes, many...)
	total := func() int { return f.observed().InUseTotals[meshCRD] }
	f.Eventually(total).Should(gomega.Equal(250))
	f.Expect(f.observed().InUse).To(gomega.And(gomega.HaveLen(100), gomega.ContainElement(gomega.HaveField("Name", "m000"))))

	f.api.Put(theCRDs)
	f.Eventually(total).Should(gomega.BeZero())
	f.Expect(f.observed().Unserved).To(gomega.BeEmpty())
}

// TestEarlyInferencePoolsAreFound checks that InferencePools of their first group are found. istiod ignores them.
func TestEarlyInferencePoolsAreFound(t *testing.T) {
	const group = "inference.networking.x-k8s.io"
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(fakeapi.Collection{
			Path: "/apis/" + group + "/v1alpha2/inferencepools", APIVersion: group + "/v1alpha2", Kind: "InferencePool",
		}, route("pool", ""))
		api.Put(theCRDs, unknownKind(t, group, "inferencepools", "InferencePool", "v1alpha2"))
	})
	want := []crds.InUse{{CRD: model.EarlyInferencePoolCRD, Namespace: "app", Name: "pool"}}
	f.Eventually(func() string { return cmp.Diff(want, f.observed().InUse) }).Should(gomega.BeEmpty())
	f.Expect(f.observed().Unserved).To(gomega.Equal([]string{model.EarlyInferencePoolCRD}))
}

// TestObjectsOfUnsupportedKindsOfOthersDoNotCount checks that an object of a kind that istiod does not know counts only
// if it can be attached to a Gateway of hypergate's classes.
func TestObjectsOfUnsupportedKindsOfOthersDoNotCount(t *testing.T) {
	const group, experimental = "gateway.networking.k8s.io", "gateway.networking.x-k8s.io"
	kinds := []struct{ group, plural, kind, version, parents string }{
		{group, "listenersets", "ListenerSet", "v1", "parentRef: {name: %s}"},
		{group, "tlsroutes", "TLSRoute", "v1alpha2", "parentRefs: [{name: %s}]"},
		{experimental, "xlistenersets", "XListenerSet", "v1alpha1", "parentRef: {name: %s}"},
	}
	var want []crds.InUse
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theClasses, class("ours", config().ControllerName, ""), class("theirs", "example.com/other", ""))
		api.Put(theGateways, "{metadata: {namespace: app, name: ours}, spec: {gatewayClassName: ours}}",
			"{metadata: {namespace: app, name: theirs}, spec: {gatewayClassName: theirs}}")
		all := []string{wholeCRD(t, classCRD), wholeCRD(t, gatewayCRD)}
		for _, k := range kinds {
			version := k.group + "/" + k.version
			otherIstiod := fmt.Sprintf("{metadata: {namespace: app, name: c, labels: {istio.io/rev: users}}, spec: {%s}}", k.parents)
			api.Put(fakeapi.Collection{Path: "/apis/" + version + "/" + k.plural, APIVersion: version, Kind: k.kind},
				route("a", fmt.Sprintf(k.parents, "ours")), route("b", fmt.Sprintf(k.parents, "theirs")), fmt.Sprintf(otherIstiod, "ours"))
			all = append(all, unknownKind(t, k.group, k.plural, k.kind, k.version))
			want = append(want, crds.InUse{CRD: k.plural + "." + k.group, Namespace: "app", Name: "a"})
		}
		api.Put(theCRDs, all...)
	})
	found := func() string {
		if f.observed().SearchingInUse {
			return "it still searches"
		}
		return cmp.Diff(want, f.observed().InUse)
	}
	f.Eventually(found).Should(gomega.BeEmpty())
	t.Log("the Gateway gets a class of another controller")
	f.api.Put(theGateways, "{metadata: {namespace: app, name: ours}, spec: {gatewayClassName: theirs}}")
	want = nil
	f.Eventually(found).Should(gomega.BeEmpty())
}

// TestListenerSetsThatShouldBeRefused checks which ListenerSets get the condition that istiod ignores them: those that
// do not have it, and whose Gateway is known to be hypergate's.
func TestListenerSetsThatShouldBeRefused(t *testing.T) {
	const group = "gateway.networking.k8s.io"
	refused := "status: {conditions: [{type: Accepted, status: 'False', reason: UnsupportedByController}]}"
	pending := "status: {conditions: [{type: Programmed, status: Unknown}, {type: Accepted, status: Unknown, reason: Pending}]}"
	set := func(name, parent, status string) string {
		return fmt.Sprintf("{metadata: {namespace: app, name: %s, uid: u-%s, generation: 7, "+
			"creationTimestamp: '2026-11-21T12:00:00Z'}, spec: {parentRef: {%s}}, %s}", name, name, parent, status)
	}
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theClasses, class("ours", config().ControllerName, ""), class("theirs", "example.com/other", ""))
		api.Put(theGateways, "{metadata: {namespace: app, name: ours}, spec: {gatewayClassName: ours}}",
			"{metadata: {namespace: app, name: theirs}, spec: {gatewayClassName: theirs}}")
		api.Put(fakeapi.Collection{Path: "/apis/" + group + "/v1/listenersets", APIVersion: group + "/v1", Kind: "ListenerSet"},
			set("a", "name: ours", pending), set("b", "name: ours", refused), set("c", "name: theirs", pending),
			set("d", "kind: Other, name: ours", pending), set("e", "namespace: other, name: ours", pending))
		api.Put(theCRDs, wholeCRD(t, classCRD), wholeCRD(t, gatewayCRD),
			unknownKind(t, group, "listenersets", "ListenerSet", "v1"))
	})
	found := func() []model.ListenerSet { return f.observed().ListenerSets }
	f.Eventually(found).Should(gomega.HaveLen(1))
	got := found()[0]
	f.Expect(got.Key.String()).To(gomega.Equal("app/a"))
	f.Expect(got.UID).To(gomega.BeEquivalentTo("u-a"))
	f.Expect(got.Generation).To(gomega.BeEquivalentTo(7))
	f.Expect(got.Created).To(gomega.BeTemporally("==", time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)))
	f.Expect(got.Place).To(gomega.Equal(1))
	f.Expect(got.ResourceVersion).NotTo(gomega.BeEmpty())
}

// TestNoTLSRouteOrListenerSetIsIgnoredInSilence checks that these objects are found in each version in which a release
// of the Gateway API has them. Istio 1.29 reads TLSRoutes and XListenerSets only with its alpha features, which
// hypergate does not set (istio pilot/pkg/config/kube/gateway/controller.go), and does not know ListenerSets. It writes
// no status to them.
func TestNoTLSRouteOrListenerSetIsIgnoredInSilence(t *testing.T) {
	const group, experimental = "gateway.networking.k8s.io", "gateway.networking.x-k8s.io"
	for _, k := range []struct {
		channel, group, plural, kind, parents string
		served, unserved                      []string
	}{
		{"experimental, 1.3", group, "tlsroutes", "TLSRoute", "parentRefs: [{name: ours}]", []string{"v1alpha2"}, nil},
		{"experimental, 1.4", group, "tlsroutes", "TLSRoute", "parentRefs: [{name: ours}]", []string{"v1alpha2", "v1alpha3"}, nil},
		{"experimental, 1.5", group, "tlsroutes", "TLSRoute", "parentRefs: [{name: ours}]", []string{"v1", "v1alpha2", "v1alpha3"}, nil},
		{"standard, 1.5", group, "tlsroutes", "TLSRoute", "parentRefs: [{name: ours}]", []string{"v1"}, []string{"v1alpha2", "v1alpha3"}},
		{"standard, 1.5", group, "listenersets", "ListenerSet", "parentRef: {name: ours}", []string{"v1"}, nil},
		{"experimental, 1.4", experimental, "xlistenersets", "XListenerSet", "parentRef: {name: ours}", []string{"v1alpha1"}, nil},
	} {
		t.Run(k.kind+" "+k.channel, func(t *testing.T) {
			f := start(t, func(api *fakeapi.Server) {
				api.Put(theNamespaces)
				api.Put(theClasses, class("ours", config().ControllerName, ""))
				api.Put(theGateways, "{metadata: {namespace: app, name: ours}, spec: {gatewayClassName: ours}}")
				for _, version := range k.served {
					at := k.group + "/" + version
					api.Put(fakeapi.Collection{Path: "/apis/" + at + "/" + k.plural, APIVersion: at, Kind: k.kind}, route("a", k.parents))
				}
				api.Put(theCRDs, wholeCRD(t, classCRD), wholeCRD(t, gatewayCRD),
					kindOf(t, k.group, k.plural, k.kind, k.served, k.unserved))
			})
			want := []crds.InUse{{CRD: k.plural + "." + k.group, Namespace: "app", Name: "a"}}
			f.Eventually(func() string { return cmp.Diff(want, f.observed().InUse) }).Should(gomega.BeEmpty())
		})
	}
}

// TestObjectsThatAreStillLookedFor checks that the search counts as running until all objects were listed. Objects
// that hypergate is not allowed to list do not count.
func TestObjectsThatAreStillLookedFor(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theRoutes, route("spiced", "spice: hot"))
		api.Fail(theRoutes, apierrors.NewInternalError(errors.New("out of order")))
		api.Put(theCRDs, wholeCRD(t, routeCRD, withField("v1", "spice")))
	})
	searching := func() bool { return f.observed().SearchingInUse }
	f.Expect(searching()).To(gomega.BeTrue(), "the CRD was not read yet")
	f.eventuallyFact(routeCRD, crds.Read)
	f.Eventually(f.guest.WatchProblems).Should(gomega.ContainElement(gomega.HaveField("GVK.Kind", "HTTPRoute")))
	f.Expect(searching()).To(gomega.BeTrue(), "its objects were not seen")
	f.api.Fail(theRoutes, forbidden("httproutes.gateway.networking.k8s.io"))
	f.Eventually(searching).Should(gomega.BeFalse())
	f.api.Fail(theRoutes, nil)
	f.Eventually(func() []crds.InUse { return f.observed().InUse }).Should(gomega.HaveLen(1))
	f.Expect(searching()).To(gomega.BeFalse())
	f.api.Put(theCRDs, wholeCRD(t, routeCRD))
	f.Eventually(func() bool { return f.fact(routeCRD).Same() }).Should(gomega.BeTrue())
	f.Expect(searching()).To(gomega.BeFalse(), "there is nothing to look for")
}
