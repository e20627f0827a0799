package guest_test

import (
	"strings"
	"testing"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fakeapi"
)

// TestClassesDisappearWithTheirCRD checks that GatewayClasses disappear with their CRD and return with it. Earlier
// observations do not count. While the CRD does not exist, no request is sent.
func TestClassesDisappearWithTheirCRD(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theCRDs, crd(classCRD, ""))
		api.Put(theNamespaces)
		api.Put(theClasses, class("a", config().ControllerName, ""))
	})
	classes := func() []model.GatewayClass { return f.observed().Classes }
	f.Expect(classes()).To(gomega.HaveLen(1))
	f.api.Put(theCRDs)
	f.Eventually(classes).Should(gomega.BeEmpty())
	f.quiet()
	before := len(f.api.Requests(theClasses))
	f.api.Put(theClasses, class("b", config().ControllerName, ""))
	f.quiet()
	f.Expect(f.api.Requests(theClasses)).To(gomega.HaveLen(before))
	f.Expect(f.guest.Check()).To(gomega.Succeed())

	t.Log("another CRD of that name: the guest is unknown until its objects have been listed")
	f.api.Fail(theClasses, forbidden("gatewayclasses.gateway.networking.k8s.io"))
	f.api.Put(theCRDs, strings.Replace(crd(classCRD, ""), "u-", "w-", 1))
	f.Eventually(func() error {
		_, err := f.guest.Observe()
		return err
	}).Should(gomega.MatchError(gomega.ContainSubstring("(waiting for gatewayclasses)")))
	f.api.Fail(theClasses, nil)
	f.Eventually(classes).Should(gomega.ConsistOf(gomega.HaveField("Name", "b")))
}

// TestAnUnobservedReplacementOfACRDResetsIt checks that a CRD that was deleted and created again between two lists
// starts with an empty copy.
func TestAnUnobservedReplacementOfACRDResetsIt(t *testing.T) {
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

// TestAClassCRDWithoutTheVersionBlocksNothing checks that a CRD that does not serve the version blocks nothing. The
// CRD itself shows that there is nothing to wait for.
func TestAClassCRDWithoutTheVersionBlocksNothing(t *testing.T) {
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
