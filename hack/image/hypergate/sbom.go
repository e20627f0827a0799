package hypergate

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
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

// Binary is a binary and its build information.
type Binary struct {
	File string
	Info *buildinfo.BuildInfo
}

// SBOM returns the modules of the build information of binaries as CycloneDX JSON. The first binary is what the SBOM is
// about, and the others are components of it. A module's hash is that of go.sum, in the encoding of CycloneDX. The hash
// of a binary is that of the file.
func SBOM(version string, first Binary, others ...Binary) ([]byte, error) {
	main, err := ofBinary(first, version, "")
	if err != nil {
		return nil, err
	}
	out := bom{
		Schema: "http://cyclonedx.org/schema/bom-1.5.schema.json", Format: "CycloneDX", SpecVersion: "1.5", Version: 1,
		Metadata:   metadata{main},
		Components: []component{golang("library", "std", strings.TrimPrefix(first.Info.GoVersion, "go"))},
	}
	if err := out.add(main, first); err != nil {
		return nil, err
	}
	for _, other := range others {
		c, err := ofBinary(other, version, "#cmd/"+filepath.Base(other.File))
		if err != nil {
			return nil, err
		}
		out.Components = append(out.Components, c)
		if err := out.add(c, other); err != nil {
			return nil, err
		}
	}
	text, err := json.MarshalIndent(out, "", "  ")
	return append(text, '\n'), err
}

// ofBinary returns the component of a binary. Its package URL ends in a subpath, if the module has several binaries.
func ofBinary(binary Binary, version, subpath string) (component, error) {
	data, err := os.ReadFile(binary.File)
	if err != nil {
		return component{}, err
	}
	sum := sha256.Sum256(data)
	c := golang("application", binary.Info.Main.Path, version)
	c.Ref, c.PURL = c.Ref+subpath, c.PURL+subpath
	c.Hashes = []hash{{"SHA-256", hex.EncodeToString(sum[:])}}
	c.Licenses = licensed("Apache-2.0")
	for _, s := range binary.Info.Settings {
		c.Properties = append(c.Properties, property{"go:build:" + s.Key, s.Value})
	}
	return c, nil
}

// add adds the modules of a binary, and what the binary depends on.
func (b *bom) add(of component, binary Binary) error {
	depends := dependency{Ref: of.Ref, DependsOn: []string{b.Components[0].Ref}} // the standard library
	for _, module := range binary.Info.Deps {
		c, err := ofModule(module)
		if err != nil {
			return err
		}
		depends.DependsOn = append(depends.DependsOn, c.Ref)
		if !slices.ContainsFunc(b.Components, func(known component) bool { return known.Ref == c.Ref }) {
			b.Components = append(b.Components, c)
		}
	}
	b.Dependencies = append(b.Dependencies, depends)
	return nil
}

// otherLicenses are the modules whose license asks more than a notice. NOTICE names them.
func otherLicenses() map[string]string {
	return map[string]string{"github.com/hashicorp/yamux": "MPL-2.0"}
}

func licensed(id string) []license {
	l := license{}
	l.License.ID = id
	return []license{l}
}

// ofModule returns the component of a module, or of its replacement.
func ofModule(module *debug.Module) (component, error) {
	if module.Replace != nil {
		module = module.Replace
	}
	c := golang("library", module.Path, module.Version)
	if id := otherLicenses()[module.Path]; id != "" {
		c.Licenses = licensed(id)
	}
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
