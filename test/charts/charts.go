// Package charts provides tests with the charts of the Istio release before the embedded one, as a directory.
package charts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// pinDir is the folder in the checkout whose go.mod pins the release.
const pinDir = "hack/charts-1.28"

// Dir1282 returns a directory with Istio 1.28.2's charts in Istio's layout: manifests/charts of the Go module, in the
// module cache. The directory is read-only. The Go command downloads the module if it is missing, and verifies it
// with go.sum.
func Dir1282(tb testing.TB) string {
	tb.Helper()
	pin, err := findUpwards(pinDir)
	if err != nil {
		tb.Fatal(err)
	}
	dir, err := moduleDir(tb, pin)
	if err != nil {
		tb.Fatalf("getting Istio 1.28.2's charts with \"go mod download\" in %s: %v", pin, err)
	}
	return filepath.Join(dir, "manifests", "charts")
}

// findUpwards finds a folder in the working directory or its parents. A test runs in the folder of its package.
func findUpwards(name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		found := filepath.Join(dir, name)
		if _, err := os.Stat(found); err == nil {
			return found, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("there is no %s above the working directory: run the test in a checkout", name)
		}
		dir = parent
	}
}

// moduleDir returns the directory of the only module that the go.mod file in dir requires.
func moduleDir(tb testing.TB, dir string) (string, error) {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), "go", "mod", "download", "-json")
	cmd.Dir = dir
	// The caller's flags and workspace must not affect this module.
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, runErr := cmd.Output()
	var module struct{ Dir, Error string }
	// The JSON contains the reason of a failed download.
	if err := json.Unmarshal(out, &module); err != nil {
		return "", errors.Join(runErr, err, errors.New(stderr.String()))
	}
	if runErr != nil || module.Error != "" {
		return "", errors.Join(runErr, errors.New(module.Error))
	}
	return module.Dir, nil
}
