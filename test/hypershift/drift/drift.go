package drift

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/hypergate/hypergate/test/hypershift"
)

// Record is what is stored of a tree of HyperShift. The values are hashes, and are empty for functions without a rule.
type Record struct {
	Commit    string
	Functions map[hypershift.Function]string
}

// Kind is a kind of difference between a record and a tree.
type Kind string

const (
	// Changed means that the source of a function with a rule is another one.
	Changed Kind = "changed"
	// Removed means that a function with a rule, or its file, does not exist any more.
	Removed Kind = "removed"
	// New means that a file with rules has a function that it did not have.
	New Kind = "new"
)

// Difference is a difference between a record and a tree.
type Difference struct {
	Kind     Kind
	Function hypershift.Function
}

// String returns the difference in one line.
func (d Difference) String() string {
	return fmt.Sprintf("%-7s  %s  %s", d.Kind, d.Function.File, d.Function.Name)
}

// Take returns the record of a tree for the functions with a rule. It fails if the tree lacks one of them.
func Take(tree fs.FS, commit string, rules []hypershift.Function) (Record, error) {
	out := Record{Commit: commit, Functions: map[hypershift.Function]string{}}
	found, err := read(tree, filesOf(rules))
	if err != nil {
		return Record{}, err
	}
	for f := range found {
		out.Functions[f] = ""
	}
	var missing []error
	for _, f := range rules {
		hash, exists := found[f]
		if !exists {
			missing = append(missing, fmt.Errorf("%s has no %s", f.File, f.Name))
		}
		out.Functions[f] = hash
	}
	return out, errors.Join(missing...)
}

// Compare returns the differences of a tree from a record, sorted: by kind, then by function. A file that the tree does
// not have is not an error, but its functions are removed.
func Compare(tree fs.FS, recorded Record) ([]Difference, error) {
	found, err := read(tree, filesOf(slices.Collect(maps.Keys(recorded.Functions))))
	if err != nil {
		return nil, err
	}
	var out []Difference
	for f, hash := range recorded.Functions {
		now, exists := found[f]
		switch {
		case hash == "":
		case !exists:
			out = append(out, Difference{Removed, f})
		case now != hash:
			out = append(out, Difference{Changed, f})
		}
	}
	for f := range found {
		if _, known := recorded.Functions[f]; !known {
			out = append(out, Difference{New, f})
		}
	}
	slices.SortFunc(out, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), byName(a.Function, b.Function))
	})
	return out, nil
}

// byName compares functions by file, then by name.
func byName(a, b hypershift.Function) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Name, b.Name))
}

// filesOf returns the files of functions, each once, sorted.
func filesOf(functions []hypershift.Function) []string {
	files := map[string]bool{}
	for _, f := range functions {
		files[f.File] = true
	}
	return slices.Sorted(maps.Keys(files))
}

// read returns the hashes of all functions, methods, types, variables and constants of the files of a tree. It omits
// files that do not exist.
func read(tree fs.FS, files []string) (map[hypershift.Function]string, error) {
	out := map[hypershift.Function]string{}
	for _, file := range files {
		data, err := fs.ReadFile(tree, file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading HyperShift: %w", err)
		}
		if err := addFile(out, file, data); err != nil {
			return nil, fmt.Errorf("reading %s of HyperShift: %w", file, err)
		}
	}
	return out, nil
}

// addFile adds the hashes of one file.
func addFile(to map[hypershift.Function]string, file string, data []byte) error {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, data, parser.SkipObjectResolution) // without comments
	if err != nil {
		return err
	}
	add := func(name string, node ast.Node) error {
		hash, err := hashOf(set, node)
		to[hypershift.Function{File: file, Name: name}] = hash
		return err
	}
	for _, decl := range parsed.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			err = errors.Join(err, add(nameOf(d), d))
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					err = errors.Join(err, add(s.Name.Name, s))
				case *ast.ValueSpec:
					for _, name := range s.Names {
						err = errors.Join(err, add(name.Name, s))
					}
				}
			}
		}
	}
	return err
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

// Write writes a record as text: the commit, then a line <file> <function> <hash or -> for each function, sorted.
func Write(to io.Writer, r Record) error {
	var text strings.Builder
	fmt.Fprintf(&text, "commit %s\n", r.Commit)
	for _, f := range slices.SortedFunc(maps.Keys(r.Functions), byName) {
		fmt.Fprintf(&text, "%s %s %s\n", f.File, f.Name, cmp.Or(r.Functions[f], "-"))
	}
	_, err := io.WriteString(to, text.String())
	return err
}

// Parse reads what Write writes.
func Parse(from io.Reader) (Record, error) {
	out := Record{Functions: map[hypershift.Function]string{}}
	lines := bufio.NewScanner(from)
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		switch {
		case n == 1 && len(fields) == 2 && fields[0] == "commit":
			out.Commit = fields[1]
		case n > 1 && len(fields) == 3:
			out.Functions[hypershift.Function{File: fields[0], Name: fields[1]}] = strings.TrimPrefix(fields[2], "-")
		default:
			return Record{}, fmt.Errorf("line %d of the record is %q", n, lines.Text())
		}
	}
	return out, lines.Err()
}
