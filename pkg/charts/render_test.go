package charts_test

import (
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/test/mustfail"
)

func TestRenderedObjects(t *testing.T) {
	mgmt, guest := releases(t)
	for _, tc := range []struct {
		release charts.Release
		want    []string
	}{
		{mgmt, []string{
			"ConfigMap clusters-guest1/istio-openshift-gateway",
			"ConfigMap clusters-guest1/istio-sidecar-injector-openshift-gateway",
			"ConfigMap clusters-guest1/values-openshift-gateway",
			"Service clusters-guest1/istiod-openshift-gateway",
			"ServiceAccount openshift-ingress/istiod-openshift-gateway",
			"Deployment clusters-guest1/istiod-openshift-gateway",
			"HorizontalPodAutoscaler clusters-guest1/istiod-openshift-gateway",
			"Role openshift-ingress/istiod-openshift-gateway",
			"RoleBinding openshift-ingress/istiod-openshift-gateway",
		}},
		{guest, []string{
			"MutatingWebhookConfiguration /istio-sidecar-injector-openshift-gateway-openshift-ingress",
			"ValidatingWebhookConfiguration /istio-validator-openshift-gateway-openshift-ingress",
			"ClusterRole /istio-reader-clusterrole-openshift-gateway-openshift-ingress",
			"ClusterRole /istiod-clusterrole-openshift-gateway-openshift-ingress",
			"ClusterRole /istiod-gateway-controller-openshift-gateway-openshift-ingress",
			"ClusterRoleBinding /istio-reader-clusterrole-openshift-gateway-openshift-ingress",
			"ClusterRoleBinding /istiod-clusterrole-openshift-gateway-openshift-ingress",
			"ClusterRoleBinding /istiod-gateway-controller-openshift-gateway-openshift-ingress",
		}},
	} {
		for version, s := range bothVersions(t) {
			t.Run(tc.release.Name+" "+version, func(t *testing.T) {
				if diff := cmp.Diff(tc.want, identities(render(t, s, tc.release))); diff != "" {
					t.Errorf("objects (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestRenderedValuesAndLabels(t *testing.T) {
	mgmt, _ := releases(t)
	for version, s := range bothVersions(t) {
		t.Run(version, func(t *testing.T) {
			for _, u := range render(t, s, mgmt) {
				if got := u.GetLabels()["app.kubernetes.io/managed-by"]; got != "hypergate" {
					t.Errorf("%s %s: managed by %q", u.GetKind(), u.GetName(), got)
				}
				if u.GetKind() == "Deployment" {
					checkDeployment(t, u)
				}
			}
		})
	}
}

func checkDeployment(t *testing.T, u *unstructured.Unstructured) {
	t.Helper()
	containers, _, err := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		t.Fatalf("containers: %v, %v", containers, err)
	}
	container, ok := containers[0].(map[string]any)
	if !ok {
		t.Fatalf("container is a %T", containers[0])
	}
	if got, want := container["image"], "registry.example.com/pilot:test"; got != want {
		t.Errorf("image %v, want %s: values were not merged", got, want)
	}
	// Kubernetes' helper functions accept only int64.
	if ports, _, err := unstructured.NestedSlice(container, "ports"); err != nil || len(ports) == 0 {
		t.Errorf("ports: %v, %v", ports, err)
	} else if port, _, err := unstructured.NestedInt64(ports[0].(map[string]any), "containerPort"); err != nil || port != 8080 {
		t.Errorf("containerPort = %d, %v", port, err)
	}
}

func TestRenderIsDeterministic(t *testing.T) {
	for version, s := range bothVersions(t) {
		t.Run(version, func(t *testing.T) {
			mgmt, guest := releases(t)
			first := text(t, render(t, s, mgmt))
			// zzz_profile.yaml merges the profile into the defaults in place. A second rendering must not see that.
			remote := text(t, render(t, s, guest))
			if again := text(t, render(t, s, mgmt)); again != first {
				t.Errorf("the second rendering differs (-first +second):\n%s", cmp.Diff(first, again))
			}
			for seed := range uint64(5) {
				random := rand.New(rand.NewPCG(seed, 0))
				shuffled := guest
				shuffled.Values = shuffle(random, guest.Values).(map[string]any)
				if again := text(t, render(t, s, shuffled)); again != remote {
					t.Errorf("seed %d differs:\n%s", seed, cmp.Diff(remote, again))
				}
			}
		})
	}
}

// shuffle copies values and inserts the keys of every table in random order.
func shuffle(random *rand.Rand, v any) any {
	switch v := v.(type) {
	case map[string]any:
		keys := slices.Sorted(maps.Keys(v))
		random.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		out := map[string]any{}
		for _, k := range keys {
			out[k] = shuffle(random, v[k])
		}
		return out
	default:
		return v
	}
}

func TestRenderChangesNoInput(t *testing.T) {
	s := embedded(t)
	mgmt, _ := releases(t)
	before := values(t, "values-mgmt.yaml")
	for _, u := range render(t, s, mgmt) {
		clear(u.Object) // changes to the result must not affect the Source or the values
	}
	if diff := cmp.Diff(before, mgmt.Values); diff != "" {
		t.Errorf("values changed (-before +after):\n%s", diff)
	}
	if n := len(render(t, s, mgmt)); n == 0 {
		t.Error("the second rendering is empty")
	}
}

// TestSourceIsSafeForConcurrentUse is for -race.
func TestSourceIsSafeForConcurrentUse(t *testing.T) {
	s := embedded(t)
	mgmt, guest := releases(t)
	want := text(t, render(t, s, mgmt)) + text(t, render(t, s, guest))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			a, errA := s.Render(mgmt)
			b, errB := s.Render(guest)
			if errA != nil || errB != nil {
				t.Errorf("%v, %v", errA, errB)
				return
			}
			if text(t, a)+text(t, b) != want {
				t.Error("concurrent renderings affect each other")
			}
		})
	}
	all.Wait()
}

func TestBadValues(t *testing.T) {
	list := []any{"x"}
	for _, tc := range []struct {
		name   string
		values map[string]any
		want   []string
	}{
		{"text for a table", map[string]any{"meshConfig": "x"}, []string{"value meshConfig must be a table", "not a string"}},
		{"text for a table below pilot", map[string]any{"pilot": map[string]any{"env": "x"}}, []string{"value pilot.env must be a table"}},
		{"text for pilot", map[string]any{"pilot": "x"}, []string{"templates/zzy_descope_legacy.yaml:3", "got string"}},
		{
			"list for a table",
			map[string]any{"global": map[string]any{"proxy": list}},
			[]string{"value global.proxy must be a table", "not a list"},
		},
		{"table for a list", map[string]any{"volumes": map[string]any{}}, []string{"value volumes must be a list", "not a table"}},
		{"number for a list", map[string]any{"volumes": 1}, []string{"value volumes must be a list", "not a int"}},
		{
			"Go type in a list",
			map[string]any{"volumes": []any{map[string]string{}}},
			[]string{"value volumes[0] is a Go map[string]string"},
		},
		{"Go type in a table", map[string]any{"env": map[string]any{"a": []string{}}}, []string{"value env.a is a Go []string"}},
		{
			"number for text",
			map[string]any{"revision": 7},
			[]string{"templates/validatingwebhookconfiguration.yaml:8", "incompatible types"},
		},
		{"unknown profile", map[string]any{"profile": "nope"}, []string{"templates/zzz_profile.yaml:", "unknown profile nope"}},
		{
			"null for a table",
			map[string]any{"global": map[string]any{"proxy": nil}},
			[]string{"templates/", "at <.Values.global.proxy.", "nil pointer"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := embedded(t).Render(charts.Release{Name: "istiod", Namespace: "ns", Values: tc.values})
			mustfail.With(t, err, append(tc.want, "rendering release istiod from the embedded charts: chart istiod: ")...)
		})
	}
}

func TestBadTemplates(t *testing.T) {
	const object = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: "
	for _, tc := range []struct {
		name, template string
		want           []string
	}{
		{"does not parse", "{{ if }}", []string{"templates/bad.yaml:1: ", "missing value for if"}},
		{"unknown function", "{{ nope }}", []string{"templates/bad.yaml:1: ", `function "nope" not defined`}},
		{"fails", "\n{{ fail \"no hub\" }}", []string{"templates/bad.yaml:2:3: no hub"}},
		{"fails in an included template", "{{ include \"boom\" . }}", []string{"templates/bad.yaml:1:3: boom"}},
		{"value of nothing", "{{ .Values.a.b }}", []string{"templates/bad.yaml:1:", "at <.Values.a.b>: nil pointer"}},
		{
			"tpl of a long text", `{{ tpl (printf "%s{{ .a.b }}" (repeat 9999 "x")) . }}`,
			[]string{"templates/bad.yaml:1:3: ", "nil pointer"},
		},
		{"not YAML", "---\n" + object + "x\n---\n\ta: b\n", []string{"templates/bad.yaml: document 3: it is not YAML", "yaml: line"}},
		{"text", "hello", []string{"templates/bad.yaml: document 1: it is not a Kubernetes object", "string"}},
		{"no apiVersion", "kind: ConfigMap\nmetadata: {name: x}\n", []string{"templates/bad.yaml: document 1", "has no apiVersion"}},
		{"no kind", "apiVersion: v1\nmetadata: {name: x}\n", []string{"templates/bad.yaml: document 1", "has no kind"}},
		{
			"no name", "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: x}\n",
			[]string{"templates/bad.yaml: document 1", "has no name"},
		},
		{"name is a number", object + "7\n", []string{"templates/bad.yaml: document 1", "metadata.name"}},
		{
			"apiVersion with two slashes", "apiVersion: a/b/c\nkind: X\nmetadata: {name: x}\n",
			[]string{"templates/bad.yaml: document 1", "a/b/c"},
		},
		{"label is a number", object + "x\n  labels: {rev: 1.28}\n", []string{"ConfigMap x: its labels must all be strings"}},
		{"labels are text", object + "x\n  labels: rev\n", []string{"ConfigMap x: its labels must all be strings"}},
		{"namespace is a bool", object + "x\n  namespace: y\n", []string{"ConfigMap x", "metadata.namespace", "bool"}},
		{"List", "apiVersion: v1\nkind: List\nitems: []\n", []string{"templates/bad.yaml: document 1: it is a List", "one by one"}},
		{
			"twice in one file", object + "x\n---\n" + object + "x\n",
			[]string{"ConfigMap x is rendered twice, by templates/bad.yaml and by templates/bad.yaml"},
		},
		{
			"twice in two files", object + "fine\n",
			[]string{"ConfigMap fine is rendered twice, by templates/bad.yaml and by templates/object.yaml"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := fromFS(t, tinyChart(map[string]string{"istiod/templates/bad.yaml": tc.template}), "/etc/charts")
			_, err := s.Render(charts.Release{Name: "istiod"})
			mustfail.With(t, err, append(tc.want, `rendering release istiod from charts directory "/etc/charts": chart istiod: `)...)
			if len(err.Error()) > 1000 || strings.Contains(err.Error(), "\n") {
				t.Errorf("not a short one-line error: %s", err)
			}
		})
	}
}

// TestIdentityHasNoVersion checks that an object in another API version is the same object.
func TestIdentityHasNoVersion(t *testing.T) {
	hpa := func(version string) string {
		return "apiVersion: autoscaling/" + version + "\nkind: HorizontalPodAutoscaler\nmetadata: {name: x, namespace: ns}\n"
	}
	s := fromFS(t, tinyChart(map[string]string{"istiod/templates/a.yaml": hpa("v1"), "istiod/templates/b.yaml": hpa("v2")}), "dir")
	_, err := s.Render(charts.Release{Name: "istiod"})
	mustfail.With(t, err, "HorizontalPodAutoscaler ns/x is rendered twice, by templates/a.yaml and by templates/b.yaml")
}

func TestAcceptedChartVariants(t *testing.T) {
	for _, tc := range []struct {
		name, template string
		want           []string
	}{
		{"nothing", "", []string{"ConfigMap /fine"}},
		{"unknown kind", "apiVersion: example.com/v1\nkind: Strange\nmetadata: {name: x}\n", []string{"ConfigMap /fine", "Strange /x"}},
		{
			"null labels", "apiVersion: v1\nkind: Secret\nmetadata:\n  name: x\n  labels:\n  annotations:\n",
			[]string{"ConfigMap /fine", "Secret /x"},
		},
		{
			"Windows line ends", "---\r\napiVersion: v1\r\nkind: Secret\r\nmetadata:\r\n  name: x\r\n---\r\n",
			[]string{"ConfigMap /fine", "Secret /x"},
		},
		{
			"comment on the marker", "--- # one\napiVersion: v1\nkind: Secret\nmetadata:\n  name: x\n",
			[]string{"ConfigMap /fine", "Secret /x"},
		},
		{"marker without line end", "apiVersion: v1\nkind: Secret\nmetadata:\n  name: x\n---", []string{"ConfigMap /fine", "Secret /x"}},
		{
			"dashes in a block scalar",
			"apiVersion: v1\nkind: Secret\nmetadata:\n  name: x\nstringData:\n  a: |\n    ---\n    b\n",
			[]string{"ConfigMap /fine", "Secret /x"},
		},
		{"dashes before a key", "apiVersion: v1\nkind: Secret\nmetadata:\n  name: x\n---x: y\n", []string{"ConfigMap /fine", "Secret /x"}},
		{
			"same name, other namespace", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: fine, namespace: x}\n",
			[]string{"ConfigMap /fine", "ConfigMap x/fine"},
		},
		{
			"no cluster, no DNS",
			`{{ if or (lookup "v1" "Namespace" "" "") (getHostByName "localhost") .Capabilities.APIVersions ` +
				`}}{{ fail "saw the world" }}{{ end }}`,
			[]string{"ConfigMap /fine"},
		},
		{
			"an install, always",
			`{{ if or .Release.IsUpgrade (not .Release.IsInstall) (ne (int .Release.Revision) 1) }}{{ fail "not an install" }}{{ end }}`,
			[]string{"ConfigMap /fine"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := fromFS(t, tinyChart(map[string]string{"istiod/templates/more.yaml": tc.template}), "dir")
			got := identities(render(t, s, charts.Release{Name: "istiod"}))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOtherCharts checks a chart without values, and a chart with its defaults at the top level.
func TestOtherCharts(t *testing.T) {
	bare := tinyChart(nil)
	delete(bare, "istiod/values.yaml")
	render(t, fromFS(t, bare, "dir"), charts.Release{Name: "istiod", Values: map[string]any{"pilot": map[string]any{"a": "b"}}})

	var flat fs.FS = tinyChart(map[string]string{"istiod/values.yaml": "env: {}\n"})
	_, err := fromFS(t, flat, "dir").Render(charts.Release{Name: "istiod", Values: map[string]any{"env": true}})
	mustfail.With(t, err, "value env must be a table", "not a bool")
}
