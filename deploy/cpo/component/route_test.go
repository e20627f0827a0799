package hypergate_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	component "github.com/openshift/hypershift/support/controlplane-component"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/google/go-cmp/cmp"
	hypergate "github.com/hypergate/hypergate/deploy/cpo/component"
)

const ingressDomain = "apps.mgmt.example.com"

// routeContext returns a context with the assets of the alternative with a Route.
func routeContext(t *testing.T, edit func(*hyperv1.HostedControlPlane)) component.ControlPlaneContext {
	t.Helper()
	out := newContext(t, techPreview, edit)
	out.Assets = append(out.Assets, filepath.Join("..", "route"))
	return out
}

// publishedBy returns an edit that publishes a part of the control plane by Route.
func publishedBy(part hyperv1.ServiceType, hostname string) func(*hyperv1.HostedControlPlane) {
	return func(hcp *hyperv1.HostedControlPlane) {
		mapping := hyperv1.ServicePublishingStrategyMapping{Service: part}
		mapping.Type = hyperv1.Route
		if hostname != "" {
			mapping.Route = &hyperv1.RoutePublishingStrategy{Hostname: hostname}
		}
		hcp.Spec.Services = append(hcp.Spec.Services, mapping)
	}
}

func edits(all ...func(*hyperv1.HostedControlPlane)) func(*hyperv1.HostedControlPlane) {
	return func(hcp *hyperv1.HostedControlPlane) {
		for _, edit := range all {
			edit(hcp)
		}
	}
}

// TestRouteByHost checks the host of the Route, and that there is none, but the tunnel, if no host can be made.
func TestRouteByHost(t *testing.T) {
	private := func(hcp *hyperv1.HostedControlPlane) {
		hcp.Spec.Platform.AWS = &hyperv1.AWSPlatformSpec{EndpointAccess: hyperv1.Private}
	}
	infraID := func(id string) func(*hyperv1.HostedControlPlane) {
		return func(hcp *hyperv1.HostedControlPlane) { hcp.Spec.InfraID = id }
	}
	ibm := func(hcp *hyperv1.HostedControlPlane) { hcp.Spec.Platform.Type = hyperv1.IBMCloudPlatform }
	ignition, withDomain := publishedBy(hyperv1.Ignition, ""), publishedBy(hyperv1.Ignition, "ign.g.example.com")
	apiServer := publishedBy(hyperv1.APIServer, "api.g.example.com")
	long := strings.Repeat("a", 52) + "-abcde"
	for name, tc := range map[string]struct {
		domain string
		edit   func(*hyperv1.HostedControlPlane)
		want   string // a prefix of the host, or empty for the tunnel
		label  bool
	}{
		"by the ingress domain":  {ingressDomain, ignition, "istiod-guest1-abcde.apps.mgmt.example.com", false},
		"by Ignition's domain":   {ingressDomain, withDomain, "istiod-guest1-abcde.g.example.com", false},
		"not OpenShift":          {"", ignition, "", false},
		"Ignition without a dot": {"", publishedBy(hyperv1.Ignition, "ignition"), "", false},
		"no infrastructure ID":   {ingressDomain, edits(ignition, infraID("")), "", false},
		"a long one":             {ingressDomain, edits(ignition, infraID(long)), "istiod-", false},
		"no Ignition":            {ingressDomain, nil, "", false},
		"private":                {"", private, "istiod.apps.guest1.hypershift.local", true},
		"IBM Cloud":              {ingressDomain, edits(ignition, ibm), "", false},
		"HyperShift's router":    {ingressDomain, edits(ignition, apiServer), "istiod-guest1-abcde.apps.mgmt.example.com", true},
	} {
		t.Run(name, func(t *testing.T) {
			cpContext := routeContext(t, tc.edit)
			reconcile(t, hypergate.NewRouteComponent(tc.domain), cpContext)
			route, service := cpContext.Client.Find("Route", "istiod"), cpContext.Client.Find("Service", "istiod")
			published := env(t, cpContext, "PUBLISH")
			if tc.want == "" {
				if route != nil || service != nil || published != "tunnel" {
					t.Errorf("PUBLISH is %s, with Route %v", published, route)
				}
				return
			}
			if route == nil || service == nil || published != "route" {
				t.Fatalf("PUBLISH is %s, with Route %v and Service %v", published, route, service)
			}
			host, _, _ := unstructured.NestedString(route.Object, "spec", "host")
			label, _, _ := strings.Cut(host, ".")
			valid := len(validation.IsDNS1123Label(label)) == 0 && len(validation.IsDNS1123Subdomain(host)) == 0
			if !strings.HasPrefix(host, tc.want) || !valid || strings.Contains(host, "clusters-guest1") {
				t.Errorf("the host is %q, want %q", host, tc.want)
			}
			if _, labeled := route.GetLabels()["hypershift.openshift.io/hosted-control-plane"]; labeled != tc.label {
				t.Errorf("the labels are %v", route.GetLabels())
			}
		})
	}
}

// TestRouteIsDeleted checks that the Route and its Service are deleted if the Route is not possible any more.
func TestRouteIsDeleted(t *testing.T) {
	cpContext := routeContext(t, publishedBy(hyperv1.Ignition, "ign.g.example.com"))
	reconcile(t, hypergate.NewRouteComponent(""), cpContext)
	if cpContext.Client.Find("Route", "istiod") == nil {
		t.Fatal("there is no Route")
	}
	cpContext.HCP.Spec.Services = nil
	reconcile(t, hypergate.NewRouteComponent(""), cpContext)
	if cpContext.Client.Find("Route", "istiod") != nil || cpContext.Client.Find("Service", "istiod") != nil {
		t.Errorf("there are %q", cpContext.Client.Names())
	}
}

