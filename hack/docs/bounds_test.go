package docs

import (
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// boundName matches the names of constants that are bounds. A name like maxParents is a bound. The name of a key, as
// limitLabel, is not.
var boundName = regexp.MustCompile(`^(max|Max|most|Most|longest|Longest)[A-Z]|^deepest$|(Limit|Kept|Burst)$`)

// noRow returns the constants with such a name that need no row, each with the reason.
func noRow() map[string]string {
	const flags, plan = "bounds what flags or a file of hypergate's administrator set", "is a part of the plan, not a bound of input"
	return map[string]string{
		"pkg/desired maxControllerName": flags,
		"pkg/desired maxReplicas":       flags,
		"pkg/values mostItems":          flags,
		"pkg/values mostSeconds":        flags,
		"pkg/model RelaySoftLimit":      plan,
		"pkg/model SidecarSoftLimit":    plan,
		"pkg/model relayMemoryLimit":    plan,
		"pkg/model sidecarMemoryLimit":  plan,
		"pkg/leakcheck maxUnwrappings":  "bounds a search in what hypergate itself has planned",
		"pkg/metrics maxLabels":         "bounds the table of hypergate's own metrics",
		"pkg/rollout NoLimit":           "is a reason, not a number",
		"pkg/summary longestDuration":   "bounds a field of hypergate's own Lease that a command reads",

		"cmd/hypergate-tunnel/app longestAge": flags,
		"cmd/hypergate/app longestFile":       flags,
		"cmd/hypergate/app longestKubeconfig": flags,
		"cmd/hypergate/app mostVersions":      "bounds a line of what hypergates themselves have reported",
	}
}

// TestEachBoundHasARow checks that the table of limits has each constant whose name says that it is a bound.
func TestEachBoundHasARow(t *testing.T) {
	g := NewWithT(t)
	has := map[string]bool{}
	for _, row := range limitRows(t) {
		dir, names, _ := strings.Cut(strings.ReplaceAll(row.constants, "`", ""), " ")
		for name := range strings.SplitSeq(names, ",") {
			has[dir+" "+strings.TrimSpace(name)] = true
		}
	}
	except := noRow()
	for _, bound := range bounds(t) {
		reason := except[bound]
		delete(except, bound)
		if has[bound] != (reason == "") {
			t.Errorf("the constant `%s` needs a row in %s, or a reason in noRow, and not both", bound, limitsFile)
		}
	}
	g.Expect(except).To(BeEmpty(), "noRow has constants that do not exist")
}

// bounds returns the bounds of all packages under pkg and cmd, each as the folder and the name.
func bounds(t *testing.T) []string {
	t.Helper()
	out := slices.Concat(boundsIn(t, "pkg"), boundsIn(t, "cmd"))
	slices.Sort(out)
	return out
}

func boundsIn(t *testing.T, folder string) []string {
	t.Helper()
	var out []string
	g := NewWithT(t)
	g.Expect(filepath.WalkDir(filepath.Join(root, folder), func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.IsDir() || entry.Name() == "testdata" {
			return err
		}
		files, err := filepath.Glob(filepath.Join(path, "*.go"))
		if len(files) == 0 || err != nil {
			return err
		}
		dir, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		scope := checkPackage(t, dir).Scope()
		for _, name := range scope.Names() {
			if _, is := scope.Lookup(name).(*types.Const); is && boundName.MatchString(name) {
				out = append(out, dir+" "+name)
			}
		}
		return nil
	})).To(Succeed())
	return out
}
