package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestParityRowsNameTheirTests checks the tables of docs/reference/parity.md: each row has a known state, what is taken
// over has a test, each test exists in the named folder, and a row without a test says so.
func TestParityRowsNameTheirTests(t *testing.T) {
	t.Parallel()
	page := read(t, filepath.Join(root, "docs/reference/parity.md"))
	_, tables, _ := strings.Cut(page, "\n## Installation\n")
	tables, _, _ = strings.Cut(tables, "\n## Rendered settings\n") // test/parity checks that table
	rows := 0
	for line := range strings.Lines(tables) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") || strings.HasPrefix(line, "| What ") {
			continue
		}
		if rows++; len(cells) != 4 {
			t.Errorf("%d cells: %s", len(cells), line)
			continue
		}
		state, shown := strings.TrimSpace(cells[2]), cells[3]
		if !slices.Contains([]string{"taken over", "kept", "not there", "partly", "more"}, state) {
			t.Errorf("an unknown state: %s", line)
		}
		tests := regexp.MustCompile("`([a-z/]+)` (Test\\w+)").FindAllStringSubmatch(shown, -1)
		if len(tests) == 0 && (state == "taken over" || state == "more") {
			t.Errorf("without a test: %s", line)
		}
		if marked := strings.HasSuffix(strings.TrimSpace(shown), "No test"); marked != (len(tests) == 0) {
			t.Errorf("a row without a test, and no other one, ends with \"No test\": %s", line)
		}
		for _, test := range tests {
			if !hasTest(t, test[1], test[2]) {
				t.Errorf("%s has no test %s: %s", test[1], test[2], line)
			}
		}
	}
	if rows < 20 {
		t.Errorf("%d rows were found", rows)
	}
}

// hasTest reports whether a folder has a test of that name.
func hasTest(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "\nfunc "+name+"(t *testing.T)")
	})
}
