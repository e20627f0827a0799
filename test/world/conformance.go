package world

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/hypergate/hypergate/test/cluster"
	"github.com/hypergate/hypergate/test/cluster/servers"
)

// echoPackage is the program of the suite's backends.
const echoPackage = "sigs.k8s.io/gateway-api/conformance/echo-basic"

// imageLine matches an image in a manifest.
var imageLine = regexp.MustCompile(`(?m)^\s*(?:- )?image: (\S+)$`)

// suiteImages are the images of Gateway API's conformance suite.
type suiteImages struct {
	images []cluster.Image
	// standIns are the names of images whose programs no test of the profiles calls.
	standIns []string
}

// conformanceImages returns the images that the base manifests of Gateway API's conformance suite name. The suite is
// the one in go.mod of test/conformance. Its backend is built into dir. An image that this function does not know is an
// error.
func conformanceImages(ctx context.Context, dir string) (suiteImages, error) {
	root, err := servers.ModuleRoot()
	if err != nil {
		return suiteImages{}, err
	}
	module := filepath.Join(root, "test/conformance")
	echo := filepath.Join(dir, "echo-basic")
	if err := build(ctx, module, echo, echoPackage); err != nil {
		return suiteImages{}, err
	}
	source, err := moduleDir(ctx, module, echoPackage)
	if err != nil {
		return suiteImages{}, err
	}
	manifests, err := os.ReadFile(filepath.Join(source, "conformance/base/manifests.yaml"))
	if err != nil {
		return suiteImages{}, fmt.Errorf("reading the manifests of the conformance suite: %w", err)
	}
	return imagesOf(string(manifests), echo)
}

// imagesOf returns the images in manifests of the suite. echo is the file of the backend's program.
func imagesOf(manifests, echo string) (suiteImages, error) {
	lines := imageLine.FindAllStringSubmatch(manifests, -1)
	names := make([]string, len(lines))
	for i, line := range lines {
		names[i] = line[1]
	}
	slices.Sort(names)
	var out suiteImages
	for _, name := range slices.Compact(names) {
		switch base := name[strings.LastIndex(name, "/")+1:]; {
		case strings.HasPrefix(base, "echo-basic:"):
			out.images = append(out.images, cluster.Image{
				Name: name, User: "65532", Entrypoint: []string{"/echo-basic"}, Files: map[string]string{"/echo-basic": echo},
			})
		case strings.HasPrefix(base, "coredns:"):
			out.standIns = append(out.standIns, name) // the backend of UDPRoutes, which Istio does not serve
		default:
			return suiteImages{}, fmt.Errorf("the manifests of the conformance suite name an unknown image %s", name)
		}
	}
	if len(out.images) == 0 {
		return suiteImages{}, fmt.Errorf("the manifests of the conformance suite name no image of the backend")
	}
	return out, nil
}
