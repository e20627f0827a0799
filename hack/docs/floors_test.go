package docs

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	// floorsPage has the picture of floors: the code block that begins with the commands.
	floorsPage  = "docs/development.md"
	floorsBegin = "```\n commands "
	module      = "github.com/hypergate/hypergate/"
)

// column separates a floor's title, its packages, and what is in the right half of the picture.
var column = regexp.MustCompile(` {2,}`)

// TestImportsLeadDownwards compares the picture of floors with the imports of the code: a package imports only packages
// of a floor below. So no imports form a circle. The linter has the list of each package's imports, and no order.
func TestImportsLeadDownwards(t *testing.T) {
	floors, all := floorsOf(t), packages(t)
	for from, imports := range all {
		if _, is := floors[from]; !is {
			t.Errorf("%s: the picture of floors lacks %s", floorsPage, from)
		}
		for _, to := range imports {
			if floor, is := floors[to]; !is || floors[from] >= floor {
				t.Errorf("%s imports %s, which is not on a floor below: see %s", from, to, floorsPage)
			}
		}
	}
	for drawn := range floors {
		if _, is := all[drawn]; !is {
			t.Errorf("%s: the picture of floors has %s, which does not exist", floorsPage, drawn)
		}
	}
	if len(all) < 30 {
		t.Errorf("only %d packages were found", len(all))
	}
}

// floorsOf returns the floor of each package in the picture, counted from above.
func floorsOf(t *testing.T) map[string]int {
	t.Helper()
	_, picture, _ := strings.Cut(read(t, filepath.Join(root, floorsPage)), floorsBegin)
	picture, _, _ = strings.Cut(picture, "```")
	out := map[string]int{}
	for i, line := range strings.Split(picture, "\n") {
		for _, part := range column.Split(line, -1) {
			for name := range strings.SplitSeq(part, " · ") {
				name = strings.TrimSpace(name)
				if _, err := os.Stat(filepath.Join(root, "pkg", name)); name != "" && err == nil {
					name = "pkg/" + name
				}
				if strings.Contains(name, "/") && !strings.Contains(name, " ") {
					out[name] = i
				}
			}
		}
	}
	return out
}

// packages returns the packages that the picture must have, by their folders, and what each imports of this module.
// Tests do not count, and neither do the main packages, which only call the commands.
func packages(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	visit := func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		if imports, isMain := importsOf(t, path); !isMain {
			dir = filepath.ToSlash(dir)
			out[dir] = append(out[dir], imports...)
		}
		return nil
	}
	for _, top := range []string{"pkg", "cmd"} {
		if err := filepath.WalkDir(filepath.Join(root, top), visit); err != nil {
			t.Fatal(err)
		}
	}
	for dir, imports := range out {
		slices.Sort(imports)
		out[dir] = slices.Compact(imports)
	}
	return out
}

// importsOf returns the packages of this module that a file imports, and whether it is one of a main package.
func importsOf(t *testing.T, path string) (imports []string, isMain bool) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range file.Imports {
		target, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if own, is := strings.CutPrefix(target, module); is {
			imports = append(imports, own)
		}
	}
	return imports, file.Name.Name == "main"
}
