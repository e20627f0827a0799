// Package golden compares the output of tests with golden files. A golden file contains the expected output of one
// test.
//
// If the environment variable UPDATE is set, for example to 1, the tests write their golden files and do not compare
// them. Read the differences before you commit them.
package golden

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Updating reports whether the tests write their golden files.
func Updating() bool { return os.Getenv("UPDATE") != "" }

// Equal checks that got is the content of the golden file. The path is relative to the folder of the test's package.
//
// If the tests write their golden files, Equal writes got to the file instead. It creates the file and its folder if
// necessary.
func Equal[T ~string | ~[]byte](tb testing.TB, path string, got T) {
	tb.Helper()
	if Updating() {
		write(tb, path, []byte(got))
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		tb.Errorf("there is no golden file: %v; run the test with UPDATE=1 to write it", err)
		return
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		tb.Errorf("%s differs (-golden +got); if this is intended, run the test with UPDATE=1 and read the difference:\n%s", path, diff)
	}
}

func write(tb testing.TB, path string, data []byte) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		tb.Fatal(err)
	}
}
