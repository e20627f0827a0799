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
	// widestScript is the widest line of a script, like the linter's limit of code.
	widestScript = 140
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

// TestLinesOfScriptsFitAScreen checks shell scripts and the Makefile. A script whose bytes are the key of a cache is
// excepted, because another line would build everything in the cache again.
func TestLinesOfScriptsFitAScreen(t *testing.T) {
	scripts := 0
	for _, path := range texts(t) {
		if filepath.Ext(path) != ".sh" && filepath.Base(path) != "Makefile" {
			continue
		}
		script := read(t, path)
		if isKey := strings.Contains(script, "key=$({ cat build.sh"); isKey {
			continue
		}
		scripts++
		for i, line := range strings.Split(script, "\n") {
			if width := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")); width > widestScript {
				t.Errorf("%s:%d: the line has %d columns, more than %d", path, i+1, width, widestScript)
			}
		}
	}
	if scripts < 10 {
		t.Errorf("only %d scripts were found", scripts)
	}
}
