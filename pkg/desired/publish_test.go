package desired_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/publish"
	"github.com/hypergate/hypergate/test/modeltest"
)

// endpointText returns an EndpointState as text.
func endpointText(p publish.EndpointState) string {
	switch p := p.(type) {
	case publish.EndpointKnown:
		return "at " + p.At.String()
	case publish.EndpointPending:
		return "waits for " + p.Why
	case publish.EndpointUnavailable:
		return "impossible: " + p.Why
	}
	return "nothing"
}

// published returns how HyperShift publishes the parts of a control plane. Each text is "<part> <strategy> <host>".
func published(texts ...string) []model.PublishedService {
	var out []model.PublishedService
	for _, text := range texts {
		fields := append(strings.Fields(text), "")
		out = append(out, model.PublishedService{Service: fields[0], Strategy: fields[1], Host: fields[2]})
	}
	return out
}

// endpointCase is a publish strategy, what the management side shows, and the endpoint that follows.
type endpointCase struct {
	publish  model.Publish
	plane    func(*model.ControlPlane)
	exposure model.ObservedEndpoints
	want     string
}

// TestPublishEndpoint checks the endpoint of each publish strategy, and what prevents it. Each case computes a
// whole plan for a management side without istiod.
func TestPublishEndpoint(t *testing.T) {
	auto := model.Publish{Strategy: model.PublishAuto}
	byRoute := published("Ignition Route ignition.guest1.example.com", "APIServer Route api.guest1.example.org")
	checkWhereIstiodIsPublished(t, map[string]endpointCase{
		"an address that is given": {publish: model.Publish{}, want: "at istiod.apps.example.com:443"},
		"auto without a plane":     {publish: auto, want: "impossible: --publish=auto requires a HostedControlPlane, which does not exist"},
		"auto, as by Route": {
			publish: auto, plane: func(p *model.ControlPlane) { p.Services, p.InfraID = byRoute, "guest1-x7k2p" },
			want: "at istiod-guest1-x7k2p.guest1.example.com:443",
		},
		"auto, the API server's domain where Ignition has none": {
			publish: auto, plane: func(p *model.ControlPlane) {
				p.Services, p.InfraID = published("Ignition Route", "APIServer Route api.guest1.example.org"), "guest1-x7k2p"
			}, want: "at istiod-guest1-x7k2p.guest1.example.org:443",
		},
		"a Route without a host to derive from": {
			publish: auto, plane: func(p *model.ControlPlane) { p.Services, p.InfraID = published("APIServer Route"), "guest1-x7k2p" },
			want: "impossible: HostedControlPlane guest1 has no infrastructure ID or no host",
		},
		"a Route without an infrastructure's name": {
			publish: auto, plane: func(p *model.ControlPlane) { p.Services, p.InfraID = byRoute, "" },
			want: "impossible: HostedControlPlane guest1 has no infrastructure ID or no host",
		},
		"a Route without a HostedControlPlane": {
			publish: model.Publish{Strategy: model.PublishRoute},
			want:    "impossible: istiod's host cannot be derived without a HostedControlPlane: set --publish-host",
		},
		"a Route whose host is given": {
			publish: model.Publish{Strategy: model.PublishRoute, At: model.HostPort{Host: "x.example.com"}}, want: "at x.example.com:443",
		},
		"a router refuses the Route": {
			publish:  model.Publish{Strategy: model.PublishRoute, At: model.HostPort{Host: "x.example.com"}},
			exposure: model.ObservedEndpoints{Refused: model.RefusedRoute{Host: "x.example.com", Reason: "HostAlreadyClaimed"}},
			want: "impossible: the router rejects Route xds-openshift-gateway with host x.example.com (HostAlreadyClaimed): set another " +
				"--publish-host",
		},
		"it refused the host that it had before": {
			publish:  model.Publish{Strategy: model.PublishRoute, At: model.HostPort{Host: "y.example.com"}},
			exposure: model.ObservedEndpoints{Refused: model.RefusedRoute{Host: "x.example.com", Reason: "HostAlreadyClaimed"}},
			want:     "at y.example.com:443",
		},
		"the strategy is not available": {
			publish:  model.Publish{Strategy: model.PublishRoute, At: model.HostPort{Host: "y.example.com"}},
			exposure: model.ObservedEndpoints{Problem: "the management cluster serves no Routes"},
			want:     "impossible: the management cluster serves no Routes",
		},
	})
}

