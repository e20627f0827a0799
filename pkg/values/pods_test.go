package values_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/values"
)

const pods = `
meshConfig:
  defaultConfig: {tracing: {sampling: 0.5}}
  extensionProviders:
  - {name: collector, opentelemetry: {service: otel.tracing.svc.cluster.local, port: 4317}}
  - {name: zipkin, zipkin: {service: tracing/zipkin.example.com, port: 9411, path: /api/v2/spans, maxTagLength: 64}}
  - {name: json, envoyFileAccessLog: {path: /dev/stdout, logFormat: {labels: {code: "%RESPONSE_CODE%"}}}}
  - {name: als, envoyHttpAls: {service: als.logs.svc, port: 9000, logName: gateways}}
  - {name: otel-logs, envoyOtelAls: {service: otel.logs.svc, port: 4317, logFormat: {text: "%START_TIME%"}}}
  defaultProviders: {tracing: [collector], accessLogging: [envoy, json]}
gatewayClasses:
  a:
    nodeSelector: {infra: ""}
    tolerations: [{operator: Exists}, {key: a, value: b, effect: NoExecute, tolerationSeconds: 60}]
    topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, minDomains: 2}]
    resources: {requests: {memory: 2Gi}, limits: {memory: 3Gi}}
`

func TestParsePodsAndProviders(t *testing.T) {
	t.Parallel()
	got, err := values.Parse("v.yaml", []byte(pods))
	if err != nil {
		t.Fatal(err)
	}
	type tree = map[string]any
	want := values.Values{
		Istiod: tree{"meshConfig": tree{
			"defaultConfig": tree{"tracing": tree{"sampling": 0.5}},
			"extensionProviders": []any{
				tree{"name": "collector", "opentelemetry": tree{"service": "otel.tracing.svc.cluster.local", "port": int64(4317)}},
				tree{"name": "zipkin", "zipkin": tree{
					"service": "tracing/zipkin.example.com", "port": int64(9411), "path": "/api/v2/spans", "maxTagLength": int64(64),
				}},
				tree{"name": "json", "envoyFileAccessLog": tree{
					"path": "/dev/stdout", "logFormat": tree{"labels": tree{"code": "%RESPONSE_CODE%"}},
				}},
				tree{"name": "als", "envoyHttpAls": tree{"service": "als.logs.svc", "port": int64(9000), "logName": "gateways"}},
				tree{"name": "otel-logs", "envoyOtelAls": tree{
					"service": "otel.logs.svc", "port": int64(4317), "logFormat": tree{"text": "%START_TIME%"},
				}},
			},
			"defaultProviders": tree{"tracing": []any{"collector"}, "accessLogging": []any{"envoy", "json"}},
		}},
		Classes: map[string]tree{"a": {
			"nodeSelector": tree{"infra": ""},
			"tolerations": []any{
				tree{"operator": "Exists"}, tree{"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": int64(60)},
			},
			"topologySpreadConstraints": []any{
				tree{"maxSkew": int64(1), "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "minDomains": int64(2)},
			},
			"resources": tree{"requests": tree{"memory": "2Gi"}, "limits": tree{"memory": "3Gi"}},
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestPodsThatWouldNotStart checks that values with which the API server would refuse a gateway's pods, or with which
// they would not be scheduled as intended, are refused by name.
func TestPodsThatWouldNotStart(t *testing.T) {
	t.Parallel()
	checkMistakes(t, map[string]mistakeCase{
		"no list": {
			"gatewayClasses: {a: {tolerations: {key: a}}}", []string{"v.yaml:1:35: gatewayClasses.a.tolerations should be a list"},
		},
		"no label": {
			"gatewayClasses: {a: {nodeSelector: {'a b': c}}}", []string{"gatewayClasses.a.nodeSelector.a b is not a label of a node"},
		},
		"no text": {"gatewayClasses: {a: {nodeSelector: {a: true}}}", []string{"in quotation marks if it is a number"}},
		"no such field": {
			"gatewayClasses: {a: {affinity: {}}}",
			[]string{"gatewayClasses.a.affinity is not a supported value; supported are horizontalPodAutoscaler, nodeSelector"},
		},
		"all taints": {
			"gatewayClasses: {a: {tolerations: [{effect: NoSchedule}]}}",
			[]string{"gatewayClasses.a.tolerations.0 has no key, so its operator should be Exists"},
		},
		"a value that is not compared": {
			"gatewayClasses: {a: {tolerations: [{key: a, operator: Exists, value: b}]}}", []string{"so it should have no value"},
		},
		"a time without an eviction": {
			"gatewayClasses: {a: {tolerations: [{key: a, tolerationSeconds: 5}]}}", []string{"so its effect should be NoExecute"},
		},
		"a selector of one's own": {
			"gatewayClasses: {a: {topologySpreadConstraints: [{labelSelector: {}}]}}",
			[]string{"gatewayClasses.a.topologySpreadConstraints.0.labelSelector is not a supported value"},
		},
		"half a constraint": {"gatewayClasses: {a: {topologySpreadConstraints: [{maxSkew: 1}]}}", []string{"should have topologyKey"}},
		"one key twice": {
			"gatewayClasses: {a: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: ScheduleAnyway}, " +
				"{maxSkew: 2, topologyKey: z, whenUnsatisfiable: DoNotSchedule}]}}",
			[]string{"has two constraints with the topologyKey z"},
		},
		"domains that are not needed": {
			"gatewayClasses: {a: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: z, minDomains: 2, " +
				"whenUnsatisfiable: ScheduleAnyway}]}}",
			[]string{"so whenUnsatisfiable should be DoNotSchedule"},
		},
		"more than the usual limit": {
			"gatewayClasses:\n  a: {resources: {requests: {memory: 2Gi}}}",
			[]string{"v.yaml:2: gatewayClasses.a.resources: the request of memory would be 2Gi and the limit 1024Mi: give both"},
		},
		"less than all request": {
			"gatewayClasses:\n  '*': {resources: {requests: {cpu: 1500m}}}\n  a: {resources: {limits: {cpu: '1'}}}",
			[]string{"v.yaml:3: gatewayClasses.a.resources: the request of cpu would be 1500m and the limit 1: give both"},
		},
		"a budget with both": {
			"gatewayClasses: {a: {podDisruptionBudget: {spec: {minAvailable: 1, maxUnavailable: 1}}}}",
			[]string{"gatewayClasses.a.podDisruptionBudget.spec should have either minAvailable or maxUnavailable"},
		},
	})
}

func TestInvalidProviders(t *testing.T) {
	t.Parallel()
	provider := func(text string) string { return "meshConfig: {extensionProviders: [" + text + "]}" }
	checkMistakes(t, map[string]mistakeCase{
		"another kind": {
			provider("{name: a, envoyExtAuthzHttp: {}}"),
			[]string{"meshConfig.extensionProviders.0.envoyExtAuthzHttp is not a supported value; supported are envoyFileAccessLog"},
		},
		"no kind":    {provider("{name: a}"), []string{"should have a name and one of envoyFileAccessLog, envoyHttpAls"}},
		"two kinds":  {provider("{name: a, zipkin: {service: b, port: 1}, opentelemetry: {service: b, port: 1}}"), []string{"one of"}},
		"no name":    {provider("{zipkin: {service: b, port: 1}}"), []string{"should have a name"}},
		"no port":    {provider("{name: a, zipkin: {service: b}}"), []string{"extensionProviders.0.zipkin should have port"}},
		"a bad port": {provider("{name: a, zipkin: {service: b, port: 65536}}"), []string{"should be a port"}},
		"a URL":      {provider("{name: a, zipkin: {service: 'http://b', port: 1}}"), []string{"should be the host name of a Service"}},
		"no format": {
			provider("{name: a, envoyFileAccessLog: {path: /dev/stdout, logFormat: {}}}"), []string{"should have either text or labels"},
		},
		"one name twice": {
			provider("{name: envoy, zipkin: {service: b, port: 1}}"), []string{"more than one provider with the name envoy"},
		},
		"an unknown default": {
			"meshConfig: {defaultProviders: {tracing: [a]}}", []string{"meshConfig.defaultProviders.tracing names a, and"},
		},
		"a default of another kind": {
			"meshConfig: {extensionProviders: [{name: a, zipkin: {service: b, port: 1}}], defaultProviders: {accessLogging: [a]}}",
			[]string{"meshConfig.defaultProviders.accessLogging names a, and", "one of envoyFileAccessLog"},
		},
		"too much tracing": {"meshConfig: {defaultConfig: {tracing: {sampling: 101}}}", []string{"should be a percentage from 0 to 100"}},
		"no number":        {"meshConfig: {defaultConfig: {tracing: {sampling: .nan}}}", []string{"should be a percentage from 0 to 100"}},
	})
}
