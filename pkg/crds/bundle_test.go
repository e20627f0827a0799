package crds_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/test/mustfail"
)

// TestTheBundleHasEveryFile checks that the bundle has every file that the generator copied, and no other file.
func TestTheBundleHasEveryFile(t *testing.T) {
	files, err := os.ReadDir("gatewayapi")
	if err != nil {
		t.Fatal(err)
	}
	want := make([]string, 0, len(files))
	for _, file := range files {
		group, plural, _ := strings.Cut(strings.TrimSuffix(file.Name(), ".yaml"), "_")
		want = append(want, plural+"."+group)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, crds.GatewayAPI().Names()); diff != "" {
		t.Errorf("names (-files +bundle):\n%s", diff)
	}
}

func TestObjects(t *testing.T) {
	bundle := crds.GatewayAPI()
	for _, name := range bundle.Names() {
		t.Run(name, func(t *testing.T) {
			u, err := bundle.Object(name)
			if err != nil {
				t.Fatal(err)
			}
			got := []string{
				u.GetAPIVersion(), u.GetKind(), u.GetName(),
				u.GetAnnotations()["gateway.networking.k8s.io/bundle-version"], u.GetAnnotations()["gateway.networking.k8s.io/channel"],
			}
			want := []string{"apiextensions.k8s.io/v1", "CustomResourceDefinition", name, bundle.Version(), bundle.Channel()}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			versions, _, err := unstructured.NestedSlice(u.Object, "spec", "versions")
			if err != nil || len(versions) == 0 {
				t.Errorf("spec.versions: %v, %v", versions, err)
			}
		})
	}
}

func TestObjectIsACopy(t *testing.T) {
	bundle := crds.GatewayAPI()
	name := bundle.Names()[0]
	first, err := bundle.Object(name)
	if err != nil {
		t.Fatal(err)
	}
	clear(first.Object)
	second, err := bundle.Object(name)
	if err != nil || second.GetName() != name {
		t.Errorf("%v, %v", second, err)
	}
	bundle.Names()[0] = "changed"
	if got := bundle.Names()[0]; got != name {
		t.Errorf("Names()[0] = %s, want %s", got, name)
	}
}

func TestUnknownCRD(t *testing.T) {
	// This CRD exists only in the experimental channel.
	_, err := crds.GatewayAPI().Object("tcproutes.gateway.networking.k8s.io")
	mustfail.With(t, err, "tcproutes.gateway.networking.k8s.io", "v1.4.1", "standard", "httproutes.gateway.networking.k8s.io")
}
