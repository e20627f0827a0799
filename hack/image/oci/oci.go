// Package oci writes images with one layer for each architecture, without podman or docker. The archive is an OCI image
// layout. If there is one architecture, an additional file also makes it an archive of `docker save`. Podman, docker,
// skopeo and containerd can therefore load it.
//
// The package does not use a library, because the code is short and none of hypergate's dependencies is such a
// library.
//
// The same input produces the same bytes: the archive contains no times and no names of the machine. It is not
// compressed; the tool that pushes the image compresses it.
package oci

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Image is an image without a base image.
type Image struct {
	// Name is the full reference.
	Name string
	// Arch is the architecture in Go's notation. The operating system is Linux.
	Arch string
	// User is the numeric user ID of the process.
	User string
	// Entrypoint is the command, and Env is its environment.
	Entrypoint, Env []string
	// Labels are the labels in the image's manifest and configuration.
	Labels map[string]string
	// Dirs has the modes of directories, by path. The parent directories of files can be omitted.
	Dirs map[string]int64
	// Files has the files, by path.
	Files map[string]File
}

// File is a file of this machine, or the content of a file.
type File struct {
	Source string
	Data   []byte
	Mode   int64
}

const (
	media      = "application/vnd.oci.image."
	mediaIndex = media + "index.v1+json"
)

// layoutFile returns the file that marks a folder as an OCI image layout.
func layoutFile() tarFile { return tarFile{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)} }

// Write writes the image and returns its digest. The file gets its name only when it is complete.
func (i Image) Write(file string) (digest string, err error) {
	made, err := i.encode()
	if err != nil {
		return "", err
	}
	index, err := indexOf(made.descriptor(i.names()))
	if err != nil {
		return "", err
	}
	docker, err := json.Marshal([]any{map[string]any{
		"Config": blobPath(made.config), "RepoTags": []string{i.Name}, "Layers": []string{blobPath(made.layer)},
	}})
	if err != nil {
		return "", err
	}
	return digestOf(made.manifest), writeTar(file, append([]tarFile{
		layoutFile(), {"index.json", index}, {"manifest.json", docker},
	}, made.blobs()...))
}

// WriteAll writes the images of several architectures as one image with the name of the first. It returns the digest of
// their index. The file gets its name only when it is complete. The archive format of `docker save` has one
// architecture, so tools must read the OCI image layout.
func WriteAll(file string, images ...Image) (digest string, err error) {
	if len(images) == 0 {
		return "", errors.New("an image needs an architecture")
	}
	var manifests []descriptor
	var blobs []tarFile
	for _, i := range images {
		made, err := i.encode()
		if err != nil {
			return "", fmt.Errorf("making the image for %s: %w", i.Arch, err)
		}
		manifests, blobs = append(manifests, made.descriptor(nil)), append(blobs, made.blobs()...)
	}
	all, err := indexOf(manifests...)
	if err != nil {
		return "", err
	}
	index, err := indexOf(descriptor{Media: mediaIndex, Digest: digestOf(all), Size: len(all), Annotations: images[0].names()})
	if err != nil {
		return "", err
	}
	return digestOf(all), writeTar(file, append([]tarFile{layoutFile(), {"index.json", index}, {blobPath(all), all}}, blobs...))
}

// names returns the annotations with the image's name. containerd uses the first, all other tools use the second.
func (i Image) names() map[string]string {
	return map[string]string{"io.containerd.image.name": i.Name, "org.opencontainers.image.ref.name": i.Name}
}

// encoded is the content of an image.
type encoded struct {
	arch                    string
	layer, config, manifest []byte
}

// descriptor is a reference of an index to a manifest.
type descriptor struct {
	Media       string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Arch string `json:"architecture"`
	OS   string `json:"os"`
}

func (i Image) encode() (out encoded, err error) {
	out.arch = i.Arch
	if out.layer, err = i.layer(); err != nil {
		return out, fmt.Errorf("making the root file system: %w", err)
	}
	out.config, err = json.Marshal(map[string]any{
		"architecture": i.Arch, "os": "linux",
		"config": map[string]any{"Entrypoint": i.Entrypoint, "User": i.User, "WorkingDir": "/", "Env": i.Env, "Labels": i.Labels},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digestOf(out.layer)}},
	})
	if err != nil {
		return out, err
	}
	out.manifest, err = json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": media + "manifest.v1+json", "annotations": i.Labels,
		"config": map[string]any{"mediaType": media + "config.v1+json", "digest": digestOf(out.config), "size": len(out.config)},
		"layers": []any{map[string]any{"mediaType": media + "layer.v1.tar", "digest": digestOf(out.layer), "size": len(out.layer)}},
	})
	return out, err
}

func (e encoded) descriptor(annotations map[string]string) descriptor {
	return descriptor{
		Media: media + "manifest.v1+json", Digest: digestOf(e.manifest), Size: len(e.manifest),
		Platform: &platform{Arch: e.arch, OS: "linux"}, Annotations: annotations,
	}
}

func (e encoded) blobs() []tarFile {
	return []tarFile{{blobPath(e.layer), e.layer}, {blobPath(e.config), e.config}, {blobPath(e.manifest), e.manifest}}
}

func indexOf(manifests ...descriptor) ([]byte, error) {
	return json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": mediaIndex, "manifests": manifests})
}

// layer returns the root file system as a tar archive.
func (i Image) layer() ([]byte, error) {
	var buffer bytes.Buffer
	out := tar.NewWriter(&buffer)
	made := map[string]bool{"/": true}
	var mkdir func(dir string, mode int64) error
	mkdir = func(dir string, mode int64) error {
		if made[dir] {
			return nil
		}
		made[dir] = true
		return errors.Join(mkdir(path.Dir(dir), 0o755),
			out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir[1:] + "/", Mode: mode}))
	}
	var err error
	for _, dir := range slices.Sorted(maps.Keys(i.Dirs)) {
		err = errors.Join(err, mkdir(dir, i.Dirs[dir]))
	}
	for _, target := range slices.Sorted(maps.Keys(i.Files)) {
		f := i.Files[target]
		data := f.Data
		if f.Source != "" {
			var readErr error
			data, readErr = os.ReadFile(f.Source)
			err = errors.Join(err, readErr)
		}
		err = errors.Join(err, mkdir(path.Dir(target), 0o755),
			out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: target[1:], Mode: f.Mode, Size: int64(len(data))}))
		_, writeErr := out.Write(data)
		err = errors.Join(err, writeErr)
	}
	return buffer.Bytes(), errors.Join(err, out.Close())
}

type tarFile struct {
	name string
	data []byte
}

func writeTar(file string, contents []tarFile) error {
	part, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".part-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(part.Name()) }() // fails after the rename, which is expected
	out := tar.NewWriter(part)
	for _, content := range contents {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: content.name, Mode: 0o644, Size: int64(len(content.data))}
		if err := out.WriteHeader(header); err != nil {
			return errors.Join(err, part.Close())
		}
		if _, err := io.Copy(out, bytes.NewReader(content.data)); err != nil {
			return errors.Join(err, part.Close())
		}
	}
	if err := errors.Join(out.Close(), part.Chmod(0o644), part.Close()); err != nil {
		return err
	}
	return os.Rename(part.Name(), file)
}

func blobPath(data []byte) string {
	return "blobs/sha256/" + strings.TrimPrefix(digestOf(data), "sha256:")
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}
