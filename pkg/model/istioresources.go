package model

import (
	"cmp"
	"slices"
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

// KnownIstioResources returns the resources of Istio's API that Config.IstioResources can contain.
func KnownIstioResources() []IstioResource {
	var out []IstioResource
	for _, group := range []struct {
		name      string
		resources []string
	}{
		{"extensions.istio.io", []string{"wasmplugins"}},
		{"networking.istio.io", []string{
			"destinationrules", "envoyfilters", "gateways", "proxyconfigs", "serviceentries", "sidecars", "virtualservices",
			"workloadentries", "workloadgroups",
		}},
		{"security.istio.io", []string{"authorizationpolicies", "peerauthentications", "requestauthentications"}},
		{"telemetry.istio.io", []string{"telemetries"}},
	} {
		for _, resource := range group.resources {
			out = append(out, IstioResource{group.name, resource})
		}
	}
	return out
}

// IsIstioGroup reports whether a group is one of Istio's API, in which istiod serves kinds.
func IsIstioGroup(group string) bool {
	return slices.ContainsFunc(KnownIstioResources(), func(r IstioResource) bool { return r.Group == group })
}

// LayeredProductResources returns the resources that products on top of OpenShift's Gateway API use. They are the
// default for Config.IstioResources (openshift/enhancements, ingress/gateway-api-without-olm.md).
func LayeredProductResources() []IstioResource {
	return slices.DeleteFunc(KnownIstioResources(), func(r IstioResource) bool {
		return !slices.Contains([]string{"destinationrules", "envoyfilters", "wasmplugins"}, r.Resource)
	})
}
