package crds_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/model"
	testcharts "github.com/hypergate/hypergate/test/charts"
	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/fromyaml"
)

// istioCRDs returns all Istio CRDs that can be requested, from the previous release and from the embedded one.
func istioCRDs(tb testing.TB) (before, now []*unstructured.Unstructured) {
	tb.Helper()
	var names []string
	for _, r := range model.KnownIstioResources() {
		names = append(names, r.CRD())
	}
	source, err := charts.Embedded()
	if err != nil {
		tb.Fatal(err)
	}
	if now, err = source.CRDs(names); err != nil {
		tb.Fatal(err)
	}
	dir := testcharts.Dir1282(tb)
	if source, err = charts.FromFS(os.DirFS(dir), dir); err != nil {
		tb.Fatal(err)
	}
	if before, err = source.CRDs(names); err != nil {
		tb.Fatal(err)
	}
	return before, now
}

// gatewayAPI returns the embedded CRDs of the Gateway API.
func gatewayAPI(tb testing.TB) []*unstructured.Unstructured {
	tb.Helper()
	var out []*unstructured.Unstructured
	for _, name := range crds.GatewayAPI().Names() {
		u, err := crds.GatewayAPI().Object(name)
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, u)
	}
	return out
}

// experimental returns a CRD of the Gateway API's experimental channel, in the version of the embedded standard
// channel.
func experimental(tb testing.TB, name string) *unstructured.Unstructured {
	tb.Helper()
	dir, err := servers.ModuleDir(tb.Context(), ".", "sigs.k8s.io/gateway-api")
	if err != nil {
		tb.Fatal(err)
	}
	plural, group, _ := strings.Cut(name, ".")
	data, err := os.ReadFile(filepath.Join(dir, "config", "crd", "experimental", group+"_"+plural+".yaml"))
	if err != nil {
		tb.Fatal(err)
	}
	u := fromyaml.Object(tb, data)
	if got := u.GetAnnotations()["gateway.networking.k8s.io/bundle-version"]; got != crds.GatewayAPI().Version() {
		tb.Fatalf("the experimental channel is of %s, want %s", got, crds.GatewayAPI().Version())
	}
	return u
}

// in returns fields of the given versions.
func in(versions []string, paths ...string) []crds.Field {
	var out []crds.Field
	for _, path := range paths {
		out = append(out, crds.Field{Path: path, Versions: versions})
	}
	return out
}

// TestIstioUpgradeLosesNoFields checks that Istio's API lost nothing between 1.28.2 and the embedded version. Therefore
// the upgrade is allowed whichever fields objects use.
func TestIstioUpgradeLosesNoFields(t *testing.T) {
	three := []string{"v1", "v1alpha3", "v1beta1"}
	want := map[string]crds.Difference{
		// EnvoyFilter can match waypoints now.
		filters: {
			Gained:  in([]string{"v1alpha3"}, "spec.configPatches[].match.waypoint"),
			Changed: in([]string{"v1alpha3"}, "spec.configPatches[].match", "spec.configPatches[].match.context"),
		},
		// The aggression of a warm-up has a different minimum.
		"destinationrules.networking.istio.io": {Changed: in(three,
			"spec.subsets[].trafficPolicy.loadBalancer.warmup.aggression",
			"spec.subsets[].trafficPolicy.portLevelSettings[].loadBalancer.warmup.aggression",
			"spec.trafficPolicy.loadBalancer.warmup.aggression", "spec.trafficPolicy.portLevelSettings[].loadBalancer.warmup.aggression")},
		"telemetries.telemetry.istio.io": {
			Gained:  in([]string{"v1", "v1alpha1"}, "spec.tracing[].customTags{}.formatter"),
			Changed: in([]string{"v1", "v1alpha1"}, "spec.tracing[].customTags{}"),
		},
		"virtualservices.networking.istio.io": {Changed: in(three, "spec.http[].directResponse.body.bytes")},
	}
	before, now := istioCRDs(t)
	for i, crd := range now {
		d := compare(t, before[i], crd)
		if diff := cmp.Diff(want[crd.GetName()], d, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s, -want +got:\n%s", crd.GetName(), diff)
		}
		if same := hash(t, before[i]) == hash(t, crd); same != d.None() {
			t.Errorf("%s: one hash: %v, no difference: %v", crd.GetName(), same, d.None())
		}
		for _, owner := range []crds.OwnerKind{crds.Ours, crds.OrphanedOLM} {
			fact := crds.Fact{
				Owner: crds.Owner{Kind: owner}, Metadata: crds.Metadata{Version: "1.28.2"}, Content: crds.Read,
				Difference: d, Use: crds.Unsearched,
			}
			if got := crds.Decide(fact, crds.Wanted{Version: charts.EmbeddedVersion}, crds.Policy{}); !got.Verdict.Applies() {
				t.Errorf("%s of owner %q is not upgraded: %v", crd.GetName(), owner, got)
			}
		}
	}
}

