package webhookurl_test

import (
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/pkg/webhookurl"
	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/golden"
)

// TestGolden rewrites testdata/rewrite/in and compares with testdata/rewrite/out. The files "istio-1.29-*" are the
// output of Istio's chart for a guest, with a service or with the URLs and CA bundles of its values.
func TestGolden(t *testing.T) {
	inputs, err := filepath.Glob("testdata/rewrite/in/*.yaml")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("got inputs %v, error %v", inputs, err)
	}
	outputs, err := filepath.Glob("testdata/rewrite/out/*.yaml")
	if err != nil || len(outputs) != len(inputs) && !golden.Updating() {
		t.Errorf("got %d goldens for %d inputs, error %v", len(outputs), len(inputs), err)
	}
	for _, input := range inputs {
		t.Run(filepath.Base(input), func(t *testing.T) {
			text, err := os.ReadFile(input)
			if err != nil {
				t.Fatal(err)
			}
			in := fromyaml.Object(t, text)
			out, err := webhookurl.Rewrite(in, newEndpoint(t, base))
			if err != nil {
				t.Fatal(err)
			}
			got, err := yaml.Marshal(out.Object)
			if err != nil {
				t.Fatal(err)
			}
			golden.Equal(t, filepath.Join("testdata/rewrite/out", filepath.Base(input)), got)
			wantSound(t, in, out, newEndpoint(t, base))
		})
	}
}
