package values_test

import (
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/hypergate/hypergate/pkg/values"
)

func TestOverlayProblem(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		data map[string]string
		want string
	}{
		"nothing":       {nil, ""},
		"objects":       {map[string]string{"deployment": "spec: {replicas: 2}", "service": "{}"}, ""},
		"no content":    {map[string]string{"serviceAccount": "", "podDisruptionBudget": "\n"}, ""},
		"a comment":     {map[string]string{"deployment": "# later"}, ""},
		"an alias":      {map[string]string{"deployment": "a: &a [1]\nb: *a"}, ""},
		"a typing slip": {map[string]string{"deploymnet": "spec: {}"}, `"deploymnet" is not one of the keys deployment, horizontalPod`},
		"a long key":    {map[string]string{strings.Repeat("x", 200): ""}, `"` + strings.Repeat("x", 64) + `" is not one of`},
		"no YAML":       {map[string]string{"service": "spec: {"}, "service is not YAML"},
		"a list":        {map[string]string{"service": "[1]"}, "service is not a part of an object"},
		"a text":        {map[string]string{"service": "spec"}, "service is not a part of an object"},
		"too long":      {map[string]string{"service": strings.Repeat("[", 1<<17)}, ""},
	} {
		got := values.OverlayProblem(test.data)
		if got != test.want && (test.want == "" || !strings.HasPrefix(got, test.want)) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// TestOverlayObjects checks values of one key each: a mistake that breaks a gateway is named with its field, and
// nothing else is.
func TestOverlayObjects(t *testing.T) {
	t.Parallel()
	const hpa, pdb = "horizontalPodAutoscaler", "podDisruptionBudget"
	for name, test := range map[string]struct{ key, value, want string }{
		"a wrong type":         {"deployment", "spec: {replicas: three}", "deployment: spec.replicas cannot be a JSON string"},
		"a list for an object": {"service", "spec: [1]", "service: spec cannot be a JSON array"},
		"an unknown field": {
			"deployment", "spec: {template: {spec: {nodeSelectors: {}}}}",
			`deployment: unknown field "spec.template.spec.nodeSelectors" in Kubernetes 1.36`,
		},
		"another case": {"service", "spec: {Type: NodePort}", `service: unknown field "spec.Type" in Kubernetes 1.36`},
		"no quantity": {
			"deployment", "spec: {template: {spec: {containers: [{name: istio-proxy, resources: {limits: {cpu: much}}}]}}}",
			"deployment: quantities must match",
		},
		"another kind": {"deployment", "kind: DaemonSet", `deployment: its kind is "DaemonSet"`},
		"its kind":     {"deployment", "apiVersion: apps/v1\nkind: Deployment", ""},
		"a name":       {"service", "metadata: {name: web}", "service sets metadata.name, which must stay"},
		"a finalizer":  {"serviceAccount", "metadata: {finalizers: [a/b]}", "serviceAccount sets metadata.finalizers, which"},
		"an owner": {
			"deployment", "metadata: {ownerReferences: [{uid: a}]}", "deployment sets metadata.ownerReferences, which",
		},
		"labels":       {"deployment", "metadata: {namespace: a, labels: {a: b}, creationTimestamp: null}\nstatus: {}", ""},
		"directives":   {"deployment", "spec: {template: {spec: {$retainKeys: [a], volumes: [{name: a, $patch: delete}]}}}", ""},
		"nulls":        {"service", "spec: {externalTrafficPolicy: null, ports: null}", ""},
		"both limits":  {pdb, "spec: {minAvailable: 1, maxUnavailable: 50%}", pdb + ": spec has both minAvailable and maxUnavailable"},
		"one limit":    {pdb, "spec: {minAvailable: 1, maxUnavailable: null}", ""},
		"min above":    {hpa, "spec: {minReplicas: 5, maxReplicas: 4}", hpa + ": spec.minReplicas 5 is more than maxReplicas, which is 4"},
		"no max":       {hpa, "spec: {minReplicas: 3}", hpa + ": spec.minReplicas 3 is more than maxReplicas, which is 1"},
		"min and max":  {hpa, "spec: {minReplicas: 3, maxReplicas: 3}", ""},
		"a long field": {"service", strings.Repeat("x", 1000) + ": 1", "service: unknown field"},
	} {
		got := values.OverlayProblem(map[string]string{test.key: test.value})
		if test.want == "" && got != "" || !strings.HasPrefix(got, test.want) || len(got) > 300 {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestContainerEnv(t *testing.T) {
	t.Parallel()
	of := func(containers string) string { return "spec: {template: {spec: {containers: [" + containers + "]}}}" }
	for name, test := range map[string]struct {
		text string
		want map[string]string
	}{
		"nothing":        {"", nil},
		"no container":   {"spec: {}", map[string]string{}},
		"no variables":   {of("{name: c}"), map[string]string{}},
		"another one":    {of("{name: d, env: [{name: A, value: x}]}, {name: c, env: [{name: A, value: b}]}"), map[string]string{"A": "b"}},
		"other fields":   {of("{name: c, image: i, env: [{name: A, value: b}, {name: C, x: {}}]}"), map[string]string{"A": "b", "C": ""}},
		"a wrong type":   {of("{name: c, env: {A: b}}"), nil},
		"no object":      {"[1]", nil},
		"no YAML":        {"spec: [", nil},
		"an alias":       {"x: &x {}\nspec: *x", nil},
		"the same twice": {of("{name: c, env: [{name: A, value: b}]}, {name: c, env: [{name: A, value: d}]}"), map[string]string{"A": "d"}},
		"too long":       {of("{name: c, env: [{name: A, value: " + strings.Repeat("x", 1<<17) + "}]}"), nil},
	} {
		if got := values.ContainerEnv(test.text, "c"); !maps.Equal(got, test.want) || (got == nil) != (test.want == nil) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// TestTheKubernetesVersionIsThatOfTheTypes compares the version that messages name with that of k8s.io/api in go.mod.
func TestTheKubernetesVersionIsThatOfTheTypes(t *testing.T) {
	t.Parallel()
	module, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	api := regexp.MustCompile(`k8s\.io/api v0\.(\d+)\.`).FindSubmatch(module)
	if api == nil {
		t.Fatal("go.mod does not name k8s.io/api")
	}
	want := "in Kubernetes 1." + string(api[1])
	if got := values.OverlayProblem(map[string]string{"service": "x: 1"}); !strings.HasSuffix(got, want) {
		t.Errorf("%q does not end with %q", got, want)
	}
}
