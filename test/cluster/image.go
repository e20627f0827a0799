package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed" // for the pause program's source
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/hypergate/hypergate/hack/image/oci"
	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/test/cluster/servers"
)

const (
	pauseImage = "docker.io/local/pause:1"
	kubeImage  = "docker.io/local/kube:1"
	// IstiodImage is the reference of istiod's image on the node. The chart renders it for hub registry.example.com
	// and this tag. The registry does not exist. The kubelet never tries to pull the image, because the tag is not
	// "latest".
	IstiodImage = "registry.example.com/pilot:" + charts.EmbeddedVersion
	// layoutVersion must be incremented when write changes its output, so that older tars are not used.
	layoutVersion = 2
	// stale is the age at which the tar of an older build is removed. Younger tars are kept, because a run may be
	// importing them.
	stale = 24 * time.Hour
)

// Image is an image that contains only static binaries.
type Image struct {
	// Name is the full reference. Its tag must not be latest, because the kubelet would try to pull that.
	Name string
	// User is the numeric user ID of the process.
	User string
	// Entrypoint is the command.
	Entrypoint []string
	// Files maps absolute paths in the image to files on this machine. All of them become executable.
	Files map[string]string
}

// importable is the file of an image on this machine, ready for containerd.
type importable struct{ Name, Tar string }

// images returns the tars of the images that every node needs and of those in the options. It creates missing tars.
func images(ctx context.Context, binaries servers.Binaries, options Options) ([]importable, error) {
	dir, err := servers.Dir(ctx)
	if err != nil {
		return nil, err
	}
	dir = filepath.Join(dir, "images")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the image cache: %w", err)
	}
	pause, err := buildPause(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("building the pause program: %w", err)
	}
	usr := func(names ...string) map[string]string {
		files := map[string]string{}
		for _, name := range names {
			files["/usr/local/bin/"+name] = binaries[name]
		}
		return files
	}
	all := []Image{
		{Name: pauseImage, User: "65535", Entrypoint: []string{"/pause"}, Files: map[string]string{"/pause": pause}},
		{Name: kubeImage, User: "1000", Files: ofGuest(usr(hostedServers(options)...), binaries)},
	}
	for _, name := range append([]string{IstiodImage}, options.IstiodImages...) {
		all = append(all, Image{
			Name: name, User: "1337", Entrypoint: []string{"/usr/local/bin/pilot-discovery"},
			Files: usr("pilot-discovery"),
		})
	}
	return importables(dir, slices.Concat(all, standIns(options, pause), options.Images))
}

// ofGuest returns the files of an image with the servers of a guest.
func ofGuest(files map[string]string, binaries servers.Binaries) map[string]string {
	for in := range files {
		files[in] = binaries[servers.OfGuest(path.Base(in))]
	}
	return files
}

// hostedServers returns the servers of a guest that run in pods of the management cluster. Only a guest with real nodes
// needs a scheduler.
func hostedServers(o Options) []string {
	names := []string{"etcd", "kube-apiserver", "kube-controller-manager"}
	if o.GuestNodes > 0 {
		names = append(names, "kube-scheduler")
	}
	if o.Konnectivity {
		names = append(names, konnectivityServer)
	}
	return names
}

func standIns(o Options, pause string) []Image {
	all := make([]Image, 0, len(o.StandIns))
	for _, name := range o.StandIns {
		all = append(all, Image{
			Name: name, User: "1337", Entrypoint: []string{"/pause", "-ready=:15021", "--"}, Files: map[string]string{"/pause": pause},
		})
	}
	return all
}

// guestImages returns the tars of the images for the guest's nodes.
func guestImages(ctx context.Context, options Options) ([]importable, error) {
	if options.GuestNodes == 0 {
		return nil, nil
	}
	dir, err := servers.Dir(ctx)
	if err != nil {
		return nil, err
	}
	dir = filepath.Join(dir, "images")
	pause, err := buildPause(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("building the pause program: %w", err)
	}
	all := []Image{{Name: pauseImage, User: "65535", Entrypoint: []string{"/pause"}, Files: map[string]string{"/pause": pause}}}
	tars, err := importables(dir, slices.Concat(all, standIns(options, pause), options.GuestImages))
	return append(tars, archived(options.GuestArchives)...), err
}

// archived returns existing image files, in the order of their names.
func archived(files map[string]string) []importable {
	tars := make([]importable, 0, len(files))
	for _, name := range slices.Sorted(maps.Keys(files)) {
		tars = append(tars, importable{Name: name, Tar: files[name]})
	}
	return tars
}

// importables returns the tars of images. It creates missing tars in dir.
func importables(dir string, all []Image) ([]importable, error) {
	tars := make([]importable, 0, len(all))
	for _, image := range all {
		file, err := image.cached(dir)
		if err != nil {
			return nil, fmt.Errorf("making image %s: %w", image.Name, err)
		}
		tars = append(tars, importable{Name: image.Name, Tar: file})
	}
	return tars, nil
}

//go:embed pause/main.go
var pauseSource []byte

// buildPause compiles the pause program, unless dir contains one of the same source. The result is renamed into place
// when it is complete, because another run may build it at the same time.
func buildPause(ctx context.Context, dir string) (string, error) {
	file := filepath.Join(dir, "pause-"+digest(pauseSource)[:16])
	if fileExists(file) {
		return file, nil
	}
	work, err := os.MkdirTemp(dir, "pause.part-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(work) }()
	source, built := filepath.Join(work, "main.go"), filepath.Join(work, "pause")
	if err := os.WriteFile(source, pauseSource, 0o600); err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", built, source)
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	return file, os.Rename(built, file)
}

// cached returns the image's tar. It creates the tar if the one in dir has other content. The cache key contains
// sizes and times of the files, not their bytes. Reading 350 MB at every start would take longer than the import that
// it saves.
func (i Image) cached(dir string) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, layoutVersion, i.Name, i.User, i.Entrypoint)
	for _, target := range slices.Sorted(maps.Keys(i.Files)) {
		info, err := os.Stat(i.Files[target])
		if err != nil {
			return "", err
		}
		fmt.Fprintln(hash, target, info.Size(), info.ModTime().UnixNano())
	}
	prefix := strings.NewReplacer("/", "_", ":", "_").Replace(i.Name) + "-"
	file := filepath.Join(dir, prefix+hex.EncodeToString(hash.Sum(nil))[:16]+".tar")
	if _, err := os.Stat(file); err == nil {
		return file, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := removeStale(filepath.Join(dir, prefix+"*.tar")); err != nil {
		return "", err
	}
	return file, i.write(file)
}

func removeStale(pattern string) error {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && time.Since(info.ModTime()) > stale {
			if err := os.Remove(file); err != nil {
				return err
			}
		}
	}
	return nil
}

// write creates the image's tar: the files, a /tmp that is writable for all users, and folders as mount points for
// pods.
func (i Image) write(file string) error {
	image := oci.Image{
		Name: i.Name, Arch: runtime.GOARCH, User: i.User, Entrypoint: i.Entrypoint, Env: []string{"PATH=/usr/local/bin"},
		Dirs:  map[string]int64{"/tmp": 0o1777, "/etc": 0o755, "/var/run": 0o755},
		Files: map[string]oci.File{},
	}
	for target, source := range i.Files {
		image.Files[target] = oci.File{Source: source, Mode: 0o755}
	}
	_, err := image.Write(file)
	return err
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
