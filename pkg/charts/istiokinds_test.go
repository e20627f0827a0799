package charts_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"istio.io/istio/manifests"
	"istio.io/istio/pkg/config/schema/gvr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fromyaml"
)

// TestIstioKindsAreThoseOfIstio compares the table with the CRDs of the embedded Istio. Without a row, a kind that a
// new Istio adds could not be named in --istio-resources.
func TestIstioKindsAreThoseOfIstio(t *testing.T) {
	t.Parallel()
	file, err := manifests.FS.ReadFile("charts/base/files/crd-all.gen.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	served := map[string][]string{}
	for _, crd := range fromyaml.Objects(t, file) {
		want[crd.GetName()], _, _ = unstructured.NestedString(crd.Object, "spec", "names", "kind")
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		for _, item := range versions {
			if version, _ := item.(map[string]any); version["served"] == true {
				served[crd.GetName()] = append(served[crd.GetName()], version["name"].(string))
			}
		}
	}
	rows := map[string]string{}
	for _, kind := range model.IstioKinds() {
		// The row of Istio's Gateway has the group as well, to distinguish it from that of the Gateway API.
		rows[kind.CRD()] = strings.TrimSuffix(kind.Kind, "."+kind.Group)
		if !slices.Contains(served[kind.CRD()], kind.Version) {
			t.Errorf("%s: Istio serves %v, and not %s", kind.CRD(), served[kind.CRD()], kind.Version)
		}
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("the kinds of Istio (-in its CRDs +in the table):\n%s", diff)
	}
}

// TestTheVersionsOfIstioKindsAreThoseThatIstiodReads compares the table with Istio's own: istiod does not become ready
// while the CRD of a kind does not serve the version that istiod reads.
func TestTheVersionsOfIstioKindsAreThoseThatIstiodReads(t *testing.T) {
	t.Parallel()
	reads := []schema.GroupVersionResource{
		gvr.AuthorizationPolicy, gvr.RequestAuthentication, gvr.PeerAuthentication, gvr.EnvoyFilter, gvr.VirtualService,
		gvr.DestinationRule, gvr.Gateway, gvr.ServiceEntry, gvr.Sidecar, gvr.WorkloadEntry, gvr.WorkloadGroup, gvr.ProxyConfig,
		gvr.WasmPlugin, gvr.Telemetry, gvr.InferencePool,
	}
	var all model.Config
	all.IstioResources = model.KnownIstioResources()
	var rows []schema.GroupVersionResource
	for _, kind := range all.ReadKinds() {
		rows = append(rows, schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: kind.Resource})
	}
	if diff := cmp.Diff(reads, rows); diff != "" {
		t.Errorf("the versions that istiod reads (-in Istio +in the table):\n%s", diff)
	}
}
