package app_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	testcharts "github.com/hypergate/hypergate/test/charts"
	"github.com/hypergate/hypergate/test/fromyaml"
)

// render runs "hypergate render" and returns its output as YAML documents.
func render(t *testing.T, args ...string) []map[string]any {
	t.Helper()
	r := execute(t, append([]string{"render"}, args...)...)
	if r.code != 0 || r.errOut != "" {
		t.Fatalf("code %d, error %q", r.code, r.errOut)
	}
	var out []map[string]any
	for _, u := range fromyaml.Objects(t, r.out) {
		out = append(out, u.Object)
	}
	return out
}

// describe returns the kind, the namespace and the name of each object.
func describe(objects []map[string]any) []string {
	out := []string{}
	for _, o := range objects {
		u := unstructured.Unstructured{Object: o}
		out = append(out, strings.Replace(u.GetKind()+" "+u.GetNamespace()+"/"+u.GetName(), " /", " ", 1))
	}
	return out
}

func guestObjects() []string {
	return []string{
		"Namespace openshift-ingress",
		"ServiceAccount openshift-ingress/hypergate-istiod-openshift-gateway",
		"ClusterRole hypergate-istiod-openshift-gateway",
		"Role openshift-ingress/hypergate-istiod-openshift-gateway",
		"ClusterRoleBinding hypergate-istiod-openshift-gateway",
		"RoleBinding openshift-ingress/hypergate-istiod-openshift-gateway",
		"ConfigMap openshift-ingress/hypergate-gatewayclass-openshift-gateway.openshift-default",
		"Service openshift-ingress/hypergate-revision-tag-default",
		"ValidatingWebhookConfiguration hypergate-validator-openshift-gateway",
	}
}

func mgmtObjects() []string {
	return []string{
		"ServiceAccount clusters-guest1/istiod-openshift-gateway",
		"Secret clusters-guest1/cacerts",
		"ConfigMap clusters-guest1/istio-openshift-gateway-a",
		"ConfigMap clusters-guest1/istio-sidecar-injector-openshift-gateway-a",
		"Service clusters-guest1/gw-webhook-openshift-gateway",
		"Service clusters-guest1/istiod-openshift-gateway",
		"NetworkPolicy clusters-guest1/istiod-openshift-gateway",
		"Secret clusters-guest1/istio-kubeconfig",
		"Deployment clusters-guest1/istiod-openshift-gateway",
	}
}

