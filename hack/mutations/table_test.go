package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// TestTheTableIsUpToDate checks that each guarantee has a row, that each text to replace occurs once, and that each
// test exists. `make mutations` runs the tests.
func TestTheTableIsUpToDate(t *testing.T) {
	t.Parallel()
	var seen []string
	for _, m := range mutations() {
		seen = append(seen, m.guarantee)
		content, err := os.ReadFile(filepath.Join("../..", m.file))
		if err != nil {
			t.Fatal(err)
		}
		if changed, err := m.apply(string(content)); err != nil || changed == string(content) {
			t.Errorf("%s, without %s: %v", m.guarantee, m.what, err)
		}
		if !hasTest(t, filepath.Join("../..", m.pkg), m.test) {
			t.Errorf("%s has no test %s", m.pkg, m.test)
		}
	}
	if got := slices.Compact(seen); !slices.Equal(got, guarantees()) {
		t.Errorf("the table has the guarantees %q, want %q in this order", got, guarantees())
	}
}

// TestTheGuaranteesNameTheNumberOfPlaces checks the number of rows in the documentation.
func TestTheGuaranteesNameTheNumberOfPlaces(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reference/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`in (\d+)\s+places`).FindStringSubmatch(string(page))
	if want := strconv.Itoa(len(mutations())); len(named) != 2 || named[1] != want {
		t.Errorf("docs/reference/reliability.md names %q, and the table has %s places", named, want)
	}
}

// TestAMutationIsNoticedByItsTest checks which output shows that a test noticed a change.
func TestAMutationIsNoticedByItsTest(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]bool{
		"--- FAIL: TestIt (0.01s)\nFAIL\n":                                                                                true,
		"panic: deadlock: main bubble goroutine has exited but others remain\nFAIL\n":                                     true,
		"# example.com/pkg [example.com/pkg.test]\n./x.go:1:1: undefined: y\nFAIL\n":                                      false,
		"--- FAIL: TestAnother (0.01s)\nFAIL\n":                                                                           false,
		"panic: test timed out after 10m0s\n\trunning tests:\n\t\tTestIt (10m0s)\n":                                       false,
		"--- FAIL: TestIt (0.00s)\npanic: runtime error: invalid memory address or nil pointer dereference [recovered]\n": false,
	} {
		if got := (mutation{test: "TestIt"}).noticed([]byte(output)); got != want {
			t.Errorf("%t, want %t: %s", got, want, output)
		}
	}
}

// hasTest reports whether a package has a test.
func hasTest(t *testing.T, folder, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(`(?m)^func ` + test + `\(`).Match(content)
	})
}
