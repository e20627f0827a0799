package hypershift_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hypergate/hypergate/test/hypershift/drift"
)

// ofTheStub are what only the stand-in for the framework has: tests make a control plane with them.
var ofTheStub = []string{"Store", "NewStore", "Status", "DefaultExclusions", "MissingDependencies", "deploymentComponent"}

// frameworkNames returns what the framework declares in the files with rules, and all its functions.
func frameworkNames(t *testing.T) map[string]bool {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", "rules.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	recorded, err := drift.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for f := range recorded.Functions {
		if path.Dir(f.File) == "support/controlplane-component" {
			out[f.Name] = true
		}
	}
	return out
}

// receiver returns the type of a method, without * and type parameters. It is empty for a function.
func receiver(f *ast.FuncDecl) (name string) {
	if f.Recv != nil {
		ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
			if id, is := n.(*ast.Ident); is && name == "" {
				name = id.Name
			}
			return true
		})
	}
	return name
}

// stubNames returns what the stand-in for the framework exports, and its types in the signatures of that.
func stubNames(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("stub", "support", "controlplane-component", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	types, signatures, out := map[string]bool{}, []ast.Node{}, map[string]bool{}
	add := func(name string, signature ast.Node) {
		if !slices.Contains(ofTheStub, strings.Split(name, ".")[0]) {
			out[name] = true
			signatures = append(signatures, signature)
		}
	}
	for _, name := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				if types[n.Name.Name] = true; n.Name.IsExported() {
					add(n.Name.Name, &ast.BadExpr{})
				}
			case *ast.FuncDecl:
				if n.Name.IsExported() {
					add(strings.TrimPrefix(receiver(n)+"."+n.Name.Name, "."), n.Type)
				}
				return false
			}
			return true
		})
	}
	for _, signature := range signatures {
		ast.Inspect(signature, func(n ast.Node) bool {
			if id, is := n.(*ast.Ident); is && types[id.Name] {
				out[id.Name] = true
			}
			return true
		})
	}
	return out
}

// TestTheStubExportsWhatHyperShiftExports checks that the stand-in exports no name that the framework does not have,
// and that the types in its signatures have the framework's names. A component that compiles here could otherwise name
// a type that HyperShift does not export.
func TestTheStubExportsWhatHyperShiftExports(t *testing.T) {
	framework, stub := frameworkNames(t), stubNames(t)
	if !stub["NewDeploymentComponent"] || !stub["controlPlaneWorkloadBuilder"] || !stub["option"] {
		t.Fatalf("the stand-in has %v", stub)
	}
	for name := range stub {
		if !framework[name] {
			t.Errorf("the stand-in has %s, which HyperShift does not have", name)
		}
	}
}