// TestPublishEndpointOfHyperShift checks the endpoint behind HyperShift's own router, behind a private link, and
// behind load balancers and nodes.
func TestPublishEndpointOfHyperShift(t *testing.T) {
	auto := model.Publish{Strategy: model.PublishAuto}
	byRoute := published("Ignition Route ignition.guest1.example.com", "APIServer Route api.guest1.example.org")
	checkWhereIstiodIsPublished(t, map[string]endpointCase{
		"the control plane operator's Route names the namespace": {
			publish: auto, plane: func(p *model.ControlPlane) { p.Services = byRoute },
			exposure: model.ObservedEndpoints{
				ControlPlaneRoute: model.FoundRoute{Exists: true, Host: "istiod-clusters-guest1.apps.example.com"},
			},
			want: "impossible: \"istiod-clusters-guest1.apps.example.com\", the host of Route istiod, " +
				"contains the name of the management namespace",
		},
		"the control plane operator's Route": {
			publish: auto, plane: func(p *model.ControlPlane) { p.Services, p.EndpointAccess = byRoute, "Private" },
			exposure: model.ObservedEndpoints{
				ControlPlaneRoute: model.FoundRoute{Exists: true, Host: "istiod.apps.guest1.hypershift.local"},
			},
			want: "at istiod.apps.guest1.hypershift.local:443",
		},
		"the control plane operator's Route, without a host yet": {
			publish: auto, plane: func(p *model.ControlPlane) { p.Services = byRoute },
			exposure: model.ObservedEndpoints{ControlPlaneRoute: model.FoundRoute{Exists: true}},
			want:     "waits for a host for the Route",
		},
		"a private link without that Route": {
			publish: auto, plane: func(p *model.ControlPlane) { p.Services, p.EndpointAccess = byRoute, "Private" },
			want: "impossible: the guest's nodes reach their control plane over a private link, behind which HyperShift's own router",
		},
		"a private link has precedence over a load balancer": {
			publish: auto, plane: func(p *model.ControlPlane) {
				p.Services, p.EndpointAccess = published("APIServer LoadBalancer"), "Private"
			},
			want: "impossible: the guest's nodes reach their control plane over a private link, behind which HyperShift's own router",
		},
		"a load balancer behind a private link": {
			publish: model.Publish{Strategy: model.PublishLoadBalancer},
			plane:   func(p *model.ControlPlane) { p.EndpointAccess = "Private" },
			want:    "impossible: the guest's nodes reach their control plane over a private link, and hypergate's load balancer",
		},
		"a load balancer": {
			publish: auto, plane: func(p *model.ControlPlane) { p.Services = published("APIServer LoadBalancer") },
			exposure: model.ObservedEndpoints{LoadBalancer: "2001:db8::7"}, want: "at [2001:db8::7]:15012",
		},
		"a load balancer that has no address yet": {
			publish: auto, plane: func(p *model.ControlPlane) { p.Services = published("APIServer LoadBalancer") },
			want: "waits for an address for istiod's load balancer",
		},
		"a load balancer with a name": {
			publish:  model.Publish{Strategy: model.PublishLoadBalancer, At: model.HostPort{Host: "x.example.com"}},
			exposure: model.ObservedEndpoints{LoadBalancer: "192.0.2.7"},
			want:     "at x.example.com:15012",
		},
		"a node's port": {
			publish: auto, plane: func(p *model.ControlPlane) { p.Services = published("APIServer NodePort 192.0.2.7") },
			exposure: model.ObservedEndpoints{NodePort: 31512}, want: "at 192.0.2.7:31512",
		},
		"a node's port that is not handed out yet": {
			publish: auto, plane: func(p *model.ControlPlane) { p.Services = published("APIServer NodePort 192.0.2.7") },
			want: "waits for a port",
		},
		"no node address": {
			publish: model.Publish{Strategy: model.PublishNodePort}, exposure: model.ObservedEndpoints{NodePort: 31512},
			want: "impossible: the address of the management cluster's nodes is not known",
		},
	})
}

