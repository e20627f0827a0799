package guest_test

import (
	"testing"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fakeapi"
)

// inferencePools returns the CRD of InferencePools with one version.
func inferencePools(t *testing.T, version string) string {
	t.Helper()
	return wholeCRD(t, gatewayCRD, func(u *unstructured.Unstructured) {
		u.SetName(model.InferencePoolCRD)
		set(u, "inference.networking.k8s.io", "spec", "group")
		set(u, map[string]any{
			"plural": "inferencepools", "kind": "InferencePool", "singular": "inferencepool", "listKind": "InferencePoolList",
		}, "spec", "names")
		versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
		versions[0].(map[string]any)["name"] = version
		set(u, versions[:1], "spec", "versions")
		set(u, []any{version}, "status", "storedVersions")
	})
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
	f.Eventually(unserved).Should(gomega.Equal([]string{model.InferencePoolCRD}))
	f.api.Put(theCRDs, inferencePools(t, "v1"))
	f.Eventually(unserved).Should(gomega.BeEmpty())
}
