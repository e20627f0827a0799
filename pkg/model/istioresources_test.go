package model_test

import (
	"slices"
	"testing"

	"github.com/hypergate/hypergate/pkg/model"
)

// TestReadKinds checks how kinds are named, in which order, and that only those that istiod serves are among them.
func TestReadKinds(t *testing.T) {
	t.Parallel()
	var names, restricting []string
	for _, kind := range model.ReadKindsOf([]string{
		model.InferencePoolCRD, "x.networking.istio.io", "gateways.networking.istio.io", "telemetries.telemetry.istio.io",
		"destinationrules.networking.istio.io", "authorizationpolicies.security.istio.io", "proxyconfigs.networking.istio.io",
	}) {
		if names = append(names, kind.Plural()); kind.RestrictsAccess() {
			restricting = append(restricting, kind.Plural())
		}
	}
	want := []string{
		"AuthorizationPolicies", "DestinationRules", "Gateways.networking.istio.io", "ProxyConfigs", "Telemetries", "InferencePools",
	}
	if !slices.Equal(names, want) || !slices.Equal(restricting, want[:1]) {
		t.Errorf("the kinds are %v, of which %v restrict access; want %v", names, restricting, want)
	}
	cfg := model.Config{IstioResources: []model.IstioResource{{Group: "networking.istio.io", Resource: "envoyfilters"}}}
	if kinds := cfg.ReadKinds(); len(kinds) != 2 || kinds[0].Kind != "EnvoyFilter" || kinds[1].CRD() != model.InferencePoolCRD {
		t.Errorf("with EnvoyFilters, istiod reads %v", kinds)
	}
}
