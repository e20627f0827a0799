package drift

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/hypergate/hypergate/test/hypershift"
)

// source is what is read of a tree: the Go files of some folders, and what they declare.
type source struct {
	files        map[string]bool
	declarations map[hypershift.Function]declaration
}

// declaration is a function, method, type, variable or constant.
type declaration struct {
	hash string
	// function means that it is a function without a receiver.
	function bool
	// uses are the names in it that can be declarations of the same folder or of another folder that is read. The name
	// of a method is .<method>, because its type is not known.
	uses map[use]bool
}

// use is a name in a folder.
type use struct{ folder, name string }

// read reads the Go files of the folders of some files. Tests are read only in folders where one of these files is a
// test: elsewhere, they test HyperShift itself. Folders that do not exist are omitted.
func read(tree fs.FS, known []string) (source, error) {
	folders, tests := map[string]bool{}, map[string]bool{}
	for _, file := range known {
		folders[path.Dir(file)] = true
		if strings.HasSuffix(file, "_test.go") {
			tests[path.Dir(file)] = true
		}
	}
	out := source{map[string]bool{}, map[hypershift.Function]declaration{}}
	for folder := range folders {
		entries, err := fs.ReadDir(tree, folder)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return source{}, fmt.Errorf("reading HyperShift: %w", err)
		}
		for _, entry := range entries {
			name := entry.Name()
			if entry.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") && !tests[folder] {
				continue
			}
			if err := out.addFile(tree, path.Join(folder, name), folders); err != nil {
				return source{}, fmt.Errorf("reading %s of HyperShift: %w", path.Join(folder, name), err)
			}
		}
	}
	return out, nil
}

// addFile adds what one file declares.
func (s source) addFile(tree fs.FS, file string, folders map[string]bool) error {
	data, err := fs.ReadFile(tree, file)
	if err != nil {
		return err
	}
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, data, parser.SkipObjectResolution) // without comments
	if err != nil {
		return err
	}
	s.files[file] = true
	imports := importsOf(parsed, folders)
	add := func(name string, node ast.Node, function bool) {
		hash, hashErr := hashOf(set, node)
		err = errors.Join(err, hashErr)
		s.declarations[hypershift.Function{File: file, Name: name}] = declaration{hash, function, usesOf(node, path.Dir(file), imports)}
	}
	for _, decl := range parsed.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			add(nameOf(d), d, d.Recv == nil)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					add(s.Name.Name, s, false)
				case *ast.ValueSpec:
					for _, name := range s.Names {
						add(name.Name, s, false)
					}
				}
			}
		}
	}
	return err
}

// importsOf returns the folders, among those that are read, that a file imports, by the name that they have in it.
func importsOf(file *ast.File, folders map[string]bool) map[string]string {
	out := map[string]string{}
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		for folder := range folders {
			if !strings.HasSuffix(imported, "/"+folder) {
				continue
			}
			name := path.Base(folder)
			if spec.Name != nil {
				name = spec.Name.Name
			}
			out[name] = folder
		}
	}
	return out
}

// usesOf returns the names in a node, without those of its parameters, fields and keys. They can be too many, because a
// local variable can have the name of a function.
func usesOf(node ast.Node, folder string, imports map[string]string) map[use]bool {
	out := map[use]bool{}
	var visit func(n ast.Node) bool
	visit = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			if n.Name != "_" {
				out[use{folder, n.Name}] = true
			}
		case *ast.SelectorExpr:
			if x, is := n.X.(*ast.Ident); is && imports[x.Name] != "" {
				out[use{imports[x.Name], n.Sel.Name}] = true
				return false
			}
			out[use{folder, "." + n.Sel.Name}] = true
			ast.Inspect(n.X, visit)
			return false
		case *ast.Field:
			ast.Inspect(n.Type, visit)
			return false
		case *ast.KeyValueExpr:
			if _, isName := n.Key.(*ast.Ident); !isName {
				ast.Inspect(n.Key, visit)
			}
			ast.Inspect(n.Value, visit)
			return false
		}
		return true
	}
	ast.Inspect(node, visit)
	return out
}

// listed returns the functions that a record lists: all declarations of the files with rules, and only the functions
// of other files, because only those can be rules.
func (s source) listed(withRules []string) map[hypershift.Function]bool {
	out := map[hypershift.Function]bool{}
	for f, declared := range s.declarations {
		if declared.function || slices.Contains(withRules, f.File) {
			out[f] = true
		}
	}
	return out
}

// helpers returns the hashes of the declarations that rules use, directly or by other helpers. A method counts if its
// name is used and its type is used as well: the type of what a name is selected from is not known.
func (s source) helpers(rules []hypershift.Function) map[hypershift.Function]string {
	used := map[use]bool{}
	for _, f := range rules {
		maps.Copy(used, s.declarations[f].uses)
	}
	out := map[hypershift.Function]string{}
	for before := -1; before < len(out); {
		before = len(out)
		for f, declared := range s.declarations {
			if _, known := out[f]; !known && isUsed(f, used) && !slices.Contains(rules, f) {
				out[f] = declared.hash
				maps.Copy(used, declared.uses)
			}
		}
	}
	return out
}

// isUsed reports whether a declaration is among the names that are used.
func isUsed(f hypershift.Function, used map[use]bool) bool {
	folder := path.Dir(f.File)
	kind, method, isMethod := strings.Cut(f.Name, ".")
	return used[use{folder, kind}] && (!isMethod || used[use{folder, "." + method}])
}

// nameOf returns the name of a function, or <type>.<method>.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List) == 0 {
		return f.Name.Name
	}
	kind := f.Recv.List[0].Type
	for {
		switch k := kind.(type) {
		case *ast.StarExpr:
			kind = k.X
		case *ast.IndexExpr:
			kind = k.X
		case *ast.IndexListExpr:
			kind = k.X
		case *ast.Ident:
			return k.Name + "." + f.Name.Name
		default:
			return f.Name.Name
		}
	}
}

// hashOf returns a hash of the source of a declaration, without its comments, blank lines and indentation.
func hashOf(set *token.FileSet, node ast.Node) (string, error) {
	var text bytes.Buffer
	if err := printer.Fprint(&text, set, node); err != nil {
		return "", err
	}
	hash := sha256.New()
	for line := range strings.Lines(text.String()) {
		if words := strings.Fields(line); len(words) > 0 {
			fmt.Fprintln(hash, strings.Join(words, " "))
		}
	}
	return hex.EncodeToString(hash.Sum(nil)[:8]), nil
}