// TestChannels checks which fields of the experimental channel would be lost with the standard channel.
func TestChannels(t *testing.T) {
	both := []string{"v1", "v1beta1"}
	lost := map[string][]crds.Field{
		"backendtlspolicies.gateway.networking.k8s.io": in([]string{"v1alpha3"}, ""),
		"gatewayclasses.gateway.networking.k8s.io":     nil,
		"gateways.gateway.networking.k8s.io":           in(both, "spec.allowedListeners", "spec.tls", "spec.defaultScope"),
		"grpcroutes.gateway.networking.k8s.io":         in([]string{"v1"}, "spec.rules[].sessionPersistence", "spec.useDefaultGateways"),
		routes: in(both,
			"spec.rules[].backendRefs[].filters[].cors", "spec.rules[].backendRefs[].filters[].externalAuth",
			"spec.rules[].filters[].cors", "spec.rules[].filters[].externalAuth",
			"spec.rules[].retry", "spec.rules[].sessionPersistence", "spec.useDefaultGateways"),
		"referencegrants.gateway.networking.k8s.io": nil,
	}
	for _, crd := range gatewayAPI(t) {
		d := compare(t, experimental(t, crd.GetName()), crd)
		if diff := cmp.Diff(lost[crd.GetName()], d.Lost); diff != "" {
			t.Errorf("%s loses, -want +got:\n%s", crd.GetName(), diff)
		}
		if len(d.Gained)+len(d.Other)+len(d.Fixed)+len(d.Unkept) > 0 {
			t.Errorf("%s: the standard channel has what the experimental one has not: %s", crd.GetName(), d)
		}
		none := len(lost[crd.GetName()]) == 0
		if d.None() != none {
			t.Errorf("%s: no difference: %v, want %v", crd.GetName(), d.None(), none)
		}
	}
	// The name of an experimental filter is only useful if its type is known.
	changed := compare(t, experimental(t, routes), gatewayAPI(t)[4]).Changed
	if len(changed) == 0 || changed[0].Path != "spec.rules[].backendRefs[].filters[]" {
		t.Errorf("%s has other rules for %v, want the types of filters first", routes, changed)
	}
}

// TestUsesOfTheExperimentalChannel finds the fields of a route that the standard channel would drop.
func TestUsesOfTheExperimentalChannel(t *testing.T) {
	const route = `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: a}
spec:
  parentRefs: [{name: gateway}]
  rules:
  - backendRefs: [{name: a, port: 80}]
  - filters: [{type: ExternalAuth, externalAuth: {protocol: HTTP}}]
    retry: {attempts: 3}
`
	lost := compare(t, experimental(t, routes), gatewayAPI(t)[4]).Lost
	want := in([]string{"v1", "v1beta1"}, "spec.rules[].filters[].externalAuth", "spec.rules[].retry")
	if diff := cmp.Diff(want, crds.Uses(fromyaml.Object(t, route).Object, lost)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestSchemasOverruleAnnotations checks a correct annotation with a wrong schema, and the reverse.
func TestSchemasOverruleAnnotations(t *testing.T) {
	ours := gatewayAPI(t)[4]
	wanted := crds.Wanted{Version: crds.GatewayAPI().Version(), Channel: crds.GatewayAPI().Channel()}
	right := crds.Metadata{Version: wanted.Version, Channel: wanted.Channel}
	wrong := crds.Metadata{Version: "v1.6.0", Channel: "experimental"}
	for _, tc := range []struct {
		what      string
		installed *unstructured.Unstructured
		marks     crds.Metadata
		want      crds.Reason
	}{
		{"right annotation, wrong schema", experimental(t, routes), right, crds.NeedsConsent},
		{"wrong annotation, right schema", ours, wrong, crds.IsIdentical},
	} {
		fact := crds.Fact{
			Owner: crds.Owner{Kind: crds.ThirdParty}, Metadata: tc.marks, Content: crds.Read,
			Difference: compare(t, tc.installed, ours),
		}
		if got := crds.Decide(fact, wanted, crds.Policy{}); got.Reason != tc.want {
			t.Errorf("%s: %v, want %s", tc.what, got, tc.want)
		}
		fact.Owner = crds.Owner{Kind: crds.Ours}
		if got := crds.Decide(fact, wanted, crds.Policy{}); got.Verdict != crds.Update {
			t.Errorf("%s, on ours: %v, want it put right", tc.what, got)
		}
	}
}
