package app_test

import (
	"strings"
	"testing"

	"github.com/hypergate/hypergate/pkg/model"
)

// TestMigratePlanRefusesFlags checks that each error names its flag and the value.
func TestMigratePlanRefusesFlags(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{
		"--output=wide": `"wide"`, "--topology=both": `"both"`, "--timeout=0s": "greater than 0", "--revision=A_b": `"A_b"`,
		"--guest-namespace=a/b": `"a/b"`, "--istio-resources=pods": `"pods"`, "--xds-address=istiod": "istiod",
	} {
		name, _, _ := strings.Cut(flag, "=")
		fails(t, []string{"migrate", "plan", flag}, name, want)
	}
	fails(t, []string{"migrate", "plan"}, "--guest-kubeconfig or --guest-kubeconfig-secret is required")
}

// TestMigratePlanOfAnEmptyGuest checks the plan of a guest that has Gateways and permits nothing else: it is blocked, and
// what could not be read is named.
func TestMigratePlanOfAnEmptyGuest(t *testing.T) {
	t.Parallel()
	s := newGatewayServer(map[string]string{"shop/web": model.HoldValue("openshift-gateway")})
	r := execute(t, "migrate", "plan", "--guest-kubeconfig="+s.kubeconfig(t))
	if r.code != 2 {
		t.Errorf("%+v", r)
	}
	for _, want := range []string{
		"Origin  not readable: istiod unknown, openshift-ingress/istiod-openshift-gateway", "Blocker MissingPermissions",
		"get deployments.apps", "list pods", "shop/web", "no pods", "Blocked: 1 finding.",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("%q is missing:\n%s", want, r.out)
		}
	}
	if got := s.held(); len(got) != 1 {
		t.Errorf("the plan changed a hold: %v", got)
	}
}
