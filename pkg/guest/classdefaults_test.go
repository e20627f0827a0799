package guest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hypergate/hypergate/pkg/guest"
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

// ownDefaults are hypergate's defaults for a class, with a proxy that was changed in a minute of one hour.
func ownDefaults(class, host string, minute int) string {
	of := model.Proxy{HTTP: "http://" + host}
	return fmt.Sprintf("{metadata: {name: %s, namespace: openshift-ingress, annotations: {%s: '%s', %s: '2026-01-01T00:%02d:00Z'}, "+
		"labels: {gateway.istio.io/defaults-for-class: %s, %s: %s}}, data: {deployment: "+
		"'spec: {template: {spec: {containers: [{name: istio-proxy, env: [{name: HTTP_PROXY, value: %q}]}]}}}'}}",
		config().ClassDefaultsName(class), model.SettingsAnnotation, of.Hash(), model.SettingsChangedAnnotation, minute,
		class, model.OwnerLabel, config().OwnerValue(model.SideGuest), of.HTTP)
}

// TestTheLastSettingsAreThoseOfTheLastChange checks which of hypergate's defaults count: those of the served classes,
// with hypergate's label and name.
func TestTheLastSettingsAreThoseOfTheLastChange(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theCRDs, crd(classCRD, ""))
		api.Put(theClasses, class("a", config().ControllerName, ""), class("b", config().ControllerName, ""), class("c", "x.io/other", ""))
		api.Put(theConfigMaps)
	})
	last := func() model.LastSettings { return f.observed().LastSettings }
	f.Expect(last()).To(gomega.BeZero())
	of := func(host string, minute int) model.LastSettings {
		proxy := model.Proxy{HTTP: "http://" + host}
		return model.LastSettings{
			Exist: true, Hash: proxy.Hash(), Proxy: proxy, Readable: true, Changed: time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC),
		}
	}
	unlabelled := strings.ReplaceAll(ownDefaults("a", "unlabelled", 9), model.OwnerLabel, "other")
	renamed := strings.ReplaceAll(ownDefaults("a", "renamed", 9), config().ClassDefaultsName("a"), "renamed")
	for _, step := range []struct {
		maps []string
		want model.LastSettings
	}{
		{[]string{ownDefaults("a", "x", 1)}, of("x", 1)},
		{[]string{ownDefaults("a", "x", 1), ownDefaults("b", "y", 2)}, of("y", 2)},
		{[]string{ownDefaults("a", "x", 3), ownDefaults("b", "y", 2)}, of("x", 3)},
		{[]string{ownDefaults("b", "y", 4), ownDefaults("c", "z", 9), unlabelled}, of("y", 4)},
		{[]string{renamed}, model.LastSettings{}},
	} {
		f.api.Put(theConfigMaps, step.maps...)
		f.Eventually(last).Should(gomega.Equal(step.want))
	}
}

// TestTheTemplatesOfOwnDefaults checks what hypergate's defaults of each class have for pods, and that a change of it
// by another client is noticed. Other classes, and ConfigMaps of others, do not count.
func TestTheTemplatesOfOwnDefaults(t *testing.T) {
	unlabelled := strings.ReplaceAll(ownDefaults("b", "unlabelled", 9), model.OwnerLabel, "other")
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theCRDs, crd(classCRD, ""))
		api.Put(theClasses, class("a", config().ControllerName, ""), class("b", config().ControllerName, ""), class("c", "x.io/other", ""))
		api.Put(theConfigMaps, ownDefaults("a", "x", 1), ownDefaults("c", "y", 1), unlabelled)
	})
	templates := func() map[string]string { return f.observed().AppliedTemplates }
	of := func(host string) string {
		return model.TemplateOf(map[string]string{"deployment": "spec: {template: {spec: {containers: [{name: istio-proxy, " +
			"env: [{name: HTTP_PROXY, value: \"http://" + host + "\"}]}]}}}"})
	}
	f.Expect(templates()).To(gomega.Equal(map[string]string{"a": of("x")}))
	for len(f.notified) > 0 {
		<-f.notified
	}
	f.api.Put(theConfigMaps, ownDefaults("a", "z", 1))
	f.Eventually(f.notified).Should(gomega.Receive())
	f.Eventually(templates).Should(gomega.Equal(map[string]string{"a": of("z")}))
	f.api.Put(theConfigMaps)
	f.Eventually(templates).Should(gomega.BeEmpty())
}

// TestTheGuestIsNotKnownWithoutTheDefaults checks that the guest is known once its defaults are: a new process uses no
// settings before it knows when the last ones were used. If hypergate is not allowed to read them, nothing waits.
func TestTheGuestIsNotKnownWithoutTheDefaults(t *testing.T) {
	unavailable := apierrors.NewServiceUnavailable("not now")
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theCRDs)
		api.Fail(theConfigMaps, unavailable)
	})
	missing := func() []string {
		_, err := f.guest.Observe()
		unknown, _ := errors.AsType[guest.NotSyncedError](err)
		return unknown.Missing
	}
	f.Eventually(missing).Should(gomega.ContainElement("configmaps"))
	f.api.Fail(theConfigMaps, forbidden("configmaps"))
	f.Eventually(missing).Should(gomega.BeEmpty())
	f.api.Fail(theConfigMaps, unavailable)
	f.Eventually(missing).Should(gomega.ContainElement("configmaps"))
	f.api.Put(theConfigMaps)
	f.api.Fail(theConfigMaps, nil)
	f.Eventually(missing).Should(gomega.BeEmpty())
}
