package guest_test

import (
	"testing"
	"time"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/test/fakeapi"
)

// TestAnUnrelatedChangeDoesNotRestartTheSearch checks that a change of a CRD that does not affect a search neither ends
// nor repeats it.
func TestAnUnrelatedChangeDoesNotRestartTheSearch(t *testing.T) {
	generation := func(i int64) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) { u.SetGeneration(i) }
	}
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theRoutes, route("spiced", "spice: hot"))
		api.Put(theCRDs, wholeCRD(t, routeCRD, withField("v1", "spice"), generation(2)))
	})
	f.Eventually(func() int { return len(f.observed().InUse) }).Should(gomega.Equal(1))
	f.quiet()
	before := len(f.api.Requests(theRoutes))
	for i := range 3 {
		reads := f.reads(routeCRD)
		f.api.Put(theCRDs, wholeCRD(t, routeCRD, withField("v1", "spice"), generation(int64(i+3))))
		f.Eventually(func(g gomega.Gomega) int {
			g.Expect(f.observed().InUse).To(gomega.HaveLen(1))
			return f.reads(routeCRD)
		}).WithPolling(5 * time.Millisecond).Should(gomega.Equal(reads + 1))
	}
	f.Expect(f.api.Requests(theRoutes)).To(gomega.HaveLen(before))
}
