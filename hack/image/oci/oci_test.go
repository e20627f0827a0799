package oci_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/hack/image/oci"
)

// image returns an image with one file of this machine and one file with its own content.
func image(t *testing.T, modified time.Time) oci.Image {
	t.Helper()
	source := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(source, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(source, modified, modified); err != nil {
		t.Fatal(err)
	}
	return oci.Image{
		Name: "registry.example.com/x:1", Arch: "amd64", User: "65532", Entrypoint: []string{"/usr/bin/x"},
		Labels: map[string]string{"a": "b", "c": "d"}, Dirs: map[string]int64{"/tmp": 0o1777},
		Files: map[string]oci.File{"/usr/bin/x": {Source: source, Mode: 0o755}, "/list": {Data: []byte("list"), Mode: 0o644}},
	}
}

func write(t *testing.T, i oci.Image) (archive []byte, digest string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image.tar")
	digest, err := i.Write(file)
	if err != nil {
		t.Fatal(err)
	}
	archive, err = os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return archive, digest
}

// TestReproducible checks that the same content always produces the same bytes, and that other content produces other
// bytes.
func TestReproducible(t *testing.T) {
	first, digest := write(t, image(t, time.Unix(1, 0)))
	second, again := write(t, image(t, time.Now()))
	if !bytes.Equal(first, second) || digest != again {
		t.Errorf("the same input made %s and %s", digest, again)
	}
	other := image(t, time.Now())
	other.Files["/list"] = oci.File{Data: []byte("another list"), Mode: 0o644}
	if _, different := write(t, other); different == digest {
		t.Errorf("another input made the same: %s", digest)
	}
}

// entries returns the regular files of a tar archive by name, and the modes of all entries.
func entries(t *testing.T, archive []byte) (files map[string]string, modes map[string]int64) {
	t.Helper()
	files, modes = map[string]string{}, map[string]int64{}
	for in := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files, modes
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if modes[header.Name] = header.Mode; header.Typeflag == tar.TypeReg {
			files[header.Name] = string(data)
		}
	}
}

// TestArchive follows the references of both formats from their entry points to the root file system.
func TestArchive(t *testing.T) {
	archive, digest := write(t, image(t, time.Now()))
	files, _ := entries(t, archive)
	decode := func(name string, into any) {
		if err := json.Unmarshal([]byte(files[name]), into); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	blob := func(digest string) string {
		name := "blobs/sha256/" + strings.TrimPrefix(digest, "sha256:")
		if sum := sha256.Sum256([]byte(files[name])); "sha256:"+hex.EncodeToString(sum[:]) != digest {
			t.Errorf("%s is not there, or another", digest)
		}
		return name
	}
	type descriptor struct {
		Digest      string
		Size        int
		Annotations map[string]string
	}
	var index struct{ Manifests []descriptor }
	decode("index.json", &index)
	if len(index.Manifests) != 1 || index.Manifests[0].Digest != digest ||
		index.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "registry.example.com/x:1" {
		t.Fatalf("the index has %+v", index.Manifests)
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	decode(blob(digest), &manifest)
	var docker []struct {
		Config           string
		RepoTags, Layers []string
	}
	decode("manifest.json", &docker)
	if docker[0].Config != blob(manifest.Config.Digest) || docker[0].Layers[0] != blob(manifest.Layers[0].Digest) ||
		docker[0].RepoTags[0] != "registry.example.com/x:1" {
		t.Errorf("docker's form has %+v, the other %+v", docker, manifest)
	}
	for _, d := range []descriptor{index.Manifests[0], manifest.Config, manifest.Layers[0]} {
		if size := len(files[blob(d.Digest)]); size != d.Size {
			t.Errorf("%s has %d bytes, not %d", d.Digest, size, d.Size)
		}
	}
	content, modes := entries(t, []byte(files[blob(manifest.Layers[0].Digest)]))
	if diff := cmp.Diff(map[string]string{"usr/bin/x": "program", "list": "list"}, content); diff != "" {
		t.Error(diff)
	}
	want := map[string]int64{"tmp/": 0o1777, "usr/": 0o755, "usr/bin/": 0o755, "usr/bin/x": 0o755, "list": 0o644}
	if diff := cmp.Diff(want, modes); diff != "" {
		t.Error(diff)
	}
}

// TestArchitectures checks that an image for two architectures has both, by digest, and that equal input produces the
// same bytes.
func TestArchitectures(t *testing.T) {
	first, second := image(t, time.Now()), image(t, time.Now())
	second.Arch, second.Files["/list"] = "arm64", oci.File{Data: []byte("another list"), Mode: 0o644}
	read := func() (string, map[string]string) {
		file := filepath.Join(t.TempDir(), "image.tar")
		digest, err := oci.WriteAll(file, first, second)
		if err != nil {
			t.Fatal(err)
		}
		archive, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		files, _ := entries(t, archive)
		return digest, files
	}
	digest, files := read()
	if again, other := read(); again != digest || !cmp.Equal(files, other) {
		t.Errorf("the same input made %s and %s", digest, again)
	}
	type index struct {
		Manifests []struct {
			Digest      string
			Platform    struct{ Architecture, OS string }
			Annotations map[string]string
		}
	}
	decode := func(name string) (out index) {
		if err := json.Unmarshal([]byte(files[name]), &out); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return out
	}
	top := decode("index.json")
	if len(top.Manifests) != 1 || top.Manifests[0].Digest != digest ||
		top.Manifests[0].Annotations["io.containerd.image.name"] != first.Name {
		t.Fatalf("the index has %+v", top)
	}
	all := decode("blobs/sha256/" + strings.TrimPrefix(digest, "sha256:"))
	for i, want := range []oci.Image{first, second} {
		_, alone := write(t, want)
		if len(all.Manifests) != 2 || all.Manifests[i].Digest != alone || all.Manifests[i].Platform.Architecture != want.Arch {
			t.Errorf("for %s, want %s: %+v", want.Arch, alone, all.Manifests)
		}
		if manifest := "blobs/sha256/" + strings.TrimPrefix(alone, "sha256:"); digestOf(files[manifest]) != alone {
			t.Errorf("%s is missing, or another", alone)
		}
	}
	if _, err := oci.WriteAll(filepath.Join(t.TempDir(), "none.tar")); err == nil {
		t.Error("an image without an architecture is accepted")
	}
}

func digestOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func TestMissingFile(t *testing.T) {
	i := image(t, time.Now())
	i.Files["/gone"] = oci.File{Source: filepath.Join(t.TempDir(), "gone")}
	file := filepath.Join(t.TempDir(), "image.tar")
	if _, err := i.Write(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is an archive: %v", err)
	}
}
