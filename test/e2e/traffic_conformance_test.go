package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/test/cluster/servers"
)

// conformanceTests returns the tests of Gateway API's conformance suite that `make test` runs: those about status, and
// some with requests. `make conformance` runs all. Tests whose Gateways have names of more than 45 characters are left
// out: with the class of this package, a Service could not have the name that istiod gives it.
func conformanceTests() []string {
	return []string{
		"BackendTLSPolicyObservedGenerationBump",
		"GatewayClassObservedGenerationBump",
		"GatewayInfrastructure",
		"GatewayInvalidRouteKind",
		"GatewayInvalidTLSConfiguration",
		"GatewayModifyListeners",
		"GatewayObservedGenerationBump",
		"GatewayOptionalAddressValue",
		"GatewaySecretInvalidReferenceGrant",
		"GatewaySecretMissingReferenceGrant",
		"GatewaySecretReferenceGrantSpecific",
		"GatewayWithAttachedRoutes",
		"GRPCExactMethodMatching",
		"HTTPRouteInvalidBackendRefUnknownKind",
		"HTTPRouteInvalidCrossNamespaceBackendRef",
		"HTTPRouteInvalidCrossNamespaceParentRef",
		"HTTPRouteInvalidNonExistentBackendRef",
		"HTTPRouteInvalidParentRefNotMatchingSectionName",
		"HTTPRouteMatching",
		"HTTPRouteObservedGenerationBump",
		"HTTPRouteRedirectHostAndStatus",
		"HTTPRouteSimpleSameNamespace",
	}
}

// conformance runs tests of Gateway API's conformance suite. The suite is in a Go module of its own.
func conformance(t *fixture, _ *edgeOfTheGuest) {
	root, err := servers.ModuleRoot()
	t.Expect(err).NotTo(gomega.HaveOccurred())
	command := exec.CommandContext(t.ctx, "go", "test", "-C", filepath.Join(root, "test/conformance"), "-count=1", "-json",
		"-run=^TestConformance$", ".", "-args", "-kubeconfig-of-the-guest="+t.GuestKubeconfig,
		"-class="+class, "-tests="+strings.Join(conformanceTests(), ","))
	out, err := command.CombinedOutput()
	t.Expect(err).NotTo(gomega.HaveOccurred(), func() string { return outputOfFailures(out) })
	t.Expect(notPassed(out, conformanceTests())).To(gomega.BeEmpty(), "tests that skipped themselves, or did not run")
	_, table, _ := strings.Cut(outputOf(out, func(test string) bool { return test == "TestConformance" }), "PASSED  FAILED  SKIPPED\n")
	t.Log("passed, failed, skipped\n" + table)
	t.conformancePodsGone()
}

// notPassed returns the selected tests that did not pass, of the output of `go test -json`. A test that skips is a
// success for `go test`.
func notPassed(out []byte, selected []string) []string {
	passed := map[string]bool{}
	for _, e := range testEvents(out) {
		if name, is := strings.CutPrefix(e.Test, "TestConformance/"); is && e.Action == "pass" {
			passed[name] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(selected), func(test string) bool { return passed[test] })
}

// conformancePodsGone waits until the pods of the suite have ended. The suite deletes its namespaces and does not wait,
// and the next story needs the CPU time.
func (t *fixture) conformancePodsGone() {
	t.Helper()
	t.Eventually(func(g gomega.Gomega) {
		pods, err := t.GuestClient.CoreV1().Pods(metav1.NamespaceAll).List(t.ctx, metav1.ListOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		var left []string
		for i := range pods.Items {
			if p := &pods.Items[i]; strings.HasPrefix(p.Namespace, "gateway-conformance-") {
				left = append(left, p.Namespace+"/"+p.Name)
			}
		}
		g.Expect(left).To(gomega.BeEmpty())
	}, stepTimeout).Should(gomega.Succeed())
}

// outputOfFailures returns the last lines of each test that failed, of the output of `go test -json`, and what belongs
// to no test. A test with a failed subtest is left out. The whole output has more than a thousand lines, and most of
// the first ones are about objects that the suite creates.
func outputOfFailures(out []byte) string {
	const lines = 20
	failed := map[string]bool{}
	for _, e := range testEvents(out) {
		if e.Action == "fail" && e.Test != "" {
			failed[e.Test] = true
		}
	}
	for test := range failed {
		for parent := path.Dir(test); parent != "."; parent = path.Dir(parent) {
			delete(failed, parent)
		}
	}
	var b strings.Builder
	for _, test := range slices.Sorted(maps.Keys(failed)) {
		all := slices.Collect(strings.Lines(outputOf(out, func(of string) bool { return of == test })))
		fmt.Fprintf(&b, "failed: %s\n%s", test, strings.Join(all[max(0, len(all)-lines):], ""))
	}
	return b.String() + outputOf(out, func(test string) bool { return test == "" })
}

// outputOf returns what the chosen tests wrote. The empty name stands for what belongs to no test.
func outputOf(out []byte, chosen func(test string) bool) string {
	var b strings.Builder
	for _, e := range testEvents(out) {
		if chosen(e.Test) {
			b.WriteString(e.Output)
		}
	}
	return b.String()
}

// testEvent is a line of `go test -json`. A line that is not JSON, such as a compiler's, is an event with an output.
type testEvent struct{ Action, Test, Output string }

func testEvents(out []byte) []testEvent {
	var events []testEvent
	for line := range strings.Lines(string(out)) {
		var e testEvent
		if json.Unmarshal([]byte(line), &e) != nil {
			e = testEvent{Output: line}
		}
		events = append(events, e)
	}
	return events
}

// TestNotPassed checks that a test passes only if it ran to its end.
func TestNotPassed(t *testing.T) {
	t.Parallel()
	const out = `{"Action":"run","Test":"TestConformance/A"}
{"Action":"pass","Test":"TestConformance/A/part"}
{"Action":"pass","Test":"TestConformance/A"}
{"Action":"pass","Test":"TestConformance/B/part"}
{"Action":"skip","Test":"TestConformance/B"}
{"Action":"pass","Test":"TestConformance"}
`
	if got := notPassed([]byte(out), []string{"A", "B", "C"}); !slices.Equal(got, []string{"B", "C"}) {
		t.Errorf("got %q, want B, which skipped, and C, which did not run", got)
	}
}

// TestOutputOfFailures checks that the names and the last lines of failed tests come first.
func TestOutputOfFailures(t *testing.T) {
	var out strings.Builder
	event := func(action, test, output string) {
		line, err := json.Marshal(testEvent{action, test, output})
		if err != nil {
			t.Fatal(err)
		}
		out.Write(append(line, '\n'))
	}
	event("output", "TestConformance", "setup\n")
	for i := range 30 {
		event("output", "TestConformance/A/b", fmt.Sprintf("line %d\n", i))
	}
	event("output", "TestConformance/B", "fine\n")
	event("fail", "TestConformance/A/b", "")
	event("fail", "TestConformance/A", "")
	event("pass", "TestConformance/B", "")
	event("fail", "TestConformance", "")
	event("output", "", "FAIL\n")
	event("fail", "", "")
	out.WriteString("exit status 1\n")
	got := strings.Split(strings.TrimSpace(outputOfFailures([]byte(out.String()))), "\n")
	want := []string{"failed: TestConformance/A/b", "line 10", "line 29", "FAIL", "exit status 1"}
	if got = append(got[:2], got[len(got)-3:]...); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
