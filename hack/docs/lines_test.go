package docs

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	// widestComment is the widest line of a comment, in columns, with tabs of four. The linter has the limit of code.
	widestComment = 120
	// widestCell is the longest cell of a table in a page, in characters.
	widestCell = 300
)

// TestLinesFitAScreen: comments in Go files, and cells of tables in pages.
func TestLinesFitAScreen(t *testing.T) {
	files := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		// The bytes of hack/servers are the key of the cache of servers.
		isHidden := strings.HasPrefix(entry.Name(), ".") && path != root
		isServers := path == filepath.Join(root, "hack/servers")
		if entry.IsDir() && (isHidden || isServers || slices.Contains([]string{"testdata", "bin"}, entry.Name())) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		files++
		for i, line := range strings.Split(read(t, path), "\n") {
			text := strings.ReplaceAll(line, "\t", "    ")
			isComment := strings.HasPrefix(strings.TrimSpace(line), "//")
			if width := utf8.RuneCountInString(text); isComment && width > widestComment && !strings.Contains(line, "//go:") {
				t.Errorf("%s:%d: the comment has %d columns, more than %d", path, i+1, width, widestComment)
			}
		}
		return nil
	})
	if err != nil || files < 100 {
		t.Fatalf("%d files: %v", files, err)
	}
	for _, page := range pages(t) {
		for i, line := range strings.Split(read(t, page), "\n") {
			if !strings.HasPrefix(line, "|") {
				continue
			}
			for cell := range strings.SplitSeq(line, " | ") {
				if n := utf8.RuneCountInString(cell); n > widestCell {
					t.Errorf("%s:%d: a cell has %d characters, more than %d: %.60s…", page, i+1, n, widestCell, cell)
				}
			}
		}
	}
}
