// Package charts gives tests the charts of the Istio release before the embedded one, from a directory.
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

// pinDir is the folder, in the root of the checkout, whose go.mod pins the release.
const pinDir = "hack/charts-1.28"

// Dir1282 is a directory with Istio 1.28.2's charts in Istio's own layout: manifests/charts of the Go module, in the module cache. It is
// read-only. The Go command downloads the module where it is missing, and checks it against go.sum.
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

// findUpwards finds a folder in the working directory or above it: a test runs in the folder of its package.
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

// moduleDir is the directory of the one module that the go.mod file in dir requires.
func moduleDir(tb testing.TB, dir string) (string, error) {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), "go", "mod", "download", "-json")
	cmd.Dir = dir
	// Whatever flags and workspace the caller's build has, this module stands alone.
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, runErr := cmd.Output()
	var module struct{ Dir, Error string }
	// A failed download has its reason in the JSON.
	if err := json.Unmarshal(out, &module); err != nil {
		return "", errors.Join(runErr, err, errors.New(stderr.String()))
	}
	if runErr != nil || module.Error != "" {
		return "", errors.Join(runErr, errors.New(module.Error))
	}
	return module.Dir, nil
}
