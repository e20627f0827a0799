package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/test/deploy"
)

const chartFolder = "../../deploy/chart"

// TestTheTemplatesAreCurrent checks that the templates are those that the command writes.
func TestTheTemplatesAreCurrent(t *testing.T) {
	t.Parallel()
	for _, p := range parts() {
		want, err := p.template()
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(chartFolder, "templates", p.name+".yaml"))
		if err != nil || string(got) != string(want) {
			t.Errorf("%s is out of date: run make generate: %v", p.name, err)
		}
	}
}

// examples are the values that make the chart the same as a folder of deploy/.
func examples() map[string]string {
	const images = "image: registry.example.com/hypergate:dev\npilotImage: registry.example.com/pilot:" + charts.EmbeddedVersion +
		"\nproxyImage: registry.example.com/proxyv2:" + charts.EmbeddedVersion + "\n"
	return map[string]string{
		"hosted/example": "part: hosted\n" + images,
		"cluster-api/example": "part: cluster-api\n" + images +
			"clusterName: guest1\nguestKubeconfigSecret: guest1-kubeconfig\n" +
			"guestApiPeers: pods:kamaji.clastix.io/name=guest1\nxdsPeers: namespaces:kubernetes.io/metadata.name=ingress-nginx\n",
		"hosted/guest": "part: guest\n",
		"standalone":   "part: standalone\n" + images,

		"standalone-own-namespace": "part: standalone-own-namespace\n" + images,
	}
}

// namespaceOf returns the namespace into which a folder is installed.
func namespaceOf(folder string) string {
	switch {
	case strings.HasSuffix(folder, "/example"):
		return deploy.MgmtNamespace
	case folder == "standalone-own-namespace":
		return "hypergate-system"
	default:
		return deploy.GuestNamespace
	}
}

// TestTheChartIsTheKustomizations renders the chart with Helm, and compares it with each folder, object by object.
func TestTheChartIsTheKustomizations(t *testing.T) {
	t.Parallel()
	for folder, values := range examples() {
		want, err := deploy.Render(folder)
		if err != nil {
			t.Fatal(err)
		}
		got, err := rendered(t, values, namespaceOf(folder))
		if err != nil {
			t.Errorf("%s: %v", folder, err)
			continue
		}
		if diff := cmp.Diff(byName(want), byName(got)); diff != "" || len(want) < 5 {
			t.Errorf("%s: %d objects (-kustomize +chart):\n%s", folder, len(want), diff)
		}
	}
}

// rendered returns the objects of the chart, as helm install would make them.
func rendered(t *testing.T, values, namespace string) ([]*unstructured.Unstructured, error) {
	t.Helper()
	loaded, err := loader.Load(chartFolder)
	if err != nil {
		t.Fatal(err)
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	release := chartutil.ReleaseOptions{Name: "hypergate", Namespace: namespace, IsInstall: true}
	all, err := chartutil.ToRenderValues(loaded, given, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return objectsOf(t, loaded, all)
}

func objectsOf(t *testing.T, loaded *chart.Chart, values chartutil.Values) (out []*unstructured.Unstructured, err error) {
	t.Helper()
	files, err := engine.Engine{Strict: true}.Render(loaded, values)
	if err != nil {
		return nil, err
	}
	for name, content := range files {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		for document := range strings.SplitSeq(content, "\n---\n") {
			u := &unstructured.Unstructured{}
			if err := yaml.UnmarshalStrict([]byte(document), &u.Object); err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", name, err, document)
			}
			if len(u.Object) > 0 {
				out = append(out, u)
			}
		}
	}
	return out, nil
}

// byName returns objects by kind, namespace and name. An empty list is the same as none.
func byName(objects []*unstructured.Unstructured) map[string]map[string]any {
	out := map[string]map[string]any{}
	for _, o := range objects {
		path := []string{"spec", "template", "spec", "tolerations"}
		if tolerations, found, _ := unstructured.NestedSlice(o.Object, path...); found && len(tolerations) == 0 {
			unstructured.RemoveNestedField(o.Object, path...)
		}
		data, _ := o.MarshalJSON()
		again := &unstructured.Unstructured{}
		_ = again.UnmarshalJSON(data) // so that numbers have one type
		out[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = again.Object
	}
	return out
}

// TestValues checks what other values do.
func TestValues(t *testing.T) {
	t.Parallel()
	objects, err := rendered(t, examples()["hosted/example"]+`
relayImage: registry.example.com/hypergate:dev
sidecarInjection: true
externalWebhooks: true
renewGuestKubeconfig: true
extraArgs: [--publish=tunnel, '--dns-peers=169.254.20.10']
podLabels: {example.com/team: "1"}
tolerations: [{key: a, operator: Exists}]
guestKubeconfigSecret: other
`, "12345")
	if err != nil {
		t.Fatal(err)
	}
	deployment := byName(objects)["Deployment 12345/hypergate"]
	if deployment == nil {
		t.Fatalf("%v", byName(objects))
	}
	text, err := yaml.Marshal(deployment)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"- --sidecar-injection\n", "- --webhooks=External\n", "- --publish=tunnel\n", "- --dns-peers=169.254.20.10\n",
		`example.com/team: "1"`, "- key: a\n",
		"secretName: other\n", "- --renew-guest-kubeconfig=other\n", `value: "12345"`, "key: hypershift.openshift.io/control-plane\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the Deployment has no %q:\n%s", want, text)
		}
	}
	if byName(objects)["Role 12345/hypergate-external-webhooks"] == nil {
		t.Error("no permission for the Secret of external webhooks")
	}
	role, err := yaml.Marshal(byName(objects)["Role 12345/hypergate-renewal"])
	if err != nil || !strings.Contains(string(role), "- other\n") {
		t.Errorf("no permission for the renewal: %s, %v", role, err)
	}
	if binding, err := yaml.Marshal(byName(objects)["RoleBinding 12345/hypergate-renewal"]); !strings.Contains(string(binding), `"12345"`) {
		t.Errorf("the binding has no account: %s, %v", binding, err)
	}
	guest, err := rendered(t, "part: guest\nsidecarInjection: true\nrenewGuestKubeconfig: true\n", deploy.GuestNamespace)
	for _, want := range []string{"ClusterRole /hypergate-guest-sidecar-injection", "Role openshift-ingress/hypergate-guest-renewal"} {
		if err != nil || byName(guest)[want] == nil {
			t.Errorf("no %s: %v", want, err)
		}
	}
}

