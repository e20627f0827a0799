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
	"strings"
	"time"
)

// testTime is how long a test may take, in go test's own format.
const testTime = "10m"

func main() { os.Exit(execute()) }

// execute runs the command, and returns its exit code.
func execute() int {
	only := flag.String("guarantee", "", "check this guarantee alone: "+strings.Join(guarantees(), ", "))
	flag.Parse()
	if *only != "" && !slices.Contains(guarantees(), *only) {
		fmt.Fprintf(os.Stderr, "mutations: -guarantee: unknown guarantee %q: use one of %s\n", *only, strings.Join(guarantees(), ", "))
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *only); err != nil {
		fmt.Fprintln(os.Stderr, "mutations:", err)
		return 1
	}
	return 0
}

// run checks the rows of a guarantee, or all rows, and prints a table. It returns an error if a test does not fail
// without its guarantee, or fails with it.
func run(ctx context.Context, only string) error {
	root, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "mutations-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	var problems []error
	fmt.Printf("| Guarantee | Without | Test | Result | Time |\n|---|---|---|---|---|\n")
	for _, m := range mutations() {
		if only != "" && m.guarantee != only {
			continue
		}
		began := time.Now()
		result := "fails"
		if err := m.check(ctx, root, folder); err != nil {
			problems = append(problems, fmt.Errorf("%s, without %s: %w", m.guarantee, m.what, err))
			result = "WRONG"
		}
		fmt.Printf("| %s | %s | `%s` %s | %s | %d s |\n", m.guarantee, m.what, m.pkg, m.test, result, int(time.Since(began).Seconds()))
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(append(problems, ctx.Err())...)
}

// errSurvived means that a test does not depend on the code of its guarantee.
var errSurvived = errors.New("the test passes: it does not check this guarantee")

// check returns an error unless the test passes as it is, and fails with the changed file.
func (m mutation) check(ctx context.Context, root, folder string) error {
	if output, err := m.runTest(ctx, root, ""); err != nil {
		return fmt.Errorf("the test fails before anything is changed: %w\n%s", err, output)
	}
	content, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return err
	}
	changed, err := m.apply(string(content))
	if err != nil {
		return err
	}
	file, overlay := filepath.Join(folder, filepath.Base(m.file)), filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		return err
	}
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, m.file): file}})
	if err != nil {
		return err
	}
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		return err
	}
	output, err := m.runTest(ctx, root, overlay)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil:
		return errSurvived
	case !m.noticed(output):
		return fmt.Errorf("the test did not fail by itself: %w\n%s", err, output)
	}
	return nil
}

// noticed reports whether a test that did not pass has noticed that its guarantee is gone. It has not if it hangs, or
// if the changed code panics: any test that runs the code would end so.
func (m mutation) noticed(output []byte) bool {
	for _, other := range []string{"panic: test timed out", "panic: runtime error: "} {
		if bytes.Contains(output, []byte(other)) {
			return false
		}
	}
	return bytes.Contains(output, []byte("--- FAIL: "+m.test)) || bytes.Contains(output, []byte("panic: "))
}

// apply returns the content of the file with the change. It returns an error unless old occurs once.
func (m mutation) apply(content string) (string, error) {
	if n := strings.Count(content, m.old); n != 1 {
		return "", fmt.Errorf("%s has this text %d times and not once: %s", m.file, n, m.old)
	}
	return strings.Replace(content, m.old, m.new, 1), nil
}

// runTest runs the test, with an overlay unless it is empty.
func (m mutation) runTest(ctx context.Context, root, overlay string) ([]byte, error) {
	args := []string{"test", "-count=1", "-timeout", testTime, "-v", "-run", "^" + m.test + "$"}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	command := exec.CommandContext(ctx, "go", append(args, m.pkg)...)
	command.Dir = root
	output, err := command.CombinedOutput()
	if err == nil && !bytes.Contains(output, []byte("--- PASS: "+m.test)) {
		return output, errors.New("the test did not run")
	}
	return output, err
}