// TestPublishEndpointOfTheTunnel checks when PublishAuto selects the tunnel: where it has no other strategy, and there
// is an image for the relays.
func TestPublishEndpointOfTheTunnel(t *testing.T) {
	tunnel := byTunnel(t).Publish
	auto := tunnel
	auto.Strategy = model.PublishAuto
	const relays = "at istiod-relay.openshift-ingress.svc:15012"
	byRoute := published("Ignition Route ignition.guest1.example.com", "APIServer Route api.guest1.example.org")
	byLoadBalancer := published("APIServer LoadBalancer")
	checkWhereIstiodIsPublished(t, map[string]endpointCase{
		"by the flag": {publish: tunnel, want: relays},
		"by the flag, with a plane": {
			publish: tunnel, plane: func(p *model.ControlPlane) { p.Services = byLoadBalancer }, want: relays,
		},
		"auto without a plane": {publish: auto, want: "impossible: --publish=auto requires a HostedControlPlane, which does not exist"},
		"a private link": {
			publish: auto, plane: func(p *model.ControlPlane) { p.Services, p.EndpointAccess = byRoute, "Private" }, want: relays,
		},
		"a private link beside public access": {
			publish: auto, plane: func(p *model.ControlPlane) { p.Services, p.EndpointAccess = byRoute, "PublicAndPrivate" }, want: relays,
		},
		"a shared ingress": {
			publish: auto, plane: func(p *model.ControlPlane) { p.Services, p.SharedIngress = byRoute, true }, want: relays,
		},
		"IBM Cloud": {
			publish: auto, plane: func(p *model.ControlPlane) { p.Platform, p.Services = "IBMCloud", byRoute }, want: relays,
		},
		"KubeVirt by a load balancer": {
			publish: auto, want: relays,
			plane: func(p *model.ControlPlane) { p.VirtualMachinesInNamespace, p.Services = true, byLoadBalancer },
		},
		"KubeVirt by Route": {
			publish: auto, plane: func(p *model.ControlPlane) {
				p.VirtualMachinesInNamespace, p.Services, p.InfraID = true, byRoute, "guest1-x7k2p"
			},
			want: "at istiod-guest1-x7k2p.guest1.example.com:443",
		},
		"a load balancer": {
			publish: auto, plane: func(p *model.ControlPlane) { p.Services = byLoadBalancer },
			exposure: model.ObservedEndpoints{LoadBalancer: "192.0.2.7"}, want: "at 192.0.2.7:15012",
		},
		"another strategy by the flag, on a private link": {
			publish: model.Publish{Strategy: model.PublishRoute, RelayImage: auto.RelayImage},
			plane:   func(p *model.ControlPlane) { p.Services, p.EndpointAccess = byRoute, "Private" },
			want:    "impossible: the guest's nodes reach their control plane over a private link, behind which HyperShift's own router",
		},
	})
}