// TestAStandaloneClusterWithTwoNamespaces checks that the roles for the gateways stay in their namespace, and that the
// account is that of the release.
func TestAStandaloneClusterWithTwoNamespaces(t *testing.T) {
	t.Parallel()
	objects, err := rendered(t, examples()["standalone-own-namespace"]+"sidecarInjection: true\n", "12345")
	if err != nil {
		t.Fatal(err)
	}
	all := byName(objects)
	for _, name := range []string{
		"RoleBinding openshift-ingress/hypergate-guest", "RoleBinding 12345/hypergate-management",
		"ClusterRoleBinding /hypergate-migration", "ClusterRoleBinding /hypergate-guest-sidecar-injection",
	} {
		binding, err := yaml.Marshal(all[name])
		if err != nil || strings.Count(string(binding), `namespace: "12345"`) < 1 {
			t.Errorf("%s does not have the account of the release: %v\n%s", name, err, binding)
		}
	}
	deployment, err := yaml.Marshal(all["Deployment 12345/hypergate"])
	for _, want := range []string{"- --guest-namespace=openshift-ingress\n", "- --namespace=$(NAMESPACE)\n", "- --sidecar-injection\n"} {
		if err != nil || !strings.Contains(string(deployment), want) {
			t.Errorf("the Deployment has no %q: %v\n%s", want, err, deployment)
		}
	}
}

// TestBadValues checks that values that cannot work are refused, by the schema or by the chart.
func TestBadValues(t *testing.T) {
	t.Parallel()
	hosted := examples()["hosted/example"]
	for name, tc := range map[string]struct{ values, namespace, want string }{
		"no part":             {"{}", "a", "part"},
		"an unknown part":     {"part: both\n", "a", "part"},
		"an unknown value":    {hosted + "imag: a\n", "a", "imag"},
		"no image":            {hosted + "pilotImage: ''\n", "a", "pilotImage"},
		"an address":          {hosted + "xdsAddress: example.com\n", "a", "xdsAddress"},
		"not a flag":          {hosted + "extraArgs: [publish]\n", "a", "extraArgs"},
		"a number":            {hosted + "podLabels: {a: 1}\n", "a", "podLabels"},
		"no Cluster":          {examples()["cluster-api/example"] + "clusterName: ''\n", "a", "clusterName"},
		"a Cluster, hosted":   {hosted + "clusterName: guest1\n", "a", "clusterName"},
		"metrics, hosted":     {hosted + "metricsPeers: ''\n", "a", "metricsPeers"},
		"a relay, standalone": {examples()["standalone"] + "relayImage: a\n", deploy.GuestNamespace, "relayImage"},
		"two, hosted":         {hosted + "replicas: 2\n", "a", "replicas"},
		"three":               {examples()["standalone"] + "replicas: 3\n", deploy.GuestNamespace, "replicas"},
		"a renewal":           {examples()["standalone"] + "renewGuestKubeconfig: true\n", deploy.GuestNamespace, "renewGuestKubeconfig"},
		"HyperShift's kubeconfig, a Cluster": {
			examples()["cluster-api/example"] + "guestKubeconfigSecret: hypergate-service-account-kubeconfig\n",
			"a", "guestKubeconfigSecret",
		},
		"a kubeconfig, standalone": {
			examples()["standalone"] + "guestKubeconfigSecret: a\n", deploy.GuestNamespace, "guestKubeconfigSecret",
		},
		"an image, guest":     {"part: guest\nimage: a\n", deploy.GuestNamespace, "image"},
		"istiod, guest":       {"part: guest\npilotImage: a\n", deploy.GuestNamespace, "pilotImage"},
		"gateways, guest":     {"part: guest\nproxyImage: a\n", deploy.GuestNamespace, "proxyImage"},
		"webhooks, guest":     {"part: guest\nexternalWebhooks: true\n", deploy.GuestNamespace, "externalWebhooks"},
		"flags, guest":        {"part: guest\nextraArgs: [--publish=route]\n", deploy.GuestNamespace, "extraArgs"},
		"labels, guest":       {"part: guest\npodLabels: {a: b}\n", deploy.GuestNamespace, "podLabels"},
		"tolerations, guest":  {"part: guest\ntolerations: [{key: a}]\n", deploy.GuestNamespace, "tolerations"},
		"a kubeconfig, guest": {"part: guest\nguestKubeconfigSecret: a\n", deploy.GuestNamespace, "guestKubeconfigSecret"},
		"one namespace": {
			examples()["standalone-own-namespace"], deploy.GuestNamespace, "in a namespace other than openshift-ingress",
		},
		"another namespace": {"part: guest\n", "default", "install the part guest with --namespace openshift-ingress"},
	} {
		if _, err := rendered(t, tc.values, tc.namespace); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
