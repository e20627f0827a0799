package desired_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/values"
)

// defaultsOf returns the defaults for the gateways of a class in the guest, by kind, as istiod reads them.
func defaultsOf(t *testing.T, file string, infrastructure model.InfrastructureTopology, class string) map[string]any {
	t.Helper()
	cfg := config(model.TopologyHosted)
	var err error
	if cfg.Values, err = values.Parse("v.yaml", []byte(file)); err != nil {
		t.Fatal(err)
	}
	guest := withForeignCRDs(withClasses("other", class))
	guest.Infrastructure = infrastructure
	plan := compute(t, cfg, embedded(t), installed(t), guest)
	for _, o := range guestObjects(plan) {
		if o.String() == "ConfigMap openshift-ingress/"+cfg.ClassDefaultsName(class) {
			return parsedData(t, o.JSON())
		}
	}
	t.Fatalf("class %s has no defaults", class)
	return nil
}

// parsedData returns the parsed values of a ConfigMap.
func parsedData(t *testing.T, object []byte) map[string]any {
	t.Helper()
	var configMap struct{ Data map[string]string }
	if err := yaml.Unmarshal(object, &configMap); err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	for kind, text := range configMap.Data {
		var value any
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		out[kind] = value
	}
	return out
}

func TestReplicasOfGateways(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		values         string
		infrastructure model.InfrastructureTopology
		autoscaler     string
		budget         string
	}{
		"several nodes": {"", model.SeveralNodes, "{minReplicas: 2, maxReplicas: 10}", "{minAvailable: 1}"},
		"a single node": {"", model.SingleNode, "{minReplicas: 1, maxReplicas: 10}", "{maxUnavailable: 1}"},
		"a single replica for all": {
			"gatewayClasses: {'*': {horizontalPodAutoscaler: {spec: {minReplicas: 1}}}}", model.SeveralNodes,
			"{minReplicas: 1, maxReplicas: 10}", "{maxUnavailable: 1}",
		},
		"more on a single node": {
			"gatewayClasses: {a: {horizontalPodAutoscaler: {spec: {minReplicas: 3}}}}", model.SingleNode,
			"{minReplicas: 3, maxReplicas: 10}", "{minAvailable: 1}",
		},
		"a budget on a single node": {
			"gatewayClasses: {a: {podDisruptionBudget: {spec: {minAvailable: 100%}}}}", model.SingleNode,
			"{minReplicas: 1, maxReplicas: 10}", "{minAvailable: 100%}",
		},
		"a budget of another form for one class": {
			"gatewayClasses: {'*': {podDisruptionBudget: {spec: {minAvailable: 2}}}, " +
				"a: {podDisruptionBudget: {spec: {maxUnavailable: 50%}}}}",
			model.SeveralNodes, "{minReplicas: 2, maxReplicas: 10}", "{maxUnavailable: 50%}",
		},
	} {
		got := defaultsOf(t, tc.values, tc.infrastructure, "a")
		want := map[string]any{}
		for kind, text := range map[string]string{
			"horizontalPodAutoscaler": "{spec: " + tc.autoscaler + "}",
			"podDisruptionBudget":     "{spec: " + strings.Replace(tc.budget, "{", "{unhealthyPodEvictionPolicy: AlwaysAllow, ", 1) + "}",
			"deployment": "{spec: {template: {spec: {containers: [" +
				"{name: istio-proxy, terminationMessagePolicy: FallbackToLogsOnError}]}}}}",
		} {
			var value any
			if err := yaml.Unmarshal([]byte(text), &value); err != nil {
				t.Fatal(err)
			}
			want[kind] = value
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestPodsOfGateways checks where a user's values for pods are in the defaults of a class, and that a constraint is
// about the pods of one gateway.
func TestPodsOfGateways(t *testing.T) {
	t.Parallel()
	got := defaultsOf(t, `
gatewayClasses:
  "*":
    nodeSelector: {node-role.kubernetes.io/infra: "", zone: a}
    tolerations: [{key: infra, operator: Exists, effect: NoSchedule}]
    resources: {requests: {cpu: 200m, memory: 256Mi}, limits: {memory: 2Gi}}
  a:
    nodeSelector: {zone: b}
    resources: {requests: {cpu: "1"}}
    topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway}]
`, model.SeveralNodes, "a")
	var want any
	if err := yaml.Unmarshal([]byte(`
spec:
  template:
    spec:
      nodeSelector: {node-role.kubernetes.io/infra: "", zone: b}
      tolerations: [{key: infra, operator: Exists, effect: NoSchedule}]
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: topology.kubernetes.io/zone
        whenUnsatisfiable: ScheduleAnyway
        labelSelector: {matchLabels: {gateway.networking.k8s.io/gateway-class-name: a}}
        matchLabelKeys: [gateway.networking.k8s.io/gateway-name, pod-template-hash]
      containers:
      - name: istio-proxy
        terminationMessagePolicy: FallbackToLogsOnError
        resources: {requests: {cpu: "1", memory: 256Mi}, limits: {memory: 2Gi}}
`), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got["deployment"]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestUsualResourcesAreTheCharts checks that values are compared with the requests and limits that the charts set.
func TestUsualResourcesAreTheCharts(t *testing.T) {
	t.Parallel()
	plan := compute(t, config(model.TopologyHosted), embedded(t), installed(t), withForeignCRDs(withClasses("a")))
	for _, o := range mgmtObjects(plan) {
		if o.String() != "ConfigMap "+mgmtNamespace+"/istio-sidecar-injector-openshift-gateway-a" {
			continue
		}
		given, _ := parsedData(t, o.JSON())["values"].(map[string]any)
		for _, key := range []string{"global", "proxy", "resources"} {
			given, _ = given[key].(map[string]any)
		}
		want := map[string]any{}
		for kind, quantities := range values.UsualResources() {
			level := map[string]any{}
			for name, quantity := range quantities {
				level[name] = quantity
			}
			want[kind] = level
		}
		if diff := cmp.Diff(want, given); diff != "" {
			t.Errorf("-values +chart:\n%s", diff)
		}
		return
	}
	t.Error("the templates of gateways were not found")
}
