package e2e_test

import (
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/onsi/gomega"

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
	command := exec.CommandContext(t.ctx, "go", "test", "-C", filepath.Join(root, "test/conformance"), "-count=1", "-v",
		"-run=^TestConformance$", ".", "-args", "-kubeconfig-of-the-guest="+t.GuestKubeconfig,
		"-class="+class, "-tests="+strings.Join(conformanceTests(), ","))
	out, err := command.CombinedOutput()
	t.Expect(err).NotTo(gomega.HaveOccurred(), func() string { return string(out) })
	_, table, _ := strings.Cut(string(out), "PASSED  FAILED  SKIPPED\n")
	t.Log("passed, failed, skipped\n" + table)
}
