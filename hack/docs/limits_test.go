package docs

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

const root = "../.."

// limitsFile is the page with the table of all limits.
const limitsFile = "docs/reference/limits.md"

// TestLimitsMatchTheCode compares each row of the table of limits with the constants that it names. The test fails
// if a constant is renamed, moved or changed.
func TestLimitsMatchTheCode(t *testing.T) {
	g := NewWithT(t)
	rows := limitRows(t)
	g.Expect(len(rows)).To(BeNumerically(">", 30), "the table of %s was not found", limitsFile)
	packages := map[string]*types.Package{}
	for _, row := range rows {
		dir, names, found := strings.Cut(strings.ReplaceAll(row.constants, "`", ""), " ")
		g.Expect(found).To(BeTrue(), "%s: a row names its constants as `folder name, name`: %q", limitsFile, row.constants)
		if packages[dir] == nil {
			packages[dir] = checkPackage(t, dir)
		}
		left := row.limit
		for name := range strings.SplitSeq(names, ",") {
			name = strings.TrimSpace(name)
			found, is := packages[dir].Scope().Lookup(name).(*types.Const)
			if !g.Expect(is).To(BeTrue(), "%s: %s has no constant %s", limitsFile, dir, name) {
				continue
			}
			var states bool
			left, states = after(left, found)
			g.Expect(states).To(BeTrue(), "%s: row %q says %q, and %s.%s is %s; the numbers are in the order of the constants",
				limitsFile, row.what, row.limit, dir, name, written(found)[0])
		}
	}
}

type limitRow struct{ what, limit, constants string }

// after returns the rest of a text after a constant's value, and whether the text contains the value.
func after(text string, c *types.Const) (rest string, found bool) {
	for _, value := range written(c) {
		if at := regexp.MustCompile(`(^|[^\w.,])` + regexp.QuoteMeta(value) + `($|[^\w.])`).FindStringIndex(text); at != nil {
			return text[at[1]:], true
		}
	}
	return text, false
}

// limitRows returns the rows of all tables of the file whose third column names constants.
func limitRows(t *testing.T) []limitRow {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, limitsFile))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var out []limitRow
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 || !strings.Contains(cells[2], "`pkg/") && !strings.Contains(cells[2], "`cmd/") {
			continue
		}
		out = append(out, limitRow{strings.TrimSpace(cells[0]), strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])})
	}
	return out
}

// checkPackage type-checks the files of a directory as far as constants need it. It ignores errors of imports.
func checkPackage(t *testing.T, dir string) *types.Package {
	t.Helper()
	g := NewWithT(t)
	fset := token.NewFileSet()
	names, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	g.Expect(err).NotTo(HaveOccurred())
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		g.Expect(err).NotTo(HaveOccurred())
		files = append(files, file)
	}
	g.Expect(files).NotTo(BeEmpty(), "%s has no Go files", dir)
	config := types.Config{Importer: onlyTime{}, Error: func(error) {}, IgnoreFuncBodies: true}
	checked, _ := config.Check(dir, fset, files, nil) // the errors concern imports that the importer omits
	return checked
}

// onlyTime is an importer that provides only the durations that constants use.
type onlyTime struct{}

// Import returns a package time with only its durations. Checking the real package would take much longer than the
// rest of the test.
func (onlyTime) Import(path string) (*types.Package, error) {
	if path != "time" {
		return nil, fmt.Errorf("%s is not needed", path)
	}
	made := types.NewPackage(path, path)
	duration := types.NewNamed(types.NewTypeName(token.NoPos, made, "Duration", nil), types.Typ[types.Int64], nil)
	made.Scope().Insert(duration.Obj())
	units := map[string]time.Duration{"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}
	for name, size := range units {
		made.Scope().Insert(types.NewConst(token.NoPos, made, name, duration, constant.MakeInt64(int64(size))))
	}
	made.MarkComplete()
	return made, nil
}

// written returns the ways to write a constant's value, the usual one first.
func written(c *types.Const) []string {
	n, exact := constant.Int64Val(constant.ToInt(c.Val()))
	if !exact {
		return []string{c.Val().ExactString()}
	}
	if strings.HasSuffix(c.Type().String(), "time.Duration") {
		return writtenDuration(time.Duration(n))
	}
	out := []string{grouped(n), strconv.FormatInt(n, 10)}
	for i, unit := range []string{"KiB", "MiB", "GiB"} {
		if size := int64(1) << (10 * (i + 1)); n >= size && n%size == 0 {
			out = append([]string{fmt.Sprintf("%d %s", n/size, unit)}, out...)
		}
	}
	return out
}

func writtenDuration(d time.Duration) []string {
	var out []string
	for _, unit := range []struct {
		name string
		size time.Duration
	}{{"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}} {
		if d >= unit.size && d%unit.size == 0 {
			out = append(out, fmt.Sprintf("%d %s", d/unit.size, unit.name))
		}
	}
	return append(out, d.String())
}

// grouped returns a number with a comma after each group of thousands.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
