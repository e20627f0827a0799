package desired_test

import (
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/model"
	testcharts "github.com/hypergate/hypergate/test/charts"
)

const discovery = "istio-control/istio-discovery/"

// chartWith returns Istio 1.28.2's charts directory with additional or replaced files, as in a --charts-dir.
func chartWith(t *testing.T, files map[string]string) *charts.Source {
	t.Helper()
	over := fstest.MapFS{}
	for name, data := range files {
		over[name] = &fstest.MapFile{Data: []byte(data)}
	}
	source, err := charts.FromFS(overlay{os.DirFS(testcharts.Dir1282(t)), over}, "test charts")
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// overlay is a file system whose files are replaced by the files of another one.
type overlay struct {
	under fs.FS
	over  fstest.MapFS
}

func (o overlay) Open(name string) (fs.File, error) {
	if _, replaced := o.over[name]; replaced {
		return o.over.Open(name)
	}
	return o.under.Open(name)
}

func (o overlay) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(o.under, name)
	if err != nil {
		return nil, err
	}
	have := map[string]bool{}
	for _, e := range entries {
		have[e.Name()] = true
	}
	added, err := fs.ReadDir(o.over, name)
	for _, e := range added {
		if !have[e.Name()] {
			entries = append(entries, e)
		}
	}
	if err != nil && len(added) == 0 {
		return entries, nil // no files are replaced in this folder
	}
	return entries, err
}

// TestAnInvalidChartIsRefused checks that the error names the charts, the release, and the template or the object.
func TestAnInvalidChartIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		template string
		want     []string
	}{
		"a template that fails":        {`{{ fail "boom" }}`, []string{"release istiod", "test charts", "templates/extra.yaml", "boom"}},
		"a template that is none":      {`{{ if }}`, []string{"templates/extra.yaml"}},
		"output that is not YAML":      {"a: b: c", []string{"templates/extra.yaml", "not YAML"}},
		"output that is not an object": {"[1, 2]", []string{"templates/extra.yaml", "not a Kubernetes object"}},
		"an unknown kind": {
			"apiVersion: batch/v1\nkind: CronJob\nmetadata:\n  name: miner", []string{"release istiod", "CronJob.batch", `"miner"`},
		},
		"a cluster role in a List": {
			"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret}", []string{"templates/extra.yaml", "List"},
		},
		"a Secret": {
			"apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\n  namespace: {{ .Release.Namespace }}", []string{"Secret", `"s"`},
		},
		"two objects of one identity": {
			"apiVersion: v1\nkind: Service\nmetadata:\n  name: istiod-openshift-gateway\n  namespace: clusters-guest1",
			[]string{
				"Service clusters-guest1/istiod-openshift-gateway", "rendered twice", "templates/extra.yaml", "templates/service.yaml",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, config(model.TopologyHosted), chartWith(t, map[string]string{discovery + "templates/extra.yaml": tc.template}),
				tc.want...)
		})
	}
}

