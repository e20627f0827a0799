package drift

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/hypergate/hypergate/test/hypershift"
)

// Record is what is stored of a tree of HyperShift.
type Record struct {
	Commit string
	// Files are the Go files of the folders with rules, sorted.
	Files []string
	// Functions has what the files with rules declare, and the functions of the other files. The values are hashes, and
	// are empty for functions without a rule.
	Functions map[hypershift.Function]string
	// Helpers has the hashes of what the rules use of these folders, directly or by other helpers.
	Helpers map[hypershift.Function]string
}

// Kind is a kind of difference between a record and a tree.
type Kind string

const (
	// Changed means that the source of a function with a rule is another one.
	Changed Kind = "changed"
	// Removed means that a function with a rule, or its file, does not exist any more.
	Removed Kind = "removed"
	// Helper means that something that a rule uses has changed, or does not exist any more.
	Helper Kind = "helper"
	// New means that a file with rules has a declaration that it did not have, or that another file has a function that
	// it did not have.
	New Kind = "new"
	// NewFile means that a folder with rules has a file that it did not have. The difference has no name.
	NewFile Kind = "file"
)

// Difference is a difference between a record and a tree.
type Difference struct {
	Kind     Kind
	Function hypershift.Function
}

// String returns the difference in one line.
func (d Difference) String() string {
	return strings.TrimRight(fmt.Sprintf("%-7s  %s  %s", d.Kind, d.Function.File, d.Function.Name), " ")
}

// Take returns the record of a tree for the functions with a rule. It fails if the tree lacks one of them.
func Take(tree fs.FS, commit string, rules []hypershift.Function) (Record, error) {
	found, err := read(tree, filesOf(rules))
	if err != nil {
		return Record{}, err
	}
	out := Record{
		Commit: commit, Files: slices.Sorted(maps.Keys(found.files)),
		Functions: map[hypershift.Function]string{}, Helpers: found.helpers(rules),
	}
	for f := range found.listed(filesOf(rules)) {
		out.Functions[f] = ""
	}
	var missing []error
	for _, f := range rules {
		declared, exists := found.declarations[f]
		if !exists {
			missing = append(missing, fmt.Errorf("%s has no %s", f.File, f.Name))
		}
		out.Functions[f] = declared.hash
	}
	return out, errors.Join(missing...)
}

// rules returns the functions with a rule.
func (r Record) rules() (out []hypershift.Function) {
	for f, hash := range r.Functions {
		if hash != "" {
			out = append(out, f)
		}
	}
	return out
}

// Compare returns the differences of a tree from a record, sorted: by kind, then by function. A file that the tree does
// not have is not an error, but its functions are removed.
func Compare(tree fs.FS, recorded Record) ([]Difference, error) {
	files := filesOf(recorded.rules())
	found, err := read(tree, files)
	if err != nil {
		return nil, err
	}
	var out []Difference
	for _, f := range recorded.rules() {
		switch now, exists := found.declarations[f]; {
		case !exists:
			out = append(out, Difference{Removed, f})
		case now.hash != recorded.Functions[f]:
			out = append(out, Difference{Changed, f})
		}
	}
	for f, hash := range recorded.Helpers {
		if found.declarations[f].hash != hash {
			out = append(out, Difference{Helper, f})
		}
	}
	for file := range found.files {
		if !slices.Contains(recorded.Files, file) {
			out = append(out, Difference{NewFile, hypershift.Function{File: file}})
		}
	}
	for f := range found.listed(files) {
		if _, known := recorded.Functions[f]; !known && slices.Contains(recorded.Files, f.File) {
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

// Write writes a record as text: the commit, a line for each file, and then a line <file> <function> <hash or -> for
// each function. The line of a helper ends with a further word. All lines are sorted.
func Write(to io.Writer, r Record) error {
	var text strings.Builder
	fmt.Fprintf(&text, "commit %s\n", r.Commit)
	for _, file := range r.Files {
		fmt.Fprintf(&text, "file %s\n", file)
	}
	for _, f := range slices.SortedFunc(maps.Keys(r.Functions), byName) {
		fmt.Fprintf(&text, "%s %s %s\n", f.File, f.Name, cmp.Or(r.Functions[f], "-"))
	}
	for _, f := range slices.SortedFunc(maps.Keys(r.Helpers), byName) {
		fmt.Fprintf(&text, "%s %s %s %s\n", f.File, f.Name, r.Helpers[f], Helper)
	}
	_, err := io.WriteString(to, text.String())
	return err
}

// Parse reads what Write writes.
func Parse(from io.Reader) (Record, error) {
	out := Record{Functions: map[hypershift.Function]string{}, Helpers: map[hypershift.Function]string{}}
	lines := bufio.NewScanner(from)
	for n := 1; lines.Scan(); n++ {
		if fields := strings.Fields(lines.Text()); n == 1 && len(fields) == 2 && fields[0] == "commit" {
			out.Commit = fields[1]
		} else if n == 1 || !out.parse(fields) {
			return Record{}, fmt.Errorf("line %d of the record is %q", n, lines.Text())
		}
	}
	return out, lines.Err()
}

// parse adds a line after the first one, and reports whether it is valid.
func (r *Record) parse(fields []string) bool {
	switch {
	case len(fields) == 2 && fields[0] == "file":
		r.Files = append(r.Files, fields[1])
	case len(fields) == 3:
		r.Functions[hypershift.Function{File: fields[0], Name: fields[1]}] = strings.TrimPrefix(fields[2], "-")
	case len(fields) == 4 && fields[3] == string(Helper):
		r.Helpers[hypershift.Function{File: fields[0], Name: fields[1]}] = fields[2]
	default:
		return false
	}
	return true
}
