package guest_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fakeapi"
	"github.com/hypergate/hypergate/test/hang"
)

var (
	theCRDs = fakeapi.Collection{
		Path:       "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition",
	}
	theNamespaces = fakeapi.Collection{Path: "/api/v1/namespaces", APIVersion: "v1", Kind: "Namespace"}
	theLeases     = fakeapi.Collection{
		Path:       "/apis/coordination.k8s.io/v1/namespaces/openshift-ingress/leases",
		APIVersion: "coordination.k8s.io/v1", Kind: "Lease",
	}
	theIstiods = fakeapi.Collection{
		Path: "/apis/apps/v1/namespaces/openshift-ingress/deployments", APIVersion: "apps/v1", Kind: "Deployment",
	}
	theClasses = fakeapi.Collection{
		Path: "/apis/gateway.networking.k8s.io/v1/gatewayclasses", APIVersion: "gateway.networking.k8s.io/v1", Kind: "GatewayClass",
	}
)

const classCRD = "gatewayclasses.gateway.networking.k8s.io"

func config() model.Config {
	return model.Config{
		Topology: model.TopologyHosted, MgmtNamespace: "clusters-guest1",
		GuestNamespace: "openshift-ingress", Revision: "openshift-gateway",
		ControllerName: "openshift.io/gateway-controller/v1", IstioResources: model.LayeredProductResources(),
	}
}

// fixture is a guest with a fake API server.
type fixture struct {
	*testing.T
	gomega.Gomega
	api      *fakeapi.Server
	guest    *guest.Cluster
	notified chan struct{}
}

// start starts the watches of a guest that prepare has set up. The fake API server does not serve the kinds that only
// package apply watches.
func start(t *testing.T, prepare func(*fakeapi.Server)) *fixture {
	t.Helper()
	return startWith(t, prepare, nil)
}

// startWith is like start, with a transport between the guest and its API server.
func startWith(t *testing.T, prepare func(*fakeapi.Server), between func(http.RoundTripper) http.RoundTripper) *fixture {
	t.Helper()
	return startAs(t, config(), prepare, between)
}

// startAs is like startWith, with another configuration.
func startAs(
	t *testing.T, cfg model.Config, prepare func(*fakeapi.Server), between func(http.RoundTripper) http.RoundTripper,
) *fixture {
	t.Helper()
	f := &fixture{T: t, Gomega: hang.Gomega(t), api: fakeapi.New(t), notified: make(chan struct{}, 1000)}
	f.api.Put(theLeases)
	f.api.Put(theIstiods)
	prepare(f.api)
	restConfig := f.api.Config()
	if between != nil {
		restConfig.Wrap(between)
	}
	conn, err := guestconn.Fixed(restConfig)
	f.Expect(err).NotTo(gomega.HaveOccurred())
	f.guest, err = guest.New(conn, cfg, embedded(t))
	f.Expect(err).NotTo(gomega.HaveOccurred())
	f.Expect(f.guest.Start(klog.NewContext(t.Context(), logr.Discard()), func() { f.notified <- struct{}{} })).To(gomega.Succeed())
	return f
}

// observed waits until the guest is known, and returns the observation.
func (f *fixture) observed() model.GuestObservation {
	f.Helper()
	var seen model.GuestObservation
	f.Eventually(func() (err error) {
		seen, err = f.guest.Observe()
		return err
	}).Should(gomega.Succeed())
	return seen
}

func crd(name, more string) string {
	return fmt.Sprintf("{metadata: {name: %s, uid: u-%s%s}}", name, name, more)
}

func class(name, controller, more string) string {
	return fmt.Sprintf("{metadata: {name: %s, uid: u-%s, generation: 3%s}, spec: {controllerName: %s}}", name, name, more, controller)
}

// forbidden returns the error of RBAC for a list of a resource, which is given with its group.
func forbidden(resource string) *apierrors.StatusError {
	gr := schema.ParseGroupResource(resource)
	return apierrors.NewForbidden(gr, "", fmt.Errorf("User %q cannot list resource %q in API group %q at the cluster scope",
		"hypergate", gr.Resource, gr.Group))
}

