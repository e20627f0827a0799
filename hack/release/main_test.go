package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart/loader"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/test/fromyaml"
)

// example returns a release of two small programs, for this machine's architecture.
func example(t *testing.T) release {
	t.Helper()
	binaries := t.TempDir()
	for name, program := range map[string]string{"hypergate": "program", "hypergate-tunnel": "tunnel"} {
		command := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false",
			"-o", filepath.Join(binaries, runtime.GOARCH, name), "../image/hypergate/testdata/"+program)
		command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return release{
		version: "v1.2.3", image: "quay.example.org/hypergate/hypergate:v1.2.3", pilot: "docker.io/istio/pilot:" + charts.EmbeddedVersion,
		proxy:    "docker.io/istio/proxyv2:" + charts.EmbeddedVersion,
		binaries: binaries, architectures: []string{runtime.GOARCH}, root: "../..",
	}
}

// written returns the files of a release, by name.
func written(t *testing.T, r release) map[string]string {
	t.Helper()
	r.out = filepath.Join(t.TempDir(), "out")
	if err := r.write(io.Discard); err != nil {
		t.Fatal(err)
	}
	files, err := filesOf(r.out)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range files {
		out[f.name] = string(f.data)
	}
	return out
}

// TestRelease checks the files of a release and their checksums, and that the same input makes the same files.
func TestRelease(t *testing.T) {
	t.Parallel()
	r := example(t)
	files := written(t, r)
	const prefix = "hypergate-v1.2.3-"
	program := prefix + "linux-" + runtime.GOARCH
	want := []string{
		"SHA256SUMS", "hypergate-1.2.3.tgz", prefix + "deploy.tar.gz", prefix + "image.tar", program + ".cdx.json", program + ".tar.gz",
	}
	for _, part := range []string{
		"cluster-api", "fleet", "guest", "hosted", "istio-resources", "migration-operator", "monitoring-cluster-api", "monitoring-guest",
		"monitoring-hosted", "monitoring-standalone", "renewal-guest", "sidecar-injection", "standalone", "standalone-own-namespace",
	} {
		want = append(want, prefix+part+".yaml")
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(maps.Keys(files))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	again := written(t, r)
	for name, content := range files {
		if again[name] != content {
			t.Errorf("the second %s differs", name)
		}
	}
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", sums)
	check.Dir = dir
	if out, err := check.CombinedOutput(); err != nil || strings.Count(string(out), ": OK\n") != len(files)-1 {
		t.Errorf("sha256sum: %v\n%s", err, out)
	}
	programs := unpacked(t, files[program+".tar.gz"])
	if diff := cmp.Diff([]string{"LICENSE", "NOTICE", "hypergate", "hypergate-tunnel", "hypergate.cdx.json"},
		slices.Sorted(maps.Keys(programs[program]))); diff != "" {
		t.Error(diff)
	}
	if programs[program]["hypergate.cdx.json"] != files[program+".cdx.json"] {
		t.Error("the SBOM in the archive is another one")
	}
}

// unpacked returns the files of a compressed archive, by folder and name.
func unpacked(t *testing.T, archive string) map[string]map[string]string {
	t.Helper()
	compressed, err := gzip.NewReader(strings.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string]string{}
	for in := tar.NewReader(compressed); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		folder, name, _ := strings.Cut(header.Name, "/")
		if out[folder] == nil {
			out[folder] = map[string]string{}
		}
		if out[folder][name] = string(data); !header.ModTime.IsZero() && header.ModTime.Unix() != 0 {
			t.Errorf("%s has the time %s", header.Name, header.ModTime)
		}
	}
}

// TestReleasedChart checks that Helm reads the chart, and that it has the release's names.
func TestReleasedChart(t *testing.T) {
	t.Parallel()
	r := example(t)
	got, err := loader.LoadArchive(strings.NewReader(written(t, r)["hypergate-1.2.3.tgz"]))
	if err != nil {
		t.Fatal(err)
	}
	if got.Metadata.Version != "1.2.3" || got.Metadata.AppVersion != "v1.2.3" || len(got.Templates) < 5 {
		t.Errorf("the chart is %+v, with %d templates", got.Metadata, len(got.Templates))
	}
	want := map[string]any{"image": r.image, "pilotImage": r.pilot, "proxyImage": r.proxy}
	for name, value := range want {
		if got.Values[name] != value {
			t.Errorf("%s is %v, want %v", name, got.Values[name], value)
		}
	}
}

