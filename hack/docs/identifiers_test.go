package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	quoted     = regexp.MustCompile("`([^`\n]+)`")
	identifier = regexp.MustCompile(`^([A-Za-z]\w*\.)*[A-Za-z]\w*$`)
	mixedCase  = regexp.MustCompile(`[a-z][A-Z]|[A-Z][a-z]`)
	goFile     = regexp.MustCompile(`^[\w/-]+\.go$`)
)

// foreign returns what docs/development.md names of other projects, or of files that are not Go.
func foreign() []string {
	return []string{
		"Istio",      // a kind of the sail-operator
		"RunE",       // a field of cobra.Command
		"Unreleased", // a heading of CHANGELOG.md
		"Degraded",   // a condition
		"pkg/kube/kclient/crdwatcher.go",
	}
}

// TestTheDevelopmentPageNamesTheCode checks that each Go identifier and each Go file that docs/development.md names
// exists. An identifier has letters of both cases or a dot: a word in lower case can be a command or a folder.
func TestTheDevelopmentPageNamesTheCode(t *testing.T) {
	names, files := declaredNames(t)
	checked := 0
	for _, match := range quoted.FindAllStringSubmatch(read(t, filepath.Join(root, "docs/development.md")), -1) {
		name := match[1]
		switch {
		case slices.Contains(foreign(), name):
		case goFile.MatchString(name):
			checked++
			if !files[name] {
				t.Errorf("docs/development.md names the file %s, which does not exist", name)
			}
		case identifier.MatchString(name) && isCode(name):
			checked++
			if part := missingPart(names, name); part != "" {
				t.Errorf("docs/development.md names `%s`: the code has no %s", name, part)
			}
		}
	}
	if checked < 80 {
		t.Errorf("only %d names were found", checked)
	}
}

// isCode reports whether a quoted word is a Go identifier, and not a command, or a file such as go.mod.
func isCode(name string) bool {
	_, err := os.Stat(filepath.Join(root, name))
	ext := filepath.Ext(name)
	return err != nil && ext != ".sh" && ext != ".info" && (mixedCase.MatchString(name) || ext != "")
}

// missingPart returns the part of a qualified name that is declared nowhere. Empty: all are.
func missingPart(names map[string]bool, name string) string {
	for part := range strings.SplitSeq(name, ".") {
		if !names[part] {
			return part
		}
	}
	return ""
}

// declaredNames returns the names of all packages, functions, types, constants, variables and fields of the checkout,
// and its Go files, each by its path and by its name alone.
func declaredNames(t *testing.T) (names, files map[string]bool) {
	t.Helper()
	names, files = map[string]bool{}, map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		files[filepath.ToSlash(relative)], files[entry.Name()] = true, true
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		names[file.Name.Name] = true
		maps.Copy(names, declaredIn(file))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names, files
}

func declaredIn(file *ast.File) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			names[n.Name.Name] = true
			return false // what is local has no name elsewhere
		case *ast.TypeSpec:
			names[n.Name.Name] = true
		case *ast.ValueSpec:
			for _, name := range n.Names {
				names[name.Name] = true
			}
		case *ast.Field:
			for _, name := range n.Names {
				names[name.Name] = true
			}
		}
		return true
	})
	return names
}
