// Package hypergate builds hypergate's image and its SBOM (software bill of materials) from its binaries. It is used by
// `make image` and by the tests that run the image.
package hypergate

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hypergate/hypergate/hack/image/oci"
)

// Paths in the image.
const (
	binaryPath = "/hypergate"
	tunnelPath = "/" + TunnelName
	sbomPath   = "/hypergate.cdx.json"
	noticePath = "/NOTICE"
)

// licenses is an SPDX expression: that of hypergate, and those of modules that NOTICE names.
const licenses = "Apache-2.0 AND MPL-2.0"

// TunnelName is the file name of the second binary. It is in the same directory as the first.
const TunnelName = "hypergate-tunnel"

// Image returns hypergate's image, and the SBOM, which the image also contains. It has the given static binary, the one
// of the name TunnelName beside it, and the file NOTICE of the checkout. deploy/Containerfile describes the same image.
func Image(binary, notice, name, version string) (image oci.Image, sbom []byte, err error) {
	tunnel := filepath.Join(filepath.Dir(binary), TunnelName)
	var infos []*buildinfo.BuildInfo
	for _, file := range []string{binary, tunnel} {
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			return image, nil, fmt.Errorf("reading what %s is built of (is it a Go binary? `make build` makes one): %w", file, err)
		}
		if err := static(info); err != nil {
			return image, nil, fmt.Errorf("%s: %w", file, err)
		}
		infos = append(infos, info)
	}
	info := infos[0]
	sbom, err = SBOM(version, Binary{binary, info}, Binary{tunnel, infos[1]})
	if err != nil {
		return image, nil, fmt.Errorf("listing what is in %s and %s: %w", binary, tunnel, err)
	}
	words, err := os.ReadFile(notice)
	if err != nil {
		return image, nil, fmt.Errorf("reading the notices of licenses: %w", err)
	}
	return oci.Image{
		Name: name, Arch: setting(info, "GOARCH"),
		// The user is a number, so that the kubelet can verify that it is not root. There is no group, so the group is
		// 0. Group 0 can read the mounted kubeconfig with any user ID that a cluster uses in place of this one.
		User:       "65532",
		Entrypoint: []string{binaryPath},
		Labels: map[string]string{
			"org.opencontainers.image.title": "hypergate", "org.opencontainers.image.version": version,
			"org.opencontainers.image.licenses": licenses,
		},
		Files: map[string]oci.File{
			binaryPath: {Source: binary, Mode: 0o755}, tunnelPath: {Source: tunnel, Mode: 0o755},
			sbomPath: {Data: sbom, Mode: 0o644}, noticePath: {Data: words, Mode: 0o644},
		},
	}, sbom, nil
}

// static returns an error if a binary cannot start in an image without other files.
func static(info *buildinfo.BuildInfo) error {
	if system := setting(info, "GOOS"); system != "linux" {
		return fmt.Errorf("it is built for %s: build it with GOOS=linux", system)
	}
	if setting(info, "CGO_ENABLED") != "0" {
		return fmt.Errorf("it is linked with C, and there is no C library in the image: build it with CGO_ENABLED=0, as `make build` does")
	}
	return nil
}

func setting(info *buildinfo.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}