func TestAnEmptyGuest(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theCRDs)
		api.Put(theNamespaces)
	})
	seen := f.observed()
	f.Expect(seen.API.Server).To(gomega.HavePrefix("https://"))
	f.Expect(seen.API.CABundle).NotTo(gomega.BeEmpty())
	seen.API = model.GuestAPI{}
	if diff := cmp.Diff(model.GuestObservation{CRDs: map[string]crds.Fact{}}, seen); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	f.Expect(f.guest.Check()).To(gomega.Succeed())
	f.Expect(f.api.Requests(theClasses)).To(gomega.BeEmpty(), "GatewayClasses are not asked for before their CRD is there")
}

func TestOnlyOurClasses(t *testing.T) {
	const ours, leaving = "openshift.io/gateway-controller/v1", ", deletionTimestamp: 2026-11-21T12:00:00Z, finalizers: [x.example.com/y]"
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theCRDs, crd(classCRD, ""))
		api.Put(theNamespaces, "{metadata: {name: openshift-ingress}}")
		api.Put(theClasses, class("z", ours, ""), class("foreign", "example.com/other", ""),
			class("a", ours, ""), class("leaving", ours, leaving))
	})
	seen := f.observed()
	// A class with a finalizer is in use until it is gone.
	want := []model.GatewayClass{
		{Name: "a", UID: "u-a", Generation: 3}, {Name: "leaving", UID: "u-leaving", Generation: 3}, {Name: "z", UID: "u-z", Generation: 3},
	}
	if diff := cmp.Diff(want, seen.Classes); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if seen.Namespace != model.Present {
		t.Error("the namespace exists, but is not observed")
	}
}

// TestParametersOfAClass checks that a class with a spec.parametersRef is known as such, also if it gets one later.
func TestParametersOfAClass(t *testing.T) {
	ours := config().ControllerName
	with := strings.TrimSuffix(class("with", ours, ""), "}}") + `, parametersRef: {group: "", kind: ConfigMap, name: some}}}`
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theCRDs, crd(classCRD, ""))
		api.Put(theNamespaces)
		api.Put(theClasses, with, class("without", ours, ""))
	})
	want := []model.GatewayClass{
		{Name: "with", UID: "u-with", Generation: 3, Parameters: true}, {Name: "without", UID: "u-without", Generation: 3},
	}
	f.Expect(f.observed().Classes).To(gomega.Equal(want))
	f.api.Put(theClasses, class("with", ours, ""), strings.ReplaceAll(with, "with", "without"))
	want[0].Parameters, want[1].Parameters = false, true
	f.Eventually(func() []model.GatewayClass { return f.observed().Classes }).Should(gomega.Equal(want))
}

// TestAFailedListIsNotEmpty checks that a failed list is an error and not an empty list. hypergate uninstalls only
// if a complete list is empty.
func TestAFailedListIsNotEmpty(t *testing.T) {
	for name, tc := range map[string]struct {
		collection fakeapi.Collection
		resource   string
	}{
		"CRDs":          {theCRDs, "customresourcedefinitions"},
		"the namespace": {theNamespaces, "namespaces"},
		"classes":       {theClasses, "gatewayclasses"},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, func(api *fakeapi.Server) {
				api.Put(theCRDs, crd(classCRD, ""))
				api.Put(theNamespaces)
				api.Put(theClasses)
				api.Fail(tc.collection, forbidden(tc.resource))
			})
			f.Eventually(func() error {
				_, err := f.guest.Observe()
				return err
			}).Should(gomega.MatchError(gomega.And(
				gomega.ContainSubstring("(waiting for "+tc.resource+")"), gomega.ContainSubstring("is forbidden"))))
			_, err := f.guest.Observe()
			unknown, _ := errors.AsType[guest.NotSyncedError](err)
			f.Expect(unknown.Missing).To(gomega.Equal([]string{tc.resource}))
			f.Expect(f.guest.Check()).To(gomega.MatchError(gomega.And(
				gomega.ContainSubstring("(waiting for "+tc.resource+")"), gomega.ContainSubstring("is forbidden"))))

			f.api.Fail(tc.collection, nil)
			f.observed()
			f.Eventually(f.guest.Check).Should(gomega.Succeed())
		})
	}
}

