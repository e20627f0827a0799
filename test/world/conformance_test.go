package world

import (
	"slices"
	"testing"
)

func TestImagesOf(t *testing.T) {
	t.Parallel()
	const echo, coredns = "gcr.io/a/echo-basic:v1", "registry.k8s.io/coredns/coredns:v1.12.2"
	for _, c := range []struct {
		name, manifests string
		standIns        []string
		wrong           bool
	}{
		{name: "each image once", manifests: "  - image: " + echo + "\n    image: " + echo + "\n", standIns: nil},
		{name: "a stand-in", manifests: "    image: " + coredns + "\n    image: " + echo + "\n", standIns: []string{coredns}},
		{name: "an unknown image", manifests: "    image: " + echo + "\n    image: docker.io/other:1\n", wrong: true},
		{name: "no backend", manifests: "    image: " + coredns + "\n", wrong: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := imagesOf(c.manifests, "/tmp/echo")
			if c.wrong {
				if err == nil {
					t.Fatalf("got %v, want an error", got)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(got.images) != 1 || got.images[0].Name != echo || !slices.Equal(got.standIns, c.standIns) {
				t.Errorf("got %v", got)
			}
		})
	}
}
