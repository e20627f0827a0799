package guest_test

import (
	"fmt"
	"testing"

	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fakeapi"
)

var theConfigMaps = fakeapi.Collection{Path: "/api/v1/namespaces/openshift-ingress/configmaps", APIVersion: "v1", Kind: "ConfigMap"}

// classDefaults is a ConfigMap with defaults for the gateways of class "ours", made in a minute of one hour.
func classDefaults(name string, minute int, labels, data string) string {
	return fmt.Sprintf("{metadata: {name: %s, namespace: openshift-ingress, creationTimestamp: '2026-01-01T00:%02d:00Z', "+
		"labels: {gateway.istio.io/defaults-for-class: %s}}, data: {%s}}", name, minute, labels, data)
}

// TestDefaultsOfOthers checks that ConfigMaps of others are reported, with what istiod does with them: it uses only the
// oldest of a class.
func TestDefaultsOfOthers(t *testing.T) {
	own := classDefaults("hypergate", 5, "ours, "+model.OwnerLabel+": "+config().OwnerValue(model.SideGuest), "unknown: ''")
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theCRDs, crd(classCRD, ""))
		api.Put(theClasses, class("ours", config().ControllerName, ""))
		api.Put(theConfigMaps, own, classDefaults("of-another-class", 0, "theirs", ""), "{metadata: {name: unrelated}}")
	})
	others := func() []model.OtherDefaults { return f.observed().OtherDefaults }
	f.Expect(others()).To(gomega.BeEmpty())

	f.api.Put(theConfigMaps, own, classDefaults("late", 6, "ours", "deployment: ''"))
	f.Eventually(others).Should(gomega.Equal([]model.OtherDefaults{{Class: "ours", ConfigMap: "openshift-ingress/late"}}))

	f.api.Put(theConfigMaps, own, classDefaults("late", 6, "ours", ""), classDefaults("first", 4, "ours", "Deployment: ''"))
	f.Eventually(others).Should(gomega.HaveExactElements(
		gomega.And(
			gomega.HaveField("ConfigMap", "openshift-ingress/first"), gomega.HaveField("Used", true),
			gomega.HaveField("Problem", gomega.HavePrefix(`"Deployment" is not one of the keys`)),
		),
		model.OtherDefaults{Class: "ours", ConfigMap: "openshift-ingress/late"},
	))

	// In the same second, the name decides.
	f.api.Put(theConfigMaps, own, classDefaults("a", 5, "ours", ""), classDefaults("z", 5, "ours", ""))
	f.Eventually(others).Should(gomega.Equal([]model.OtherDefaults{
		{Class: "ours", ConfigMap: "openshift-ingress/a", Used: true}, {Class: "ours", ConfigMap: "openshift-ingress/z"},
	}))
	f.api.Put(theConfigMaps, own)
	f.Eventually(others).Should(gomega.BeEmpty())
}

// TestManyDefaultsOfOthers checks that the guest does not decide how many are reported.
func TestManyDefaultsOfOthers(t *testing.T) {
	var all []string
	for i := range 50 {
		all = append(all, classDefaults(fmt.Sprintf("m%02d", i), 1, "ours", ""))
	}
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theCRDs, crd(classCRD, ""))
		api.Put(theClasses, class("ours", config().ControllerName, ""))
		api.Put(theConfigMaps, all...)
	})
	f.Eventually(func() []model.OtherDefaults { return f.observed().OtherDefaults }).Should(gomega.HaveLen(20))
	f.Expect(f.observed().OtherDefaults[0]).To(gomega.HaveField("Used", true))
}
