package controller

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// requestVerbs are the methods of clients whose requests write.
func requestVerbs() []string {
	return []string{
		"Apply", "ApplyScale", "ApplyStatus", "Create", "CreateToken", "Delete", "DeleteCollection", "Evict", "Patch", "Post", "Put",
		"Update", "UpdateScale", "UpdateStatus",
	}
}

// modulePath begins the import paths of hypergate's own packages.
const modulePath = "github.com/hypergate/hypergate/"

// sources returns the files of a package, without its tests.
func sources(t *testing.T, folder string) map[string]*ast.File {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no files: %v", folder, err)
	}
	out := map[string]*ast.File{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = file
	}
	return out
}

// importsOf returns the import path of each name of a package in a file.
func importsOf(file *ast.File) map[string]string {
	out := map[string]string{}
	for _, spec := range file.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		name := path[strings.LastIndexByte(path, '/')+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		out[name] = path
	}
	return out
}

// isDryRun reports whether a call has options with a dry run, or a variable of that name.
func isDryRun(call *ast.CallExpr) bool {
	found := false
	for _, arg := range call.Args {
		ast.Inspect(arg, func(n ast.Node) bool {
			name, is := n.(*ast.Ident)
			found = found || is && strings.EqualFold(name.Name, "dryRun")
			return !found
		})
	}
	return found
}

// function is a function, or a method of any type.
type function struct {
	name     string
	isMethod bool
}

// writers returns the functions and methods of a package that write to a cluster: they call a client, another one that
// does, or one of package apply. beyond are the writers of package apply.
func writers(t *testing.T, folder string, beyond map[function]bool) map[function]bool {
	t.Helper()
	out, files := map[function]bool{}, sources(t, folder)
	writes := func(file *ast.File, call *ast.CallExpr) bool {
		switch called := call.Fun.(type) {
		case *ast.Ident:
			return out[function{called.Name, false}]
		case *ast.IndexExpr:
			name, is := called.X.(*ast.Ident)
			return is && out[function{name.Name, false}]
		case *ast.SelectorExpr:
			if of, is := called.X.(*ast.Ident); is && importsOf(file)[of.Name] != "" {
				return importsOf(file)[of.Name] == modulePath+"pkg/apply" && beyond[function{called.Sel.Name, false}]
			}
			method := function{called.Sel.Name, true}
			isRequest := slices.Contains(requestVerbs(), called.Sel.Name) && len(call.Args) > 1
			return out[method] || beyond[method] || isRequest && !isDryRun(call)
		default:
			return false
		}
	}
	for again := true; again; {
		again = false
		for _, file := range files {
			for _, decl := range file.Decls {
				declared, is := decl.(*ast.FuncDecl)
				if !is || declared.Body == nil || out[function{declared.Name.Name, declared.Recv != nil}] {
					continue
				}
				ast.Inspect(declared.Body, func(n ast.Node) bool {
					if call, is := n.(*ast.CallExpr); is && writes(file, call) {
						out[function{declared.Name.Name, declared.Recv != nil}], again = true, true
					}
					return true
				})
			}
		}
	}
	return out
}

// leaseWriters are the files that write hypergate's own Lease, for the leader election and with the summary.
func leaseWriters() []string { return []string{"lease.go", "leasesummary.go"} }

// checkClientWrites checks that only the files of the Lease, and execute*.go, call a client's methods that write.
func checkClientWrites(t *testing.T) {
	t.Helper()
	found := map[string]bool{}
	for name, file := range sources(t, ".") {
		ast.Inspect(file, func(n ast.Node) bool {
			// A method that is passed as a value is called elsewhere, so each selector counts.
			method, is := n.(*ast.SelectorExpr)
			if !is || !slices.Contains(requestVerbs(), method.Sel.Name) || ofPackage(file, method) {
				return true
			}
			found[name] = true
			if !strings.HasPrefix(name, "execute") && !slices.Contains(leaseWriters(), name) {
				t.Errorf("%s uses %s: only execute*.go and %v may write to a cluster", name, method.Sel.Name, leaseWriters())
			}
			return true
		})
	}
	for _, name := range leaseWriters() {
		if !found[name] {
			t.Errorf("%s does not write any more: take it off the list", name)
		}
	}
}

