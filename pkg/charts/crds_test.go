package charts_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/test/mustfail"
)

func TestCRDs(t *testing.T) {
	for version, s := range bothVersions(t) {
		t.Run(version, func(t *testing.T) {
			crds, err := s.CRDs([]string{
				"wasmplugins.extensions.istio.io", "envoyfilters.networking.istio.io",
				"wasmplugins.extensions.istio.io",
			})
			if err != nil {
				t.Fatal(err)
			}
			want := []string{
				"CustomResourceDefinition /envoyfilters.networking.istio.io",
				"CustomResourceDefinition /wasmplugins.extensions.istio.io",
			}
			if diff := cmp.Diff(want, identities(crds)); diff != "" {
				t.Errorf("CRDs (-want +got):\n%s", diff)
			}
			for _, crd := range crds {
				if versions, ok := crd.Object["spec"].(map[string]any)["versions"].([]any); !ok || len(versions) == 0 {
					t.Errorf("%s has no versions: the document was cut short", crd.GetName())
				}
			}
		})
	}
}

// TestAllCRDsAreThere checks all kinds of Istio's API. Any of them can be in --istio-resources.
func TestAllCRDsAreThere(t *testing.T) {
	names := []string{
		"authorizationpolicies.security.istio.io", "destinationrules.networking.istio.io", "envoyfilters.networking.istio.io",
		"gateways.networking.istio.io", "peerauthentications.security.istio.io", "proxyconfigs.networking.istio.io",
		"requestauthentications.security.istio.io", "serviceentries.networking.istio.io", "sidecars.networking.istio.io",
		"telemetries.telemetry.istio.io", "virtualservices.networking.istio.io", "wasmplugins.extensions.istio.io",
		"workloadentries.networking.istio.io", "workloadgroups.networking.istio.io",
	}
	for version, s := range bothVersions(t) {
		crds, err := s.CRDs(names)
		if err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		for i, crd := range crds {
			if crd.GetName() != names[i] {
				t.Errorf("%s: CRD %d is %s, want %s", version, i, crd.GetName(), names[i])
			}
		}
	}
}

func TestNoCRDs(t *testing.T) {
	crds, err := embedded(t).CRDs(nil)
	if err != nil || len(crds) != 0 {
		t.Errorf("CRDs(nil) = %v, %v", crds, err)
	}
}

func TestMissingCRDs(t *testing.T) {
	_, err := embedded(t).CRDs([]string{"b.example.com", "wasmplugins.extensions.istio.io", "a.example.com"})
	mustfail.With(t, err, "the embedded charts", "crd-all.gen.yaml has no CRD a.example.com and no b.example.com", charts.EmbeddedVersion)
}

func TestOddCRDFiles(t *testing.T) {
	const crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: "
	for _, tc := range []struct{ name, file, fault string }{
		{
			"other documents mention the name",
			"# a.x.io\n---\n" + crd +
				"b.x.io\nspec: {about: a.x.io}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " +
				"a.x.io\n---\n" + crd + "a.x.io\n",
			"",
		},
		{"the name is quoted", crd + `"a.x.io"` + "\n", ""},
		{"another document is broken", "\ta: b\n---\n" + crd + "a.x.io\n", ""},
		{"the document is broken", crd + "a.x.io\n\tb: c\n", "it is not YAML"},
		{"only a mention", crd + "b.x.io\nspec: {about: a.x.io}\n", "has no CRD a.x.io"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := fromFS(t, tinyChart(map[string]string{"base/files/crd-all.gen.yaml": tc.file}), "/etc/charts")
			crds, err := s.CRDs([]string{"a.x.io"})
			if tc.fault != "" {
				mustfail.With(t, err, tc.fault, "/etc/charts", "base/files/crd-all.gen.yaml")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"CustomResourceDefinition /a.x.io"}, identities(crds)); diff != "" {
				t.Errorf("CRDs (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOldCRDFile checks the location of the CRDs in Istio 1.23 and older.
func TestOldCRDFile(t *testing.T) {
	fsys := tinyChart(map[string]string{
		"base/crds/crd-all.gen.yaml": "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: a.x.io\n",
	})
	delete(fsys, "base/files/crd-all.gen.yaml")
	if _, err := fromFS(t, fsys, "dir").CRDs([]string{"a.x.io"}); err != nil {
		t.Error(err)
	}
}