// TestPublishEndpointUnavailable checks TLSRoutes, and platforms, strategies and hosts that cannot be used.
func TestPublishEndpointUnavailable(t *testing.T) {
	auto := model.Publish{Strategy: model.PublishAuto}
	byRoute := published("Ignition Route ignition.guest1.example.com", "APIServer Route api.guest1.example.org")
	checkWhereIstiodIsPublished(t, map[string]endpointCase{
		"a TLSRoute": {
			publish: model.Publish{
				Strategy: model.PublishTLSRoute, At: model.HostPort{Host: "x.example.com"},
				Gateway: model.ParentGateway{Namespace: "infra", Name: "edge"},
			},
			exposure: model.ObservedEndpoints{TLSRouteVersion: "v1"}, want: "at x.example.com:443",
		},
		"a TLSRoute without a known version": {
			publish: model.Publish{
				Strategy: model.PublishTLSRoute, At: model.HostPort{Host: "x.example.com"},
				Gateway: model.ParentGateway{Namespace: "infra", Name: "edge"},
			},
			want: "waits for the version of TLSRoutes",
		},
		"a platform with its own strategy": {
			publish: auto, plane: func(p *model.ControlPlane) { p.Platform, p.Services = "IBMCloud", byRoute },
			want: "impossible: --publish=auto has no strategy for platform IBMCloud",
		},
		"an unknown strategy": {
			publish: auto, plane: func(p *model.ControlPlane) { p.Services = published("APIServer S3") },
			want: `impossible: --publish=auto follows the guest's API server, but hypergate does not support its publishing strategy ("S3"`,
		},
		"no strategy": {
			publish: auto, plane: func(p *model.ControlPlane) { p.Services = nil },
			want: `impossible: --publish=auto follows the guest's API server, but hypergate does not support its publishing strategy (""`,
		},
		"a host with the management namespace": {
			publish: auto, plane: func(p *model.ControlPlane) {
				p.Services, p.InfraID = published("APIServer Route api.clusters-guest1.example.com"), "x"
			},
			want: "impossible: \"istiod-x.clusters-guest1.example.com\", the host under which istiod would be published, " +
				"contains the name of the management namespace",
		},
		"an invalid host": {
			publish: auto, plane: func(p *model.ControlPlane) {
				p.Services, p.InfraID = published("APIServer Route api.exa_mple.com"), "x"
			},
			want: "impossible: \"istiod-x.exa_mple.com\", the host under which istiod would be published, is not a host name",
		},
	})
}

func checkWhereIstiodIsPublished(t *testing.T, cases map[string]endpointCase) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := config(model.TopologyHosted)
			cfg.Publish = tc.publish
			mgmt := model.ManagementObservation{CA: testCA(t), Endpoints: tc.exposure}
			if tc.plane != nil {
				mgmt.ControlPlane = modeltest.ControlPlane()
				tc.plane(&mgmt.ControlPlane)
			}
			plan, err := desired.Compute(cfg, embedded(t), mgmt, withForeignCRDs(withClasses("openshift-default")))
			got := endpointText(plan.Endpoint)
			if err != nil {
				got = strings.Replace(err.Error(), "publishing istiod", "impossible", 1)
			}
			if !strings.HasPrefix(got, tc.want) {
				t.Fatalf("it is\n  %s\nand should be\n  %s", got, tc.want)
			}
			if at, known := plan.Endpoint.(publish.EndpointKnown); known {
				checkEndpoint(t, plan, at.At)
			} else if len(plan.Workload) > 0 {
				t.Error("istiod is planned although its endpoint is not known")
			}
		})
	}
}

// checkEndpoint checks that the three places with istiod's endpoint, for gateways and for istiod itself, contain this
// value.
func checkEndpoint(t *testing.T, plan desired.Plan, at model.HostPort) {
	t.Helper()
	text := strings.Builder{}
	for _, o := range append(plan.Mgmt, plan.Workload...) {
		if kind := o.GVK().Kind; kind == "ConfigMap" || kind == "Deployment" {
			text.Write(o.JSON())
		}
	}
	if !strings.Contains(text.String(), `"value":"`+at.Host+",") {
		t.Errorf("istiod's certificate is not for %s", at.Host)
	}
	if n := strings.Count(text.String(), at.String()); n < 2 {
		t.Errorf("%s is %d times on the management side, and should be the address of xDS and of the CA", at, n)
	}
	if !strings.Contains(text.String(), "discoveryAddress: "+at.String()) &&
		!strings.Contains(text.String(), "discoveryAddress: '"+at.String()+"'") {
		t.Errorf("the mesh configuration does not name %s", at)
	}
}

// publishingCase is a publish strategy, and the objects that publish istiod.
type publishingCase struct {
	publish  model.Publish
	exposure model.ObservedEndpoints
	service  string
	route    map[string]any
}

