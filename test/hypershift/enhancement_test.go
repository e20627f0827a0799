package hypershift_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// TestTheEnhancementHasTheTemplatesForm checks the header and the sections of docs/upstream/hypershift.md, in their
// order: those of the template that HyperShift's commit 0f59837f9b has in enhancements/guidelines. The template says
// that all required ones stay. The commit of rules.go has no template. The document can have more.
func TestTheEnhancementHasTheTemplatesForm(t *testing.T) {
	data := readFile(t, "docs", "upstream", "hypershift.md")
	header := regexp.MustCompile(`(?s)\A---\n(.*?)\n---\n`).FindSubmatch(data)
	if header == nil {
		t.Fatal("there is no header")
	}
	var meta map[string]any
	if err := yaml.Unmarshal(header[1], &meta); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"title", "authors", "reviewers", "approvers", "creation-date", "last-updated", "status", "see-also"} {
		if meta[field] == nil {
			t.Errorf("the header has no %s", field)
		}
	}
	template := []string{
		"## Release Signoff Checklist", "## Summary", "## Motivation", "### Goals", "### Non-Goals", "## Proposal", "### User Stories",
		"### Implementation Details/Notes/Constraints", "### Risks and Mitigations", "## Design Details", "### Open Questions",
		"### Test Plan", "### Upgrade / Downgrade Strategy", "### Version Skew Strategy", "## Implementation History", "## Drawbacks",
		"## Alternatives", "## Infrastructure Needed",
	}
	var got []string
	for _, heading := range regexp.MustCompile(`(?m)^##+ .*$`).FindAllString(string(data), -1) {
		if slices.Contains(template, heading) {
			got = append(got, heading)
		}
	}
	if diff := cmp.Diff(template, got); diff != "" {
		t.Errorf("-template +document:\n%s", diff)
	}
}

// TestTheEnhancementNamesEachFile checks that the table of docs/upstream/hypershift.md names each file of deploy/cpo
// that the component needs without a Route, and each file that deploy/cpo/README.md changes.
func TestTheEnhancementNamesEachFile(t *testing.T) {
	named := fileNames(section(t, readFile(t, "docs", "upstream", "hypershift.md"), "### The change, file by file"))
	want := fileNames(section(t, readFile(t, "deploy", "cpo", "README.md"), "## Changes in HyperShift"))
	for _, pattern := range []string{"component/*.go", "assets/hypergate/*.yaml"} {
		files, err := filepath.Glob(filepath.Join("..", "..", "deploy", "cpo", filepath.FromSlash(pattern)))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			name := filepath.Base(file)
			if !strings.HasSuffix(name, "_test.go") && name != "route.go" {
				want = append(want, name)
			}
		}
	}
	if len(want) < 15 {
		t.Fatalf("only %d files were found: %v", len(want), want)
	}
	for _, name := range want {
		if !slices.Contains(named, name) {
			t.Errorf("the enhancement does not name %s", name)
		}
	}
}

// section returns the part of a document from a heading to the next one.
func section(t *testing.T, document []byte, heading string) string {
	t.Helper()
	_, after, found := strings.Cut(string(document), "\n"+heading+"\n")
	if !found {
		t.Fatalf("the heading %q is missing", heading)
	}
	before, _, _ := strings.Cut(after, "\n#")
	return before
}

// fileNames returns the base names of the files in the first cells of a table.
func fileNames(document string) (out []string) {
	for line := range strings.Lines(document) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for _, name := range regexp.MustCompile("`([^`]+[.](?:go|yaml))`").FindAllStringSubmatch(cells[1], -1) {
			out = append(out, path.Base(name[1]))
		}
	}
	return out
}

// readFile returns a file of the repository.
func readFile(t *testing.T, elements ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{"..", ".."}, elements...)...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}
