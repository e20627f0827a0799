// Package netutil stands for HyperShift's package of this name, as far as a Route of a component needs it.
package netutil

import (
	"fmt"
	"hash/fnv"
	"strings"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"

	routev1 "github.com/openshift/api/route/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// HCPRouteLabel is the label of Routes for HyperShift's own router.
	HCPRouteLabel = "hypershift.openshift.io/hosted-control-plane"
	// InternalRouteLabel is the label of Routes on a private link.
	InternalRouteLabel = "hypershift.openshift.io/internal-route"
	// RemoveLabelMarker is the value of a label that must be removed from an existing object.
	RemoveLabelMarker = "__REMOVE_LABEL__"
)

// ServicePublishingStrategyByTypeForHCP returns how a part of the control plane is published, or nil.
func ServicePublishingStrategyByTypeForHCP(hcp *hyperv1.HostedControlPlane, part hyperv1.ServiceType) *hyperv1.ServicePublishingStrategy {
	for i := range hcp.Spec.Services {
		if hcp.Spec.Services[i].Service == part {
			return &hcp.Spec.Services[i].ServicePublishingStrategy
		}
	}
	return nil
}

// IsAroHCPByHCP reports whether the hosted cluster is one of ARO HCP.
func IsAroHCPByHCP(hcp *hyperv1.HostedControlPlane) bool {
	azure := hcp.Spec.Platform.Azure
	return hcp.Spec.Platform.Type == hyperv1.AzurePlatform && azure != nil &&
		azure.AzureAuthenticationConfig.AzureAuthenticationConfigType == hyperv1.AzureAuthenticationTypeManagedIdentities
}

// IsPrivateHCP reports whether the nodes use a private link. On Azure, this stand-in knows only public hosted clusters.
func IsPrivateHCP(hcp *hyperv1.HostedControlPlane) bool {
	switch platform := hcp.Spec.Platform; {
	case platform.Type == hyperv1.AWSPlatform && platform.AWS != nil:
		return platform.AWS.EndpointAccess == hyperv1.PublicAndPrivate || platform.AWS.EndpointAccess == hyperv1.Private
	case platform.Type == hyperv1.GCPPlatform && platform.GCP != nil:
		return platform.GCP.EndpointAccess != ""
	default:
		return false
	}
}

// LabelHCPRoutes reports whether public Routes are for HyperShift's own router, or for its shared ingress.
func LabelHCPRoutes(hcp *hyperv1.HostedControlPlane) bool {
	if IsAroHCPByHCP(hcp) {
		return true
	}
	server := ServicePublishingStrategyByTypeForHCP(hcp, hyperv1.APIServer)
	return server != nil && server.Type == hyperv1.Route && server.Route != nil && server.Route.Hostname != ""
}

// ShortenName joins a name and a suffix. If the result is too long, it has a hash, and less of the name or no suffix.
func ShortenName(base, suffix string, longest int) string {
	name := base + "-" + suffix
	if len(name) <= longest {
		return name
	}
	const hashed = 10 // a hash, with a hyphen before and after it
	if room := longest - hashed - len(suffix); room >= 0 {
		return fmt.Sprintf("%s-%s-%s", base[:min(room, len(base))], hash(base), suffix)
	}
	return fmt.Sprintf("%s-%s", base[:min(longest-hashed+1, len(base))], hash(name))
}

func hash(text string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // it never fails
	return fmt.Sprintf("%08x", h.Sum32())
}

// ReconcileExternalRoute sets the host, the Service and the label of a public Route.
func ReconcileExternalRoute(route *routev1.Route, hostname, ingressDomain, service string, labeled bool) error {
	if labeled {
		label(route, HCPRouteLabel, route.Namespace)
	}
	switch {
	case hostname != "":
		route.Spec.Host = hostname
	case route.Spec.Host == "" && ingressDomain != "":
		return fmt.Errorf("this stand-in makes no host for Route %s", route.Name)
	}
	passthrough(route, service)
	return nil
}

// ReconcileInternalRoute sets the host, the Service and the labels of a Route on a private link.
func ReconcileInternalRoute(route *routev1.Route, cluster, service string) error {
	label(route, HCPRouteLabel, route.Namespace)
	label(route, InternalRouteLabel, "true")
	if route.Spec.Host == "" {
		route.Spec.Host = fmt.Sprintf("%s.apps.%s.hypershift.local", strings.TrimSuffix(route.Name, "-internal"), cluster)
	}
	passthrough(route, service)
	return nil
}

// MarkHCPRouteLabelForRemoval makes the framework remove the label from an existing Route.
func MarkHCPRouteLabelForRemoval(target client.Object) {
	label(target, HCPRouteLabel, RemoveLabelMarker)
}

func label(target client.Object, key, value string) {
	labels := target.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[key] = value
	target.SetLabels(labels)
}

func passthrough(route *routev1.Route, service string) {
	route.Spec.To = routev1.RouteTargetReference{Kind: "Service", Name: service}
	route.Spec.TLS = &routev1.TLSConfig{
		Termination: routev1.TLSTerminationPassthrough, InsecureEdgeTerminationPolicy: routev1.InsecureEdgeTerminationPolicyNone,
	}
}
