package controller

import (
	"go/ast"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// clientWrite is what a file does with the methods of clients that write.
type clientWrite struct{ verbs, what string }

// clientWrites are the files beyond this package that use such methods. A new write belongs to package apply or to
// model.ForeignPatch. Otherwise it is a row here, and in docs/security.md if the object is not hypergate's own.
func clientWrites() map[string]clientWrite {
	return map[string]clientWrite{
		"pkg/apply/apply.go": {"Patch", "hypergate's own objects, and CRDs that it may take over"},
		"pkg/apply/prune.go": {"Delete", "hypergate's own objects"},

		"pkg/guest/foreignpatch.go": {"Patch", "the patches of model.ForeignPatch"},
		"pkg/guest/leases.go":       {"Apply Delete", "hypergate's own Leases of ownership"},
		"pkg/guest/migration.go":    {"Create", "reviews of access, which are not stored"},
		"pkg/guest/owntoken.go":     {"CreateToken", "a token of hypergate's account"},
		"pkg/guest/requests.go":     {"ApplyStatus Create CreateToken Patch", "the status of GatewayClasses, a dry run, istiod's token"},

		"pkg/mgmt/endpoints.go":    {"Delete", "hypergate's own objects that publish istiod"},
		"pkg/mgmt/guestrenewal.go": {"Apply", "the Secret of the guest's kubeconfig"},
		"pkg/mgmt/hcpreport.go":    {"Patch", "the status of the HostedControlPlane"},
		"pkg/mgmt/migration.go":    {"Patch", "hypergate's own Lease"},

		"cmd/hypergate/app/crddryrun.go":            {"Apply", "a dry run"},
		"cmd/hypergate/app/guestkubeconfigwrite.go": {"Apply CreateToken", "the Secret of the guest's kubeconfig, and its token"},
		"cmd/hypergate/app/migratelease.go":         {"Apply Patch", "hypergate's own Lease"},
		"cmd/hypergate/app/proxies.go":              {"CreateToken", "a token with which istiod answers"},
		"cmd/hypergate/app/rotate.go":               {"Patch Update", "hypergate's own Lease and Secret"},

		"pkg/migration/version.go": {"Patch", "a part of a version"},
		"pkg/watch/events.go":      {"Delete Update", "a store in memory"},
	}
}

// verbsOf returns the methods of clients that write and that a file uses. A method that is passed as a value counts.
func verbsOf(file *ast.File) []string {
	var out []string
	ast.Inspect(file, func(n ast.Node) bool {
		method, is := n.(*ast.SelectorExpr)
		if is && slices.Contains(requestVerbs(), method.Sel.Name) && !ofPackage(file, method) {
			out = append(out, method.Sel.Name)
		}
		return true
	})
	slices.Sort(out)
	return slices.Compact(out)
}

// TestWritesAreListed checks that only the listed files of the other packages and of the commands use a client's
// methods that write.
func TestWritesAreListed(t *testing.T) {
	t.Parallel()
	const root = "../.."
	found := map[string]bool{}
	for _, top := range []string{"pkg", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(folder string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() || folder == filepath.Join(root, "pkg/controller") || entry.Name() == "testdata" {
				return err
			}
			if files, _ := filepath.Glob(filepath.Join(folder, "*.go")); len(files) == 0 {
				return nil
			}
			for name, file := range sources(t, folder) {
				name, _ = filepath.Rel(root, name)
				got, want := strings.Join(verbsOf(file), " "), clientWrites()[name].verbs
				found[name] = got != ""
				if got != want {
					t.Errorf("%s uses %q, and %q is listed", name, got, want)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range clientWrites() {
		if !found[name] {
			t.Errorf("%s does not write any more: take it off the list", name)
		}
	}
}
