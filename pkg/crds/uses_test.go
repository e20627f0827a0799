package crds_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/test/fromyaml"
)

func TestUses(t *testing.T) {
	const object = `
apiVersion: example.com/v1
kind: Thing
metadata: {name: a}
spec:
  retry: {attempts: 3}
  none: null
  noItems: []
  nothing: {}
  zero: 0
  disabled: false
  rules:
  - filters: [{type: A}, {type: B, cors: {}}]
  - filters: null
  - 7
  labels: {x: {value: 1}, y: 2}
  a.b: 1
  "[]": 1
  "x{}": {deep: 1}
  "": 1
`
	for path, want := range map[string]bool{
		"":                                true,
		"spec":                            true,
		"spec.retry":                      true,
		"spec.retry.attempts":             true,
		"spec.retry.codes":                false,
		"spec.retry[]":                    false,
		"spec.none":                       false,
		"spec.none.of.it":                 false,
		"spec.noItems":                    false,
		"spec.noItems[]":                  false,
		"spec.nothing":                    true, // for example, tls: {} has a meaning
		"spec.zero":                       true,
		"spec.disabled":                   true,
		"spec.missing":                    false,
		"spec.rules[].filters[].cors":     true,
		"spec.rules[].filters[].type":     true,
		"spec.rules[].filters[].mirror":   false,
		"spec.rules[].backendRefs[].port": false,
		"spec.rules.filters":              false,
		"spec.labels{}.value":             true,
		"spec.labels{}.other":             false,
		"spec.labels[]":                   false,
		"spec.labels{}":                   true,
		`spec.a\.b`:                       true,
		"spec.a.b":                        false,
		`spec.\[]`:                        true,
		"spec[]":                          false,
		`spec.x\{}.deep`:                  true,
		`spec.x{}.deep`:                   false,
		`spec.""`:                         true,
		`spec.""{}`:                       false,
	} {
		fields := v1(path)
		got := crds.Uses(fromyaml.Object(t, object).Object, fields)
		if (len(got) == 1) != want {
			t.Errorf("%q is used: %v, want %v", path, got, want)
		}
	}
	fields := v1("spec.missing", "spec.retry", "spec.none", "spec.zero")
	if diff := cmp.Diff(v1("spec.retry", "spec.zero"), crds.Uses(fromyaml.Object(t, object).Object, fields)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(v1("spec.missing", "spec.retry", "spec.none", "spec.zero"), fields); diff != "" {
		t.Errorf("the list that was given is changed:\n%s", diff)
	}
	if diff := cmp.Diff([]crds.Field{}, crds.Uses(nil, v1("spec", "spec[].a", "spec{}.a")), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("of no object, -want +got:\n%s", diff)
	}
}
