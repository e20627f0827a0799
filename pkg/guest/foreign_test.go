package guest_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
	"github.com/hypergate/hypergate/test/fakeapi"
)

const istioCRD = "istios.sailoperator.io"

var theIstios = fakeapi.Collection{Path: "/apis/sailoperator.io/v1/istios", APIVersion: "sailoperator.io/v1", Kind: "Istio"}

func emptyGuest(api *fakeapi.Server) {
	api.Put(theCRDs, crd(classCRD, ""))
	api.Put(theNamespaces)
	api.Put(theClasses)
}

func TestLeaseHoldersAreRead(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		emptyGuest(api)
		api.Put(theLeases,
			`{metadata: {name: hypergate-claim-revision-openshift-gateway, namespace: openshift-ingress, uid: u2, `+
				`labels: {gateway.hypergate.dev/claim: ""}}}`,
			`{metadata: {name: hypergate-claim-controller-27e2e0b7, namespace: openshift-ingress, uid: u1, `+
				`creationTimestamp: "2026-01-02T03:04:05Z", labels: {gateway.hypergate.dev/claim: ""}}, spec: {holderIdentity: me}}`,
			`{metadata: {name: istio-gateway-deployment, namespace: openshift-ingress}, spec: {holderIdentity: istiod}}`)
	})
	want := model.ObservedLeases{Held: []model.HeldLease{
		{Name: "hypergate-claim-controller-27e2e0b7", Holder: "me", UID: "u1", Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
		{Name: "hypergate-claim-revision-openshift-gateway", UID: "u2"},
	}}
	if diff := cmp.Diff(want, f.observed().Leases, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	f.api.Put(theLeases)
	f.Eventually(func() []model.HeldLease { return f.observed().Leases.Held }).Should(gomega.BeEmpty())
}

// TestALeaseDeletedBeforeItsCreateResponse covers a Lease that is deleted right after its creation. The watch can show
// the deletion before the API server's answer to the apply arrives. The Lease then does not count as held, and must be
// acquired again.
func TestALeaseDeletedBeforeItsCreateResponse(t *testing.T) {
	const name = "hypergate-claim-revision-openshift-gateway"
	lease := `{metadata: {name: ` + name + `, namespace: openshift-ingress, uid: u1}, spec: {holderIdentity: me}}`
	var f *fixture
	held := func() []model.HeldLease { return f.observed().Leases.Held }
	f = startWith(t, emptyGuest, func(next http.RoundTripper) http.RoundTripper {
		return answering(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodPatch {
				return next.RoundTrip(r)
			}
			f.api.Put(theLeases, lease)
			f.Eventually(held).Should(gomega.HaveLen(1))
			look := r.Clone(r.Context())
			look.Method, look.Body, look.ContentLength, look.URL.RawQuery = http.MethodGet, nil, 0, ""
			response, err := next.RoundTrip(look)
			f.api.Put(theLeases)
			f.Eventually(held).Should(gomega.BeEmpty())
			return response, err
		})
	})
	f.observed()
	f.Expect(f.guest.Acquire(t.Context(), ownership.Lease{Name: name, Purpose: "the revision"}, "me")).To(gomega.Succeed())
	f.Expect(held()).To(gomega.BeEmpty())
}

type answering func(*http.Request) (*http.Response, error)

func (f answering) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestOnlyOwnershipLeasesAreRead checks that a Lease of another name is not read, and that a long holder name is cut.
func TestOnlyOwnershipLeasesAreRead(t *testing.T) {
	const own = "hosted/openshift-gateway/0123456789abcdef"
	long := own + strings.Repeat("x", 1<<20)
	f := start(t, func(api *fakeapi.Server) {
		emptyGuest(api)
		api.Put(theLeases,
			`{metadata: {name: hypergate-claim-other, namespace: openshift-ingress, labels: {gateway.hypergate.dev/claim: ""}}, `+
				`spec: {holderIdentity: me}}`,
			`{metadata: {name: hypergate-claim-revision-openshift-gateway, namespace: openshift-ingress}, `+
				`spec: {holderIdentity: `+long+`}}`)
	})
	held := f.observed().Leases.Held
	f.Expect(held).To(gomega.HaveLen(1))
	length := func(s string) int { return len(s) }
	f.Expect(held[0].Holder).To(gomega.And(
		gomega.HavePrefix(own+"x"), gomega.HaveSuffix("…"), gomega.WithTransform(length, gomega.Equal(128)),
	))
}

