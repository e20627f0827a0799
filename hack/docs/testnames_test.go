package docs

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testFunction  = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	testReference = regexp.MustCompile(`\bTest[A-Z]\w+`)
)

// TestReferencedTestsExist checks that the tests that the Makefile and the pages name exist. A name with
// an asterisk stands for all tests that begin with it.
func TestReferencedTestsExist(t *testing.T) {
	tests := testFunctions(t)
	references := 0
	for _, page := range append(pages(t), filepath.Join(root, "Makefile")) {
		text := read(t, page)
		for _, at := range testReference.FindAllStringIndex(text, -1) {
			references++
			name, isPattern := text[at[0]:at[1]], strings.HasPrefix(text[at[1]:], "*")
			if exists := tests[name] || isPattern && isPrefix(tests, name); !exists {
				t.Errorf("%s: there is no test %s", page, name)
			}
		}
	}
	if references < 50 {
		t.Errorf("only %d references were found", references)
	}
}

func isPrefix(names map[string]bool, prefix string) bool {
	for name := range names {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// testFunctions returns the names of all tests.
func testFunctions(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		for _, found := range testFunction.FindAllStringSubmatch(read(t, path), -1) {
			out[found[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
