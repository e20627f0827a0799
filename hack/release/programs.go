package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/hypergate/hypergate/hack/image/hypergate"
	"github.com/hypergate/hypergate/hack/image/oci"
)

// writePrograms writes the archive and the SBOM of each architecture, and the image of all. It returns the image's
// digest.
func (r release) writePrograms() (digest string, err error) {
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return "", err
	}
	var images []oci.Image
	for _, arch := range r.architectures {
		binary := filepath.Join(r.binaries, arch, "hypergate")
		image, sbom, err := hypergate.Image(binary, filepath.Join(r.root, "NOTICE"), r.image, r.version)
		if err != nil {
			return "", err
		}
		if image.Arch != arch {
			return "", fmt.Errorf("%s is built for %s", binary, image.Arch)
		}
		images = append(images, image)
		contents := []file{{name: "LICENSE", data: license, mode: 0o644}}
		for path, f := range image.Files {
			data := f.Data
			if f.Source != "" {
				if data, err = os.ReadFile(f.Source); err != nil {
					return "", err
				}
			}
			contents = append(contents, file{name: path[1:], data: data, mode: f.Mode})
		}
		name := r.prefix() + "linux-" + arch
		if err := writeArchive(filepath.Join(r.out, name+".tar.gz"), name, contents); err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(r.out, name+".cdx.json"), sbom, 0o644); err != nil {
			return "", err
		}
	}
	digest, err = oci.WriteAll(filepath.Join(r.out, r.prefix()+"image.tar"), images...)
	if err != nil {
		return "", fmt.Errorf("writing the image: %w", err)
	}
	return digest, nil
}
