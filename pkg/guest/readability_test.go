package guest_test

import (
	"testing"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fakeapi"
)

// inferencePools returns the CRD of InferencePools with one version.
func inferencePools(t *testing.T, version string, change ...func(*unstructured.Unstructured)) string {
	t.Helper()
	return wholeCRD(t, gatewayCRD, append([]func(*unstructured.Unstructured){func(u *unstructured.Unstructured) {
		u.SetName(model.InferencePoolCRD)
		set(u, "inference.networking.k8s.io", "spec", "group")
		set(u, map[string]any{
			"plural": "inferencepools", "kind": "InferencePool", "singular": "inferencepool", "listKind": "InferencePoolList",
		}, "spec", "names")
		versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
		versions[0].(map[string]any)["name"] = version
		set(u, versions[:1], "spec", "versions")
		set(u, []any{version}, "status", "storedVersions")
	}}, change...)...)
}

// TestInferencePoolsOfAnotherVersion checks that the CRD of InferencePools is reported exactly if it does not serve the
// version that istiod reads.
func TestInferencePoolsOfAnotherVersion(t *testing.T) {
	t.Parallel()
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theCRDs, inferencePools(t, "v9"))
	})
	unserved := func() []string { return f.observed().Unserved }
	pools := func() model.Readability { return f.observed().Readability[model.InferencePoolCRD] }
	f.Eventually(unserved).Should(gomega.Equal([]string{model.InferencePoolCRD}))
	f.Expect(pools()).To(gomega.Equal(model.Unreadable))
	f.api.Put(theCRDs, inferencePools(t, "v1"))
	f.Eventually(unserved).Should(gomega.BeEmpty())
	f.Eventually(pools).Should(gomega.Equal(model.Readable))

	t.Log("an API server that cannot serve the CRD because of its names")
	f.api.Put(theCRDs, inferencePools(t, "v1", func(u *unstructured.Unstructured) {
		set(u, []any{map[string]any{"type": "NamesAccepted", "status": "False", "message": "taken"}}, "status", "conditions")
	}))
	f.Eventually(pools).Should(gomega.Equal(model.Unreadable))
	f.api.Put(theCRDs)
	f.Eventually(pools).Should(gomega.Equal(model.Readable), "istiod waits for the CRD without a restart")
}

// TestAnInferencePoolCRDThatCannotBeRead checks that nothing follows from a CRD that hypergate cannot read.
func TestAnInferencePoolCRDThatCannotBeRead(t *testing.T) {
	t.Parallel()
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theCRDs, inferencePools(t, "v9", func(u *unstructured.Unstructured) { set(u, "no list", "spec", "versions") }))
	})
	pools := func() model.Readability { return f.observed().Readability[model.InferencePoolCRD] }
	f.Eventually(pools).Should(gomega.Equal(model.NotRead))
	f.Consistently(pools).Should(gomega.Equal(model.NotRead))
}

// without returns a change of a CRD that no longer serves a version.
func without(unserved string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
		for _, v := range versions {
			if v := v.(map[string]any); v["name"] == unserved {
				v["served"] = false
			}
		}
		set(u, versions, "spec", "versions")
		u.SetGeneration(u.GetGeneration() + 1)
	}
}

// TestReadabilityOfIstiosKinds checks which of Istio's CRDs istiod cannot read: those that do not serve the version
// that istiod reads, if hypergate is not about to write them. The webhook is probed in a version that the CRD serves.
func TestReadabilityOfIstiosKinds(t *testing.T) {
	t.Parallel()
	const filterCRD, policyCRD = "envoyfilters.networking.istio.io", "authorizationpolicies.security.istio.io"
	ours := withLabel(ownerLabel, "openshift-gateway.guest")
	probed := func(version string) fakeapi.Collection {
		return fakeapi.Collection{Path: "/apis/networking.istio.io/" + version + "/namespaces/openshift-ingress/destinationrules"}
	}
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theCRDs, wholeCRD(t, ruleCRD, without("v1")), wholeCRD(t, filterCRD), wholeCRD(t, policyCRD, without("v1")))
	})
	readability := func() map[string]model.Readability { return f.observed().Readability }
	probe := func(version string) []string {
		_, _ = f.guest.ProbeWebhook(t.Context()) // no webhook answers
		return f.api.Requests(probed(version))
	}
	f.Eventually(readability).Should(gomega.Equal(map[string]model.Readability{ruleCRD: model.Unreadable}), "istiod does not read policies")
	f.Expect(probe("v1beta1")).To(gomega.HaveLen(1))

	t.Log("the CRD is hypergate's")
	f.api.Put(theCRDs, wholeCRD(t, ruleCRD, ours, without("v1")), wholeCRD(t, filterCRD, without("v1alpha3")))
	f.Eventually(readability).Should(gomega.Equal(map[string]model.Readability{ruleCRD: model.Replaced, filterCRD: model.Unreadable}))

	t.Log("the CRDs serve what istiod reads")
	f.api.Put(theCRDs, wholeCRD(t, ruleCRD, ours, without("v1beta1")))
	f.Eventually(readability).Should(gomega.BeEmpty())
	f.Expect(probe("v1")).To(gomega.HaveLen(1))
}

// TestObjectsThatIstiodCannotReadAreFound checks that all objects of a kind count whose CRD does not serve the version
// that istiod reads, but those of another istiod. Of these, only fields that a takeover would remove count for it.
func TestObjectsThatIstiodCannotReadAreFound(t *testing.T) {
	t.Parallel()
	for name, spiced := range map[string]bool{"equal fields": false, "a field of its own": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := []func(*unstructured.Unstructured){without("v1")}
			fields := gomega.BeEmpty()
			if spiced {
				change, fields = append(change, withField("v1beta1", "spice")), gomega.HaveLen(1)
			}
			f := start(t, func(api *fakeapi.Server) {
				api.Put(theNamespaces)
				api.Put(fakeapi.Collection{
					Path: "/apis/networking.istio.io/v1beta1/destinationrules",
					Kind: "DestinationRule", APIVersion: "networking.istio.io/v1beta1",
				}, route("a", "host: a"), route("b", "spice: hot"),
					"{metadata: {namespace: app, name: c, labels: {istio.io/rev: other}}, spec: {spice: hot}}")
				api.Put(theCRDs, wholeCRD(t, ruleCRD, change...))
			})
			inUse := func() []crds.InUse { return f.observed().InUse }
			f.Eventually(inUse).Should(gomega.HaveExactElements(
				gomega.And(gomega.HaveField("Name", "a"), gomega.HaveField("CRD", ruleCRD)),
				gomega.And(gomega.HaveField("Name", "b"), gomega.HaveField("Fields", fields))))
			f.Expect(f.observed().Unserved).To(gomega.Equal([]string{ruleCRD}))
			losing, _ := f.guest.Losing()
			if f.Expect(len(losing) > 0).To(gomega.Equal(spiced)); spiced { // a takeover is about objects of each istiod
				f.Expect(losing).To(gomega.HaveExactElements(gomega.HaveField("Name", "b"), gomega.HaveField("Name", "c")))
				f.Eventually(func() crds.Use { return f.fact(ruleCRD).Use }).Should(gomega.Equal(crds.Used))
			}

			t.Log("the CRD serves what istiod reads")
			f.api.Put(theCRDs, wholeCRD(t, ruleCRD))
			f.Eventually(inUse).Should(gomega.BeEmpty())
			f.Expect(f.observed().Unserved).To(gomega.BeEmpty())
		})
	}
}
