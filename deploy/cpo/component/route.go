package hypergate

import (
	"strings"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	component "github.com/openshift/hypershift/support/controlplane-component"
	"github.com/openshift/hypershift/support/netutil"

	routev1 "github.com/openshift/api/route/v1"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// This file is the alternative to the tunnel: istiod is published by a Route, as the metrics proxy is. It needs further
// assets, and cases for the Route in HyperShift's routers.

// xdsService is the Service of the Route.
const xdsService = "istiod"

// byRoute publishes istiod by a Route where the routers can serve it, and by the tunnel elsewhere.
type byRoute struct {
	defaultIngressDomain string
}

// NewRouteComponent returns the component with a Route. Register it before the router, which reads the Routes once.
func NewRouteComponent(defaultIngressDomain string) component.ControlPlaneComponent {
	r := &byRoute{defaultIngressDomain: defaultIngressDomain}
	return component.NewDeploymentComponent(ComponentName, &hypergate{}).
		WithManifestAdapter("podmonitor.yaml", component.WithAdaptFunction(adaptPodMonitor)).
		WithManifestAdapter("istiod-podmonitor.yaml", component.WithAdaptFunction(adaptPodMonitor)).
		WithPredicate(predicate).
		WithAdaptFunction(r.adaptDeployment).
		WithManifestAdapter("istiod-service.yaml", component.WithPredicate(r.predicate)).
		WithManifestAdapter("route.yaml", component.WithAdaptFunction(r.adaptRoute), component.WithPredicate(r.predicate)).
		InjectServiceAccountKubeConfig(guestKubeconfig()).
		MonitorOperandsRolloutStatus().
		Build()
}

// predicate reports whether the Route exists: on a private link, or if Ignition is published by Route and there is a
// domain for the host. The API server does not decide, because its load balancer is for the API server alone.
func (r *byRoute) predicate(cpContext component.WorkloadContext) bool {
	hcp := cpContext.HCP
	if hcp.Spec.Platform.Type == hyperv1.IBMCloudPlatform {
		return false
	}
	if netutil.IsPrivateHCP(hcp) {
		return true
	}
	ignition := netutil.ServicePublishingStrategyByTypeForHCP(hcp, hyperv1.Ignition)
	return ignition != nil && ignition.Type == hyperv1.Route && r.host(hcp) != ""
}

func (r *byRoute) adaptDeployment(cpContext component.WorkloadContext, deployment *appsv1.Deployment) error {
	if r.predicate(cpContext) {
		setEnv(deployment, map[string]string{"PUBLISH": "route"})
	}
	return adaptDeployment(cpContext, deployment)
}

// adaptRoute sets the host and the label of the Route. hypergate uses the Route as it is.
func (r *byRoute) adaptRoute(cpContext component.WorkloadContext, route *routev1.Route) error {
	hcp := cpContext.HCP
	if netutil.IsPrivateHCP(hcp) {
		return netutil.ReconcileInternalRoute(route, hcp.Name, xdsService)
	}
	labeled := netutil.LabelHCPRoutes(hcp)
	if err := netutil.ReconcileExternalRoute(route, r.host(hcp), "", xdsService, labeled); err != nil {
		return err
	}
	if !labeled {
		netutil.MarkHCPRouteLabelForRemoval(route)
	}
	return nil
}

// host returns the host of an external Route. It is empty if there is no domain: neither of Ignition nor of a
// management cluster that is OpenShift.
//
// Each gateway of the hosted cluster shows the host, so it does not have the namespace's name, which
// netutil.ShortenRouteHostnameIfNeeded would add. Its first label has at most 63 characters.
func (r *byRoute) host(hcp *hyperv1.HostedControlPlane) string {
	domain := r.defaultIngressDomain
	if s := netutil.ServicePublishingStrategyByTypeForHCP(hcp, hyperv1.Ignition); s != nil && s.Route != nil && s.Route.Hostname != "" {
		_, domain, _ = strings.Cut(s.Route.Hostname, ".")
	}
	if domain == "" || hcp.Spec.InfraID == "" {
		return ""
	}
	return netutil.ShortenName(xdsService, hcp.Spec.InfraID, validation.DNS1123LabelMaxLength) + "." + domain
}
