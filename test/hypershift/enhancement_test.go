package hypershift_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// TestTheEnhancementHasTheTemplatesForm checks the header and the sections of docs/upstream/hypershift.md, in their
// order: those of HyperShift's template (enhancements/guidelines/enhancement_template.md), which says that all required
// ones stay. The document can have more.
func TestTheEnhancementHasTheTemplatesForm(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "upstream", "hypershift.md"))
	if err != nil {
		t.Fatal(err)
	}
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
