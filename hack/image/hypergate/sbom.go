package hypergate

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
)

// bom is the part of CycloneDX 1.5 that describes the build information of a Go binary. It omits the serial number and
// the time: both are optional, and would differ between two builds of the same source.
type bom struct {
	Schema       string       `json:"$schema"`
	Format       string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Ref        string     `json:"bom-ref"`
	Type       string     `json:"type"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Licenses   []license  `json:"licenses,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type license struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn,omitempty"`
}

// SBOM returns the modules of a binary's build information as CycloneDX JSON. A module's hash is that of go.sum, in the
// encoding of CycloneDX. The hash of the binary is that of the file.
func SBOM(binary, version string, info *buildinfo.BuildInfo) ([]byte, error) {
	data, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	main := golang("application", info.Main.Path, version)
	main.Hashes = []hash{{"SHA-256", hex.EncodeToString(sum[:])}}
	apache := license{}
	apache.License.ID = "Apache-2.0"
	main.Licenses = []license{apache}
	for _, s := range info.Settings {
		main.Properties = append(main.Properties, property{"go:build:" + s.Key, s.Value})
	}
	out := bom{
		Schema: "http://cyclonedx.org/schema/bom-1.5.schema.json", Format: "CycloneDX", SpecVersion: "1.5", Version: 1,
		Metadata:   metadata{main},
		Components: []component{golang("library", "std", strings.TrimPrefix(info.GoVersion, "go"))},
	}
	for _, module := range info.Deps {
		c, err := ofModule(module)
		if err != nil {
			return nil, err
		}
		out.Components = append(out.Components, c)
	}
	direct := dependency{Ref: main.Ref}
	for _, c := range out.Components {
		direct.DependsOn = append(direct.DependsOn, c.Ref)
	}
	out.Dependencies = []dependency{direct}
	text, err := json.MarshalIndent(out, "", "  ")
	return append(text, '\n'), err
}

// ofModule returns the component of a module, or of its replacement.
func ofModule(module *debug.Module) (component, error) {
	if module.Replace != nil {
		module = module.Replace
	}
	c := golang("library", module.Path, module.Version)
	if module.Sum == "" {
		return c, nil // a local directory, which is not in go.sum
	}
	h1, is := strings.CutPrefix(module.Sum, "h1:")
	raw, err := base64.StdEncoding.DecodeString(h1)
	if !is || err != nil || len(raw) != sha256.Size {
		return c, fmt.Errorf("module %s has the sum %q, which is not one that Go makes", module.Path, module.Sum)
	}
	c.Hashes = []hash{{"SHA-256", hex.EncodeToString(raw)}}
	return c, nil
}

func golang(kind, path, version string) component {
	purl := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	return component{Ref: purl, Type: kind, Name: path, Version: version, PURL: purl}
}
