package status_test

import (
	"go/ast"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/summary"
)

// TestAClassCanHoldAllOwnTypes checks that a GatewayClass can hold all of hypergate's conditions at once, beside that
// of istiod. An API server rejects a status with more.
func TestAClassCanHoldAllOwnTypes(t *testing.T) {
	t.Parallel()
	if own := status.OwnTypes(); len(own) > maxOwnTypes {
		t.Errorf("OwnTypes has %d types, and a GatewayClass can hold %d of ours", len(own), maxOwnTypes)
	}
	content, err := os.ReadFile("../crds/gatewayapi/gateway.networking.k8s.io_gatewayclasses.yaml")
	if err != nil {
		t.Fatal(err)
	}
	type schema struct {
		Properties map[string]schema
		MaxItems   int
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct{ OpenAPIV3Schema schema }
			}
		}
	}
	if err := yaml.Unmarshal(content, &crd); err != nil || len(crd.Spec.Versions) == 0 {
		t.Fatalf("%d versions: %v", len(crd.Spec.Versions), err)
	}
	for _, version := range crd.Spec.Versions {
		conditions := version.Schema.OpenAPIV3Schema.Properties["status"].Properties["conditions"]
		if conditions.MaxItems != maxOwnTypes+1 {
			t.Errorf("a GatewayClass can hold %d conditions, want %d of ours and Accepted", conditions.MaxItems, maxOwnTypes)
		}
	}
}

// TestEachTypeOfAClassIsInOwnTypes checks that OwnTypes has each condition type that this package computes, except
// those of a HostedControlPlane. A class's condition of another type is ignored when it is read, so Same would never be
// true, and the status would be written forever.
func TestEachTypeOfAClassIsInOwnTypes(t *testing.T) {
	t.Parallel()
	var computed, own []string
	for _, file := range sourcesBelow(t, ".") {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Name.Name == "OwnTypes" {
					own = identifiers(n.Body)
				}
				return n.Name.Name != "withType"
			case *ast.CallExpr:
				if called, is := n.Fun.(*ast.Ident); is && called.Name == "withType" {
					computed = append(computed, identifiers(n.Args[0])...)
				}
			case *ast.KeyValueExpr, *ast.AssignStmt:
				if setsType(n) {
					t.Errorf("a file of package %s sets the type of a condition without withType", file.Name.Name)
				}
			}
			return true
		})
	}
	computed = slices.DeleteFunc(computed, func(name string) bool { return strings.HasPrefix(name, "ControlPlane") })
	slices.Sort(computed)
	computed = slices.Compact(computed)
	if len(own) != len(status.OwnTypes()) || len(computed) < 5 {
		t.Fatalf("OwnTypes has %q, and %q are computed: the test does not find all", own, computed)
	}
	for _, name := range computed {
		if !slices.Contains(own, name) {
			t.Errorf("OwnTypes does not have %s", name)
		}
	}
}

// TestEachTypeOfAControlPlaneIsInTheSummary checks that the summary has the condition types of a HostedControlPlane.
// Metrics and hypergate status take them from there, and show no others.
func TestEachTypeOfAControlPlaneIsInTheSummary(t *testing.T) {
	t.Parallel()
	var computed []string
	for _, c := range status.ControlPlane(status.Result{}, status.DegradedSince{}, nil, now) {
		computed = append(computed, strings.TrimPrefix(c.Type, model.ConditionDomain))
	}
	if want := summary.ConditionTypes(); !slices.Equal(computed, want) {
		t.Errorf("a HostedControlPlane has %q, and the summary %q", computed, want)
	}
}

// identifiers returns the exported identifiers in a piece of code.
func identifiers(code ast.Node) (out []string) {
	ast.Inspect(code, func(n ast.Node) bool {
		if name, is := n.(*ast.Ident); is && name.IsExported() {
			out = append(out, name.Name)
		}
		return true
	})
	return out
}

// setsType reports whether an assignment, or an element of a literal, sets a field Type.
func setsType(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.KeyValueExpr:
		name, is := n.Key.(*ast.Ident)
		return is && name.Name == "Type"
	case *ast.AssignStmt:
		return slices.ContainsFunc(n.Lhs, func(e ast.Expr) bool {
			field, is := e.(*ast.SelectorExpr)
			return is && field.Sel.Name == "Type"
		})
	default:
		return false
	}
}
