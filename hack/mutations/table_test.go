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
