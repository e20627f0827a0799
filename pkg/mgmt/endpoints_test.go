package mgmt_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/test/fakeapi"
)

var (
	theServices = fakeapi.Collection{Path: "/api/v1/namespaces/clusters-guest1/services", APIVersion: "v1", Kind: "Service"}
	theRoutes   = fakeapi.Collection{
		Path: "/apis/route.openshift.io/v1/namespaces/clusters-guest1/routes", APIVersion: "route.openshift.io/v1",
		Kind: "Route",
	}
)

// publishing starts a management cluster on which istiod is published with the given strategy.
func publishing(t *testing.T, way desired.PublishStrategy, prepare func(*fakeapi.Server)) *fixture {
	t.Helper()
	cfg := config()
	cfg.Publish.Strategy = way
	return startWith(t, cfg, prepare)
}

const (
	ourRoute = "{metadata: {namespace: clusters-guest1, name: xds-openshift-gateway, uid: r1, labels: " +
		"{gateway.hypergate.dev/owner: openshift-gateway.management}}"
	theirRoute = "{metadata: {namespace: clusters-guest1, name: istiod}, spec: {host: istiod.apps.guest1.hypershift.local}"
)

// TestWhatTheClusterHandsOut checks the observed port and address of the Service that publishes istiod.
func TestWhatTheClusterHandsOut(t *testing.T) {
	const service = "{metadata: {namespace: clusters-guest1, name: xds-openshift-gateway}, spec: {type: "
	for name, tc := range map[string]struct {
		way     desired.PublishStrategy
		service string
		want    desired.ObservedEndpoints
	}{
		"a port": {
			desired.PublishNodePort, service + "NodePort, ports: [{port: 15012, nodePort: 31512}]}}",
			desired.ObservedEndpoints{NodePort: 31512},
		},
		"none yet": {
			desired.PublishNodePort, service + "ClusterIP, ports: [{port: 15012}]}}", desired.ObservedEndpoints{},
		},
		"an address": {
			desired.PublishLoadBalancer,
			service + "LoadBalancer, ports: [{port: 15012, nodePort: 31512}]}, status: {loadBalancer: {ingress: [{ip: 192.0.2.7}]}}}",
			desired.ObservedEndpoints{LoadBalancer: "192.0.2.7"},
		},
		"a name": {
			desired.PublishLoadBalancer,
			service + "LoadBalancer, ports: [{port: 15012}]}, status: {loadBalancer: {ingress: [{hostname: lb.example.com}]}}}",
			desired.ObservedEndpoints{LoadBalancer: "lb.example.com"},
		},
		"no address yet": {
			desired.PublishLoadBalancer, service + "LoadBalancer, ports: [{port: 15012, nodePort: 31512}]}}",
			desired.ObservedEndpoints{},
		},
		"what is left of another type": {
			desired.PublishNodePort,
			service + "ClusterIP, ports: [{port: 15012, nodePort: 0}]}, status: {loadBalancer: {ingress: [{ip: 192.0.2.7}]}}}",
			desired.ObservedEndpoints{},
		},
		"nothing, while others publish": {
			desired.PublishAddress, service + "NodePort, ports: [{port: 15012, nodePort: 31512}]}}",
			desired.ObservedEndpoints{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := publishing(t, tc.way, func(api *fakeapi.Server) { api.Put(theServices, tc.service) })
			if diff := cmp.Diff(tc.want, f.observed().Endpoints); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestRoutes checks that the control plane operator's Route takes precedence over hypergate's Route. It also checks
// that a router's refusal of hypergate's Route is observed.
func TestRoutes(t *testing.T) {
	f := publishing(t, desired.PublishRoute, func(api *fakeapi.Server) { api.Put(theRoutes) })
	is := func(want desired.ObservedEndpoints) {
		t.Helper()
		f.Eventually(func() desired.ObservedEndpoints { return f.observed().Endpoints }).Should(gomega.Equal(want))
	}
	is(desired.ObservedEndpoints{})

	refused := ", spec: {host: x.example.com}, status: {ingress: [{conditions: [{type: Admitted, status: 'False', " +
		"reason: HostAlreadyClaimed}]}]}}"
	f.api.Put(theRoutes, ourRoute+refused)
	is(desired.ObservedEndpoints{Refused: desired.RefusedRoute{Host: "x.example.com", Reason: "HostAlreadyClaimed"}})

	t.Log("one of two routers serves it")
	f.api.Put(
		theRoutes,
		ourRoute+strings.Replace(refused, "ingress: [", "ingress: [{host: x, conditions: [{type: Admitted, status: 'True'}]}, ", 1),
	)
	is(desired.ObservedEndpoints{})

	f.api.Put(theRoutes, ourRoute+"}", theirRoute+"}")
	is(desired.ObservedEndpoints{ControlPlaneRoute: desired.FoundRoute{Exists: true, Host: "istiod.apps.guest1.hypershift.local"}})

	t.Log("the host in the status takes precedence over the host in the spec")
	f.api.Put(theRoutes, theirRoute+", status: {ingress: [{host: istiod-2.example.com, conditions: [{type: Admitted, status: 'True'}]}]}}")
	is(desired.ObservedEndpoints{ControlPlaneRoute: desired.FoundRoute{Exists: true, Host: "istiod-2.example.com"}})

	f.api.Put(
		theRoutes,
		strings.Replace(theirRoute, "name: istiod", "name: istiod, deletionTimestamp: 2026-11-21T10:00:00Z, finalizers: [x]", 1)+"}",
	)
	is(desired.ObservedEndpoints{})
}

// TestNoRoutesOnThisCluster checks that a cluster without Routes is reported as a problem. hypergate does not wait
// for Routes.
func TestNoRoutesOnThisCluster(t *testing.T) {
	f := publishing(t, desired.PublishRoute, func(*fakeapi.Server) {})
	f.Eventually(func() string { return f.observed().Endpoints.Problem }).Should(gomega.And(
		gomega.ContainSubstring("serves no Routes"), gomega.ContainSubstring("--publish"),
	))
}

// TestAnotherWayThanBefore checks that Prune deletes hypergate's Route of an earlier strategy before its Service. A
// Route with another owner stays.
func TestAnotherWayThanBefore(t *testing.T) {
	for name, tc := range map[string]struct {
		route   string
		deleted bool
	}{
		"ours":            {ourRoute + "}", true},
		"somebody else's": {strings.Replace(ourRoute, "openshift-gateway.management", "other.management", 1) + "}", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := publishing(t, desired.PublishNodePort, func(api *fakeapi.Server) { api.Put(theServices); api.Put(theRoutes, tc.route) })
			f.observed()
			asked := func(method string) bool {
				return slices.ContainsFunc(f.api.Requests(theRoutes), func(r string) bool { return strings.HasPrefix(r, method+" ") })
			}
			f.Expect(asked(http.MethodGet)).To(gomega.BeFalse(), "looking on writes nothing, and asks for nothing")
			f.mgmt.Prune(f.Context(), nil)
			f.Expect(asked(http.MethodGet)).To(gomega.BeTrue())
			f.Expect(asked(http.MethodDelete)).To(gomega.Equal(tc.deleted))
		})
	}
}
