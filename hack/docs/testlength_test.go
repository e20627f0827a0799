package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// longestTest is the length of the longest function in a test file, in lines. The linter has the limit of other code:
// it cannot have another limit for some files.
const longestTest = 80

// TestFunctionsOfTestsAreShort: split a longer test by subject, and give its cases one helper that checks them.
func TestFunctionsOfTestsAreShort(t *testing.T) {
	functions := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		isHidden := strings.HasPrefix(entry.Name(), ".") && path != root
		if entry.IsDir() && (isHidden || slices.Contains([]string{"testdata", "bin"}, entry.Name())) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, declaration := range file.Decls {
			function, is := declaration.(*ast.FuncDecl)
			if !is {
				continue
			}
			functions++
			begin, end := files.Position(function.Pos()), files.Position(function.End())
			if lines := end.Line - begin.Line + 1; lines > longestTest {
				t.Errorf("%s: %s has %d lines, more than %d", begin, function.Name.Name, lines, longestTest)
			}
		}
		return nil
	})
	if err != nil || functions < 1000 {
		t.Fatalf("%d functions: %v", functions, err)
	}
}
