package mgmt_test

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/publish"
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
func publishing(t *testing.T, strategy model.PublishStrategy, prepare func(*fakeapi.Server)) *fixture {
	t.Helper()
	cfg := config()
	cfg.Publish.Strategy = strategy
	return startWith(t, cfg, prepare)
}

const (
	ourRoute = "{metadata: {namespace: clusters-guest1, name: xds-openshift-gateway, uid: r1, labels: " +
		"{gateway.hypergate.dev/owner: openshift-gateway.management}}"
	theirRoute = "{metadata: {namespace: clusters-guest1, name: istiod}, spec: {host: istiod.apps.guest1.hypershift.local}"
)

// TestObservedPortAndAddress checks the observed port and address of the Service that publishes istiod.
func TestObservedPortAndAddress(t *testing.T) {
	const service = "{metadata: {namespace: clusters-guest1, name: xds-openshift-gateway}, spec: {type: "
	for name, tc := range map[string]struct {
		strategy model.PublishStrategy
		service  string
		want     model.ObservedEndpoints
	}{
		"a port": {
			model.PublishNodePort, service + "NodePort, ports: [{port: 15012, nodePort: 31512}]}}",
			model.ObservedEndpoints{NodePort: 31512},
		},
		"none yet": {
			model.PublishNodePort, service + "ClusterIP, ports: [{port: 15012}]}}", model.ObservedEndpoints{},
		},
		"an address": {
			model.PublishLoadBalancer,
			service + "LoadBalancer, ports: [{port: 15012, nodePort: 31512}]}, status: {loadBalancer: {ingress: [{ip: 192.0.2.7}]}}}",
			model.ObservedEndpoints{LoadBalancer: "192.0.2.7"},
		},
		"a name": {
			model.PublishLoadBalancer,
			service + "LoadBalancer, ports: [{port: 15012}]}, status: {loadBalancer: {ingress: [{hostname: lb.example.com}]}}}",
			model.ObservedEndpoints{LoadBalancer: "lb.example.com"},
		},
		"no address yet": {
			model.PublishLoadBalancer, service + "LoadBalancer, ports: [{port: 15012, nodePort: 31512}]}}",
			model.ObservedEndpoints{},
		},
		"what is left of another type": {
			model.PublishNodePort,
			service + "ClusterIP, ports: [{port: 15012, nodePort: 0}]}, status: {loadBalancer: {ingress: [{ip: 192.0.2.7}]}}}",
			model.ObservedEndpoints{},
		},
		"nothing, while others publish": {
			model.PublishAddress, service + "NodePort, ports: [{port: 15012, nodePort: 31512}]}}",
			model.ObservedEndpoints{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := publishing(t, tc.strategy, func(api *fakeapi.Server) { api.Put(theServices, tc.service) })
			if diff := cmp.Diff(tc.want, f.observed().Endpoints); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// observedFields returns the fields of ObservedEndpoints that each strategy needs. A strategy without evidence has
// none.
func observedFields() map[model.PublishStrategy][]string {
	return map[model.PublishStrategy][]string{
		model.PublishAddress:      nil,
		model.PublishRoute:        {"ControlPlaneRoute", "Refused"},
		model.PublishTLSRoute:     {"TLSRouteVersion"},
		model.PublishLoadBalancer: {"LoadBalancer"},
		model.PublishNodePort:     {"NodePort"},
		model.PublishTunnel:       nil,
	}
}

// TestEachEvidenceIsObserved checks that everything that a strategy depends on is watched and observed, and that each
// field of ObservedEndpoints belongs to a strategy.
func TestEachEvidenceIsObserved(t *testing.T) {
	const xds = "{metadata: {namespace: clusters-guest1, name: xds-openshift-gateway}, spec: {type: %s, ports: [{port: 15012, " +
		"nodePort: 31512}]}, status: {loadBalancer: {ingress: [{ip: 192.0.2.7}]}}}"
	types := map[model.PublishStrategy]string{model.PublishLoadBalancer: "LoadBalancer", model.PublishNodePort: "NodePort"}
	unobserved := fieldsOf(model.ObservedEndpoints{}, false)
	for _, strategy := range append(publish.Strategies()[1:], model.PublishAddress) { // without auto
		want, listed := observedFields()[strategy]
		if !listed || (len(want) > 0) != (publish.EvidenceOf(strategy) != publish.EvidenceNone) {
			t.Errorf("%s has evidence %d, and the fields %q in observedFields", strategy, publish.EvidenceOf(strategy), want)
		}
		unobserved = slices.DeleteFunc(unobserved, func(field string) bool { return slices.Contains(want, field) })
		t.Run(string(strategy), func(t *testing.T) {
			f := publishing(t, strategy, func(api *fakeapi.Server) {
				api.Put(theServices, fmt.Sprintf(xds, types[strategy]))
				const refused = ", spec: {host: x.example.com}, status: {ingress: [{conditions: [{type: Admitted, " +
					"status: 'False', reason: HostAlreadyClaimed}]}]}}"
				api.Put(theRoutes, theirRoute+"}", ourRoute+refused)
				api.Put(fakeapi.Collection{Path: "/apis/gateway.networking.k8s.io", APIVersion: "v1", Kind: "APIResourceList"},
					"{metadata: {name: v1}, groupVersion: gateway.networking.k8s.io/v1, resources: [{name: tlsroutes, kind: TLSRoute}]}")
			})
			f.Eventually(func() []string { return fieldsOf(f.observed().Endpoints, true) }).Should(gomega.ConsistOf(want))
		})
	}
	if !slices.Equal(unobserved, []string{"Problem"}) {
		t.Errorf("no strategy has the fields %q in observedFields, want only Problem", unobserved)
	}
}

// fieldsOf returns the names of the fields that have a value, or of those without one.
func fieldsOf(o model.ObservedEndpoints, set bool) []string {
	out := []string{}
	for field, value := range reflect.ValueOf(o).Fields() {
		if value.IsZero() != set {
			out = append(out, field.Name)
		}
	}
	return out
}

// TestRoutes checks that the control plane operator's Route takes precedence over hypergate's Route. It also checks
// that a router's refusal of hypergate's Route is observed.
func TestRoutes(t *testing.T) {
	f := publishing(t, model.PublishRoute, func(api *fakeapi.Server) { api.Put(theRoutes) })
	is := func(want model.ObservedEndpoints) {
		t.Helper()
		f.Eventually(func() model.ObservedEndpoints { return f.observed().Endpoints }).Should(gomega.Equal(want))
	}
	is(model.ObservedEndpoints{})

	refused := ", spec: {host: x.example.com}, status: {ingress: [{conditions: [{type: Admitted, status: 'False', " +
		"reason: HostAlreadyClaimed}]}]}}"
	f.api.Put(theRoutes, ourRoute+refused)
	is(model.ObservedEndpoints{Refused: model.RefusedRoute{Host: "x.example.com", Reason: "HostAlreadyClaimed"}})

	t.Log("one of two routers serves it")
	f.api.Put(
		theRoutes,
		ourRoute+strings.Replace(refused, "ingress: [", "ingress: [{host: x, conditions: [{type: Admitted, status: 'True'}]}, ", 1),
	)
	is(model.ObservedEndpoints{})

	f.api.Put(theRoutes, ourRoute+"}", theirRoute+"}")
	is(model.ObservedEndpoints{ControlPlaneRoute: model.FoundRoute{Exists: true, Host: "istiod.apps.guest1.hypershift.local"}})

	t.Log("the host in the status takes precedence over the host in the spec")
	f.api.Put(theRoutes, theirRoute+", status: {ingress: [{host: istiod-2.example.com, conditions: [{type: Admitted, status: 'True'}]}]}}")
	is(model.ObservedEndpoints{ControlPlaneRoute: model.FoundRoute{Exists: true, Host: "istiod-2.example.com"}})

	f.api.Put(
		theRoutes,
		strings.Replace(theirRoute, "name: istiod", "name: istiod, deletionTimestamp: 2026-11-21T10:00:00Z, finalizers: [x]", 1)+"}",
	)
	is(model.ObservedEndpoints{})
}

// TestAClusterWithoutRoutes checks that a cluster without Routes is reported as a problem. hypergate does not wait
// for Routes.
func TestAClusterWithoutRoutes(t *testing.T) {
	f := publishing(t, model.PublishRoute, func(*fakeapi.Server) {})
	f.Eventually(func() string { return f.observed().Endpoints.Problem }).Should(gomega.And(
		gomega.ContainSubstring("serves no Routes"), gomega.ContainSubstring("--publish"),
	))
}

// TestPruneAfterAStrategyChange checks that Prune deletes hypergate's Route of an earlier strategy before its Service.
// A Route with another owner stays.
func TestPruneAfterAStrategyChange(t *testing.T) {
	for name, tc := range map[string]struct {
		route   string
		deleted bool
	}{
		"ours":            {ourRoute + "}", true},
		"a foreign Route": {strings.Replace(ourRoute, "openshift-gateway.management", "other.management", 1) + "}", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := publishing(t, model.PublishNodePort, func(api *fakeapi.Server) { api.Put(theServices); api.Put(theRoutes, tc.route) })
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

// TestARouteThatMayNotBeDeletedIsReported checks that a route of an earlier strategy does not count as deleted if the
// deletion is forbidden. Prune reports it, and tries again with the next pass. A kind that hypergate is not allowed to
// read has no routes.
func TestARouteThatMayNotBeDeletedIsReported(t *testing.T) {
	for name, tc := range map[string]struct {
		denied string
		want   string
	}{
		"not to be deleted": {http.MethodDelete, "not allowed to delete routes.route.openshift.io (RBAC)"},
		"not to be read":    {http.MethodGet, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := publishing(t, model.PublishNodePort, func(api *fakeapi.Server) {
				api.Put(theServices)
				api.Put(theRoutes, ourRoute+"}")
				api.Deny(theRoutes, tc.denied, apierrors.NewForbidden(
					schema.GroupResource{Group: "route.openshift.io", Resource: "routes"}, "xds-openshift-gateway",
					fmt.Errorf("User %q cannot %s resource %q in API group %q", "u", strings.ToLower(tc.denied), "routes",
						"route.openshift.io"),
				))
			})
			f.observed()
			failed := func() (out []string) {
				for _, o := range f.mgmt.Prune(f.Context(), nil).Failures() {
					if o.ID().GVK.Kind == theRoutes.Kind {
						out = append(out, o.Cause().String())
					}
				}
				return out
			}
			for range 2 {
				if got := strings.Join(failed(), "; "); got != tc.want {
					t.Errorf("failed: %q, want %q", got, tc.want)
				}
			}
		})
	}
}
