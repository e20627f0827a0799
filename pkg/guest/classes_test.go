package guest_test

import (
	"strings"
	"testing"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/test/fakeapi"
)

// TestClassesGoWithTheirCRD and come back with it: what was seen before does not count, and while there is none, nobody asks.
func TestClassesGoWithTheirCRD(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theCRDs, crd(classCRD, ""))
		api.Put(theNamespaces)
		api.Put(theClasses, class("a", config().ControllerName, ""))
	})
	classes := func() []desired.GatewayClass { return f.observed().Classes }
	f.Expect(classes()).To(gomega.HaveLen(1))
	f.api.Put(theCRDs)
	f.Eventually(classes).Should(gomega.BeEmpty())
	f.quiet()
	before := len(f.api.Requests(theClasses))
	f.api.Put(theClasses, class("b", config().ControllerName, ""))
	f.quiet()
	f.Expect(f.api.Requests(theClasses)).To(gomega.HaveLen(before))
	f.Expect(f.guest.Check()).To(gomega.Succeed())

	t.Log("another CRD of that name: until its objects were listed, the guest is not known")
	f.api.Fail(theClasses, forbidden("gatewayclasses.gateway.networking.k8s.io"))
	f.api.Put(theCRDs, strings.Replace(crd(classCRD, ""), "u-", "w-", 1))
	f.Eventually(func() error {
		_, err := f.guest.Observe()
		return err
	}).Should(gomega.MatchError(gomega.ContainSubstring("(waiting for gatewayclasses)")))
	f.api.Fail(theClasses, nil)
	f.Eventually(classes).Should(gomega.ConsistOf(gomega.HaveField("Name", "b")))
}

// TestACRDThatIsReplacedUnseenBeginsAnew: between two lists a CRD may go and another one come.
func TestACRDThatIsReplacedUnseenBeginsAnew(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theCRDs, crd(classCRD, ""))
		api.Put(theNamespaces)
		api.Put(theClasses, class("a", config().ControllerName, ""))
	})
	f.observed()
	f.api.Fail(theClasses, forbidden("gatewayclasses.gateway.networking.k8s.io"))
	f.api.Put(theCRDs, strings.Replace(crd(classCRD, ""), "u-", "w-", 1))
	f.Eventually(func() error {
		_, err := f.guest.Observe()
		return err
	}).Should(gomega.HaveOccurred(), "the class of before is not one of this CRD")
}

// TestAClassCRDWithoutOurVersionHoldsUpNothing: it says itself that there is nothing to wait for.
func TestAClassCRDWithoutOurVersionHoldsUpNothing(t *testing.T) {
	old := wholeCRD(t, classCRD, func(u *unstructured.Unstructured) {
		versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
		for _, v := range versions {
			if v := v.(map[string]any); v["name"] == "v1" {
				v["served"] = false
			}
		}
		set(u, versions, "spec", "versions")
	})
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theCRDs, old)
		api.Put(theNamespaces)
	})
	f.Expect(f.observed().Classes).To(gomega.BeEmpty())
	f.Expect(f.fact(classCRD).Content).To(gomega.Equal(crds.Read))
}
