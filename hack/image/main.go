// Command image builds hypergate's image as an archive for podman, docker, skopeo and containerd. It writes its SBOM
// and NOTICE to files in the same directory.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hypergate/hypergate/hack/image/hypergate"
)

func main() {
	binary := flag.String("binary", "bin/hypergate", "the static binary; hypergate-tunnel is beside it")
	notice := flag.String("notice", "NOTICE", "the notices of licenses")
	name := flag.String("name", "registry.example.com/hypergate:dev", "the image's full reference")
	version := flag.String("version", "dev", "the binary's version")
	dir := flag.String("dir", "bin", "where to write hypergate-image.tar, hypergate.cdx.json and NOTICE")
	flag.Parse()
	if err := write(*binary, *notice, *name, *version, *dir, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func write(binary, notice, name, version, dir string, out io.Writer) error {
	image, sbom, err := hypergate.Image(binary, notice, name, version)
	if err != nil {
		return err
	}
	archive, list := filepath.Join(dir, "hypergate-image.tar"), filepath.Join(dir, "hypergate.cdx.json")
	digest, err := image.Write(archive)
	if err != nil {
		return fmt.Errorf("writing %s: %w", archive, err)
	}
	if err := os.WriteFile(list, sbom, 0o644); err != nil {
		return fmt.Errorf("writing the SBOM: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "NOTICE"), image.Files["/NOTICE"].Data, 0o644); err != nil {
		return fmt.Errorf("writing the notices of licenses: %w", err)
	}
	fmt.Fprintf(out, "%s\n  %s\n  %s, for `podman load -i`, `skopeo copy oci-archive:`, `ctr -n k8s.io images import`\n  %s, "+
		"the SBOM (in the image, too)\n",
		name, digest, archive, list)
	return nil
}
