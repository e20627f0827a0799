package controller

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// writers returns the methods of mgmt.Cluster and guest.Cluster that write to a cluster.
func writers() []string {
	return []string{
		"Apply", "ApplyConditions", "Acquire", "PatchForeign", "Prune", "PruneExceptAccess", "PruneWebhooks", "Publish",
		"Release", "ReportConditions", "RequestOwnToken", "RequestToken", "WriteCRDs", "WriteGuestKubeconfig",
	}
}

// TestOnlyExecuteWrites checks that only files whose name begins with execute call the methods that write.
func TestOnlyExecuteWrites(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, is := n.(*ast.CallExpr)
			if !is {
				return true
			}
			method, is := call.Fun.(*ast.SelectorExpr)
			if !is || !slices.Contains(writers(), method.Sel.Name) {
				return true
			}
			found[method.Sel.Name] = true
			if !strings.HasPrefix(name, "execute") {
				t.Errorf("%s calls %s: only execute*.go may write to a cluster", name, method.Sel.Name)
			}
			return true
		})
	}
	for _, name := range writers() {
		if !found[name] {
			t.Errorf("nothing calls %s: take it off the list", name)
		}
	}
}
