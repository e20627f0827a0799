package desired_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/pkg/model"
)

// TestTLSProfiles checks where a TLS security profile is in istiod's objects: in the mesh configuration, and among
// istiod's arguments. On two clusters, it comes from the HostedControlPlane, and never from the guest.
func TestTLSProfiles(t *testing.T) {
	custom := model.TLSProfile{
		Type: "Custom", Adherence: "StrictAllComponents", MinVersion: "VersionTLS12", Groups: []string{"secp384r1"},
		Ciphers: []string{"ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"},
	}
	const suites = "cipherSuites: [ECDHE-RSA-AES128-GCM-SHA256, ECDHE-ECDSA-AES128-GCM-SHA256], minProtocolVersion: TLSV1_2"
	const restricted = "meshMTLS: {" + suites + "}\ntlsDefaults: {" + suites + ", ecdhCurves: [P-384]}\n"
	const argument = "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
	modern := model.TLSProfile{Type: "Modern", Adherence: "StrictAllComponents"}
	for name, tc := range map[string]struct {
		topology    model.Topology
		hcp, guest  model.TLSProfile
		mesh, wants string
	}{
		"hosted":              {model.TopologyHosted, custom, model.TLSProfile{}, restricted, argument},
		"standalone":          {model.TopologyStandalone, model.TLSProfile{}, custom, restricted, argument},
		"hosted, the guest's": {model.TopologyHosted, model.TLSProfile{}, custom, "", ""},
		"without cipher suites": {model.TopologyHosted, modern, custom, "meshMTLS: {minProtocolVersion: TLSV1_3}\n" +
			"tlsDefaults: {ecdhCurves: [X25519MLKEM768, X25519, P-256, P-384], minProtocolVersion: TLSV1_3}\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, mgmt, guest := config(tc.topology), installed(t), withForeignCRDs(withClasses("demo"))
			if tc.topology == model.TopologyHosted {
				mgmt = withControlPlane(t, func(c *model.ControlPlane) { c.TLSProfile = tc.hcp })
			}
			guest.TLSProfile = tc.guest
			objects := mgmtObjects(compute(t, cfg, embedded(t), mgmt, guest))
			if diff := cmp.Diff(parsed(t, tc.mesh), tlsInMesh(t, objects)); diff != "" {
				t.Errorf("the mesh configuration (-want +got):\n%s", diff)
			}
			args, _ := at(theOnly(t, objects, "Deployment"), "spec", "template", "spec", "containers", 0, "args").([]any)
			has := slices.IndexFunc(args, func(arg any) bool { return strings.HasPrefix(arg.(string), "--tls-") })
			if tc.wants == "" && has >= 0 || tc.wants != "" && (has < 0 || args[has] != tc.wants) {
				t.Errorf("istiod's arguments are %q", args)
			}
		})
	}
}

// TestUsedSettingsAreOnTheDeployment checks that istiod's Deployment records the settings that it is planned with, so
// that a later hypergate finds them. Its pods do not have the record, and the guest's TLS profile is not part of it on
// two clusters.
func TestUsedSettingsAreOnTheDeployment(t *testing.T) {
	modern := model.TLSProfile{Type: "Modern", Adherence: "StrictAllComponents"}
	all := model.UsedSettings{Infrastructure: model.SeveralNodes, TLSProfile: modern}
	single := model.UsedSettings{Infrastructure: model.SingleNode}
	for name, tc := range map[string]struct {
		topology    model.Topology
		guest, want model.UsedSettings
	}{
		"none":          {topology: model.TopologyStandalone},
		"all":           {model.TopologyStandalone, all, all},
		"not obeyed":    {topology: model.TopologyStandalone, guest: model.UsedSettings{TLSProfile: model.TLSProfile{Type: "Modern"}}},
		"a single node": {model.TopologyHosted, single, single},
		"hosted":        {topology: model.TopologyHosted, guest: model.UsedSettings{TLSProfile: modern}},
	} {
		t.Run(name, func(t *testing.T) {
			mgmt, guest := installed(t), withForeignCRDs(withClasses("demo"))
			if tc.topology == model.TopologyHosted {
				mgmt = withControlPlane(t, func(*model.ControlPlane) {})
			}
			guest.Infrastructure, guest.TLSProfile = tc.guest.Infrastructure, tc.guest.TLSProfile
			deployment := theOnly(t, mgmtObjects(compute(t, config(tc.topology), embedded(t), mgmt, guest)), "Deployment")
			if diff := cmp.Diff(tc.want, model.UsedSettingsIn(deployment.GetAnnotations()), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			onPods, _, _ := unstructured.NestedStringMap(deployment.Object, "spec", "template", "metadata", "annotations")
			if model.UsedSettingsIn(onPods).Infrastructure != model.NotStated || onPods[model.TLSProfileAnnotation] != "" {
				t.Errorf("the pods have %v", onPods)
			}
		})
	}
}

// tlsInMesh returns the TLS settings in the mesh configuration.
func tlsInMesh(t *testing.T, objects []anObject) map[string]any {
	t.Helper()
	i := slices.IndexFunc(objects, func(o anObject) bool { return o.Key().Name == "istio-openshift-gateway-a" })
	u, err := objects[i].Unstructured()
	if err != nil {
		t.Fatal(err)
	}
	text, _ := at(u, "data", "mesh").(string)
	mesh, out := parsed(t, text), map[string]any{}
	for _, field := range []string{"tlsDefaults", "meshMTLS"} {
		if value, exists := mesh[field]; exists {
			out[field] = value
		}
	}
	return out
}

func parsed(t *testing.T, text string) map[string]any {
	t.Helper()
	out := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}
