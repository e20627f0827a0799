package controller

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
)

// TestDurationsAreInOneFile checks that only the files that docs/design.md names declare constants or variables of the
// package with a unit of time.
func TestDurationsAreInOneFile(t *testing.T) {
	found := map[string]bool{}
	for name, file := range sources(t, ".") {
		for _, decl := range file.Decls {
			declared, is := decl.(*ast.GenDecl)
			if !is || declared.Tok != token.CONST && declared.Tok != token.VAR || !hasUnitOfTime(declared) {
				continue
			}
			found[name] = true
			if !slices.Contains([]string{"durations.go", "lease.go", "bounded.go"}, name) {
				t.Errorf("%s declares a duration: move it to durations.go, with its reason", name)
			}
		}
	}
	if len(found) < 3 {
		t.Errorf("durations were found only in %v", found)
	}
}

// hasUnitOfTime reports whether a declaration contains time.Second or another unit.
func hasUnitOfTime(decl *ast.GenDecl) bool {
	units := []string{"Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour"}
	found := false
	ast.Inspect(decl, func(n ast.Node) bool {
		unit, is := n.(*ast.SelectorExpr)
		if is {
			of, is := unit.X.(*ast.Ident)
			found = found || is && of.Name == "time" && slices.Contains(units, unit.Sel.Name)
		}
		return !found
	})
	return found
}

// TestConditionsNameTheTimeBetweenChanges checks that the conditions name settingsEvery, which package status does not
// know.
func TestConditionsNameTheTimeBetweenChanges(t *testing.T) {
	const proxy, kinds = "at most every %.0f minutes", "hypergate waits %.0f minutes"
	res := status.Result{SettingsAt: start, ResumedAt: start, IgnoredCRDs: []string{model.InferencePoolCRD}}
	res.ResumedCRDs = res.IgnoredCRDs
	all := status.Conditions(model.GatewayClass{Name: "a"}, res, nil, start)
	message := meta.FindStatusCondition(all, status.SettingsApplied).Message
	for _, text := range []string{proxy, kinds} {
		if expected := fmt.Sprintf(text, settingsEvery.Minutes()); !strings.Contains(message, expected) {
			t.Errorf("%q lacks %q", message, expected)
		}
	}
}
