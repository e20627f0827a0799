package webhookurl_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/pkg/webhookurl"
)

// TestGolden rewrites testdata/rewrite/in and compares with testdata/rewrite/out. The files "istio-1.29-*" are the
// output of Istio's chart for a guest, with a service or with the URLs and CA bundles of its values.
func TestGolden(t *testing.T) {
	inputs, err := filepath.Glob("testdata/rewrite/in/*.yaml")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("got inputs %v, error %v", inputs, err)
	}
	outputs, err := filepath.Glob("testdata/rewrite/out/*.yaml")
	if err != nil || len(outputs) != len(inputs) && os.Getenv("UPDATE") == "" {
		t.Errorf("got %d goldens for %d inputs, error %v", len(outputs), len(inputs), err)
	}
	for _, input := range inputs {
		t.Run(filepath.Base(input), func(t *testing.T) {
			text, err := os.ReadFile(input)
			if err != nil {
				t.Fatal(err)
			}
			in := parse(t, string(text))
			out, err := webhookurl.Rewrite(in, newEndpoint(t, base))
			if err != nil {
				t.Fatal(err)
			}
			got, err := yaml.Marshal(out.Object)
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata/rewrite/out", filepath.Base(input))
			if os.Getenv("UPDATE") != "" {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("-want +got (run with UPDATE=1 to accept):\n%s", diff)
			}
			wantSound(t, in, out, newEndpoint(t, base))
		})
	}
}