// TestStableValidationPolicy checks that Istio's stable-channel policy is dropped. It is the only cluster-scoped object
// that Istio's chart can render in addition to the namespaced ones.
func TestStableValidationPolicy(t *testing.T) {
	values, err := os.ReadFile(testcharts.Dir1282(t) + "/" + discovery + "values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	on := strings.Replace(string(values), "stableValidationPolicy: false", "stableValidationPolicy: true", 1)
	if on == string(values) {
		t.Fatal("the chart has no stableValidationPolicy")
	}
	plain := compute(t, config(model.TopologyHosted), chartWith(t, nil), installed(t), withForeignCRDs(withClasses("a")))
	plan := compute(t, config(model.TopologyHosted), chartWith(t, map[string]string{discovery + "values.yaml": on}), installed(t),
		withForeignCRDs(withClasses("a")))
	for _, release := range []string{"istiod", "istiod-remote"} {
		dropped(t, plan, release, "ValidatingAdmissionPolicy", "stable-channel policy")
		dropped(t, plan, release, "ValidatingAdmissionPolicyBinding", "stable-channel policy")
	}
	plan.Dropped, plain.Dropped = nil, nil
	if diff := cmp.Diff(everything(plain), everything(plan)); diff != "" {
		t.Errorf("it changes what is applied:\n%s", diff)
	}
}

// TestAChangedDeploymentIsRefused checks that post-rendering refuses a Deployment without the names of the chart that
// it depends on.
func TestAChangedDeploymentIsRefused(t *testing.T) {
	token := map[string]any{
		"name":      "token",
		"projected": map[string]any{"sources": []any{map[string]any{"serviceAccountToken": map[string]any{"path": "token"}}}},
	}
	pod := func(u *unstructured.Unstructured) map[string]any {
		spec, _, err := unstructured.NestedFieldNoCopy(u.Object, "spec", "template", "spec")
		if err != nil {
			t.Fatal(err)
		}
		return spec.(map[string]any)
	}
	container := func(u *unstructured.Unstructured) map[string]any {
		return pod(u)["containers"].([]any)[0].(map[string]any)
	}
	for name, tc := range map[string]struct {
		change func(*unstructured.Unstructured)
		want   []string
	}{
		"no pod": {func(u *unstructured.Unstructured) { delete(u.Object, "spec") }, []string{"no pod template"}},
		"another container": {
			func(u *unstructured.Unstructured) { container(u)["name"] = "pilot" }, []string{"containers", `"discovery"`},
		},
		"no CA volume": {func(u *unstructured.Unstructured) { pod(u)["volumes"] = []any{} }, []string{"volumes has no entry"}},
		"another token volume": {
			func(u *unstructured.Unstructured) { pod(u)["volumes"] = append(pod(u)["volumes"].([]any), token) },
			[]string{"volume token", "token of the management cluster"},
		},
		"a variable given twice": {func(u *unstructured.Unstructured) {
			twice(container(u), map[string]any{"name": "REVISION", "value": "x"})
		}, []string{"REVISION", "set twice"}},
		"a variable of no name": {
			func(u *unstructured.Unstructured) { twice(container(u), map[string]any{"name": map[string]any{}}) }, []string{"not a string"},
		},
		"annotations that are a list": {
			func(u *unstructured.Unstructured) {
				u.Object["spec"].(map[string]any)["template"].(map[string]any)["metadata"] = []any{}
			}, []string{"a new CA root rolls istiod"},
		},
		"the CA is not a Secret": {
			func(u *unstructured.Unstructured) {
				for _, v := range pod(u)["volumes"].([]any) {
					if v := v.(map[string]any); v["name"] == "cacerts" {
						delete(v, "secret")
					}
				}
			}, []string{"volume cacerts is not a Secret"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			source := editedSource{embedded(t), func(_ string, rendered []*unstructured.Unstructured) []*unstructured.Unstructured {
				for _, u := range rendered {
					if u.GetKind() == "Deployment" {
						tc.change(u)
					}
				}
				return rendered
			}}
			refused(t, config(model.TopologyHosted), source, append(tc.want, "Deployment istiod-openshift-gateway")...)
		})
	}
}

// twice appends an entry to a container's environment.
func twice(container map[string]any, entry any) {
	container["env"] = append(container["env"].([]any), entry)
}

// TestAWebhookOfAnotherServiceIsRefused checks that a chart is refused if its webhook calls another Service or
// another URL.
func TestAWebhookOfAnotherServiceIsRefused(t *testing.T) {
	for name, client := range map[string]map[string]any{
		"another Service": {"service": map[string]any{"name": "evil", "namespace": "openshift-ingress", "path": "/validate"}},
		"a URL":           {"url": "https://evil.example.com/validate"},
		"http":            {"url": "http://istiod-openshift-gateway/validate"},
		"a query":         {"url": "https://gw-webhook-openshift-gateway:443/validate?x=y"},
		"a fragment":      {"url": "https://gw-webhook-openshift-gateway:443/validate#x"},
		"user info":       {"url": "https://me:secret@gw-webhook-openshift-gateway:443/validate"},
		"nothing":         {},
	} {
		t.Run(name, func(t *testing.T) {
			source := editedSource{embedded(t), func(release string, rendered []*unstructured.Unstructured) []*unstructured.Unstructured {
				for _, u := range rendered {
					if release == "istiod-remote" && u.GetKind() == "ValidatingWebhookConfiguration" {
						u.Object["webhooks"].([]any)[0].(map[string]any)["clientConfig"] = client
					}
				}
				return rendered
			}}
			refused(t, config(model.TopologyHosted), source, "ValidatingWebhookConfiguration",
				"istio-validator-openshift-gateway-openshift-ingress", "rev.validation.istio.io")
		})
	}
}
