package conformance_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/test/cluster"
	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/world"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/test/conformance"
)

// alphaVariable makes istiod serve TLSRoutes, and other kinds of the experimental channel.
const alphaVariable = "PILOT_ENABLE_ALPHA_GATEWAY_API"

// splitOnly returns the variables of hypergate's istiod that an istiod in the guest does not have, with the reasons.
func splitOnly() map[string]string {
	return map[string]string{
		"INJECTION_WEBHOOK_CONFIG_NAME":  "in the guest, istiod writes the caBundle of its webhooks itself",
		"VALIDATION_WEBHOOK_CONFIG_NAME": "as above",
		"ISTIOD_CUSTOM_HOST":             "the published names of istiod",
		"CA_TRUSTED_NODE_ACCOUNTS":       "the chart has the right default in the guest",
		"EXTERNAL_ISTIOD":                "istiod is in the cluster that it serves",
	}
}

// startInGuest installs istiod from its chart in the guest, with the CRDs, the variables and the mesh configuration of
// hypergate.
func (r *run) startInGuest(t *testing.T, binary string) *world.World {
	t.Helper()
	found, err := servers.Find(t.Context(), "pilot-discovery")
	must(t, err)
	w := startWorld(t, world.Options{Name: "conf-guest", GuestImages: []cluster.Image{{
		Name: cluster.IstiodImage, User: "1337", Entrypoint: []string{"/usr/local/bin/pilot-discovery"},
		Files: map[string]string{"/usr/local/bin/pilot-discovery": found["pilot-discovery"]},
	}}})
	ctx, rendered := step(t), renderedBy(t, binary)
	for _, object := range rendered {
		if object.GetKind() == "CustomResourceDefinition" {
			must(t, w.ApplyObject(ctx, object))
		}
	}
	if r.set == conformance.TLS {
		must(t, w.ServeTLSRoutes(ctx))
	}
	source, err := charts.Embedded()
	must(t, err)
	objects, err := source.Render(charts.Release{Name: "istiod", Namespace: world.GuestNamespace, Values: r.inGuestValues(t, rendered)})
	must(t, err)
	for _, object := range objects {
		must(t, w.ApplyObject(ctx, object))
	}
	must(t, w.Apply(ctx, "class.yaml", map[string]string{"name": *class}))
	must(t, w.ClassCondition(ctx, *class, "Accepted", metav1.ConditionTrue))
	rolledOut(t, w.GuestClient, world.GuestNamespace)
	return w
}

// inGuestValues returns the values of the chart for an istiod in the guest with the settings of hypergate's istiod.
func (r *run) inGuestValues(t *testing.T, rendered []*unstructured.Unstructured) map[string]any {
	t.Helper()
	return map[string]any{
		"revision": world.Revision, "revisionTags": []any{"default"}, "image": cluster.IstiodImage,
		"autoscaleEnabled": false, "replicaCount": 1,
		"resources":              map[string]any{"requests": map[string]any{"cpu": "20m", "memory": "160Mi"}},
		"env":                    r.variables(t, rendered),
		"meshConfig":             meshConfigOf(t, rendered),
		"sidecarInjectorWebhook": map[string]any{"enableNamespacesByDefault": false},
		"global": map[string]any{
			"istioNamespace": world.GuestNamespace, "resourceScope": "all",
			"proxy": map[string]any{"image": world.ProxyImage}, "proxy_init": map[string]any{"image": world.ProxyImage},
		},
	}
}

// variables returns the variables that hypergate sets and that the chart does not set itself.
func (r *run) variables(t *testing.T, rendered []*unstructured.Unstructured) map[string]any {
	t.Helper()
	source, err := charts.Embedded()
	must(t, err)
	plain, err := source.Render(charts.Release{Name: "istiod", Namespace: world.GuestNamespace, Values: map[string]any{
		"revision": world.Revision, "global": map[string]any{"trustBundleName": "any"},
	}})
	must(t, err)
	byChart, out := envOf(t, plain), map[string]any{}
	for name, value := range envOf(t, rendered) {
		_, chartSets := byChart[name]
		if _, skip := splitOnly()[name]; !skip && !chartSets {
			out[name] = value
		}
	}
	if len(out) < 10 {
		t.Fatalf("hypergate sets only %d variables of istiod", len(out))
	}
	if r.set == conformance.TLS {
		out[alphaVariable] = "true"
	}
	return out
}

// envOf returns the variables of istiod's Deployment.
func envOf(t *testing.T, objects []*unstructured.Unstructured) map[string]string {
	t.Helper()
	for _, object := range objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		d := &appsv1.Deployment{}
		must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, d))
		out := map[string]string{}
		for _, variable := range d.Spec.Template.Spec.Containers[0].Env {
			out[variable.Name] = variable.Value
		}
		return out
	}
	t.Fatal("there is no Deployment of istiod")
	return nil
}

// meshConfigOf returns the mesh configuration of hypergate without the published address.
func meshConfigOf(t *testing.T, objects []*unstructured.Unstructured) map[string]any {
	t.Helper()
	for _, object := range objects {
		text, found, err := unstructured.NestedString(object.Object, "data", "mesh")
		if object.GetKind() != "ConfigMap" || !found {
			continue
		}
		must(t, err)
		mesh := map[string]any{}
		must(t, yaml.Unmarshal([]byte(text), &mesh))
		unstructured.RemoveNestedField(mesh, "defaultConfig", "discoveryAddress")
		return mesh
	}
	t.Fatal("there is no mesh configuration")
	return nil
}

// renderedBy returns what hypergate installs.
func renderedBy(t *testing.T, binary string) []*unstructured.Unstructured {
	t.Helper()
	command := exec.CommandContext(t.Context(), binary, "render", "-o", "json")
	command.Stderr = t.Output()
	text, err := command.Output()
	must(t, err)
	var list unstructured.UnstructuredList
	must(t, json.NewDecoder(strings.NewReader(string(text))).Decode(&list))
	out := make([]*unstructured.Unstructured, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out
}
