// Command generate-crds copies the CRDs of the Gateway API's standard channel into the directory that package crds
// embeds. The source is the module sigs.k8s.io/gateway-api in the version that go.mod pins. The module contains the
// CRDs as files, but does not embed them.
//
// With -check, it writes nothing and fails if a file differs. "go generate ./pkg/crds" runs it and sets the directory.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
)

const (
	module   = "sigs.k8s.io/gateway-api"
	standard = "config/crd/standard"
)

func main() {
	check := flag.Bool("check", false, "write nothing, and fail if a file is not as in the module")
	out := flag.String("out", "gatewayapi", "the folder to write")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *out, *check)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "generate-crds:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out string, check bool) error {
	dir, err := moduleDir(ctx)
	if err != nil {
		return fmt.Errorf("finding module %s: %w", module, err)
	}
	want, err := yamlFiles(filepath.Join(dir, standard))
	if err != nil {
		return err
	}
	if len(want) == 0 {
		return fmt.Errorf("there are no CRDs in %s of module %s: look where this version has them", standard, module)
	}
	if check {
		return compare(want, out)
	}
	return mirror(want, out)
}

// moduleDir returns the directory of the module in the module cache. Unlike "go list -m", it downloads a missing
// module.
func moduleDir(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, runErr := cmd.Output()
	var found struct{ Dir, Error string }
	if err := json.Unmarshal(out, &found); err != nil {
		return "", errors.Join(runErr, err, errors.New(stderr.String()))
	}
	if runErr != nil || found.Dir == "" {
		return "", errors.Join(runErr, errors.New(found.Error)) // the JSON has the reason of a failed download
	}
	return found.Dir, nil
}

// mirror makes the YAML files of a directory equal to the wanted files.
func mirror(want map[string][]byte, out string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	have, err := yamlFiles(out)
	if err != nil {
		return err
	}
	for name := range have {
		if _, keep := want[name]; keep {
			continue
		}
		if err := os.Remove(filepath.Join(out, name)); err != nil {
			return err
		}
	}
	for name, data := range want {
		if bytes.Equal(have[name], data) {
			continue
		}
		if err := os.WriteFile(filepath.Join(out, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// compare returns an error that lists how the YAML files of a directory differ from the wanted files.
func compare(want map[string][]byte, out string) error {
	have, err := yamlFiles(out)
	if err != nil {
		return err
	}
	var differ []string
	for name, data := range want {
		if !bytes.Equal(have[name], data) {
			differ = append(differ, name)
		}
	}
	for name := range have {
		if _, keep := want[name]; !keep {
			differ = append(differ, name)
		}
	}
	if len(differ) == 0 {
		return nil
	}
	slices.Sort(differ)
	return fmt.Errorf("%s is not as in module %s: run make generate; these differ: %q", out, module, differ)
}

// yamlFiles returns the YAML files of a directory, by name.
func yamlFiles(dir string) (map[string][]byte, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files[filepath.Base(name)] = data
	}
	return files, nil
}
