package mgmt

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
)

// Parts of HyperShift that must support a Route for istiod: the control plane operator's router, and the shared
// ingress of all hosted clusters of ARO HCP.
const (
	routerChange  = "v2/router/config.go (see deploy/cpo)"
	ingressChange = "sharedingress-config-generator/config.go (see deploy/cpo)"
)

// Parts of a HostedControlPlane's spec: how it publishes its services, and its platform.
const (
	byLoadBalancer = `services: [{service: APIServer, servicePublishingStrategy: {type: LoadBalancer}}, {service: ` +
		`Ignition, servicePublishingStrategy: {type: Route, route: {hostname: ignition.g.example.com}}}]`
	// HyperShift's command line creates this if there is no domain for external names.
	onlyLoadBalancer = `services: [{service: APIServer, servicePublishingStrategy: {type: LoadBalancer}}, {service: ` +
		`Ignition, servicePublishingStrategy: {type: Route}}]`
	byRoute = `services: [{service: APIServer, servicePublishingStrategy: {type: Route, route: {hostname: ` +
		`api.g.example.com}}}, {service: Ignition, servicePublishingStrategy: {type: Route, route: {hostname: ` +
		`ignition.g.example.com}}}]`
	byNodePort = `services: [{service: APIServer, servicePublishingStrategy: {type: NodePort, nodePort: {}}}, ` +
		`{service: Ignition, servicePublishingStrategy: {type: NodePort, nodePort: {address: 192.0.2.7}}}]`
	azure    = `type: Azure, azure: {azureAuthenticationConfig: {azureAuthenticationConfigType: WorkloadIdentities}`
	aro      = `type: Azure, azure: {azureAuthenticationConfig: {azureAuthenticationConfigType: ManagedIdentities}`
	derived  = "{istiod-guest1-abcde.g.example.com:443}"
	balanced = "{192.0.2.44:15012}"
)

// publishingCase is a platform and how it publishes the API server.
type publishingCase struct {
	name, platform, services string
	route                    model.FoundRoute
	publish                  model.Publish
	want                     string // the endpoint, or a substring of the error
}

// The Routes that the control plane operator creates for istiod, for HyperShift's router and for the default router.
var (
	insideRoute  = model.FoundRoute{Exists: true, Host: "istiod.apps.guest1.hypershift.local"}
	outsideRoute = model.FoundRoute{Exists: true, Host: "istiod-guest1.g.example.com"}
)

// TestPublishingOnEachPlatform checks the endpoint for the guest's nodes on each of HyperShift's platforms, with
// strategy auto or an explicit strategy. If there is no endpoint, it checks which part is missing.
func TestPublishingOnEachPlatform(t *testing.T) {
	rows := slices.Concat(publishingCases(), publishingByAccess(), publishingWithoutAccess())
	cfg, source, ca, guest := asked(t)
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			plane, err := readControlPlane(hcp(t, "", `{platform: {`+row.platform+`}, `+row.services+`}`, ""), "istiod-openshift-gateway")
			if err != nil {
				t.Fatal(err)
			}
			cfg := cfg
			if cfg.Publish = row.publish; row.publish.Strategy == "" {
				cfg.Publish.Strategy = model.PublishAuto
			}
			state, err := desired.Compute(cfg, source, model.ManagementObservation{
				CA: ca, ControlPlane: plane,
				Endpoints: model.ObservedEndpoints{NodePort: 31512, LoadBalancer: "192.0.2.44", ControlPlaneRoute: row.route},
			}, guest)
			got := fmt.Sprint(state.Endpoint)
			if err != nil {
				got = err.Error()
			}
			if strings.HasPrefix(row.want, "{") && got != row.want || !strings.Contains(got, row.want) {
				t.Errorf("got\n  %s\nwant, or want as a substring\n  %s", got, row.want)
			}
		})
	}
}