// TestReleasedManifests checks that all images are those of the release, in the rendered manifests and in the archive.
func TestReleasedManifests(t *testing.T) {
	t.Parallel()
	r := example(t)
	files := written(t, r)
	for name := range rendered() {
		text := files["hypergate-v1.2.3-"+name+".yaml"]
		if len(fromyaml.Objects(t, []byte(text))) == 0 {
			t.Errorf("%s has no objects", name)
		}
		if strings.Contains(text, "example.com") {
			t.Errorf("%s has a name that exists nowhere:\n%s", name, text)
		}
	}
	for _, name := range []string{"hosted", "cluster-api", "standalone", "standalone-own-namespace"} {
		text := files["hypergate-v1.2.3-"+name+".yaml"]
		for _, image := range []string{"image: " + r.image, "value: " + r.pilot, "value: " + r.proxy} {
			if !strings.Contains(text, image+"\n") {
				t.Errorf("%s has no %q:\n%s", name, image, text)
			}
		}
	}
	checkMonitoring(t, files)
	folder := unpacked(t, files["hypergate-v1.2.3-deploy.tar.gz"])["deploy"]
	if !strings.Contains(folder["hosted/example/kustomization.yaml"], "newTag: v1.2.3\n") || folder["chart/Chart.yaml"] != "" {
		t.Errorf("the folder has %q", slices.Sorted(maps.Keys(folder)))
	}
}

// checkMonitoring checks the objects of each rendered folder of deploy/monitoring, by kind and namespace.
func checkMonitoring(t *testing.T, files map[string]string) {
	t.Helper()
	of := func(namespace string) []string {
		return []string{
			"ConfigMap " + namespace + "/hypergate-dashboards", "PodMonitor " + namespace + "/hypergate",
			"PodMonitor " + namespace + "/hypergate-istiod", "PrometheusRule " + namespace + "/hypergate",
		}
	}
	for name, want := range map[string][]string{
		"monitoring-hosted": of("openshift-monitoring"), "monitoring-cluster-api": of("monitoring"),
		"monitoring-standalone": of("openshift-ingress"), "monitoring-guest": {"PodMonitor /hypergate-gateways"},
	} {
		var got []string
		for _, u := range fromyaml.Objects(t, []byte(files["hypergate-v1.2.3-"+name+".yaml"])) {
			got = append(got, u.GetKind()+" "+u.GetNamespace()+"/"+u.GetName())
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s, -want +got:\n%s", name, diff)
		}
	}
}

// TestEachFolderIsReleased checks that a release has each folder of deploy/ as a rendered file if no other folder
// contains it, except those that are only for an overlay of the user.
func TestEachFolderIsReleased(t *testing.T) {
	t.Parallel()
	covered := map[string]bool{"external-webhooks": true, "renewal/management": true} // they have no namespace of their own
	for _, folder := range rendered() {
		covered[folder] = true
	}
	var folders []string
	files, err := filesOf("../../deploy")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		folder := path.Dir(f.name)
		if path.Base(f.name) != "kustomization.yaml" {
			continue
		}
		folders = append(folders, folder)
		var content struct{ Resources []string }
		if err := yaml.Unmarshal(f.data, &content); err != nil {
			t.Fatal(err)
		}
		for _, resource := range content.Resources {
			covered[path.Join(folder, resource)] = true
		}
	}
	if len(folders) < 20 {
		t.Errorf("only %d folders were found", len(folders))
	}
	for _, folder := range folders {
		if !covered[folder] {
			t.Errorf("deploy/%s is not a file of a release: add it to rendered", folder)
		}
	}
}

// TestNoRelease checks what is refused.
func TestNoRelease(t *testing.T) {
	t.Parallel()
	base := example(t)
	for name, tc := range map[string]struct {
		edit func(*release)
		want string
	}{
		"no version":               {func(r *release) { r.version = "" }, "VERSION"},
		"no v":                     {func(r *release) { r.version = "1.2.3" }, "VERSION"},
		"two numbers":              {func(r *release) { r.version = "v1.2" }, "VERSION"},
		"build metadata":           {func(r *release) { r.version = "v1.2.3+x" }, "build metadata"},
		"an image without a tag":   {func(r *release) { r.image = "localhost:5000/hypergate" }, "registry/name:tag"},
		"an example":               {func(r *release) { r.image = "registry.example.com/hypergate:v1" }, "an example"},
		"another architecture":     {func(r *release) { r.architectures = []string{"riscv64"} }, "riscv64"},
		"files of another release": {func(r *release) { r.out = "." }, "remove them"},
	} {
		r := base
		r.out = filepath.Join(t.TempDir(), "out")
		tc.edit(&r)
		if err := r.write(io.Discard); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := base
	r.out = filepath.Join(t.TempDir(), "out")
	wrong := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	if err := os.Rename(filepath.Join(r.binaries, runtime.GOARCH), filepath.Join(r.binaries, wrong)); err != nil {
		t.Fatal(err)
	}
	r.architectures = []string{wrong}
	if err := r.write(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "is built for") {
		t.Errorf("binaries of another architecture: %v", err)
	}
}

// TestTheSettingsOfTheUserDoNotCount checks that release.sh sets each variable that changes a binary. Two builds with
// the same settings would not show it.
func TestTheSettingsOfTheUserDoNotCount(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("../release.sh")
	if err != nil {
		t.Fatal(err)
	}
	_, exported, _ := strings.Cut(string(script), "\nexport ")
	exported, _, _ = strings.Cut(exported, "\n")
	for _, name := range []string{"GOFLAGS", "GOAMD64", "GOARM64", "GOEXPERIMENT", "GOFIPS140", "GOWORK"} {
		if !strings.Contains(" "+exported, " "+name+"=") {
			t.Errorf("release.sh does not set %s: %s", name, exported)
		}
	}
}
