package desired_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/values"
)

// TestUserValues checks that the user's values change istiod, the mesh configuration and the gateways' defaults,
// and nothing else.
func TestUserValues(t *testing.T) {
	for _, topology := range bothTopologies() {
		cfg := config(topology)
		guest := withForeignCRDs(withClasses("openshift-default", "other"))
		before := compute(t, cfg, embedded(t), installed(t), guest)
		var err error
		cfg.Values, err = values.Parse("v.yaml", []byte(`
resources: {limits: {memory: 1Gi}}
global: {logging: {level: "ads:debug"}, logAsJson: true}
meshConfig:
  accessLogEncoding: JSON
  defaultConfig: {concurrency: 3}
  extensionProviders: [{name: tracer, zipkin: {service: zipkin.tracing.svc.cluster.local, port: 9411}}]
gatewayClasses:
  "*": {horizontalPodAutoscaler: {spec: {minReplicas: 1}}, podDisruptionBudget: {spec: {maxUnavailable: 1}}}
  other: {horizontalPodAutoscaler: {spec: {maxReplicas: 20}}}
`))
		if err != nil {
			t.Fatal(err)
		}
		after := compute(t, cfg, embedded(t), installed(t), guest)
		var changed []string
		text := map[string]string{}
		was := map[string]string{}
		for _, o := range append(mgmtObjects(before), guestObjects(before)...) {
			was[o.String()] = string(o.JSON())
		}
		for _, o := range append(mgmtObjects(after), guestObjects(after)...) {
			if text[o.String()] = string(o.JSON()); was[o.String()] != text[o.String()] {
				changed = append(changed, o.String())
			}
		}
		namespace := cfg.MgmtNamespace
		want := []string{
			"ConfigMap " + namespace + "/istio-openshift-gateway-a",
			"ConfigMap " + namespace + "/istio-sidecar-injector-openshift-gateway-a",
			"Deployment " + namespace + "/istiod-openshift-gateway",
			"ConfigMap openshift-ingress/hypergate-gatewayclass-openshift-gateway.openshift-default",
			"ConfigMap openshift-ingress/hypergate-gatewayclass-openshift-gateway.other",
		}
		if diff := cmp.Diff(want, changed); diff != "" {
			t.Errorf("%s: what changed (-want +got):\n%s", topology, diff)
		}
		for object, parts := range map[string][]string{
			want[0]: {
				"accessLogEncoding: JSON", "concurrency: 3", "discoveryAddress: " + cfg.XDS.String(), "extensionProviders:", "name: tracer",
				"service: zipkin.tracing.svc.cluster.local", "port: 9411",
			},
			want[2]: {
				`"limits":{"memory":"1Gi"},"requests":{"cpu":"20m","memory":"160Mi"}`, "--log_output_level=ads:debug", "--log_as_json",
			},
			want[3]: {"minReplicas: 1", "maxReplicas: 10", "maxUnavailable: 1"},
			want[4]: {"minReplicas: 1", "maxReplicas: 20", "maxUnavailable: 1"},
		} {
			for _, part := range parts {
				if !strings.Contains(text[object], part) {
					t.Errorf("%s: %s does not say %q:\n%s", topology, object, part, text[object])
				}
			}
		}
		if strings.Contains(text[want[3]], "minAvailable") {
			t.Errorf("%s: a disruption budget with both: %s", topology, text[want[3]])
		}
	}
}
