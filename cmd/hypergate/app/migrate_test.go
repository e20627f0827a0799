package app_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fakeapi"
	"github.com/hypergate/hypergate/test/golden"
)

// TestMigratePlanRefusesFlags checks that each error names its flag and the value.
func TestMigratePlanRefusesFlags(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{
		"--output=wide": `"wide"`, "--topology=both": `"both"`, "--timeout=0s": "greater than 0", "--revision=A_b": `"A_b"`,
		"--guest-namespace=a/b": `"a/b"`, "--istio-resources=pods": `"pods"`, "--xds-address=istiod": "istiod",
		"--controller-name=": "is not a controller name", "--controller-name=openshift": `"openshift"`,
	} {
		name, _, _ := strings.Cut(flag, "=")
		fails(t, []string{"migrate", "plan", flag}, name, want)
	}
	fails(t, []string{"migrate", "plan"}, "--guest-kubeconfig, --guest-context or --guest-kubeconfig-secret is required")
	fails(t, []string{"migrate", "plan", "--topology=standalone", "--kubeconfig=a", "--guest-kubeconfig=b"}, "--guest-kubeconfig",
		"standalone")
	fails(t, []string{"migrate", "plan", "--topology=standalone", "--kubeconfig=" + filepath.Join(t.TempDir(), "absent")},
		"finding the management cluster", "absent")
}

// TestMigratePlanOfAStandaloneCluster checks that --kubeconfig selects the cluster, as for the command start.
func TestMigratePlanOfAStandaloneCluster(t *testing.T) {
	t.Parallel()
	config := plannedGuest(t)
	hosted := execute(t, "migrate", "plan", "--guest-kubeconfig="+config)
	alone := execute(t, "migrate", "plan", "--topology=standalone", "-n=hypergate-system", "--kubeconfig="+config)
	if alone.code != hosted.code || alone.out != hosted.out {
		t.Errorf("%+v, and with --guest-kubeconfig %+v", alone, hosted)
	}
}

// TestMigratePlanOfAnEmptyGuest checks the plan of a guest that has Gateways and permits nothing else: it is blocked,
// and what could not be read is named.
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

// plannedGuest returns the path of a kubeconfig of a guest that the ingress operator's own installation serves, with
// two Gateways.
func plannedGuest(t *testing.T) string {
	t.Helper()
	api := fakeapi.New(t)
	put := func(path, apiVersion, kind string, objects ...string) {
		api.Put(fakeapi.Collection{Path: path, APIVersion: apiVersion, Kind: kind}, objects...)
	}
	const group = "/apis/gateway.networking.k8s.io/v1/"
	put(group+"gatewayclasses", "gateway.networking.k8s.io/v1", "GatewayClass", `{metadata: {name: openshift-default,
		finalizers: ["openshift.io/ingress-operator-sail-finalizer"]}, spec: {controllerName: openshift.io/gateway-controller/v1}}`)
	deployed := func(name string, pods int) (gateway, deployment string) {
		gateway = fmt.Sprintf(`{metadata: {namespace: shop, name: %[1]s, uid: u-%[1]s}, spec: {gatewayClassName: openshift-default},
			status: {conditions: [{type: Programmed, status: "True"}], listeners: [{name: l, attachedRoutes: %[2]d}]}}`, name, pods+1)
		return gateway, fmt.Sprintf(`{metadata: {namespace: shop, name: %[1]s, labels: {gateway.networking.k8s.io/gateway-name: %[1]s},
			generation: 1, ownerReferences: [{kind: Gateway, uid: u-%[1]s}]}, spec: {replicas: %[2]d, template: {spec: {containers: [
			{name: istio-proxy, env: [{name: CA_ADDR, value: "istiod-openshift-gateway.openshift-ingress.svc:15012"}]}]}}},
			status: {observedGeneration: 1, replicas: %[2]d, updatedReplicas: %[2]d, availableReplicas: %[2]d}}`, name, pods)
	}
	web, webPods := deployed("web", 4)
	shopAPI, apiPods := deployed("api", 2)
	put(group+"gateways", "gateway.networking.k8s.io/v1", "Gateway", web, shopAPI)
	put("/apis/apps/v1/deployments", "apps/v1", "Deployment", webPods, apiPods)
	put("/apis/apps/v1/namespaces/openshift-ingress/deployments", "apps/v1", "Deployment", `{metadata: {namespace: openshift-ingress,
		name: istiod-openshift-gateway, generation: 1, labels: {managed-by: sail-library, app.kubernetes.io/managed-by: Helm,
		app.kubernetes.io/version: 1.28.5}}, spec: {replicas: 1}, status: {observedGeneration: 1, replicas: 1, updatedReplicas: 1,
		availableReplicas: 1, readyReplicas: 1}}`)
	put("/apis/security.istio.io/v1/authorizationpolicies", "security.istio.io/v1", "AuthorizationPolicy",
		"{metadata: {namespace: shop, name: deny-admin}}")
	config := api.Config()
	return file(t, "kubeconfig", fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": %q, "certificate-authority-data": %s}}],
		"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
		"users": [{"name": "u", "user": {"token": "t"}}]}`, config.Host, quoted(t, config.CAData)))
}

// TestMigratePlanIsDocumented compares the output of the command with docs/migration.md.
func TestMigratePlanIsDocumented(t *testing.T) {
	t.Parallel()
	config := "--guest-kubeconfig=" + plannedGuest(t)
	r := execute(t, "migrate", "plan", config)
	if r.code != 2 || r.errOut != "" {
		t.Errorf("%+v", r)
	}
	const page, command = "../../../docs/migration.md", "$ hypergate migrate plan --guest-kubeconfig guest.kubeconfig\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(text), command)
	_, after, _ := strings.Cut(rest, "```\n")
	out := strings.ReplaceAll(r.out, charts.EmbeddedVersion, "<version>")
	golden.Equal(t, page, before+command+out+"```\n"+after)
	if r := execute(t, "migrate", "plan", config, "--allow-ignored-resources"); r.code != 0 {
		t.Errorf("an accepted blocker: %+v", r)
	}
	if r := execute(t, "migrate", "plan", config, "--allow-proxy-loss"); r.code != 2 {
		t.Errorf("another blocker: %+v", r)
	}
	if r := execute(t, "migrate", "plan", config, "-o", "yaml"); r.code != 2 || !strings.Contains(r.out, "code: IgnoredResources") {
		t.Errorf("as YAML: %+v", r)
	}
}