// TestTheRouteComponentHasTheGoldens checks the objects of the alternative against those of test/hypershift.
func TestTheRouteComponentHasTheGoldens(t *testing.T) {
	cpContext := routeContext(t, edits(publishedBy(hyperv1.Ignition, ""), publishedBy(hyperv1.APIServer, "api.g.example.com")))
	reconcile(t, hypergate.NewRouteComponent(ingressDomain), cpContext)
	got := map[string]map[string]any{}
	for _, key := range cpContext.Client.Names() {
		kind, name, _ := strings.Cut(key, "/")
		got[key] = cpContext.Client.Find(kind, name).Object
	}
	if diff := cmp.Diff(golden(t, "by-route.yaml"), got); diff != "" {
		t.Errorf("-golden +component:\n%s", diff)
	}
}

// aro is a hosted control plane of ARO HCP with a private key vault: kube-apiserver reaches its vault through
// HyperShift's router, so it is not available before the router.
type aro struct {
	cpContext component.ControlPlaneContext
	hypergate component.ControlPlaneComponent
	// expects are the Routes that the router waits for. routes are those of its configuration, one for each rollout.
	expects []string
	routes  []string
}

func (a *aro) rolledOut(name string) {
	a.cpContext.Client.SetStatus(name, component.Status{Exists: true, RolledOut: true, Version: release{}.Version()})
}

// router does what HyperShift's router does: it waits for Routes, and reads all Routes when it starts.
func (a *aro) router() error {
	var have []string
	for _, route := range a.cpContext.Client.All("Route") {
		if host, _, _ := unstructured.NestedString(route.Object, "spec", "host"); host != "" {
			have = append(have, route.GetName())
		}
	}
	for _, name := range a.expects {
		if !slices.Contains(have, name) {
			return fmt.Errorf("waiting for HCP router routes: %s", name)
		}
	}
	if missing := component.MissingDependencies(a.cpContext, "router", "ignition-server"); len(missing) > 0 {
		return errors.New("waiting for dependencies")
	}
	if config := strings.Join(have, ","); len(a.routes) == 0 || a.routes[len(a.routes)-1] != config {
		a.routes = append(a.routes, config)
	}
	a.rolledOut("router")
	return nil
}

// isARO makes a HostedControlPlane one of ARO HCP, which publishes Ignition under a hostname.
func isARO(hcp *hyperv1.HostedControlPlane) {
	publishedBy(hyperv1.Ignition, "ign.g.example.com")(hcp)
	hcp.Spec.Platform.Type = hyperv1.AzurePlatform
	hcp.Spec.Platform.Azure = &hyperv1.AzurePlatformSpec{AzureAuthenticationConfig: hyperv1.AzureAuthenticationConfiguration{
		AzureAuthenticationConfigType: hyperv1.AzureAuthenticationTypeManagedIdentities,
	}}
}

// pass reconciles all components once, in HyperShift's order.
func (a *aro) pass(t *testing.T) (routerProblem error) {
	t.Helper()
	if a.cpContext.Client.Status("router").RolledOut {
		a.rolledOut("kube-apiserver")
	}
	a.rolledOut("ignition-server")
	reconcile(t, a.hypergate, a.cpContext)
	return a.router()
}

// TestAROWithAPrivateKeyVault checks that the alternative with a Route needs hypergate among the components that do not
// wait for kube-apiserver. Otherwise the control plane never starts if the router waits for the Route. If it does not
// wait, the router rolls when the Route appears, and cuts all connections through it.
func TestAROWithAPrivateKeyVault(t *testing.T) {
	for name, tc := range map[string]struct {
		exclude, expects []string
		available        bool
		rollouts         []string
	}{
		"excluded, and the router waits":         {[]string{"hypergate"}, []string{"istiod"}, true, []string{"istiod"}},
		"excluded, and the router does not wait": {[]string{"hypergate"}, nil, true, []string{"istiod"}},
		"not excluded, and the router waits":     {nil, []string{"istiod"}, false, nil},
		"neither":                                {nil, nil, true, []string{"", "istiod"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := &aro{cpContext: routeContext(t, isARO), hypergate: hypergate.NewRouteComponent(""), expects: tc.expects}
			a.cpContext.Exclusions = append(a.cpContext.Exclusions, tc.exclude...)
			a.cpContext.Client.SetStatus("kube-apiserver", component.Status{})
			var problem error
			for range 5 {
				problem = a.pass(t)
			}
			available := a.cpContext.Client.Status("kube-apiserver").RolledOut && a.cpContext.Client.Status("hypergate").RolledOut
			if available != tc.available || (problem == nil) != tc.available {
				t.Errorf("available %t, the router: %v, hypergate: %+v", available, problem, a.cpContext.Client.Status("hypergate"))
			}
			if diff := cmp.Diff(tc.rollouts, a.routes); diff != "" {
				t.Errorf("the router's configurations, -want +got:\n%s", diff)
			}
		})
	}
}

// TestTheTunnelNeedsNoExclusion checks that the component with the tunnel makes no Route, so that neither the router
// nor kube-apiserver depends on it.
func TestTheTunnelNeedsNoExclusion(t *testing.T) {
	cpContext := newContext(t, techPreview, nil)
	cpContext.Client.SetStatus("kube-apiserver", component.Status{})
	a := &aro{cpContext: cpContext, hypergate: hypergate.NewComponent()}
	for range 5 {
		if err := a.pass(t); err != nil {
			t.Fatal(err)
		}
	}
	if got := a.routes; !cpContext.Client.Status("hypergate").RolledOut || len(got) != 1 {
		t.Errorf("the router's configurations are %q, hypergate is %+v", got, cpContext.Client.Status("hypergate"))
	}
}
