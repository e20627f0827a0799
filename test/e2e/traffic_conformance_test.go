package e2e_test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/test/cluster/servers"
)

// conformanceTests returns the tests of Gateway API's conformance suite that `make test` runs: those about status, and
// some with requests. `make conformance` runs all.
func conformanceTests() []string {
	return []string{
		"GatewayClassObservedGenerationBump",
		"GatewayInvalidRouteKind",
		"GatewayInvalidTLSConfiguration",
		"GatewayObservedGenerationBump",
		"GatewaySecretInvalidReferenceGrant",
		"GatewaySecretMissingReferenceGrant",
		"GatewayWithAttachedRoutes",
		"GRPCExactMethodMatching",
		"HTTPRouteInvalidBackendRefUnknownKind",
		"HTTPRouteInvalidCrossNamespaceBackendRef",
		"HTTPRouteInvalidNonExistentBackendRef",
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
	_, table, _ := strings.Cut(outputOf(out, func(test string) bool { return test == "TestConformance" }), "PASSED  FAILED  SKIPPED\n")
	t.Log("passed, failed, skipped\n" + table)
	t.conformancePodsGone()
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

// outputOfFailures returns what the tests that failed wrote, of the output of `go test -json`, and what belongs to no
// test. The whole output has more than a thousand lines.
func outputOfFailures(out []byte) string {
	failed := map[string]bool{"": true}
	for _, e := range testEvents(out) {
		failed[e.Test] = failed[e.Test] || e.Action == "fail"
	}
	return outputOf(out, func(test string) bool { return failed[test] })
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
