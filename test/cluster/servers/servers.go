package servers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// assetsEnv is the variable with which users of controller-runtime's envtest set a folder with their own server
// binaries.
const assetsEnv = "KUBEBUILDER_ASSETS"

// guestEnv is the variable with the version of Kubernetes that guests have, if that is not the version of the
// management cluster: 1.30, the oldest one that a guest may have. A standalone cluster with a node is a guest, too.
const guestEnv = "GUEST_KUBERNETES"

// HasOlderGuest reports whether guests have the version of Kubernetes that GUEST_KUBERNETES selects.
func HasOlderGuest() bool { return OfGuest("kube-apiserver") != "kube-apiserver" }

// OfGuest returns the name of a guest's server. It depends on GUEST_KUBERNETES for those of Kubernetes.
func OfGuest(name string) string {
	if version := os.Getenv(guestEnv); version != "" && strings.HasPrefix(name, "kube") {
		return name + "-" + version
	}
	return name
}

// Binaries maps the names of servers to absolute paths.
type Binaries map[string]string

// Find returns the paths of the named servers. A binary in the folder KUBEBUILDER_ASSETS has precedence over the one
// that hack/servers built. An error names the missing binary and the command that builds it.
func Find(ctx context.Context, names ...string) (Binaries, error) {
	dir, err := Dir(ctx)
	if err != nil {
		return nil, err
	}
	found := Binaries{}
	for _, name := range names {
		path, err := find(name, os.Getenv(assetsEnv), dir)
		if err != nil {
			return nil, err
		}
		found[name] = path
	}
	return found, nil
}

// Dir returns the folder in which hack/servers/build.sh keeps the servers. Derived files (images) may be cached there
// too, because the folder's name changes whenever the sources change.
func Dir(ctx context.Context) (string, error) {
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(root, "hack/servers/build.sh"), "--dir").Output()
	if err != nil {
		return "", fmt.Errorf("asking hack/servers/build.sh --dir for the servers' folder: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

func find(name string, dirs ...string) (string, error) {
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		path, err := filepath.Abs(filepath.Join(dir, name))
		if err != nil {
			return "", fmt.Errorf("finding server %s: %w", name, err)
		}
		// Symlinks are resolved, because the node hides /var/lib and /run. A link into them must be detected.
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return path, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("finding server %s: %w", name, err)
		}
	}
	return "", fmt.Errorf("server %s is not in %s; run `make servers` (minutes the first time), then try again", name, dirs[len(dirs)-1])
}

// ModuleRoot returns the folder of the checkout. It searches upwards from the working directory, which is the
// package's folder in a test.
func ModuleRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the module root: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "hack/servers/build.sh")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no folder above %s holds hack/servers/build.sh; run this from inside the checkout", start)
		}
	}
}

// ModuleDir returns the folder of a Go module in the module cache, in the version that the go.mod file of the folder
// root, or of one above it, requires. Unlike "go list -m", it downloads the module if the cache does not have it. The
// error has the reason of a failed download.
func ModuleDir(ctx context.Context, root, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir = root
	// The caller's flags and workspace must not affect this module.
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, runErr := cmd.Output()
	var found struct{ Dir, Error string }
	err := json.Unmarshal(out, &found)
	switch {
	case err != nil:
		err = errors.Join(runErr, err, errors.New(strings.TrimSpace(stderr.String())))
	case runErr != nil || found.Dir == "":
		err = errors.Join(runErr, errors.New(found.Error)) // the JSON has the reason of a failed download
	default:
		return found.Dir, nil
	}
	return "", fmt.Errorf("getting %s with \"go mod download\" in %s: %w", module, root, err)
}
