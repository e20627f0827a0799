package drift_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/test/hypershift"
	"github.com/hypergate/hypergate/test/hypershift/drift"
)

const (
	pods  = "test/pods.go"
	frame = "support/frame.go"
)

// tree returns a small tree with a rule in a function, one in a method and one in a variable.
func tree() map[string]string {
	return map[string]string{
		pods: `package test

// EnsureA checks a pod.
func EnsureA(labels map[string]string) bool {
	// The label must not be empty.
	return labels["app"] != ""
}

var audited = []string{"etcd"}

func helper() int { return 1 }
`,
		frame: `package support

type workload[T any] struct{ name string }

func (w *workload[T]) setLabels(labels map[string]string) { labels["component"] = w.name }
`,
	}
}

func rules() []hypershift.Function {
	return []hypershift.Function{{File: pods, Name: "EnsureA"}, {File: pods, Name: "audited"}, {File: frame, Name: "workload.setLabels"}}
}

func fsOf(files map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for path, text := range files {
		out[path] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

// edited returns the tree with one text replaced in each file.
func edited(t *testing.T, before, after string) map[string]string {
	t.Helper()
	out, found := tree(), false
	for path, text := range out {
		found = found || strings.Contains(text, before)
		out[path] = strings.ReplaceAll(text, before, after)
	}
	if !found {
		t.Fatalf("no file has %q", before)
	}
	return out
}

func TestCompare(t *testing.T) {
	recorded, err := drift.Take(fsOf(tree()), "1", rules())
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		before, after string
		want          []string
	}{
		"nothing":             {"package", "package", nil},
		"a comment":           {"// The label must not be empty.", "// Another text.", nil},
		"no comment":          {"\t// The label must not be empty.\n", "", nil},
		"a blank line":        {"bool {\n", "bool {\n\n", nil},
		"indentation":         {"\treturn", "        return", nil},
		"another helper":      {"return 1", "return 2", nil},
		"another rule":        {`!= ""`, `== "x"`, []string{"changed  test/pods.go  EnsureA"}},
		"another list":        {`"etcd"`, `"etcd", "router"`, []string{"changed  test/pods.go  audited"}},
		"another method":      {"w.name", `w.name + "-1"`, []string{"changed  support/frame.go  workload.setLabels"}},
		"a new function":      {"func helper", "func EnsureB() {}\n\nfunc helper", []string{"new      test/pods.go  EnsureB"}},
		"a function is gone":  {"EnsureA(", "EnsureC(", []string{"new      test/pods.go  EnsureC", "removed  test/pods.go  EnsureA"}},
		"a helper is renamed": {"helper", "other", []string{"new      test/pods.go  other"}},
	} {
		t.Run(name, func(t *testing.T) {
			differences, err := drift.Compare(fsOf(edited(t, tc.before, tc.after)), recorded)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range differences {
				got = append(got, d.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestCompareWithoutAFile checks that the functions of a file that moved are removed.
func TestCompareWithoutAFile(t *testing.T) {
	recorded, err := drift.Take(fsOf(tree()), "1", rules())
	if err != nil {
		t.Fatal(err)
	}
	moved := tree()
	delete(moved, frame)
	got, err := drift.Compare(fsOf(moved), recorded)
	if err != nil {
		t.Fatal(err)
	}
	want := []drift.Difference{{Kind: drift.Removed, Function: hypershift.Function{File: frame, Name: "workload.setLabels"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestTakeNeedsEachRule checks that a rule that the tree does not have is an error, and that a file which is not Go is
// one.
func TestTakeNeedsEachRule(t *testing.T) {
	_, err := drift.Take(fsOf(edited(t, "EnsureA", "EnsureC")), "1", rules())
	if err == nil || !strings.Contains(err.Error(), "test/pods.go has no EnsureA") {
		t.Errorf("the error is %v", err)
	}
	if _, err := drift.Take(fsOf(edited(t, "func helper", "function helper")), "1", rules()); err == nil {
		t.Error("a file that cannot be parsed is accepted")
	}
}

// TestRecordAsText checks that Parse reads what Write writes, and rejects another text.
func TestRecordAsText(t *testing.T) {
	want, err := drift.Take(fsOf(tree()), "1", rules())
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := drift.Write(&text, want); err != nil {
		t.Fatal(err)
	}
	got, err := drift.Parse(strings.NewReader(text.String()))
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
	for _, bad := range []string{"commit\n", "commit 1\na b\n", "a b c\n"} {
		if _, err := drift.Parse(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// TestTheRecordHasAllRules checks that the stored record is of Commit, and has a hash of each function with a rule and
// of no other one. Otherwise the check for drift would miss a rule.
func TestTheRecordHasAllRules(t *testing.T) {
	file, err := os.Open(filepath.Join("..", "testdata", "rules.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	recorded, err := drift.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	if recorded.Commit != hypershift.Commit {
		t.Errorf("the record is of %s, and the rules are of %s", recorded.Commit, hypershift.Commit)
	}
	rules := hypershift.Recorded()
	for _, f := range rules {
		if recorded.Functions[f] == "" {
			t.Errorf("there is no hash of %s %s", f.File, f.Name)
		}
	}
	for f, hash := range recorded.Functions {
		if hash != "" && !slices.Contains(rules, f) {
			t.Errorf("there is a hash of %s %s, which has no rule", f.File, f.Name)
		}
	}
}
