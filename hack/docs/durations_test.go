package docs

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/hypergate/hypergate/test/golden"
)

// durationsFile is the page with the table of all durations. UPDATE=1 writes it.
const durationsFile = "docs/reference/durations.md"

const durationsHead = `# Durations

Each duration that the code fixes, with its reason: timeouts, delays, intervals and lifetimes. A constant lives in the package
that applies it. This page is the one table of all of them. ` + "`UPDATE=1 go test ./hack/docs`" + ` writes it from the constants and their
comments. A test fails if the page differs, or if a duration has no comment.

[limits.md](limits.md) has what happens beyond a limit of time. [settings.md](settings.md) has the durations that flags and annotations set.
`

// longestReason is the limit of a table cell, with its spaces.
const longestReason = 300 - 2

// duration is one constant of the code.
type duration struct {
	dir, name, reason string
	value             time.Duration
}

// TestDurationsAreInOneTable compares the page with the constants of all packages.
func TestDurationsAreInOneTable(t *testing.T) {
	g := NewWithT(t)
	var all []duration
	for _, dir := range goPackages(t, "pkg", "cmd") {
		all = append(all, durationsOf(t, dir)...)
	}
	g.Expect(len(all)).To(BeNumerically(">", 100), "the durations of the code were not found")
	for _, d := range all {
		if d.reason == "" {
			t.Errorf("%s.%s: a duration needs a comment with its reason: its own, one before it that names it, or that of its block",
				d.dir, d.name)
		}
		if len(d.reason) > longestReason {
			t.Errorf("%s.%s: the first paragraph has %d bytes, and a cell %d: begin another one where the reason ends",
				d.dir, d.name, len(d.reason), longestReason)
		}
	}
	golden.Equal(t, filepath.Join(root, durationsFile), durationsPage(all))
}

// durationsPage returns the page, with one table for each package.
func durationsPage(all []duration) string {
	var out strings.Builder
	out.WriteString(durationsHead)
	dir := ""
	for _, d := range all {
		if d.dir != dir {
			dir = d.dir
			fmt.Fprintf(&out, "\n## %s\n\n| Constant | Value | What it is, and why |\n|---|---|---|\n", dir)
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", d.name, shortDuration(d.value), d.reason)
	}
	return out.String()
}

// durationsOf returns the constants of type time.Duration of a package, in the order of its files.
func durationsOf(t *testing.T, dir string) []duration {
	t.Helper()
	g := NewWithT(t)
	scope := checkPackage(t, dir).Scope()
	names, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	g.Expect(err).NotTo(HaveOccurred())
	var out []duration
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		g.Expect(err).NotTo(HaveOccurred())
		for _, decl := range file.Decls {
			if block, is := decl.(*ast.GenDecl); is && block.Tok == token.CONST {
				out = append(out, durationsOfBlock(dir, scope, block)...)
			}
		}
	}
	return out
}

func durationsOfBlock(dir string, scope *types.Scope, block *ast.GenDecl) []duration {
	var out []duration
	shared := ""
	for _, spec := range block.Specs {
		constants := spec.(*ast.ValueSpec)
		shared = cmp.Or(constants.Doc.Text(), shared)
		for _, name := range constants.Names {
			comment := cmp.Or(constants.Doc.Text(), block.Doc.Text())
			if regexp.MustCompile(`\b` + name.Name + `\b`).MatchString(shared) {
				comment = shared
			}
			found, is := scope.Lookup(name.Name).(*types.Const)
			if !is || !strings.HasSuffix(found.Type().String(), "time.Duration") {
				continue
			}
			value, _ := constant.Int64Val(found.Val())
			out = append(out, duration{dir, name.Name, reasonOf(comment), time.Duration(value)})
		}
	}
	return out
}

// reasonOf returns the first paragraph of a comment as the text of a cell.
func reasonOf(comment string) string {
	comment, _, _ = strings.Cut(comment, "\n\n")
	return strings.ReplaceAll(strings.Join(strings.Fields(comment), " "), "|", `\|`)
}

// shortDuration is Go's form without zero units, and with days.
func shortDuration(d time.Duration) string {
	if day := 24 * time.Hour; d >= 2*day && d%day == 0 {
		return fmt.Sprintf("%d days", d/day)
	}
	text := d.String()
	text = strings.TrimSuffix(text, "0s")
	if !regexp.MustCompile(`[a-z]$`).MatchString(text) {
		text = d.String()
	}
	if short, whole := strings.CutSuffix(text, "h0m"); whole {
		return short + "h"
	}
	return text
}

// goPackages returns the folders below the given ones that have Go files.
func goPackages(t *testing.T, below ...string) []string {
	t.Helper()
	var out []string
	for _, top := range below {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			dir, err := filepath.Rel(root, filepath.Dir(path))
			if !slices.Contains(out, dir) {
				out = append(out, dir)
			}
			return err
		})
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
	}
	slices.Sort(out)
	return out
}