func TestAnOutageChangesNothing(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theCRDs, crd(classCRD, ""))
		api.Put(theNamespaces)
		api.Put(theClasses, class("a", config().ControllerName, ""))
	})
	f.eventuallyFact(classCRD, crds.Unreadable)
	before := f.observed()
	f.api.Fail(theClasses, forbidden("gatewayclasses"))
	f.Eventually(f.guest.Check).Should(gomega.MatchError(gomega.ContainSubstring("watching gatewayclasses")), "the health check fails")
	if diff := cmp.Diff(before, f.observed()); diff != "" {
		t.Errorf("-before +during:\n%s", diff)
	}
}

func TestClassesAreSeenWhenTheirCRDComes(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theCRDs)
		api.Put(theNamespaces)
	})
	f.observed()
	f.api.Put(theClasses, class("a", config().ControllerName, ""))
	f.api.Put(theCRDs, crd(classCRD, ""))
	f.Eventually(func() []model.GatewayClass { return f.observed().Classes }).Should(gomega.HaveLen(1))
}

func TestHasNamespace(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces, "{metadata: {name: kube-system, uid: 5f0b}}", "{metadata: {name: b, uid: 77aa}}")
	})
	for uid, want := range map[types.UID]bool{"77aa": true, "77ab": false} {
		got, err := f.guest.HasNamespace(t.Context(), uid)
		f.Expect(err).NotTo(gomega.HaveOccurred())
		f.Expect(got).To(gomega.Equal(want))
	}
	f.api.Fail(theNamespaces, forbidden("namespaces"))
	_, err := f.guest.HasNamespace(t.Context(), "77ac")
	f.Expect(err).To(gomega.MatchError(gomega.ContainSubstring("reading namespaces in the guest")), "could not ask is not none")
}

// TestAGuestThatHidesKubeSystemIsNotIdentified checks that such a guest is an error that names the namespace, until the
// guest shows it.
func TestAGuestThatHidesKubeSystemIsNotIdentified(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) { api.Put(theNamespaces, "{metadata: {name: a, uid: 5f0b}}") })
	_, err := f.guest.HasNamespace(t.Context(), "77aa")
	f.Expect(err).To(gomega.MatchError(guestconn.ErrNoIdentity))
	asked := func() (n int) { // without the requests of the watches, which start meanwhile
		for _, request := range f.api.Requests(theNamespaces) {
			if strings.HasPrefix(request, "GET "+theNamespaces.Path+"?") && !strings.Contains(request, "fieldSelector") {
				n++
			}
		}
		return n
	}
	before := asked()
	_, err = f.guest.HasNamespace(t.Context(), "77aa")
	f.Expect(err).To(gomega.MatchError(guestconn.ErrNoIdentity))
	f.Expect(before).To(gomega.BeNumerically(">", 0))
	f.Expect(asked()).To(gomega.Equal(before), "it is not asked again at once")
	f.api.Put(theNamespaces, "{metadata: {name: kube-system, uid: 61c9}}")
	f.Eventually(func() error {
		_, err := f.guest.HasNamespace(t.Context(), "77aa")
		return err
	}).Should(gomega.Succeed())
}

// TestAnotherGuestBehindTheSameKubeconfigIsAnError checks that a guest that shows another identity than before is not
// used, even if the kubeconfig is the same. It can be the guest of another control plane.
func TestAnotherGuestBehindTheSameKubeconfigIsAnError(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) { api.Put(theNamespaces, "{metadata: {name: kube-system, uid: 5f0b}}") })
	_, err := f.guest.HasNamespace(t.Context(), "77aa")
	f.Expect(err).NotTo(gomega.HaveOccurred())
	f.api.Put(theNamespaces, "{metadata: {name: kube-system, uid: 61c9}}")
	f.Eventually(func() error {
		_, err := f.guest.HasNamespace(t.Context(), "77aa")
		return err
	}).Should(gomega.MatchError(guestconn.ErrOtherGuest))
}

func TestAGuestWithoutACAIsRefused(t *testing.T) {
	restConfig := fakeapi.New(t).Config()
	restConfig.CAData, restConfig.Insecure = nil, true
	if _, err := guestconn.Fixed(restConfig); err == nil {
		t.Error("a config without a CA was accepted: istiod could not verify the guest's API server")
	}
}
