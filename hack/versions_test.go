package hack_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"testing"
)

// goMod is what `go mod edit -json` prints of a go.mod.
type goMod struct {
	Require []moduleVersion
	Replace []struct{ Old, New moduleVersion }
}

type moduleVersion struct{ Path, Version string }

// requiredVersions returns the version that the go.mod in dir uses of each module that it requires.
func requiredVersions(t *testing.T, dir string) map[string]string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json")
	command.Dir = dir
	out, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod goMod
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, m := range mod.Require {
		versions[m.Path] = m.Version
	}
	for _, r := range mod.Replace {
		versions[r.Old.Path] = r.New.Version
	}
	return versions
}

// TestModulesShareVersions checks that hypergate and its servers use the same version of a module: Go compiles a
// package again for each version, and the demo's first build has ten minutes. istiod is an exception. It is built with
// the versions of its release.
func TestModulesShareVersions(t *testing.T) {
	t.Parallel()
	versions := map[string]map[string]string{} // of a module, by version: the folder that uses it
	for _, dir := range []string{"..", "servers/kubernetes", "servers/etcd", "servers/coredns", "servers/konnectivity"} {
		for path, version := range requiredVersions(t, dir) {
			if versions[path] == nil {
				versions[path] = map[string]string{}
			}
			versions[path][version] = dir
		}
	}
	for _, path := range slices.Sorted(maps.Keys(versions)) {
		if len(versions[path]) > 1 {
			t.Errorf("%s has %d versions, use the newest everywhere: %v", path, len(versions[path]), versions[path])
		}
	}
}

// TestTheOriginsShareHypergatesVersions checks that the operators of package test/origin use hypergate's version of
// each module that both require. Such a module is then compiled once.
func TestTheOriginsShareHypergatesVersions(t *testing.T) {
	t.Parallel()
	ours, theirs := requiredVersions(t, ".."), requiredVersions(t, "servers/origin")
	shared := 0
	for _, path := range slices.Sorted(maps.Keys(ours)) {
		if theirs[path] != "" {
			shared++
		}
		if theirs[path] != "" && theirs[path] != ours[path] {
			t.Errorf("%s is %s in go.mod, but %s in hack/servers/origin/go.mod", path, ours[path], theirs[path])
		}
	}
	if shared < 50 {
		t.Errorf("only %d modules are compared", shared)
	}
}

// TestOneSetOfBuildFlags checks that the servers are compiled with the flags of hypergate and the demo.
func TestOneSetOfBuildFlags(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	b := newServersBuild(t)
	inMakefile := regexp.MustCompile(`(?m)^BUILD_FLAGS := (.*)$`).FindStringSubmatch(string(makefile))
	inScript := regexp.MustCompile(`(?m)^flags=\(-mod=readonly (.*)\)$`).FindStringSubmatch(b.read(t, "hack/servers/build.sh"))
	if len(inMakefile) != 2 || len(inScript) != 2 || inMakefile[1] != inScript[1] {
		t.Errorf("the Makefile has %q, hack/servers/build.sh has %q", inMakefile, inScript)
	}
}
