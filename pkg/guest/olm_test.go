package guest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/test/fakeapi"
)

const (
	meshLabel    = "operators.coreos.com/mesh.operators"
	labelledRule = ", labels: {" + meshLabel + ": ''}"
)

// theOLM returns the collection of a kind of OLM.
func theOLM(resource, kind string) fakeapi.Collection {
	return fakeapi.Collection{
		Path: "/apis/operators.coreos.com/v1alpha1/" + resource, APIVersion: "operators.coreos.com/v1alpha1", Kind: kind,
	}
}

var (
	theSubscriptions = theOLM("subscriptions", "Subscription")
	thePlans         = theOLM("installplans", "InstallPlan")
	theCSVs          = theOLM("clusterserviceversions", "ClusterServiceVersion")
	olmCRDs          = []string{
		crd("subscriptions.operators.coreos.com", ""), crd("installplans.operators.coreos.com", ""),
		crd("clusterserviceversions.operators.coreos.com", ""),
	}
)

func olmObject(namespace, name, labels string) string {
	return fmt.Sprintf("{metadata: {namespace: %s, name: %s, labels: {%s}}}", namespace, name, labels)
}

// TestOperatorOfAnOLMLabel checks that an OLM object with the package's label is an owner. If none of the three
// kinds has one, there is no owner.
func TestOperatorOfAnOLMLabel(t *testing.T) {
	const label = meshLabel + ": ''"
	for name, tc := range map[string]struct {
		prepare func(*fakeapi.Server)
		want    string
	}{
		"OLM is not installed": {func(api *fakeapi.Server) { api.Put(theCRDs, crd(ruleCRD, labelledRule)) }, "OLM (gone): mesh.operators"},
		"nothing":              {func(*fakeapi.Server) {}, "OLM (gone): mesh.operators"},
		"a Subscription": {func(api *fakeapi.Server) {
			api.Put(theSubscriptions, olmObject("operators", "mesh-sub", label), olmObject("operators", "another", ""))
			api.Put(theCSVs, olmObject("operators", "mesh.v1", label))
		}, "OLM: Subscription mesh-sub in operators"},
		"an InstallPlan": {func(api *fakeapi.Server) {
			api.Put(thePlans, olmObject("operators", "install-x", label))
		}, "OLM: InstallPlan install-x in operators"},
		"two ClusterServiceVersions": {func(api *fakeapi.Server) {
			api.Put(theCSVs, olmObject("operators", "mesh.v2", label), olmObject("operators", "mesh.v1", label))
		}, "OLM: ClusterServiceVersion mesh.v1 in operators"},
		"a copied ClusterServiceVersion": {func(api *fakeapi.Server) {
			api.Put(theCSVs, olmObject("elsewhere", "mesh.v1", label+", olm.copiedFrom: operators"))
		}, "OLM (gone): mesh.operators"},
		"another package's": {
			func(api *fakeapi.Server) {
				api.Put(theSubscriptions, olmObject("operators", "x", "operators.coreos.com/x.operators: ''"))
			},
			"OLM (gone): mesh.operators",
		},
		"one kind cannot be listed": {
			func(api *fakeapi.Server) { api.Fail(thePlans, forbidden("installplans.operators.coreos.com")) },
			"unknown: whether OLM's mesh.operators is installed: not allowed to list installplans.operators.coreos.com (RBAC)",
		},
		"one kind cannot be listed, another shows an owner": {func(api *fakeapi.Server) {
			api.Fail(theSubscriptions, forbidden("subscriptions.operators.coreos.com"))
			api.Put(theCSVs, olmObject("operators", "mesh.v1", label))
		}, "OLM: ClusterServiceVersion mesh.v1 in operators"},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, func(api *fakeapi.Server) {
				api.Put(theNamespaces)
				api.Put(theCRDs, append(olmCRDs, crd(ruleCRD, labelledRule))...)
				for _, c := range []fakeapi.Collection{theSubscriptions, thePlans, theCSVs} {
					api.Put(c)
				}
				tc.prepare(api)
			})
			f.Eventually(func() string { return f.fact(ruleCRD).Owner.String() }).Should(gomega.Equal(tc.want))
		})
	}
}

// TestOLMLookupsFollowObjects checks that the lookups follow labels, CRDs and objects.
func TestOLMLookupsFollowObjects(t *testing.T) {
	const label = meshLabel + ": ''"
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theCRDs, append(olmCRDs, crd(ruleCRD, ""))...)
		api.Put(thePlans)
		api.Put(theCSVs)
		api.Put(theSubscriptions, olmObject("operators", "mesh-sub", label))
	})
	owner := func() string { return f.fact(ruleCRD).Owner.String() }
	f.Expect(owner()).To(gomega.Equal("third party"))
	f.quiet()
	f.Expect(f.api.Requests(theSubscriptions)).To(gomega.BeEmpty(), "without a label nothing is asked of OLM")

	f.api.Put(theCRDs, append(olmCRDs, crd(ruleCRD, labelledRule))...)
	f.Eventually(owner).Should(gomega.Equal("OLM: Subscription mesh-sub in operators"))
	for _, c := range []fakeapi.Collection{theSubscriptions, thePlans, theCSVs} {
		for _, r := range f.api.Requests(c) {
			f.Expect(r).To(gomega.ContainSubstring("labelSelector=operators.coreos.com%2Fmesh.operators"),
				"nothing else of OLM's is looked at")
		}
	}
	f.api.Put(theSubscriptions)
	f.Eventually(owner).Should(gomega.Equal("OLM (gone): mesh.operators"))
	t.Log("while a kind cannot be listed, an earlier empty list does not count")
	f.api.Fail(theCSVs, forbidden("clusterserviceversions.operators.coreos.com"))
	f.Eventually(owner).Should(gomega.HavePrefix("unknown: "))
	f.api.Fail(theCSVs, nil)
	f.Eventually(owner).Should(gomega.Equal("OLM (gone): mesh.operators"))

	t.Log("without the label all three watches end")
	f.api.Put(theCRDs, append(olmCRDs, crd(ruleCRD, ""))...)
	f.Eventually(owner).Should(gomega.Equal("third party"))
	f.quiet()
	before := len(f.api.Requests(theSubscriptions))
	f.api.Put(theSubscriptions, olmObject("operators", "mesh-sub", label))
	f.quiet()
	f.Expect(f.api.Requests(theSubscriptions)).To(gomega.HaveLen(before))
}

// TestOLMLookupsAreLimited checks the limit of the number of packages. The guest controls the labels, and each
// package costs three watches.
func TestOLMLookupsAreLimited(t *testing.T) {
	var labels []string
	for i := range 20 {
		labels = append(labels, fmt.Sprintf("operators.coreos.com/p%02d.operators: ''", i))
	}
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theCRDs, append(olmCRDs, crd(ruleCRD, ", labels: {"+strings.Join(labels, ", ")+"}"))...)
		for _, c := range []fakeapi.Collection{theSubscriptions, thePlans, theCSVs} {
			api.Put(c)
		}
	})
	f.observed()
	f.quiet()
	f.Expect(f.api.Requests(theSubscriptions)).To(gomega.HaveLen(8))
	f.Expect(f.fact(ruleCRD).Owner.Kind).To(gomega.Equal(crds.Unknown))
}
