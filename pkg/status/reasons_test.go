package status_test

import (
	"go/ast"
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

	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/summary"
)

// classReasons returns the reasons that only conditions of a GatewayClass have.
func classReasons() []string {
	return []string{
		status.ReasonInstalled, status.ReasonPending, status.ReasonInstallFailed, status.ReasonOwnedByAnother,
		status.ReasonTooManyClasses, status.ReasonNoneExist, status.ReasonMixedOwnership, status.ReasonNotRead,
		status.ReasonInvalidProxy, status.ReasonChangeDelayed, status.ReasonOtherDefaults, status.ReasonIgnoredParameters,
		status.ReasonFieldsIgnored, status.ReasonSecurityFieldsIgnored,
	}
}

// TestReasonsAreComplete checks that Reasons has each constant of this package, except those that only a GatewayClass
// has. It also has each reason that the page of the conditions lists.
func TestReasonsAreComplete(t *testing.T) {
	t.Parallel()
	all, found := status.Reasons(), 0
	for _, file := range sourcesBelow(t, ".") {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, is := n.(*ast.ValueSpec)
			if !is || !strings.HasPrefix(spec.Names[0].Name, "Reason") || len(spec.Values) != 1 || literalOf(spec.Values[0]) == "" {
				return true // Gateway API defines the other ones, which only a GatewayClass has
			}
			value, err := strconv.Unquote(literalOf(spec.Values[0]))
			if err != nil {
				t.Fatal(err)
			}
			found++
			if slices.Contains(all, value) == slices.Contains(classReasons(), value) {
				t.Errorf("%s is not in exactly one of Reasons and classReasons", value)
			}
			return true
		})
	}
	page, err := os.ReadFile("../../docs/reference/conditions.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "## HostedControlPlane")
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\|").FindAllStringSubmatch(table, -1) {
		for _, name := range regexp.MustCompile("`([A-Z][A-Za-z]+)`").FindAllStringSubmatch(row[1], -1) {
			found++
			isType := slices.Contains(summary.ConditionTypes(), name[1])
			if !isType && !slices.Contains(all, name[1]) {
				t.Errorf("Reasons does not have %s, which docs/reference/conditions.md lists", name[1])
			}
		}
	}
	if found < 90 {
		t.Errorf("only %d reasons were found", found)
	}
}

// TestReasonsOfAllPackages checks that only this package makes conditions with reasons of its own, and that each of its
// reasons is a constant that the documentation explains.
func TestReasonsOfAllPackages(t *testing.T) {
	t.Parallel()
	documented := ""
	for _, page := range []string{"../../docs/reference/conditions.md", "../../docs/crds.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		documented += string(text)
	}
	camelCase := regexp.MustCompile("^([A-Z]+[a-z0-9]*)+$")
	constants, conditions := 0, 0
	for _, file := range sourcesBelow(t, "..", "../../cmd", "../../deploy") {
		inStatus := file.Name.Name == "status"
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				if !inStatus || !strings.HasPrefix(n.Names[0].Name, "Reason") || len(n.Values) != 1 || literalOf(n.Values[0]) == "" {
					return true // Gateway API defines the other ones
				}
				value, err := strconv.Unquote(literalOf(n.Values[0]))
				if constants++; err != nil || !camelCase.MatchString(value) || !strings.Contains(documented, "`"+value+"`") {
					t.Errorf("%s is %q, which is not in CamelCase, or not documented: %v", n.Names[0].Name, value, err)
				}
			case *ast.CompositeLit:
				if kind, is := n.Type.(*ast.SelectorExpr); !is || kind.Sel.Name != "Condition" {
					return true
				}
				conditions++
				for _, element := range n.Elts {
					pair, _ := element.(*ast.KeyValueExpr)
					if name, is := pair.Key.(*ast.Ident); is && name.Name == "Reason" && !isConstantOrCopy(pair.Value, inStatus) {
						t.Errorf("package %s makes a condition with a reason that is not a constant of this package", file.Name.Name)
					}
				}
			case *ast.CallExpr:
				name, is := n.Fun.(*ast.Ident)
				if is && inStatus && slices.Contains([]string{"isTrue", "isFalse", "isUnknown"}, name.Name) {
					if _, literal := n.Args[0].(*ast.BasicLit); literal {
						t.Errorf("%s is called with a reason that is not a constant", name.Name)
					}
				}
			}
			return true
		})
	}
	if constants < 40 || conditions < 5 {
		t.Errorf("only %d constants and %d conditions were found", constants, conditions)
	}
}

// isConstantOrCopy reports whether a reason is a constant of package status, or that of another condition.
func isConstantOrCopy(value ast.Expr, inStatus bool) bool {
	switch value := value.(type) {
	case *ast.Ident:
		return inStatus
	case *ast.SelectorExpr:
		from, is := value.X.(*ast.Ident)
		return is && (from.Name == "status" && strings.HasPrefix(value.Sel.Name, "Reason") || value.Sel.Name == "Reason")
	default:
		return false
	}
}

// sourcesBelow returns the parsed files below folders, without tests.
func sourcesBelow(t *testing.T, folders ...string) (out []*ast.File) {
	t.Helper()
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			out = append(out, file)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// literalOf returns the text of a literal.
func literalOf(value ast.Expr) string {
	if literal, is := value.(*ast.BasicLit); is {
		return literal.Value
	}
	return ""
}