// TestPublishObjects checks the objects of each publish strategy. If another party publishes istiod, there are
// none.
func TestPublishObjects(t *testing.T) {
	byName := model.HostPort{Host: "x.example.com"}
	checkPublishingObjects(t, map[string]publishingCase{
		"an address": {},
		"a Route": {
			publish: model.Publish{Strategy: model.PublishRoute, At: byName}, service: "ClusterIP",
			route: map[string]any{
				"host": "x.example.com", "to": map[string]any{"kind": "Service", "name": "xds-openshift-gateway", "weight": int64(100)},
				"port": map[string]any{"targetPort": "tls-xds"},
				"tls":  map[string]any{"termination": "passthrough", "insecureEdgeTerminationPolicy": "None"},
			},
		},
		"the control plane operator's Route": {
			publish:  model.Publish{Strategy: model.PublishRoute, At: byName},
			exposure: model.ObservedEndpoints{ControlPlaneRoute: model.FoundRoute{Exists: true, Host: "y.example.com"}},
		},
		"a TLSRoute": {
			publish: model.Publish{
				Strategy: model.PublishTLSRoute, At: byName,
				Gateway: model.ParentGateway{Namespace: "infra", Name: "edge", Listener: "tls"},
			},
			service:  "ClusterIP",
			exposure: model.ObservedEndpoints{TLSRouteVersion: "v1alpha3"},
			route: map[string]any{
				"parentRefs": []any{map[string]any{"namespace": "infra", "name": "edge", "sectionName": "tls"}},
				"hostnames":  []any{"x.example.com"},
				"rules": []any{
					map[string]any{"backendRefs": []any{map[string]any{"name": "xds-openshift-gateway", "port": int64(15012)}}},
				},
			},
		},
	})
}

// TestPublishObjectsWithoutARoute checks load balancers and node ports.
func TestPublishObjectsWithoutARoute(t *testing.T) {
	byName := model.HostPort{Host: "x.example.com"}
	checkPublishingObjects(t, map[string]publishingCase{
		"a load balancer without an address": {
			publish: model.Publish{Strategy: model.PublishLoadBalancer}, service: "LoadBalancer",
		},
		"a load balancer": {
			publish:  model.Publish{Strategy: model.PublishLoadBalancer, At: byName},
			exposure: model.ObservedEndpoints{LoadBalancer: "192.0.2.7"}, service: "LoadBalancer x.example.com",
		},
		"a tunnel": {publish: byTunnel(t).Publish},
		"a port of nodes": {
			publish: model.Publish{Strategy: model.PublishNodePort, At: byName}, exposure: model.ObservedEndpoints{NodePort: 31512},
			service: "NodePort",
		},
		"this one of them": {
			publish:  model.Publish{Strategy: model.PublishNodePort, At: model.HostPort{Host: "x.example.com", Port: 30000}},
			exposure: model.ObservedEndpoints{NodePort: 30000}, service: "NodePort 30000",
		},
	})
}

func checkPublishingObjects(t *testing.T, cases map[string]publishingCase) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := config(model.TopologyHosted)
			cfg.Publish = tc.publish
			plane := modeltest.ControlPlane()
			plan := compute(t, cfg, embedded(t), model.ManagementObservation{CA: testCA(t), Endpoints: tc.exposure, ControlPlane: plane},
				withForeignCRDs(withClasses("openshift-default")))
			service, open := "", false
			for _, o := range plan.Mgmt {
				u, err := o.Unstructured()
				if err != nil {
					t.Fatal(err)
				}
				switch {
				case o.Key().Name == cfg.XDSService():
					service = serviceInWords(u)
				case o.GVK().Kind == "NetworkPolicy":
					open = strings.Contains(string(o.JSON()), `"0.0.0.0/0"`)
				}
			}
			if service != tc.service {
				t.Errorf("its Service is %q, and should be %q", service, tc.service)
			}
			if wanted := tc.publish.Strategy == model.PublishLoadBalancer || tc.publish.Strategy == model.PublishNodePort; open != wanted {
				t.Errorf("the policy allows all addresses: %v", open)
			}
			checkRoute(t, plan, plane, tc.route)
		})
	}
}