func TestForbiddenLeasesAreUnknown(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		emptyGuest(api)
		api.Fail(theLeases, forbidden("leases.coordination.k8s.io"))
	})
	f.Expect(f.observed().Leases.Unknown).To(gomega.MatchError(gomega.ContainSubstring("leases")))
	f.Expect(f.guest.Check()).NotTo(gomega.Succeed())
	f.api.Fail(theLeases, nil)
	f.Eventually(func() error { return f.observed().Leases.Unknown }).Should(gomega.Succeed())
}

func TestForeignInstallationsAreObserved(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		emptyGuest(api)
		api.Put(theClasses,
			class("b", "openshift.io/gateway-controller/v1", ", finalizers: [openshift.io/ingress-operator-sail-finalizer]"),
			class("a", "openshift.io/gateway-controller/v1", ", finalizers: [gateway-exists-finalizer.gateway.networking.k8s.io]"),
			class("foreign", "example.com/other", ", finalizers: [openshift.io/ingress-operator-sail-finalizer]"))
		api.Put(theIstiods,
			`{metadata: {name: istiod-openshift-gateway, namespace: openshift-ingress, `+
				`labels: {gateway.hypergate.dev/owner: openshift-gateway.management}}}`,
			`{metadata: {name: istiod-other, namespace: openshift-ingress}}`)
	})
	want := model.ForeignInstallations{
		Finalized: []string{"b"},
		Istiods:   []model.ForeignDeployment{{Name: "istiod-openshift-gateway", Owner: "openshift-gateway.management"}},
	}
	var seen model.ForeignInstallations
	f.Eventually(func() []string {
		seen = f.observed().Foreign
		return seen.Finalized
	}).ShouldNot(gomega.BeEmpty())
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	f.Expect(f.api.Requests(theIstios)).To(gomega.BeEmpty(), "asked for what is not served")
}

func TestIstioResourcesAreListedWhileServed(t *testing.T) {
	f := start(t, emptyGuest)
	f.Expect(f.observed().Foreign.Istios).To(gomega.BeEmpty())
	f.api.Put(theIstios, "{metadata: {name: openshift-gateway}}", "{metadata: {name: default}}")
	f.api.Put(theCRDs, crd(classCRD, ""), crd(istioCRD, ""))
	f.Eventually(func() []string {
		seen, err := f.guest.Observe() // unknown until the list arrives
		if err != nil {
			return nil
		}
		return seen.Foreign.Istios
	}).Should(gomega.Equal([]string{"default", "openshift-gateway"}))
	f.api.Put(theCRDs, crd(classCRD, ""))
	f.Eventually(func() []string { return f.observed().Foreign.Istios }).Should(gomega.BeEmpty())
}

func TestForbiddenForeignInstallationsAreReported(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		emptyGuest(api)
		api.Put(theCRDs, crd(classCRD, ""), crd(istioCRD, ""))
		api.Fail(theIstiods, forbidden("deployments.apps"))
		api.Fail(theIstios, forbidden("istios.sailoperator.io"))
	})
	f.observed()
	f.Eventually(func() (out []string) {
		for _, p := range f.guest.WatchProblems() {
			out = append(out, p.GVK.Kind+": "+p.Cause.String())
		}
		return out
	}).Should(gomega.ContainElements(
		"Deployment: not allowed to list deployments.apps (RBAC)", "Istio: not allowed to list istios.sailoperator.io (RBAC)",
	))
}

func TestForeignConditionWriters(t *testing.T) {
	entry := func(manager, fields string) string {
		return "{manager: " + manager + ", operation: Update, subresource: status, apiVersion: v1, " +
			"fieldsType: FieldsV1, fieldsV1: " + fields + "}"
	}
	f := start(t, func(api *fakeapi.Server) {
		emptyGuest(api)
		api.Put(theClasses, class("a", "openshift.io/gateway-controller/v1", ", managedFields: ["+
			entry("hypergate", `{"f:status": {"f:conditions": {"k:{\"type\":\"SupportedVersion\"}": {}}}}`)+", "+
			entry("kubectl", `{"f:metadata": {"f:labels": {}}}`)+", "+
			entry("ingress-operator", `{"f:status": {"f:conditions": {".": {}, "k:{\"type\":\"CRDsReady\"}": {"f:status": {}}}}}`)+"]"))
	})
	f.observed()
	f.Eventually(func() map[string]string { return f.guest.ClassStatus("a").Writers }).
		Should(gomega.Equal(map[string]string{"CRDsReady": "ingress-operator"}))
	f.Expect(f.guest.ClassStatus("none").Writers).To(gomega.BeEmpty())
}
