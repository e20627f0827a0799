package values_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/values"
	"github.com/hypergate/hypergate/test/mustfail"
)

const all = `# what a user may say
resources:
  requests: {cpu: 50m, memory: 300Mi}
  limits: {memory: 1Gi, cpu: 2}
global:
  logging: {level: "default:info,ads:debug"}
  logAsJson: true
meshConfig:
  accessLogFile: ""
  accessLogEncoding: JSON
  accessLogFormat: "[%START_TIME%]\n"
  defaultConfig: {concurrency: 2}
gatewayClasses:
  "*":
    horizontalPodAutoscaler: {spec: {minReplicas: 1, maxReplicas: 3}}
  openshift-default:
    podDisruptionBudget: {spec: {maxUnavailable: 50%}}
`

func TestParse(t *testing.T) {
	got, err := values.Parse("v.yaml", []byte(all))
	if err != nil {
		t.Fatal(err)
	}
	want := values.Values{
		Istiod: map[string]any{
			"resources": map[string]any{
				"requests": map[string]any{"cpu": "50m", "memory": "300Mi"},
				"limits":   map[string]any{"memory": "1Gi", "cpu": "2"},
			},
			"global": map[string]any{"logging": map[string]any{"level": "default:info,ads:debug"}, "logAsJson": true},
			"meshConfig": map[string]any{
				"accessLogFile": "", "accessLogEncoding": "JSON", "accessLogFormat": "[%START_TIME%]\n",
				"defaultConfig": map[string]any{"concurrency": int64(2)},
			},
		},
		Classes: map[string]map[string]any{
			"*": {"horizontalPodAutoscaler": map[string]any{"spec": map[string]any{
				"minReplicas": int64(1), "maxReplicas": int64(3),
			}}},
			"openshift-default": {"podDisruptionBudget": map[string]any{"spec": map[string]any{"maxUnavailable": "50%"}}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, nothing := range []string{"", "# nothing\n", "---\n"} {
		got, err := values.Parse("v.yaml", []byte(nothing))
		if err != nil && !strings.Contains(err.Error(), "should have keys") || got.Istiod != nil {
			t.Errorf("%q: %v, %v", nothing, got, err)
		}
	}
}

// mistakeCase is a values file, and texts in the error.
type mistakeCase struct {
	text string
	want []string
}

// TestInvalidValues checks that each mistake is reported with file, line, column, path and cause.
func TestInvalidValues(t *testing.T) {
	checkMistakes(t, map[string]mistakeCase{
		"no YAML": {"resources: [", []string{"v.yaml: it is not YAML", "line 1"}},
		"a list":  {"- a", []string{"v.yaml:1:1: the file should have keys and values"}},
		"an unknown key": {
			"resources: {}\npilot: {env: {A: b}}",
			[]string{"v.yaml:2:1: pilot is not a supported value; supported are gatewayClasses, global, meshConfig, resources"},
		},
		"one further down": {
			"meshConfig:\n  defaultConfig:\n    discoveryAddress: evil.example.com:443",
			[]string{"v.yaml:3:5: meshConfig.defaultConfig.discoveryAddress is not a supported value; supported are concurrency"},
		},
	})
}

func TestInvalidValuesOfKnownKeys(t *testing.T) {
	checkMistakes(t, map[string]mistakeCase{
		"no quantity": {
			"resources: {requests: {cpu: lots}}",
			[]string{`v.yaml:1:29: resources.requests.cpu is "lots", and should be a quantity such as 50m or 200Mi`},
		},
		"less than nothing":  {"resources: {requests: {cpu: -1}}", []string{"should be a quantity"}},
		"a tree for a value": {"resources: {requests: {cpu: {a: b}}}", []string{"resources.requests.cpu should be a single value"}},
		"a value for a tree": {"resources: 5", []string{"v.yaml:1:12: resources should have keys and values"}},
		"text for a switch":  {"global: {logAsJson: 'yes'}", []string{`is "yes", and should be true or false`}},
		"a flag in a level":  {"global: {logging: {level: 'default:info\\n- --evil'}}", []string{"should be <scope>:<level>"}},
		"a number for text":  {"meshConfig: {accessLogFile: 5}", []string{"should be text"}},
		"no such word":       {"meshConfig: {accessLogEncoding: XML}", []string{`is "XML", and should be one of TEXT, JSON`}},
		"no replicas": {
			"gatewayClasses: {a: {horizontalPodAutoscaler: {spec: {minReplicas: 0}}}}",
			[]string{"should be a number from 1 to 1000"},
		},
		"too many percent": {
			"gatewayClasses: {a: {podDisruptionBudget: {spec: {minAvailable: 101%}}}}",
			[]string{"or a percentage such as 50%"},
		},
		"fewer than usual": {
			"gatewayClasses:\n  a: {horizontalPodAutoscaler: {spec: {maxReplicas: 1}}}",
			[]string{
				"v.yaml:2: gatewayClasses.a.horizontalPodAutoscaler.spec: minReplicas would be 2 and " +
					"maxReplicas 1 (they are 2 and 10 unless given)",
			},
		},
		"more than for all": {
			"gatewayClasses:\n  '*': {horizontalPodAutoscaler: {spec: {maxReplicas: 3}}}\n  a: " +
				"{horizontalPodAutoscaler: {spec: {minReplicas: 4}}}",
			[]string{"v.yaml:3: gatewayClasses.a.", "4 and maxReplicas 3"},
		},
		"no class": {
			"gatewayClasses: {'a b': {}}",
			[]string{`v.yaml:1:18: gatewayClasses.a b is neither the name of a GatewayClass nor "*"`},
		},
		"twice":     {"resources: {}\nresources: {}", []string{"v.yaml:2:1: resources is given twice"}},
		"an anchor": {"resources: &a {}\n", []string{"v.yaml:1:12: resources has an anchor or an alias: write it out"}},
		"an alias": {
			"resources: {requests: &a {cpu: 1}, limits: *a}",
			[]string{"resources.requests has an anchor", "resources.limits has an anchor or an alias"},
		},
		"a bomb": {
			"a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]",
			[]string{"a is not a supported value", "b is not a supported value", "c is not a supported value"},
		},
		"a merge":       {"resources: {requests: {<<: {cpu: 1}}}", []string{"resources.requests.<< is not a supported value"}},
		"two documents": {"resources: {}\n---\nresources: {}", []string{"more than one document"}},
		"all that is wrong": {
			"resources: {requests: {cpu: a, memory: b}}",
			[]string{"resources.requests.cpu", "resources.requests.memory"},
		},
		"a key that is a map": {"{a: b}: c", []string{"v.yaml:1:1:"}},
		"too much":            {"#" + strings.Repeat("x", 65<<10), []string{"65536 are read at most"}},
		"a long name":         {strings.Repeat("k", 999) + ": 1", []string{"kkk... is not a supported value"}},
	})
}

func checkMistakes(t *testing.T, cases map[string]mistakeCase) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := values.Parse("v.yaml", []byte(tc.text))
			if err == nil || got.Istiod != nil || got.Classes != nil {
				t.Fatalf("the file is accepted: %v", got)
			}
			mustfail.With(t, err, tc.want...)
		})
	}
}

func TestErrorsOfInvalidValuesAreLimited(t *testing.T) {
	_, err := values.Parse("v.yaml", []byte(strings.Repeat("x: 1\n", 5000)))
	if err == nil || strings.Count(err.Error(), "\n") != 20 || !strings.HasSuffix(err.Error(), "and 4980 more") {
		t.Errorf("%v", err)
	}
}

// FuzzParse checks that any input is either refused or parsed, and that the result has only allowed values.
func FuzzParse(f *testing.F) {
	f.Add(all)
	f.Add("resources: &a {requests: *a}")
	f.Add("{a: b}: c")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := values.Parse("v.yaml", []byte(text))
		for key := range got.Istiod {
			if key != "resources" && key != "global" && key != "meshConfig" || err != nil {
				t.Errorf("%s: %v", key, err)
			}
		}
	})
}
