package model

import (
	"cmp"
	"slices"
	"strings"
)

// IstioResource is one resource of Istio's API.
type IstioResource struct{ Group, Resource string }

// CRD returns the name of the resource's CustomResourceDefinition.
func (r IstioResource) CRD() string { return r.Resource + "." + r.Group }

// SortedIstioResources returns the IstioResources sorted by group and resource, without duplicates.
func (c Config) SortedIstioResources() []IstioResource {
	sorted := slices.SortedFunc(slices.Values(c.IstioResources), func(a, b IstioResource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	return slices.Compact(sorted)
}

// IstioKind is a kind of Istio's API.
type IstioKind struct {
	IstioResource

	// Kind is the name of the kind, as a user of the Gateway API reads it.
	// Version is the one that each supported istiod reads (istio pkg/config/schema/gvr).
	Kind, Version string
}

// Plural returns the name of several objects of the kind.
func (k IstioKind) Plural() string {
	name, group, qualified := strings.Cut(k.Kind, ".")
	if stem, ends := strings.CutSuffix(name, "y"); ends && !strings.HasSuffix(stem, "a") {
		name = stem + "ie"
	}
	if name += "s"; qualified {
		name += "." + group
	}
	return name
}

// RestrictsAccess reports whether the only purpose of the kind is to decide who reaches what.
func (k IstioKind) RestrictsAccess() bool { return k.Group == securityGroup }

const securityGroup = "security.istio.io"

// IstioKinds returns the kinds of Istio's API that istiod can serve (istio pkg/config/schema/metadata.yaml), those that
// restrict access first.
func IstioKinds() []IstioKind {
	const security, networking = securityGroup, "networking.istio.io"
	return []IstioKind{
		{IstioResource{security, "authorizationpolicies"}, "AuthorizationPolicy", "v1"},
		{IstioResource{security, "requestauthentications"}, "RequestAuthentication", "v1"},
		{IstioResource{security, "peerauthentications"}, "PeerAuthentication", "v1"},
		{IstioResource{networking, "envoyfilters"}, "EnvoyFilter", "v1alpha3"},
		{IstioResource{networking, "virtualservices"}, "VirtualService", "v1"},
		{IstioResource{networking, "destinationrules"}, "DestinationRule", "v1"},
		{IstioResource{networking, "gateways"}, "Gateway.networking.istio.io", "v1"},
		{IstioResource{networking, "serviceentries"}, "ServiceEntry", "v1"},
		{IstioResource{networking, "sidecars"}, "Sidecar", "v1"},
		{IstioResource{networking, "workloadentries"}, "WorkloadEntry", "v1"},
		{IstioResource{networking, "workloadgroups"}, "WorkloadGroup", "v1"},
		{IstioResource{networking, "proxyconfigs"}, "ProxyConfig", "v1beta1"},
		{IstioResource{"extensions.istio.io", "wasmplugins"}, "WasmPlugin", "v1alpha1"},
		{IstioResource{"telemetry.istio.io", "telemetries"}, "Telemetry", "v1"},
	}
}

// KnownIstioResources returns the resources of Istio's API that Config.IstioResources can contain, sorted by group and
// resource.
func KnownIstioResources() []IstioResource {
	var all Config
	for _, kind := range IstioKinds() {
		all.IstioResources = append(all.IstioResources, kind.IstioResource)
	}
	return all.SortedIstioResources()
}

// IsKnownIstioCRD reports whether a name is that of the CustomResourceDefinition of a known resource.
func IsKnownIstioCRD(name string) bool {
	return slices.ContainsFunc(IstioKinds(), func(k IstioKind) bool { return k.CRD() == name })
}

// IsIstioGroup reports whether a group is one of Istio's API, in which istiod serves kinds.
func IsIstioGroup(group string) bool {
	return slices.ContainsFunc(IstioKinds(), func(k IstioKind) bool { return k.Group == group })
}

// LayeredProductResources returns the resources that products on top of OpenShift's Gateway API use. They are the
// default for Config.IstioResources (openshift/enhancements, ingress/gateway-api-without-olm.md).
func LayeredProductResources() []IstioResource {
	return slices.DeleteFunc(KnownIstioResources(), func(r IstioResource) bool {
		return !slices.Contains([]string{"destinationrules", "envoyfilters", "wasmplugins"}, r.Resource)
	})
}
