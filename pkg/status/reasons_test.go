package status_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hypergate/hypergate/pkg/status"
)

// TestReasonsAreComplete checks that Reasons has each constant for a HostedControlPlane, and each reason that the page
// of the conditions lists.
func TestReasonsAreComplete(t *testing.T) {
	t.Parallel()
	all := status.Reasons()
	file, err := parser.ParseFile(token.NewFileSet(), "hostedcontrolplane.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, is := n.(*ast.ValueSpec)
		if !is || !strings.HasPrefix(spec.Names[0].Name, "Reason") {
			return true
		}
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		found++
		if !slices.Contains(all, value) {
			t.Errorf("Reasons does not have %s", value)
		}
		return true
	})
	page, err := os.ReadFile("../../docs/reference/conditions.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "## HostedControlPlane")
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\|").FindAllStringSubmatch(table, -1) {
		for _, name := range regexp.MustCompile("`([A-Z][A-Za-z]+)`").FindAllStringSubmatch(row[1], -1) {
			found++
			isType := slices.Contains([]string{"Available", "Progressing", "Degraded", "Upgradeable"}, name[1])
			if !isType && !slices.Contains(all, name[1]) {
				t.Errorf("Reasons does not have %s, which docs/reference/conditions.md lists", name[1])
			}
		}
	}
	if found < 40 {
		t.Errorf("only %d reasons were found", found)
	}
}
