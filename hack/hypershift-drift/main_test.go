package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hypergate/hypergate/test/hypershift"
)

// madeUp writes a tree in which each function with a rule has a body that is made up. It returns its folder.
func madeUp(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	texts := map[string]string{}
	for _, f := range hypershift.Recorded() {
		text := "func " + f.Name + "() {}\n"
		if kind, method, is := strings.Cut(f.Name, "."); is {
			text = "func (" + kind + ") " + method + "() {}\n"
		}
		texts[f.File] += text
	}
	for file, text := range texts {
		path := filepath.Join(dir, filepath.FromSlash(file))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("package p\n\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestDrift records a tree, and compares it with itself and with a newer one.
func TestDrift(t *testing.T) {
	dir, file := madeUp(t), filepath.Join(t.TempDir(), "rules.txt")
	var out strings.Builder
	if err := run([]string{"-tree", dir, "-file", file, "-record"}, &out); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), "recorded as "+hypershift.Commit) || !strings.Contains(out.String(), "set Commit") {
		t.Errorf("after recording: %s", out.String())
	}
	out.Reset()
	if err := run([]string{"-tree", dir, "-file", file}, &out); err != nil || !strings.HasPrefix(out.String(), "0 differences") {
		t.Errorf("the same tree: %v\n%s", err, out.String())
	}
	out.Reset()
	changed := hypershift.Recorded()[0]
	path := filepath.Join(dir, filepath.FromSlash(changed.File))
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	newer := strings.Replace(string(data), "func "+changed.Name+"() {}", "func "+changed.Name+"() { panic(1) }", 1)
	if err := os.WriteFile(path, []byte(newer), 0o600); err != nil {
		t.Fatal(err)
	}
	err = run([]string{"-tree", dir, "-file", file}, &out)
	if want := "changed  " + changed.File + "  " + changed.Name + "\n1 differences"; !errors.Is(err, errDrift) ||
		!strings.HasPrefix(out.String(), want) {
		t.Errorf("a newer tree: %v\n%s\nwant %s", err, out.String(), want)
	}
}

// TestDriftNeedsATree checks the errors of a wrong folder and of a missing record.
func TestDriftNeedsATree(t *testing.T) {
	for _, args := range [][]string{nil, {"-tree", "missing"}, {"-tree", t.TempDir(), "-file", "missing"}} {
		if err := run(args, &strings.Builder{}); err == nil || errors.Is(err, errDrift) {
			t.Errorf("%q: %v", args, err)
		}
	}
}