// publishingCases returns the rows that stand for one platform each.
func publishingCases() []publishingCase {
	return []publishingCase{
		{
			name: "AWS public by load balancer", platform: `type: AWS, aws: {endpointAccess: Public}`,
			services: byLoadBalancer, want: balanced,
		},
		{
			name:     "AWS public by load balancer, by the default router if asked",
			platform: `type: AWS, aws: {endpointAccess: Public}`, services: byLoadBalancer,
			publish: model.Publish{Strategy: model.PublishRoute}, want: derived,
		},
		{
			name:     "Agent by Route, with a long infrastructure ID",
			platform: `type: Agent, agent: {agentNamespace: agents}`,
			services: byRoute + `, infraID: ` + strings.Repeat("a", 60),
			want:     "{istiod-" + strings.Repeat("a", 47) + "-11ee3912.g.example.com:443}",
		},
		{name: "ARO HCP", platform: aro + `}`, services: byRoute, want: ingressChange},
		{name: "ARO HCP, API server by load balancer", platform: aro + `}`, services: byLoadBalancer, want: ingressChange},
		{
			name: "ARO HCP, which knows istiod", platform: aro + `, topology: Public}`, services: byRoute,
			route: outsideRoute, want: "{istiod-guest1.g.example.com:443}",
		},
		{
			name: "ARO HCP, by load balancer if asked", platform: aro + `}`, services: byRoute,
			publish: model.Publish{Strategy: model.PublishLoadBalancer}, want: balanced,
		},
		{
			name: "ARO HCP, by Route if asked", platform: aro + `}`, services: byRoute,
			publish: model.Publish{Strategy: model.PublishRoute}, want: ingressChange,
		},
		{
			name: "ARO HCP, Swift, by Route if asked", platform: aro + `, topology: PublicAndPrivate}`, services: byRoute,
			publish: model.Publish{Strategy: model.PublishRoute}, want: routerChange,
		},
		{
			name:     "AWS public by load balancer, by Route if asked, with nothing to derive a host from",
			platform: `type: AWS, aws: {endpointAccess: Public}`,
			services: onlyLoadBalancer, publish: model.Publish{Strategy: model.PublishRoute}, want: "set --publish-host",
		},
		{
			name: "ARO HCP, by a third party's router", platform: aro + `}`, services: byRoute,
			publish: model.Publish{Strategy: model.PublishRoute, At: model.HostPort{Host: "x.example.com"}},
			want:    "{x.example.com:443}",
		},
		{
			name: "ARO HCP, Swift only", platform: aro + `, topology: Private, private: {type: Swift}}`,
			services: byRoute, want: routerChange,
		},
		{
			name: "ARO HCP, Swift", platform: aro + `, topology: PublicAndPrivate, private: {type: Swift}}`,
			services: byRoute, want: routerChange,
		},
		{
			name: "ARO HCP, Swift, whose router knows istiod", platform: aro + `, topology: PublicAndPrivate}`,
			services: byRoute, route: insideRoute, want: "{istiod.apps.guest1.hypershift.local:443}",
		},
		{name: "IBM Cloud", platform: `type: IBMCloud`, services: byRoute, want: "has no strategy for platform IBMCloud"},
		{name: "KubeVirt by load balancer", platform: `type: KubeVirt`, services: byLoadBalancer, want: "policy virt-launcher"},
		{
			name: "KubeVirt by load balancer, if asked", platform: `type: KubeVirt`, services: byLoadBalancer,
			publish: model.Publish{Strategy: model.PublishLoadBalancer}, want: balanced,
		},
		{
			name:     "KubeVirt whose nodes are elsewhere, by load balancer",
			platform: `type: KubeVirt, kubevirt: {credentials: {infraNamespace: vms}}`, services: byLoadBalancer,
			want: balanced,
		},
	}
}

// publishingByAccess returns the rows of platforms whose nodes can reach the control plane over a private link.
func publishingByAccess() (rows []publishingCase) {
	for platform, access := range map[string]string{
		"AWS": `type: AWS, aws: {endpointAccess: %s}`, "GCP": `type: GCP, gcp: {endpointAccess: %s}`,
		"Azure": azure + `, topology: %s}`,
	} {
		name := platform + " public by Route, "
		public := fmt.Sprintf(access, "Public")
		if platform != "GCP" { // GCP has no purely public access
			rows = append(rows,
				publishingCase{name: name + "by the default router", platform: public, services: byRoute, want: derived},
				publishingCase{
					name: name + "whose router knows istiod", platform: public, services: byRoute, route: outsideRoute,
					want: "{istiod-guest1.g.example.com:443}",
				},
			)
		}
		for _, services := range []string{byLoadBalancer, byRoute} {
			rows = append(rows, publishingOverLinks(platform, access, services)...)
		}
	}
	return rows
}

