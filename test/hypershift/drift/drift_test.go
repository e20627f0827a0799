package drift_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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

// fsOf writes files to a folder, and returns it.
func fsOf(t *testing.T, files map[string]string) fs.FS {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return os.DirFS(dir)
}

// compared returns the differences of a tree from a record, as text.
func compared(t *testing.T, files map[string]string, recorded drift.Record) (out []string) {
	t.Helper()
	differences, err := drift.Compare(fsOf(t, files), recorded)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range differences {
		out = append(out, d.String())
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
	recorded, err := drift.Take(fsOf(t, tree()), "1", rules())
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
			got := compared(t, edited(t, tc.before, tc.after), recorded)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// Files beside those of tree. Only suite has a rule.
const (
	suite  = "test/v2/suite_test.go"
	beside = "test/beside.go"
	shared = "test/v2/shared_test.go"
)

// besideTree returns a tree whose rule in suite uses declarations of other files and of another folder.
func besideTree() map[string]string {
	return map[string]string{
		pods: tree()[pods], frame: tree()[frame],
		suite: `package v2

import (
	"testing"

	util "example.com/hypershift/test"
)

func ATest(t *testing.T, spare int) {
	_ = t
	if util.Crashes() > limit || newPod().restarts() > limit {
		t.Error(pod{idle: 1})
	}
}
`,
		beside: `package test

// Crashes is used.
func Crashes() int { return tolerated() }

func tolerated() int { return 10 }

func Other() int { return 11 }

type kept struct{}
`,
		shared: `package v2

const limit = 12

type pod struct{ idle int }

type node struct{}

func newPod() *pod { return nil }

func (p *pod) restarts() int { return 13 }

func (n *node) restarts() int { return 14 }

func idle() int { return 15 }

func spare() int { return 16 }

var _ = 17
`,
	}
}

// TestCompareBeside checks which differences outside of the rules themselves are reported: of what a rule uses, of new
// functions in files without rules, and of new files.
func TestCompareBeside(t *testing.T) {
	recorded, err := drift.Take(fsOf(t, besideTree()), "1", append(rules(), hypershift.Function{File: suite, Name: "ATest"}))
	if err != nil {
		t.Fatal(err)
	}
	if got := compared(t, besideTree(), recorded); got != nil {
		t.Errorf("the same tree: %q", got)
	}
	for name, tc := range map[string]struct {
		file, before, after string // an empty before means that the file is new
		want                []string
	}{
		"a constant":               {shared, "12", "0", []string{"helper   test/v2/shared_test.go  limit"}},
		"a function":               {shared, "return nil", "return &pod{}", []string{"helper   test/v2/shared_test.go  newPod"}},
		"a method":                 {shared, "13", "0", []string{"helper   test/v2/shared_test.go  pod.restarts"}},
		"a type":                   {shared, "idle int", "idle int64", []string{"helper   test/v2/shared_test.go  pod"}},
		"in another folder":        {beside, "return tolerated()", "return 0", []string{"helper   test/beside.go  Crashes"}},
		"a helper of a helper":     {beside, "10", "0", []string{"helper   test/beside.go  tolerated"}},
		"a comment of a helper":    {beside, "// Crashes is used.", "", nil},
		"a function without use":   {beside, "11", "0", nil},
		"a method without use":     {shared, "14", "0", nil},
		"the name of a field":      {shared, "15", "0", nil},
		"the name of a parameter":  {shared, "16", "0", nil},
		"a variable without name":  {shared, "17", "0", nil},
		"a helper is renamed":      {shared, "limit", "most", []string{"helper   test/v2/shared_test.go  limit"}},
		"a new function":           {beside, "type kept", "func EnsureB() {}\n\ntype kept", []string{"new      test/beside.go  EnsureB"}},
		"a new type":               {beside, "type kept", "type other int\n\ntype kept", nil},
		"a new method":             {beside, "struct{}", "struct{}\n\nfunc (kept) EnsureB() {}", nil},
		"a new file":               {"test/more.go", "", "package test\n\nfunc EnsureB() {}\n", []string{"file     test/more.go"}},
		"a new file of a suite":    {"test/v2/more_test.go", "", "package v2\n", []string{"file     test/v2/more_test.go"}},
		"a new unit test":          {"test/more_test.go", "", "package test\n\nfunc TestA() {}\n", nil},
		"a new file in no folder":  {"test/v3/more.go", "", "package v3\n", nil},
		"a new file, not a Go one": {"test/README.md", "", "func EnsureB() {}\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			files := besideTree()
			if !strings.Contains(files[tc.file], tc.before) {
				t.Fatalf("%s does not have %q", tc.file, tc.before)
			}
			files[tc.file] = strings.Replace(files[tc.file], tc.before, tc.after, 1)
			if diff := cmp.Diff(tc.want, compared(t, files, recorded)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestCompareWithoutAFile checks that the functions of a file that moved are removed, and that what they use is
// reported.
func TestCompareWithoutAFile(t *testing.T) {
	recorded, err := drift.Take(fsOf(t, tree()), "1", rules())
	if err != nil {
		t.Fatal(err)
	}
	moved := tree()
	delete(moved, frame)
	want := []string{"helper   support/frame.go  workload", "removed  support/frame.go  workload.setLabels"}
	if diff := cmp.Diff(want, compared(t, moved, recorded)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestTakeNeedsEachRule checks that a rule that the tree does not have is an error, and that a file which is not Go is
// one.
func TestTakeNeedsEachRule(t *testing.T) {
	_, err := drift.Take(fsOf(t, edited(t, "EnsureA", "EnsureC")), "1", rules())
	if err == nil || !strings.Contains(err.Error(), "test/pods.go has no EnsureA") {
		t.Errorf("the error is %v", err)
	}
	if _, err := drift.Take(fsOf(t, edited(t, "func helper", "function helper")), "1", rules()); err == nil {
		t.Error("a file that cannot be parsed is accepted")
	}
}

// TestRecordAsText checks that Parse reads what Write writes, and rejects another text.
func TestRecordAsText(t *testing.T) {
	want, err := drift.Take(fsOf(t, besideTree()), "1", append(rules(), hypershift.Function{File: suite, Name: "ATest"}))
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
	if len(want.Files) != 5 || len(want.Helpers) == 0 {
		t.Errorf("the record has the files %q and %d helpers", want.Files, len(want.Helpers))
	}
	for _, bad := range []string{"commit\n", "commit 1\na b\n", "commit 1\na b c other\n", "a b c\n", "file a\n"} {
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
