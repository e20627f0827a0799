package guest_test

import (
	"testing"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
	pools := func() model.InferencePools { return f.observed().InferencePools }
	f.Eventually(unserved).Should(gomega.Equal([]string{model.InferencePoolCRD}))
	f.Expect(pools()).To(gomega.Equal(model.PoolsUnreadable))
	f.api.Put(theCRDs, inferencePools(t, "v1"))
	f.Eventually(unserved).Should(gomega.BeEmpty())
	f.Eventually(pools).Should(gomega.Equal(model.PoolsReadable))

	t.Log("an API server that cannot serve the CRD because of its names")
	f.api.Put(theCRDs, inferencePools(t, "v1", func(u *unstructured.Unstructured) {
		set(u, []any{map[string]any{"type": "NamesAccepted", "status": "False", "message": "taken"}}, "status", "conditions")
	}))
	f.Eventually(pools).Should(gomega.Equal(model.PoolsUnreadable))
	f.api.Put(theCRDs)
	f.Eventually(pools).Should(gomega.Equal(model.PoolsReadable), "istiod waits for the CRD without a restart")
}

// TestAnInferencePoolCRDThatCannotBeRead checks that nothing follows from a CRD that hypergate cannot read.
func TestAnInferencePoolCRDThatCannotBeRead(t *testing.T) {
	t.Parallel()
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theCRDs, inferencePools(t, "v9", func(u *unstructured.Unstructured) { set(u, "no list", "spec", "versions") }))
	})
	f.Eventually(func() model.InferencePools { return f.observed().InferencePools }).Should(gomega.Equal(model.PoolsUnknown))
	f.Consistently(func() model.InferencePools { return f.observed().InferencePools }).Should(gomega.Equal(model.PoolsUnknown))
}
