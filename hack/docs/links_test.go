package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// readmeWords is the maximum number of words of the README. Reference tables are in docs/reference.
const readmeWords = 900

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	// unanchored matches the characters that GitHub omits from a heading's anchor.
	unanchored = regexp.MustCompile(`[^\w\- ]`)
)

// TestLinksAreValid checks that each relative link of a page refers to a file of the checkout, and to one of its
// headings.
func TestLinksAreValid(t *testing.T) {
	links := 0
	for _, page := range pages(t) {
		for _, found := range link.FindAllStringSubmatch(read(t, page), -1) {
			target, anchor, _ := strings.Cut(found[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			links++
			file := filepath.Join(filepath.Dir(page), target)
			if target == "" {
				file = page
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: the link %s leads nowhere: %v", page, found[1], err)
			} else if anchor != "" && !anchors(read(t, file))[anchor] {
				t.Errorf("%s: the link %s: %s has no such heading", page, found[1], file)
			}
		}
	}
	if links < 50 {
		t.Errorf("only %d links were found", links)
	}
}

// TestTheREADMEIsShort checks the length of the README. It is the entry page, and all details are on other pages.
func TestTheREADMEIsShort(t *testing.T) {
	if words := len(strings.Fields(read(t, filepath.Join(root, "README.md")))); words > readmeWords {
		t.Errorf("README.md has %d words, want at most %d: move what is reference to docs/reference", words, readmeWords)
	}
}

// pages returns the Markdown files of the documentation, with those of tests.
func pages(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "deploy/*.md", "deploy/*/*.md", "test/*/*.md", "test/*/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, found...)
	}
	return out
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// anchors returns the anchors of a page's headings, as GitHub generates them.
func anchors(page string) map[string]bool {
	out := map[string]bool{}
	for _, found := range heading.FindAllStringSubmatch(page, -1) {
		out[strings.ReplaceAll(strings.ToLower(unanchored.ReplaceAllString(found[1], "")), " ", "-")] = true
	}
	return out
}
