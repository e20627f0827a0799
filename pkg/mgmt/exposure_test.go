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
	theRoutes   = fakeapi.Collection{Path: "/apis/route.openshift.io/v1/namespaces/clusters-guest1/routes", APIVersion: "route.openshift.io/v1", Kind: "Route"}
)

// publishing is a management cluster on which istiod is published in a way.
func publishing(t *testing.T, way desired.Way, prepare func(*fakeapi.Server)) *fixture {
	t.Helper()
	cfg := config()
	cfg.Publish.Way = way
	return startWith(t, cfg, prepare)
}

const (
	ourRoute   = "{metadata: {namespace: clusters-guest1, name: xds-openshift-gateway, uid: r1, labels: {gateway.hypergate.dev/owner: openshift-gateway.management}}"
	theirRoute = "{metadata: {namespace: clusters-guest1, name: istiod}, spec: {host: istiod.apps.guest1.hypershift.local}"
)

// TestWhatTheClusterHandsOut to the Service that publishes istiod.
func TestWhatTheClusterHandsOut(t *testing.T) {
	const service = "{metadata: {namespace: clusters-guest1, name: xds-openshift-gateway}, spec: {type: "
	for name, tc := range map[string]struct {
		way     desired.Way
		service string
		want    desired.Exposure
	}{
		"a port":                        {desired.WayNodePort, service + "NodePort, ports: [{port: 15012, nodePort: 31512}]}}", desired.Exposure{NodePort: 31512}},
		"none yet":                      {desired.WayNodePort, service + "ClusterIP, ports: [{port: 15012}]}}", desired.Exposure{}},
		"an address":                    {desired.WayLoadBalancer, service + "LoadBalancer, ports: [{port: 15012, nodePort: 31512}]}, status: {loadBalancer: {ingress: [{ip: 192.0.2.7}]}}}", desired.Exposure{LoadBalancer: "192.0.2.7"}},
		"a name":                        {desired.WayLoadBalancer, service + "LoadBalancer, ports: [{port: 15012}]}, status: {loadBalancer: {ingress: [{hostname: lb.example.com}]}}}", desired.Exposure{LoadBalancer: "lb.example.com"}},
		"no address yet":                {desired.WayLoadBalancer, service + "LoadBalancer, ports: [{port: 15012, nodePort: 31512}]}}", desired.Exposure{}},
		"what is left of another type":  {desired.WayNodePort, service + "ClusterIP, ports: [{port: 15012, nodePort: 0}]}, status: {loadBalancer: {ingress: [{ip: 192.0.2.7}]}}}", desired.Exposure{}},
		"nothing, while others publish": {desired.WayAddress, service + "NodePort, ports: [{port: 15012, nodePort: 31512}]}}", desired.Exposure{}},
	} {
		t.Run(name, func(t *testing.T) {
			f := publishing(t, tc.way, func(api *fakeapi.Server) { api.Put(theServices, tc.service) })
			if diff := cmp.Diff(tc.want, f.observed().Exposure); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestRoutes: the control plane operator's goes before ours, and a router's answer to ours is heard.
func TestRoutes(t *testing.T) {
	f := publishing(t, desired.WayRoute, func(api *fakeapi.Server) { api.Put(theRoutes) })
	is := func(want desired.Exposure) {
		t.Helper()
		f.Eventually(func() desired.Exposure { return f.observed().Exposure }).Should(gomega.Equal(want))
	}
	is(desired.Exposure{})

	refused := ", spec: {host: x.example.com}, status: {ingress: [{conditions: [{type: Admitted, status: 'False', reason: HostAlreadyClaimed}]}]}}"
	f.api.Put(theRoutes, ourRoute+refused)
	is(desired.Exposure{Refused: desired.RefusedRoute{Host: "x.example.com", Reason: "HostAlreadyClaimed"}})

	t.Log("one of two routers serves it")
	f.api.Put(theRoutes, ourRoute+strings.Replace(refused, "ingress: [", "ingress: [{host: x, conditions: [{type: Admitted, status: 'True'}]}, ", 1))
	is(desired.Exposure{})

	f.api.Put(theRoutes, ourRoute+"}", theirRoute+"}")
	is(desired.Exposure{ControlPlaneRoute: desired.FoundRoute{Exists: true, Host: "istiod.apps.guest1.hypershift.local"}})

	t.Log("the router's word goes before what was asked of it")
	f.api.Put(theRoutes, theirRoute+", status: {ingress: [{host: istiod-2.example.com, conditions: [{type: Admitted, status: 'True'}]}]}}")
	is(desired.Exposure{ControlPlaneRoute: desired.FoundRoute{Exists: true, Host: "istiod-2.example.com"}})

	f.api.Put(theRoutes, strings.Replace(theirRoute, "name: istiod", "name: istiod, deletionTimestamp: 2026-11-21T10:00:00Z, finalizers: [x]", 1)+"}")
	is(desired.Exposure{})
}

// TestNoRoutesOnThisCluster: that is told, and not waited for.
func TestNoRoutesOnThisCluster(t *testing.T) {
	f := publishing(t, desired.WayRoute, func(*fakeapi.Server) {})
	f.Eventually(func() string { return f.observed().Exposure.Problem }).Should(gomega.And(gomega.ContainSubstring("serves no Routes"), gomega.ContainSubstring("--publish")))
}

// TestAnotherWayThanBefore: a Route of ours is deleted before its Service may go; anybody else's stays.
func TestAnotherWayThanBefore(t *testing.T) {
	for name, tc := range map[string]struct {
		route   string
		deleted bool
	}{
		"ours":            {ourRoute + "}", true},
		"somebody else's": {strings.Replace(ourRoute, "openshift-gateway.management", "other.management", 1) + "}", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := publishing(t, desired.WayNodePort, func(api *fakeapi.Server) { api.Put(theServices); api.Put(theRoutes, tc.route) })
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
