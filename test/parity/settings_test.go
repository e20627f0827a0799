package parity_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/values"
)

const (
	namespace  = "openshift-ingress"
	revision   = "openshift-gateway"
	className  = "openshift-default"
	controller = "openshift.io/gateway-controller/v1"
)

// operatorEnv is the environment that cluster-ingress-operator gives to istiod (istio_olm.go, gatewayAPIPilotEnv).
func operatorEnv() map[string]string {
	return map[string]string{
		"PILOT_ENABLE_GATEWAY_API": "true", "PILOT_ENABLE_ALPHA_GATEWAY_API": "false", "PILOT_ENABLE_GATEWAY_API_STATUS": "true",
		"PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER":   "true",
		"PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER": "false",
		"PILOT_GATEWAY_API_DEFAULT_GATEWAYCLASS_NAME":      className,
		"PILOT_GATEWAY_API_CONTROLLER_NAME":                controller,
		"PILOT_MULTI_NETWORK_DISCOVER_GATEWAY_API":         "false",
		"ENABLE_GATEWAY_API_MANUAL_DEPLOYMENT":             "false",
		"PILOT_ENABLE_GATEWAY_API_CA_CERT_ONLY":            "true",
		"PILOT_ENABLE_CA_CRL":                              "false",
		"PILOT_ENABLE_GATEWAY_API_COPY_LABELS_ANNOTATIONS": "false",
		"PILOT_IGNORE_RESOURCES":                           "listenersets.gateway.networking.k8s.io",
	}
}

// operatorValues are the values with which cluster-ingress-operator renders the chart (istio_sail_installer.go,
// openshiftValues and buildGatewayClassesConfig), and which the Sail library adds (pkg/install).
func operatorValues() map[string]any {
	type tree = map[string]any
	return tree{
		"revision": revision,
		"platform": "openshift",
		"global": tree{
			"istioNamespace":             namespace,
			"defaultPodDisruptionBudget": tree{"enabled": false},
			"priorityClassName":          "system-cluster-critical",
			"trustBundleName":            "openshift-gw-ca-root-cert",
			"proxy":                      tree{"image": "registry.example.com/proxyv2:operator"},
		},
		"meshConfig": tree{
			"accessLogFile":         "/dev/stdout",
			"ingressControllerMode": "OFF",
			"defaultConfig": tree{"proxyHeaders": tree{
				"server":                  tree{"disabled": true},
				"envoyDebugHeaders":       tree{"disabled": true},
				"metadataExchangeHeaders": tree{"mode": "IN_MESH"},
			}},
		},
		"gatewayClasses": tree{className: tree{
			"horizontalPodAutoscaler": tree{"spec": tree{"minReplicas": 2, "maxReplicas": 10}},
			"deployment": tree{"spec": tree{"template": tree{"spec": tree{"containers": []any{
				tree{"name": "istio-proxy", "terminationMessagePolicy": "FallbackToLogsOnError"},
			}}}}},
		}},
	}
}

// ofOperator returns what an istiod of cluster-ingress-operator gets, for a guest with a proxy or without
// (istio_sail_installer.go, buildProxyMetadata).
func ofOperator(t *testing.T, source *charts.Source, proxy model.Proxy) settings {
	t.Helper()
	given := operatorValues()
	metadata := map[string]any{}
	for _, v := range []struct{ upper, lower, value string }{
		{"HTTP_PROXY", "http_proxy", proxy.HTTP}, {"HTTPS_PROXY", "https_proxy", proxy.HTTPS}, {"NO_PROXY", "no_proxy", proxy.No},
	} {
		if v.value != "" {
			metadata[v.upper], metadata[v.lower] = v.value, v.value
		}
	}
	if len(metadata) > 0 {
		err := unstructured.SetNestedField(given, metadata, "meshConfig", "defaultConfig", "proxyMetadata")
		if err != nil {
			t.Fatal(err)
		}
	}
	objects, err := source.Render(charts.Release{Name: revision + "-istiod", Namespace: namespace, Values: given})
	if err != nil {
		t.Fatal(err)
	}
	out := settings{env: operatorEnv(), files: map[string]string{}}
	for _, u := range objects {
		switch u.GetKind() + " " + u.GetName() {
		case "ConfigMap istio-" + revision:
			out.files[meshFile] = data(t, u, "mesh")
		case "ConfigMap istio-sidecar-injector-" + revision:
			out.files[templateFile], out.files[valuesFile] = data(t, u, "config"), data(t, u, "values")
		case "ConfigMap istio-" + revision + "-gatewayclass-" + className:
			out.classDefaults = encoded(t, u)
		}
	}
	return out
}