func serviceInWords(u *unstructured.Unstructured) string {
	text, _, _ := unstructured.NestedString(u.Object, "spec", "type")
	for _, host := range u.GetAnnotations() {
		text += " " + host
	}
	ports, _, _ := unstructured.NestedSlice(u.Object, "spec", "ports")
	if port := ports[0].(map[string]any)["nodePort"]; port != nil {
		text += fmt.Sprint(" ", port)
	}
	return text
}

func checkRoute(t *testing.T, plan desired.Plan, plane model.ControlPlane, want map[string]any) {
	t.Helper()
	if want == nil {
		if len(plan.Routes) > 0 {
			t.Errorf("there is a route: %v", plan.Routes)
		}
		return
	}
	if len(plan.Routes) != 1 {
		t.Fatalf("there are %d routes", len(plan.Routes))
	}
	u, err := plan.Routes[0].Unstructured()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, u.Object["spec"]); diff != "" {
		t.Errorf("the route's spec (-want +got):\n%s", diff)
	}
	if owners := u.GetOwnerReferences(); len(owners) != 1 || owners[0].UID != plane.UID {
		t.Errorf("it belongs to %v", owners)
	}
	if len(u.GetLabels()) != 2 || u.GetLabels()[model.OwnerLabel] == "" {
		t.Errorf("its labels are %v: HyperShift's own router is to leave it alone", u.GetLabels())
	}
}

// TestLoadBalancerSourceRanges checks that the clients of a load balancer are the same as those of the guest's API
// server.
func TestLoadBalancerSourceRanges(t *testing.T) {
	cfg := config(model.TopologyHosted)
	cfg.Publish = model.Publish{Strategy: model.PublishLoadBalancer}
	const ranges = `"loadBalancerSourceRanges":["198.51.100.0/24","2001:db8::/32"]`
	for name, tc := range map[string]struct {
		allowed []string
		want    string
	}{
		"everybody": {nil, `"from":[{"ipBlock":{"cidr":"0.0.0.0/0"}},{"ipBlock":{"cidr":"::/0"}}],"ports":[{"port":15012,`},
		"some blocks": {
			[]string{"198.51.100.0/24", "2001:db8::/32"},
			`"from":[{"ipBlock":{"cidr":"198.51.100.0/24"}},{"ipBlock":{"cidr":"2001:db8::/32"}}],"ports":[{"port":15012,`,
		},
	} {
		plane := modeltest.ControlPlane()
		plane.AllowedCIDRs = tc.allowed
		plan := compute(t, cfg, embedded(t), model.ManagementObservation{CA: testCA(t), ControlPlane: plane},
			withForeignCRDs(withClasses("openshift-default")))
		for _, o := range plan.Mgmt {
			text := string(o.JSON())
			switch {
			case o.GVK().Kind == "NetworkPolicy" && !strings.Contains(text, tc.want):
				t.Errorf("%s: the policy does not say %s:\n%s", name, tc.want, text)
			case o.Key().Name == cfg.XDSService() && strings.Contains(text, ranges) != (tc.allowed != nil):
				t.Errorf("%s: %s", name, text)
			}
		}
	}
}

// TestAPlanWithoutAnEndpointHasNoIstiod checks that a plan without an endpoint does not contain istiod, and that
// hypergate does not prune with it.
func TestAPlanWithoutAnEndpointHasNoIstiod(t *testing.T) {
	cfg := config(model.TopologyHosted)
	cfg.Publish = model.Publish{Strategy: model.PublishLoadBalancer}
	for want, exposure := range map[bool]model.ObservedEndpoints{false: {}, true: {LoadBalancer: "192.0.2.7"}} {
		mgmt := installed(t)
		mgmt.Endpoints = exposure
		plan := compute(t, cfg, embedded(t), mgmt, withForeignCRDs(withClasses("openshift-default")))
		if plan.IsWhole() != want || (len(plan.Workload) > 0) != want {
			t.Errorf("it is whole: %v, and has %d workloads", plan.IsWhole(), len(plan.Workload))
		}
	}
	if plan := compute(t, cfg, embedded(t), installed(t), withForeignCRDs(withClasses())); !plan.IsWhole() {
		t.Error("an installation without a GatewayClass would not be pruned")
	}
}