// publishingOverLinks returns the rows of one platform whose nodes use a private link.
func publishingOverLinks(platform, access, services string) (rows []publishingCase) {
	for _, linked := range []string{"Private", "PublicAndPrivate"} {
		name := platform + " " + linked + services[:60]
		rows = append(rows,
			publishingCase{name: name, platform: fmt.Sprintf(access, linked), services: services, want: routerChange},
			publishingCase{
				name: name + ", whose router knows istiod", platform: fmt.Sprintf(access, linked),
				services: services, route: insideRoute, want: "{istiod.apps.guest1.hypershift.local:443}",
			},
		)
	}
	rows = append(rows,
		publishingCase{
			name: platform + " Private, asked for", platform: fmt.Sprintf(access, "Private"), services: services,
			publish: model.Publish{Strategy: model.PublishLoadBalancer}, want: "hypergate's load balancer is not behind that link",
		},
		publishingCase{
			name: platform + " PublicAndPrivate, asked for", platform: fmt.Sprintf(access, "PublicAndPrivate"), services: services,
			publish: model.Publish{Strategy: model.PublishLoadBalancer}, want: balanced,
		},
		publishingCase{
			name:     platform + " PublicAndPrivate, by Route if asked",
			platform: fmt.Sprintf(access, "PublicAndPrivate"), services: services,
			publish: model.Publish{Strategy: model.PublishRoute}, want: routerChange,
		},
		publishingCase{
			name:     platform + " PublicAndPrivate, by a third party's router if asked",
			platform: fmt.Sprintf(access, "PublicAndPrivate"), services: services,
			publish: model.Publish{Strategy: model.PublishRoute, At: model.HostPort{Host: "x.example.com"}},
			want:    "{x.example.com:443}",
		})
	return rows
}

// publishingWithoutAccess returns the rows of platforms without private links.
func publishingWithoutAccess() (rows []publishingCase) {
	for _, platform := range []string{"Agent", "None", "OpenStack", "KubeVirt", "PowerVS"} {
		if platform != "KubeVirt" {
			rows = append(
				rows,
				publishingCase{
					name: platform + " by load balancer", platform: "type: " + platform, services: byLoadBalancer, want: balanced,
				},
			)
		}
		rows = append(rows,
			publishingCase{name: platform + " by Route", platform: "type: " + platform, services: byRoute, want: derived},
			publishingCase{
				name: platform + " whose router knows istiod", platform: "type: " + platform, services: byRoute,
				route: outsideRoute, want: "{istiod-guest1.g.example.com:443}",
			},
			publishingCase{
				name: platform + " by a node's port", platform: "type: " + platform, services: byNodePort,
				want: "{192.0.2.7:31512}",
			},
		)
	}
	return rows
}

// TestTheTunnelIsTheLastResort checks strategy auto on each platform with an image for the relays: it takes the tunnel
// where it was refused because of the platform, and what it takes elsewhere stays. It also takes the tunnel where the
// control plane operator's Route serves a private link or the shared ingress already.
func TestTheTunnelIsTheLastResort(t *testing.T) {
	const relays = "{istiod-relay.openshift-ingress.svc:15012}"
	cfg, source, ca, guest := asked(t)
	tunnels, fromRoute := 0, 0
	for _, row := range slices.Concat(publishingCases(), publishingByAccess(), publishingWithoutAccess()) {
		if row.publish.Strategy != "" {
			continue
		}
		plane, err := readControlPlane(hcp(t, "", `{platform: {`+row.platform+`}, `+row.services+`}`, ""), "istiod-openshift-gateway")
		if err != nil {
			t.Fatal(err)
		}
		published := func(image string) string {
			cfg := cfg
			cfg.Publish = model.Publish{Strategy: model.PublishAuto, RelayImage: image, SidecarImage: image}
			state, err := desired.Compute(cfg, source, model.ManagementObservation{
				CA: ca, ControlPlane: plane,
				Endpoints: model.ObservedEndpoints{NodePort: 31512, LoadBalancer: "192.0.2.44", ControlPlaneRoute: row.route},
			}, guest)
			if err != nil {
				return err.Error()
			}
			return fmt.Sprint(state.Endpoint)
		}
		want := published("")
		switch {
		case strings.Contains(want, "--publish=tunnel and --relay-image"):
			want, tunnels = relays, tunnels+1
		case row.route == insideRoute || row.route.Exists && strings.HasPrefix(row.name, "ARO HCP"):
			want, fromRoute = relays, fromRoute+1
		}
		if got := published("registry.example.com/hypergate:1"); got != want {
			t.Errorf("%s: published at\n  %s\nwant\n  %s", row.name, got, want)
		}
	}
	if tunnels < 8 || fromRoute < 8 {
		t.Errorf("only %d platforms use the tunnel, and %d leave a Route for it", tunnels, fromRoute)
	}
}