func TestRenderSides(t *testing.T) {
	for name, tc := range map[string]struct {
		flags []string
		want  []string
	}{
		"management":      {[]string{"--side=management"}, mgmtObjects()},
		"guest":           {[]string{"--side=guest", "--crds=false"}, guestObjects()},
		"all":             {[]string{"--crds=false"}, slices.Concat(guestObjects(), mgmtObjects())},
		"without a class": {[]string{"--gateway-class=", "--crds=false"}, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, describe(render(t, flags(tc.flags...)...))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestRenderTitlesBothSides checks that a comment shows where the objects of a cluster begin.
func TestRenderTitlesBothSides(t *testing.T) {
	r := execute(t, append([]string{"render", "--crds=false"}, flags()...)...)
	first, second, both := strings.Cut(r.out, "---\n# Objects of the management cluster\n")
	if !both || !strings.HasPrefix(first, "# Objects of the guest\n") {
		t.Fatalf("the output begins with %.60q", r.out)
	}
	if strings.Contains(first, "clusters-guest1") || !strings.Contains(second, "kind: Deployment") {
		t.Errorf("the objects are not below their titles")
	}
}

// TestRenderFillsInExamples checks that render uses example values for flags that are not set, and lists them on
// stderr.
func TestRenderFillsInExamples(t *testing.T) {
	for name, tc := range map[string]struct {
		given, filled []string
	}{
		"no flags": {
			nil,
			[]string{"--namespace=clusters-guest1", "--xds-address=istiod.apps.example.com:443", "--pilot-image=", "--proxy-image="},
		},
		"one flag":    {[]string{"--namespace=clusters-guest2"}, []string{"--xds-address=", "--pilot-image=", "--proxy-image="}},
		"standalone":  {[]string{"--topology=standalone"}, []string{"--pilot-image=", "--proxy-image="}},
		"an address":  {[]string{"--xds-address=a.example.com:443"}, []string{"--namespace=", "--pilot-image=", "--proxy-image="}},
		"both images": {flags("--proxy-image=registry.example.com/other:1")[1:], []string{"--namespace="}},
	} {
		t.Run(name, func(t *testing.T) {
			r := execute(t, append([]string{"render", "--side=management"}, tc.given...)...)
			_, filled, said := strings.Cut(r.errOut, "hypergate: using example values for flags that are not set: ")
			if r.code != 0 || !said || !strings.Contains(r.out, "kind: Deployment") {
				t.Fatalf("code %d, error %q", r.code, r.errOut)
			}
			got := strings.Fields(filled)
			if len(got) != len(tc.filled) {
				t.Fatalf("it fills in %q, want %q", got, tc.filled)
			}
			for i, want := range tc.filled {
				if !strings.HasPrefix(got[i], want) {
					t.Errorf("it fills in %q, want %q", got[i], want)
				}
			}
		})
	}
}

func TestRenderCRDs(t *testing.T) {
	with, without := describe(render(t, flags("--side=guest")...)), describe(render(t, flags("--side=guest", "--crds=false")...))
	crds := with[:len(with)-len(without)]
	if diff := cmp.Diff(without, with[len(crds):]); diff != "" {
		t.Errorf("the rest differs: %s", diff)
	}
	want := []string{
		"CustomResourceDefinition destinationrules.networking.istio.io",
		"CustomResourceDefinition gatewayclasses.gateway.networking.k8s.io",
	}
	for _, w := range want {
		if !slices.Contains(crds, w) {
			t.Errorf("there is no %s in %q", w, crds)
		}
	}
	for _, crd := range crds {
		if !strings.HasPrefix(crd, "CustomResourceDefinition ") && !strings.HasPrefix(crd, "ValidatingAdmissionPolicy") {
			t.Errorf("%s comes before the CRDs are done", crd)
		}
	}
}

func TestRenderDropped(t *testing.T) {
	all := render(t, flags("--side=dropped")...)
	if len(all) < 10 {
		t.Errorf("only %d objects are dropped: %v", len(all), all)
	}
	for _, d := range all {
		for _, field := range []string{"release", "kind", "name", "reason"} {
			if s, _ := d[field].(string); s == "" {
				t.Errorf("%v has no %s", d, field)
			}
		}
	}
}

// TestRenderJSON checks that the JSON output is one List of the same objects, also if there are none.
func TestRenderJSON(t *testing.T) {
	for name, more := range map[string][]string{
		"objects": {"--crds=false"}, "dropped": {"--side=dropped"}, "nothing": {"--gateway-class=", "--side=management"},
	} {
		t.Run(name, func(t *testing.T) {
			r := execute(t, append([]string{"render", "-o", "json"}, flags(more...)...)...)
			var list struct {
				APIVersion string           `json:"apiVersion"`
				Kind       string           `json:"kind"`
				Items      []map[string]any `json:"items"`
			}
			decoder := json.NewDecoder(strings.NewReader(r.out))
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(&list); err != nil {
				t.Fatalf("code %d, error %q: %v", r.code, r.errOut, err)
			}
			if list.APIVersion != "v1" || list.Kind != "List" || list.Items == nil {
				t.Errorf("%s %s with items %v", list.APIVersion, list.Kind, list.Items)
			}
			asJSON, err := json.Marshal(render(t, flags(more...)...))
			if err != nil {
				t.Fatal(err)
			}
			var want []map[string]any
			if err := json.Unmarshal(asJSON, &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(describe(want), describe(list.Items)); diff != "" {
				t.Errorf("-yaml +json:\n%s", diff)
			}
		})
	}
}

func TestRenderStandalone(t *testing.T) {
	got := describe(render(t, flags("--topology=standalone", "--namespace=", "--xds-address=", "--crds=false")...))
	for _, o := range got {
		if strings.Contains(o, "/") && !strings.Contains(o, " openshift-ingress/") {
			t.Errorf("%s is in another namespace", o)
		}
	}
	// xDS and the webhook share one Service, and there is no NetworkPolicy.
	if want := len(guestObjects()) + len(mgmtObjects()) - 2; len(got) != want {
		t.Errorf("%d objects, want %d: %q", len(got), want, got)
	}
}

// TestRenderOtherFlags checks that each flag on which the plan depends reaches the plan.
func TestRenderOtherFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		flags []string
		want  []string
	}{
		"revision":        {[]string{"--revision=blue", "--side=management"}, []string{"name: istiod-blue"}},
		"guest namespace": {[]string{"--guest-namespace=gateways", "--side=guest"}, []string{"namespace: gateways"}},
		"controller name": {[]string{"--controller-name=example.com/mine", "--side=management"}, []string{"value: example.com/mine"}},
		"images": {
			[]string{"--pilot-image=example.com/p:1", "--proxy-image=example.com/q:2", "--side=management"},
			[]string{"image: example.com/p:1", "example.com/q:2"},
		},
		"xds address": {
			[]string{"--xds-address=[2001:db8::1]:8443", "--side=management"},
			[]string{"discoveryAddress: '[2001:db8::1]:8443'"},
		},
		"webhook host": {
			[]string{"--webhook-host=hooks.example.com", "--side=guest"},
			[]string{"url: https://hooks.example.com:443/validate"},
		},
		"webhook host unset": {[]string{"--revision=blue", "--side=guest"}, []string{"url: https://gw-webhook-blue:443/validate"}},
		"sidecar injection":  {[]string{"--sidecar-injection", "--side=guest"}, []string{"kind: MutatingWebhookConfiguration"}},
		"Istio resources": {
			[]string{"--istio-resources=telemetries, virtualservices.networking.istio.io", "--side=guest"},
			[]string{"- telemetries", "- virtualservices"},
		},
		"no Istio resources": {[]string{"--istio-resources=", "--side=dropped"}, []string{"nothing to validate"}},
		"gateway classes":    {[]string{"--gateway-class=one,two", "--side=guest"}, []string{"gateway.one", "gateway.two"}},
		"charts of 1.28": {
			[]string{"--charts-dir=" + testcharts.Dir1282(t), "--side=management"},
			[]string{"helm.sh/chart: istiod-1.28"},
		},
		"charts, from above": {
			[]string{"--charts-dir=" + filepath.Dir(filepath.Dir(testcharts.Dir1282(t))), "--side=management"},
			[]string{"helm.sh/chart: istiod-1.28"},
		},
		"a resource and none": {[]string{"--istio-resources=destinationrules,", "--side=guest"}, []string{"- destinationrules"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := execute(t, append([]string{"render", "--crds=false"}, flags(tc.flags...)...)...)
			if r.code != 0 {
				t.Fatal(r.errOut)
			}
			for _, w := range tc.want {
				if !strings.Contains(r.out, w) {
					t.Errorf("there is no %q in:\n%s", w, r.out)
				}
			}
		})
	}
}

// TestRenderShowsNoKey checks that values that only exist in a cluster are redacted. The output of render is therefore
// not confidential.
func TestRenderShowsNoKey(t *testing.T) {
	seen := 0
	for _, o := range render(t, flags("--crds=false")...) {
		u := unstructured.Unstructured{Object: o}
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte("PRIVATE KEY")) {
			t.Errorf("%s %s has a private key in it", u.GetKind(), u.GetName())
		}
		if u.GetKind() != "Secret" {
			continue
		}
		data, _, err := unstructured.NestedStringMap(o, "data")
		if err != nil {
			t.Fatal(err)
		}
		for key, encoded := range data {
			seen++
			value, err := base64.StdEncoding.DecodeString(encoded)
			if err != nil {
				t.Errorf("%s/%s: %v", u.GetName(), key, err)
			}
			public := key == "root-cert.pem" || key == "config"
			if redacted := strings.HasPrefix(string(value), "redacted"); redacted == public {
				t.Errorf("Secret %s, key %s: redacted %t", u.GetName(), key, redacted)
			}
			if bytes.Contains(value, []byte("PRIVATE KEY")) {
				t.Errorf("Secret %s, key %s is a private key", u.GetName(), key)
			}
		}
	}
	if seen != 7 {
		t.Errorf("looked at %d keys of Secrets, want those of the CA and of istiod's kubeconfig, 7", seen)
	}
}

// TestRenderShowsTheGivenRoot checks that render prints the certificate in --ca-bundle, and nothing else of that file.
func TestRenderShowsTheGivenRoot(t *testing.T) {
	for _, topology := range [][]string{{"--topology=hosted"}, {"--topology=standalone", "--namespace="}} {
		placeholder := bundle(t, topology...)
		if !strings.HasPrefix(placeholder, "-----BEGIN CERTIFICATE-----") {
			t.Errorf("%s: without a root, the guest's webhook has the bundle %q", topology, placeholder)
		}
		path := file(t, "root.pem", "a note\n"+placeholder+"another note\n")
		if got := bundle(t, append(topology, "--ca-bundle="+path)...); got != placeholder {
			t.Errorf("%s: the guest's webhook has the bundle %q, want the certificate of the file alone", topology, got)
		}
	}
}

// bundle returns the CA bundle of the webhook in the guest.
func bundle(t *testing.T, more ...string) string {
	t.Helper()
	all := render(t, flags(append(more, "--side=guest", "--crds=false")...)...)
	i := slices.IndexFunc(all, func(o map[string]any) bool { return o["kind"] == "ValidatingWebhookConfiguration" })
	if i < 0 {
		t.Fatal("there is no webhook in the guest")
	}
	config, _, err := unstructured.NestedMap(all[i]["webhooks"].([]any)[0].(map[string]any), "clientConfig")
	if err != nil {
		t.Fatal(err)
	}
	out, err := base64.StdEncoding.DecodeString(config["caBundle"].(string))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
