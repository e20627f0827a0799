package hypergate_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/hack/image/hypergate"
	"github.com/hypergate/hypergate/hack/image/oci"
)

// notice is the file of the checkout.
const notice = "../../../NOTICE"

// build builds two small programs of this module that are linked with other modules. It returns the first.
func build(t *testing.T, cgo string) string {
	t.Helper()
	dir := t.TempDir()
	for name, program := range map[string]string{"hypergate": "program", hypergate.TunnelName: "tunnel"} {
		command := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", filepath.Join(dir, name),
			"./testdata/"+program)
		command.Env = append(os.Environ(), "CGO_ENABLED="+cgo, "GOOS=linux")
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return filepath.Join(dir, "hypergate")
}

type component struct {
	Type, Name, Version, PURL string
	Hashes                    []struct{ Alg, Content string }
	Licenses                  []struct{ License struct{ ID string } }
}

// TestSBOM checks that the SBOM lists the modules in the binary, and that the image contains it.
func TestSBOM(t *testing.T) {
	binary := build(t, "0")
	image, sbom, err := hypergate.Image(binary, notice, "registry.example.com/hypergate:dev", "v1.2.3+x")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(sbom), string(image.Files["/hypergate.cdx.json"].Data)); diff != "" {
		t.Error(diff)
	}
	var got struct {
		BOMFormat, SpecVersion string
		Metadata               struct{ Component component }
		Components             []component
	}
	if err := json.Unmarshal(sbom, &got); err != nil {
		t.Fatal(err)
	}
	if got.BOMFormat != "CycloneDX" || got.SpecVersion != "1.5" ||
		got.Metadata.Component.PURL != "pkg:golang/github.com/hypergate/hypergate@v1.2.3%2Bx" {
		t.Errorf("got %s %s of %s", got.BOMFormat, got.SpecVersion, got.Metadata.Component.PURL)
	}
	goVersion, want := modulesOf(t, binary)
	_, ofTunnel := modulesOf(t, filepath.Join(filepath.Dir(binary), hypergate.TunnelName))
	want = append(want, ofTunnel...)
	listed, licenses := []string{}, map[string]string{}
	for _, c := range got.Components[1:] {
		if c.Type == "application" {
			if c.PURL != "pkg:golang/github.com/hypergate/hypergate@v1.2.3%2Bx#cmd/hypergate-tunnel" {
				t.Errorf("the second binary is %s", c.PURL)
			}
			continue
		}
		listed = append(listed, c.Name+" "+c.Version+" "+c.Hashes[0].Content)
		for _, l := range c.Licenses {
			licenses[c.Name] = l.License.ID
		}
	}
	if diff := cmp.Diff(want, listed); diff != "" || len(want) < 3 {
		t.Errorf("modules (-binaries +list), %d:\n%s", len(want), diff)
	}
	words, err := os.ReadFile(notice)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"github.com/hashicorp/yamux": "MPL-2.0"}, licenses); diff != "" ||
		!strings.Contains(string(words), "github.com/hashicorp/yamux") {
		t.Errorf("licenses that NOTICE names: %s", diff)
	}
	if std := got.Components[0]; std.Name != "std" || goVersion != "go"+std.Version {
		t.Errorf("the standard library is %+v", std)
	}
}

// modulesOf returns the version of Go, and the modules of a binary as the go command shows them.
func modulesOf(t *testing.T, binary string) (goVersion string, modules []string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "version", "-m", binary).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) == 2 && strings.HasPrefix(fields[1], "go1") {
			goVersion = fields[1]
		}
		if len(fields) == 4 && fields[0] == "dep" {
			sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(fields[3], "h1:"))
			if err != nil {
				t.Fatal(err)
			}
			modules = append(modules, fields[1]+" "+fields[2]+" "+hex.EncodeToString(sum))
		}
	}
	return goVersion, modules
}

func TestReplacedModule(t *testing.T) {
	binary := build(t, "0")
	info := &debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Path: "example.com/main"}, Deps: []*debug.Module{
		{
			Path: "example.com/a", Version: "v1.0.0",
			Replace: &debug.Module{
				Path: "example.com/fork", Version: "v1.0.1", Sum: "h1:" + base64.StdEncoding.EncodeToString(make([]byte, 32)),
			},
		},
		{Path: "example.com/b", Version: "v1.0.0", Replace: &debug.Module{Path: "./b"}},
	}}
	sbom, err := hypergate.SBOM("dev", hypergate.Binary{File: binary, Info: info})
	if err != nil {
		t.Fatal(err)
	}
	if text := string(sbom); !strings.Contains(text, "pkg:golang/example.com/fork@v1.0.1") || strings.Contains(text, "example.com/a") {
		t.Error(text)
	}
	info.Deps[0].Replace.Sum = "h2:x"
	if _, err := hypergate.SBOM("dev", hypergate.Binary{File: binary, Info: info}); err == nil {
		t.Error("a sum that is none is listed")
	}
}

// TestUnfit checks that Image rejects binaries that cannot start.
func TestUnfit(t *testing.T) {
	if _, _, err := hypergate.Image(build(t, "1"), notice, "x:1", "dev"); err == nil || !strings.Contains(err.Error(), "CGO_ENABLED=0") {
		t.Errorf("linked with C: %v", err)
	}
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := hypergate.Image(script, notice, "x:1", "dev"); err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("no Go binary: %v", err)
	}
}

// TestContainerfile checks that deploy/Containerfile describes the image that make image builds.
func TestContainerfile(t *testing.T) {
	image, _, err := hypergate.Image(build(t, "0"), notice, "x:1", "dev")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("../../../deploy/Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	built := oci.Image{Labels: map[string]string{}, Files: map[string]oci.File{}}
	for line := range strings.Lines(string(data)) {
		instruction, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch words := strings.Fields(rest); instruction {
		case "COPY":
			if words[0] != path.Base(words[1]) {
				t.Errorf("%s is not beside the binary under its own name", words[0])
			}
			built.Files[words[1]] = oci.File{}
		case "LABEL":
			key, value, _ := strings.Cut(rest, "=")
			built.Labels[key] = strings.Trim(value, `"`)
		case "USER":
			built.User = rest
		case "ENTRYPOINT":
			if err := json.Unmarshal([]byte(rest), &built.Entrypoint); err != nil {
				t.Error(err)
			}
		case "FROM":
			if rest != "scratch" {
				t.Errorf("it is made from %s", rest)
			}
		case "", "#":
		default:
			t.Errorf("make image knows nothing like %s", instruction)
		}
	}
	delete(image.Labels, "org.opencontainers.image.version") // the Containerfile does not know the version
	for name := range image.Files {
		image.Files[name] = oci.File{}
	}
	image.Name, image.Arch = "", ""
	if diff := cmp.Diff(image, built); diff != "" {
		t.Errorf("(-make image +Containerfile)\n%s", diff)
	}
	if slices.Contains([]string{"", "0", "root"}, built.User) {
		t.Errorf("it runs as %q", built.User)
	}
}
