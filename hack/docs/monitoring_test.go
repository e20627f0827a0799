package docs

import (
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/test/deploy"
	"github.com/hypergate/hypergate/test/hypershift"
)

// pod is the part of a Deployment that a PodMonitor selects by.
type pod struct {
	Spec struct {
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				Containers []struct{ Ports []struct{ Name string } }
			}
		}
	}
}

// TestPodMonitorsSelectPods renders each folder of deploy/monitoring, and checks that its PodMonitors select the pods
// of hypergate and of istiod, and ports that they have. The last golden file of istiod has the tunnel's sidecar.
func TestPodMonitorsSelectPods(t *testing.T) {
	t.Parallel()
	hypergates := map[string]string{
		"hosted": "deploy/hosted/management/deployment.yaml", "cluster-api": "deploy/cluster-api/management/deployment.yaml",
		"standalone": "deploy/standalone/deployment.yaml",
	}
	istiods, err := filepath.Glob(filepath.Join(root, "pkg/desired/testdata/golden/*/*/management/deployment_istiod-*.yaml"))
	if err != nil || len(istiods) == 0 {
		t.Fatalf("no golden file of istiod: %v", err)
	}
	for folder, hypergate := range hypergates {
		objects, err := deploy.Render("monitoring/" + folder)
		if err != nil {
			t.Fatal(err)
		}
		kinds := map[string]int{}
		for _, o := range objects {
			kinds[o.GetKind()]++
			if o.GetNamespace() == "" {
				t.Errorf("%s: %s %s has no namespace", folder, o.GetKind(), o.GetName())
			}
			switch {
			case o.GetKind() != "PodMonitor":
			case o.GetName() == "hypergate":
				checkSelection(t, folder, o, filepath.Join(root, hypergate))
			default:
				checkSelection(t, folder, o, istiods[len(istiods)-1])
			}
			anywhere, _, _ := unstructured.NestedBool(o.Object, "spec", "namespaceSelector", "any")
			if o.GetKind() == "PodMonitor" && anywhere == (folder == "standalone") {
				t.Errorf("%s: PodMonitor %s selects all namespaces: %t", folder, o.GetName(), anywhere)
			}
		}
		if kinds["PodMonitor"] != 2 || kinds["PrometheusRule"] != 1 || kinds["ConfigMap"] != 1 || len(kinds) != 3 {
			t.Errorf("%s has %v", folder, kinds)
		}
	}
}

// TestThePodMonitorsOfTheComponent checks that the PodMonitors in HyperShift's namespace select the same pods and ports
// as those of deploy/monitoring, and that its metrics set All keeps the same metrics.
func TestThePodMonitorsOfTheComponent(t *testing.T) {
	t.Parallel()
	component, err := hypershift.Hypergate()
	if err != nil {
		t.Fatal(err)
	}
	ours, err := component.Render(hypershift.ControlPlane{Namespace: deploy.MgmtNamespace})
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := deploy.Render("monitoring/hosted")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"hypergate", "hypergate-istiod"} {
		selector, keeps := scraped(ours, name)
		want, regexes := scraped(theirs, name)
		if selector == nil || !reflect.DeepEqual(selector, want) {
			t.Errorf("PodMonitor %s selects %v; that of deploy/monitoring %v", name, selector, want)
		}
		if got, elsewhere := slices.Sorted(maps.Keys(keeps)), slices.Sorted(maps.Keys(regexes)); !slices.Equal(got, elsewhere) {
			t.Errorf("PodMonitor %s has the ports %q; that of deploy/monitoring %q", name, got, elsewhere)
		}
		for port, regex := range regexes {
			ofHypergate := strings.HasPrefix(regex, "hypergate_tunnel_") && strings.HasPrefix(keeps[port], "hypergate_.+|")
			if regex == "" || !strings.Contains(keeps[port], regex) && !ofHypergate {
				t.Errorf("PodMonitor %s keeps %q of port %s; that of deploy/monitoring keeps %q", name, keeps[port], port, regex)
			}
		}
	}
}

// scraped returns the pods of a PodMonitor, and by port the regular expression of the metrics that it keeps.
func scraped(all []*unstructured.Unstructured, name string) (selector map[string]any, keeps map[string]string) {
	keeps = map[string]string{}
	for _, o := range all {
		if o.GetKind() != "PodMonitor" || o.GetName() != name {
			continue
		}
		selector, _, _ = unstructured.NestedMap(o.Object, "spec", "selector")
		endpoints, _, _ := unstructured.NestedSlice(o.Object, "spec", "podMetricsEndpoints")
		for _, e := range endpoints {
			endpoint, _ := e.(map[string]any)
			port, _ := endpoint["port"].(string)
			keeps[port] = ""
			if relabelings, _, _ := unstructured.NestedSlice(endpoint, "metricRelabelings"); len(relabelings) > 0 {
				keeps[port], _, _ = unstructured.NestedString(relabelings[0].(map[string]any), "regex")
			}
		}
	}
	return selector, keeps
}