// ofHypergate returns what an istiod gets by a plan of hypergate, with values of a user and for a guest with these
// nodes.
func ofHypergate(t *testing.T, source *charts.Source, file string, nodes model.InfrastructureTopology) settings {
	t.Helper()
	return ofHypergateFor(t, source, file, model.LayeredProductResources(), model.GuestObservation{Infrastructure: nodes})
}

// ofHypergateFor returns what an istiod gets by a plan of hypergate, with values of a user and with these resources of
// Istio, for a guest.
func ofHypergateFor(
	t *testing.T, source *charts.Source, file string, resources []model.IstioResource, guest model.GuestObservation,
) settings {
	t.Helper()
	given, err := values.Parse("values.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	cfg := model.Config{
		Topology: model.TopologyHosted, MgmtNamespace: "clusters-guest1", GuestNamespace: namespace, ControllerName: controller,
		Revision: revision, PilotImage: "registry.example.com/pilot:hypergate", ProxyImage: "registry.example.com/proxyv2:hypergate",
		XDS: model.HostPort{Host: "istiod.apps.example.com", Port: 443}, WebhookHost: "gw-webhook-" + revision,
		IstioResources: resources, NetworkPolicies: model.HyperShiftPeers(), Values: given,
	}
	guest.Classes = []model.GatewayClass{{Name: className, Generation: 1}}
	plan, err := desired.NewPlanner(cfg, source).Compute(model.ManagementObservation{CA: ca, Istiod: model.Available}, guest)
	if err != nil {
		t.Fatal(err)
	}
	out := settings{env: map[string]string{}, files: map[string]string{
		"etc/cacerts/ca-cert.pem": string(ca.Cert), "etc/cacerts/ca-key.pem": string(ca.Key),
		"etc/cacerts/cert-chain.pem": string(ca.Chain), "etc/cacerts/root-cert.pem": string(ca.Root),
	}}
	for _, o := range append(plan.Mgmt, plan.Workload...) {
		u, err := o.Unstructured()
		if err != nil {
			t.Fatal(err)
		}
		switch name := u.GetName(); {
		case u.GetKind() == "Deployment":
			out.env = environment(t, u)
		case u.GetKind() == "ConfigMap" && strings.HasPrefix(name, "istio-sidecar-injector-"):
			out.files[templateFile], out.files[valuesFile] = data(t, u, "config"), data(t, u, "values")
		case u.GetKind() == "ConfigMap" && strings.HasPrefix(name, "istio-"+revision):
			out.files[meshFile] = data(t, u, "mesh")
		}
	}
	for _, o := range plan.Guest {
		if o.GVK().Kind == "ConfigMap" && o.Key().Name == cfg.ClassDefaultsName(className) {
			out.classDefaults = o.JSON()
			continue
		}
		u, err := o.Unstructured()
		if err != nil {
			t.Fatal(err)
		}
		out.guest = append(out.guest, u)
	}
	return out
}

// environment returns the variables of istiod's container that have a value of their own.
func environment(t *testing.T, deployment *unstructured.Unstructured) map[string]string {
	t.Helper()
	containers, _, err := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) == 0 {
		t.Fatalf("istiod has no container: %v", err)
	}
	out := map[string]string{}
	container, _ := containers[0].(map[string]any)
	variables, _ := container["env"].([]any)
	for _, item := range variables {
		variable, _ := item.(map[string]any)
		name, _ := variable["name"].(string)
		if value, is := variable["value"].(string); is && !strings.HasPrefix(name, "CA_TRUSTED") {
			out[name] = value
		}
	}
	return out
}

func data(t *testing.T, configMap *unstructured.Unstructured, key string) string {
	t.Helper()
	text, found, err := unstructured.NestedString(configMap.Object, "data", key)
	if !found || err != nil {
		t.Fatalf("%s has no %s: %v", configMap.GetName(), key, err)
	}
	return text
}

func encoded(t *testing.T, u *unstructured.Unstructured) []byte {
	t.Helper()
	out, err := u.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return out
}
