package mgmt_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fakeapi"
)

// TestIstiodsConfigurationIsObserved checks that the slots and the hashes of istiod's Deployment are read back.
func TestIstiodsConfigurationIsObserved(t *testing.T) {
	t.Parallel()
	cfg := config()
	deployment := func(hash, mesh, templates string) string {
		return fmt.Sprintf("{metadata: {name: %s, namespace: clusters-guest1, uid: u}, "+
			"spec: {template: {metadata: {annotations: {%s: %q}}, spec: {volumes: [{name: mesh, configMap: {name: %s}}, "+
			"{name: inject, configMap: {name: %s}}, {name: x, emptyDir: {}}]}}}}",
			istiod, model.ConfigHashAnnotation, hash, mesh, templates)
	}
	for name, c := range map[string]struct {
		deployment string
		want       model.IstiodConfig
	}{
		"of this version": {
			deployment("aa.bb.cc", cfg.MeshConfigMap(model.SlotA), cfg.InjectorConfigMap(model.SlotB)),
			model.IstiodConfig{
				Mesh:      model.ConfigContent{Slot: model.SlotA, Hash: "aa"},
				Templates: model.ConfigContent{Slot: model.SlotB, Hash: "bb"}, Image: "cc",
			},
		},
		"of an earlier version": {deployment("", cfg.ChartMeshConfigMap(), cfg.ChartInjectorConfigMap()), model.IstiodConfig{}},
		"another client wrote the hash": {
			deployment("aa.bb", cfg.MeshConfigMap(model.SlotB), cfg.InjectorConfigMap(model.SlotB)),
			model.IstiodConfig{Mesh: model.ConfigContent{Slot: model.SlotB}, Templates: model.ConfigContent{Slot: model.SlotB}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, func(api *fakeapi.Server) { api.Put(theDeployments, c.deployment) })
			if diff := cmp.Diff(c.want, f.observed().IstiodConfig); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestUsedSettingsAreObserved checks which settings of the guest istiod's Deployment has. Other texts count as none.
func TestUsedSettingsAreObserved(t *testing.T) {
	t.Parallel()
	names := strings.NewReplacer("topology:", model.InfrastructureAnnotation+":", "tls:", model.TLSProfileAnnotation+":")
	used := model.UsedSettings{
		Infrastructure: model.SingleNode,
		TLSProfile:     model.TLSProfile{Type: "Custom", Ciphers: []string{"a"}, Adherence: "StrictAllComponents"},
	}
	written, err := used.Annotations()
	if err != nil {
		t.Fatal(err)
	}
	for annotations, want := range map[string]model.UsedSettings{
		"{}":                          {},
		"{topology: External}":        {},
		"{topology: HighlyAvailable}": {Infrastructure: model.SeveralNodes},
		"{tls: '{'}":                  {},
		"{tls: '{\"Type\": 1, \"MinVersion\": \"VersionTLS12\"}'}":                      {},
		"{topology: SingleReplica, tls: '" + written[model.TLSProfileAnnotation] + "'}": used,
	} {
		f := start(t, func(api *fakeapi.Server) {
			api.Put(theDeployments, "{metadata: {name: "+istiod+", namespace: clusters-guest1, uid: u, "+
				"annotations: "+names.Replace(annotations)+"}}")
		})
		if diff := cmp.Diff(want, f.observed().Used, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", annotations, diff)
		}
	}
}

// TestIgnoredCRDsAreObserved checks what istiod's Deployment shows of the CRDs that istiod ignores. Names that istiod
// does not read count as none.
func TestIgnoredCRDsAreObserved(t *testing.T) {
	t.Parallel()
	const rules = "destinationrules.networking.istio.io"
	type seen struct {
		CRDs  []string
		Since time.Time
	}
	at := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	names := strings.NewReplacer("%s", rules, "crds:", model.IgnoredCRDsAnnotation+":", "since:", model.IgnoredSinceAnnotation+":",
		"before:", "gateway.hypergate.dev/inference-pools-ignored:")
	for annotations, want := range map[string]seen{
		"{}":                               {},
		"{crds: ''}":                       {},
		"{before: '2026-02-03T04:05:06Z'}": {[]string{model.InferencePoolCRD}, at},
		"{before: 'true'}":                 {CRDs: []string{model.InferencePoolCRD}},
		"{crds: %s}":                       {CRDs: []string{rules}},
		"{crds: '%s,x'}":                   {CRDs: []string{rules}},
		"{crds: x, since: '2026-02-03T04:05:06Z'}":                                   {},
		"{since: '2026-02-03T04:05:06Z'}":                                            {},
		"{crds: %s, since: yesterday}":                                               {CRDs: []string{rules}},
		"{crds: '" + model.InferencePoolCRD + ",%s', since: '2026-02-03T04:05:06Z'}": {[]string{rules, model.InferencePoolCRD}, at},
	} {
		annotations = names.Replace(annotations)
		f := start(t, func(api *fakeapi.Server) {
			api.Put(theDeployments, "{metadata: {name: "+istiod+", namespace: clusters-guest1, uid: u}, "+
				"spec: {template: {metadata: {annotations: "+annotations+"}}}}")
		})
		got := f.observed()
		if diff := cmp.Diff(want, seen{got.IgnoredCRDs, got.IgnoredSince}); diff != "" {
			t.Errorf("%s: -want +got:\n%s", annotations, diff)
		}
	}
}
