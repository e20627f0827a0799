// Command release makes the files of a release from binaries: archives of the binaries, their SBOMs, the image for all
// architectures, the Helm chart, the manifests with the names of the release, and the checksums. `make release` calls
// it twice, on two builds, and compares the checksums.
//
//	<binaries>/<architecture>/hypergate ─► archive, SBOM, image ─┐
//	deploy/chart ─► chart with versions and images               ├─► SHA256SUMS
//	deploy/ ─► the same with images ─► rendered manifests        ┘
//
// The same input produces the same bytes: no file contains a time, a user or a path of the machine.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/hypergate/hypergate/pkg/charts"
)

// release is what a release is made of.
type release struct {
	// version begins with v. image, pilot and proxy are full references.
	version, image, pilot, proxy string
	// binaries has a folder for each of architectures, with both binaries.
	binaries      string
	architectures []string
	// root is the checkout. out is the folder of the release, which must not exist or be empty.
	root, out string
}

func main() {
	r := release{architectures: []string{"amd64", "arm64"}}
	flag.StringVar(&r.version, "version", "", "the release's version, such as v0.1.0")
	flag.StringVar(&r.image, "image", "", "the full reference of hypergate's image")
	flag.StringVar(&r.pilot, "pilot-image", "docker.io/istio/pilot:"+charts.EmbeddedVersion, "istiod's image")
	flag.StringVar(&r.proxy, "proxy-image", "docker.io/istio/proxyv2:"+charts.EmbeddedVersion, "the image of gateways")
	flag.StringVar(&r.binaries, "binaries", "", "the folder with a folder for each architecture, which has both binaries")
	flag.StringVar(&r.root, "root", ".", "the checkout")
	flag.StringVar(&r.out, "out", "", "the folder to write")
	flag.Parse()
	if err := r.write(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// sums is the name of the file with the checksums, in the format of sha256sum.
const sums = "SHA256SUMS"

// write writes the release, and prints what it wrote.
func (r release) write(out io.Writer) error {
	if err := r.check(); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	if entries, err := os.ReadDir(r.out); err != nil || len(entries) > 0 {
		return errors.Join(err, fmt.Errorf("%s has %d files: remove them, because a release has only its own", r.out, len(entries)))
	}
	digest, err := r.writePrograms()
	if err != nil {
		return err
	}
	if err := r.writeChart(); err != nil {
		return fmt.Errorf("writing the chart: %w", err)
	}
	if err := r.writeManifests(); err != nil {
		return fmt.Errorf("writing the manifests: %w", err)
	}
	list, err := sumsOf(r.out)
	if err != nil {
		return fmt.Errorf("writing the checksums: %w", err)
	}
	if err := os.WriteFile(filepath.Join(r.out, sums), []byte(list), 0o644); err != nil {
		return fmt.Errorf("writing the checksums: %w", err)
	}
	fmt.Fprintf(out, "%s\n  %s\n%s", r.image, digest, list)
	return nil
}

// check returns an error if the names cannot be those of a release.
func (r release) check() error {
	parsed, err := utilversion.ParseSemantic(r.version)
	if err != nil || "v"+parsed.String() != r.version {
		return fmt.Errorf("the version %q does not have the form v1.2.3: set VERSION", r.version)
	}
	if parsed.BuildMetadata() != "" {
		return fmt.Errorf("the version %q has build metadata, which a tag of an image cannot have", r.version)
	}
	for _, image := range []string{r.image, r.pilot, r.proxy} {
		if name := image[strings.LastIndexByte(image, '/')+1:]; !strings.Contains(name, ":") || strings.HasPrefix(image, placeholder) {
			return fmt.Errorf("the image %q does not have the form registry/name:tag, or is an example", image)
		}
	}
	return nil
}

// prefix begins the names of all files but that of the chart, whose name is Helm's.
func (r release) prefix() string { return "hypergate-" + r.version + "-" }

// sumsOf returns the checksums of all files in a folder, sorted by name.
func sumsOf(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return "", err
		}
		sum := sha256.Sum256(data)
		out.WriteString(hex.EncodeToString(sum[:]) + "  " + entry.Name() + "\n")
	}
	return out.String(), nil
}