// ofPackage reports whether a selector names a function of an imported package, and not a method.
func ofPackage(file *ast.File, selector *ast.SelectorExpr) bool {
	name, is := selector.X.(*ast.Ident)
	return is && importsOf(file)[name.Name] != ""
}

// TestOnlyExecuteWrites checks that only files whose name begins with execute call the methods of both sides that
// write. The methods are derived from the code of the two packages.
func TestOnlyExecuteWrites(t *testing.T) {
	written := writers(t, "../apply", nil)
	derived := map[string]bool{}
	for _, folder := range []string{"../mgmt", "../guest"} {
		for f := range writers(t, folder, written) {
			derived[f.name] = derived[f.name] || f.isMethod && ast.IsExported(f.name)
		}
	}
	called := map[string]bool{}
	for name, file := range sources(t, ".") {
		ast.Inspect(file, func(n ast.Node) bool {
			call, is := n.(*ast.CallExpr)
			if !is {
				return true
			}
			method, is := call.Fun.(*ast.SelectorExpr)
			if !is || !derived[method.Sel.Name] {
				return true
			}
			called[method.Sel.Name] = true
			if !strings.HasPrefix(name, "execute") {
				t.Errorf("%s calls %s: only execute*.go may write to a cluster", name, method.Sel.Name)
			}
			return true
		})
	}
	checkClientWrites(t)
	// One for each way of writing: through package apply, by a helper, by a client, to a subresource.
	for _, name := range []string{"Apply", "PruneExceptAccess", "ReportConditions", "RequestToken"} {
		if !called[name] {
			t.Errorf("%s is not among what was derived: %v", name, slices.Sorted(maps.Keys(called)))
		}
	}
	t.Logf("%v", slices.Sorted(maps.Keys(called)))
}

// TestOneFileSetsEachFieldOfTheOutcome checks that what became of a decision is not collected from everywhere.
func TestOneFileSetsEachFieldOfTheOutcome(t *testing.T) {
	t.Parallel()
	const most, tokens = "execute.go", "execute_token.go"
	want := map[string]string{
		"mgmt": most, "guest": most, "problem": most, "crdsBlocked": most, "rollout": most, "migration": most, "requeue": most,
		"tokens": tokens,
	}
	got := map[string]string{}
	for name, file := range sources(t, ".") {
		for _, field := range setInOutcome(t, name, file) {
			if before, set := got[field]; set && before != name {
				t.Errorf("%s and %s set outcome.%s", before, name, field)
			}
			got[field] = name
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("the files that set the fields of outcome: %v, want %v", got, want)
	}
}

// outcomePointer is the only name that a pointer to the outcome may have.
const outcomePointer = "out"

// setInOutcome returns the fields of an execution's outcome that a file sets: by x.outcome.field, or by out.field where
// the file has `out := &x.outcome`.
func setInOutcome(t *testing.T, name string, file *ast.File) (fields []string) {
	t.Helper()
	pointed := false
	ast.Inspect(file, func(n ast.Node) bool {
		assign, is := n.(*ast.AssignStmt)
		if !is {
			return true
		}
		if address, is := assign.Rhs[0].(*ast.UnaryExpr); is && address.Op == token.AND && isOutcome(address.X) {
			if pointed = isNamed(assign.Lhs[0], outcomePointer); !pointed {
				t.Errorf("%s has a pointer to the outcome that is not called %s", name, outcomePointer)
			}
		}
		for _, left := range assign.Lhs {
			if element, is := left.(*ast.IndexExpr); is {
				left = element.X
			}
			field, is := left.(*ast.SelectorExpr)
			if is && (isOutcome(field.X) || pointed && isNamed(field.X, outcomePointer)) {
				fields = append(fields, field.Sel.Name)
			}
		}
		return true
	})
	return fields
}

func isOutcome(x ast.Expr) bool {
	field, is := x.(*ast.SelectorExpr)
	return is && field.Sel.Name == "outcome"
}

func isNamed(x ast.Expr, name string) bool {
	ident, is := x.(*ast.Ident)
	return is && ident.Name == name
}