// TestThePolicyOfHypergatesPod checks that the network policy selects the pods of each Deployment, opens a port that
// they have, and restricts ingress alone.
func TestThePolicyOfHypergatesPod(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"hosted/example", "cluster-api/example", "standalone"} {
		objects, err := deploy.Render(folder)
		if err != nil {
			t.Fatal(err)
		}
		var policy, deployment *unstructured.Unstructured
		for _, o := range objects {
			switch o.GetKind() {
			case "NetworkPolicy":
				policy = o
			case "Deployment":
				deployment = o
			}
		}
		if policy == nil || policy.GetNamespace() != deployment.GetNamespace() {
			t.Fatalf("%s: the policy is %v", folder, policy)
		}
		types, _, _ := unstructured.NestedStringSlice(policy.Object, "spec", "policyTypes")
		rules, _, _ := unstructured.NestedSlice(policy.Object, "spec", "ingress")
		selected, _, _ := unstructured.NestedStringMap(policy.Object, "spec", "podSelector", "matchLabels")
		labels, _, _ := unstructured.NestedStringMap(deployment.Object, "spec", "template", "metadata", "labels")
		if !slices.Equal(types, []string{"Ingress"}) || len(rules) != 1 || len(selected) != 1 || labels["app"] != selected["app"] {
			t.Errorf("%s: types %q, %d rules, for pods with %v", folder, types, len(rules), selected)
		}
		containers, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
		ports, _ := containers[0].(map[string]any)["ports"].([]any)
		opened, _ := rules[0].(map[string]any)["ports"].([]any)
		if len(opened) != 1 || !slices.ContainsFunc(ports, func(p any) bool {
			return p.(map[string]any)["name"] == opened[0].(map[string]any)["port"]
		}) {
			t.Errorf("%s: the policy opens %v, and the container has %v", folder, opened, ports)
		}
	}
}

// TestThePodMonitorOfGatewaysSelectsPods checks the labels and the port against the template from which istiod deploys
// gateways.
func TestThePodMonitorOfGatewaysSelectsPods(t *testing.T) {
	t.Parallel()
	objects, err := deploy.Render("monitoring/guest")
	if err != nil || len(objects) != 1 || objects[0].GetKind() != "PodMonitor" || objects[0].GetNamespace() != "" {
		t.Fatalf("%d objects: %v", len(objects), err)
	}
	const goldens = "pkg/desired/testdata/golden/*/hosted/management/configmap_istio-sidecar-injector-*.yaml"
	templates, err := filepath.Glob(filepath.Join(root, goldens))
	if err != nil || len(templates) == 0 {
		t.Fatalf("no golden file of the template: %v", err)
	}
	_, template, found := strings.Cut(read(t, templates[len(templates)-1]), "kube-gateway: |")
	if !found {
		t.Fatal("there is no template of gateways")
	}
	_, pods, _ := strings.Cut(template, "kind: Deployment")
	var labels []string
	selectors, _, _ := unstructured.NestedSlice(objects[0].Object, "spec", "selector", "matchExpressions")
	for _, selector := range selectors {
		key, _, _ := unstructured.NestedString(selector.(map[string]any), "key")
		labels = append(labels, key)
	}
	copied, _, _ := unstructured.NestedStringSlice(objects[0].Object, "spec", "podTargetLabels")
	for _, label := range append(labels, copied...) {
		// The template has the label on the Deployment, in its selector and on the pods.
		if strings.Count(strings.Split(pods, "kind: Service")[0], `"`+label+`"`) < 2 {
			t.Errorf("the pods of gateways do not have the label %s", label)
		}
	}
	endpoints, _, _ := unstructured.NestedSlice(objects[0].Object, "spec", "podMetricsEndpoints")
	if len(labels) != 1 || len(endpoints) != 1 {
		t.Fatalf("%d labels, %d endpoints", len(labels), len(endpoints))
	}
	endpoint, _ := endpoints[0].(map[string]any)
	for what, text := range map[string]string{
		"port": fmt.Sprintf("name: %v\n", endpoint["port"]),
		"path": fmt.Sprintf(`"prometheus.io/path" "%v"`, endpoint["path"]),
	} {
		if !strings.Contains(pods, text) {
			t.Errorf("gateways do not have the %s %v", what, endpoint[what])
		}
	}
}

// checkSelection checks that a PodMonitor selects the pods of a Deployment.
func checkSelection(t *testing.T, folder string, monitor *unstructured.Unstructured, deployment string) {
	t.Helper()
	var target pod
	if err := yaml.Unmarshal([]byte(read(t, deployment)), &target); err != nil {
		t.Fatal(err)
	}
	labels, _, _ := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
	for name, value := range labels {
		if target.Spec.Template.Metadata.Labels[name] != value {
			t.Errorf("%s: %s selects %s=%s, which the pods of %s do not have", folder, monitor.GetName(), name, value, deployment)
		}
	}
	endpoints, _, _ := unstructured.NestedSlice(monitor.Object, "spec", "podMetricsEndpoints")
	if len(labels) == 0 || len(endpoints) == 0 {
		t.Fatalf("%s: %s has %d labels and %d endpoints", folder, monitor.GetName(), len(labels), len(endpoints))
	}
	ports := map[any]bool{}
	for _, container := range target.Spec.Template.Spec.Containers {
		for _, port := range container.Ports {
			ports[port.Name] = true
		}
	}
	for _, one := range endpoints {
		if endpoint, _ := one.(map[string]any); !ports[endpoint["port"]] {
			t.Errorf("%s: %s scrapes the port %v, which the pods of %s do not have",
				folder, monitor.GetName(), endpoint["port"], deployment)
		}
	}
}
