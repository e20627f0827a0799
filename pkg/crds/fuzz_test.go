package crds_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/test/fromyaml"
)

// FuzzCompare checks that reading any two objects succeeds or returns an error, and that comparing them follows the
// rules.
func FuzzCompare(f *testing.F) {
	whole, err := json.Marshal(fromyaml.Object(f, small).Object)
	if err != nil {
		f.Fatal(err)
	}
	other, err := json.Marshal(
		edited(
			f, "[A, B]", "[A]", "served: false", "served: true", "properties: {name", "properties: {a.b: {}, name",
			"x-kubernetes-preserve-unknown-fields: true", "nullable: true",
		).Object,
	)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole, other)
	f.Add(whole, whole[:len(whole)/2])
	f.Add([]byte(`{}`), []byte(`[{"spec": null}]`))
	f.Add([]byte(`{"spec":{"group":"g","scope":"s","names":{"kind":"K","plural":"p"},"versions":[{"name":"v",`+
		`"served":true,"storage":true,"schema":{"openAPIV3Schema":
		{"items":true,"properties":{"a":[{}],"":{"properties":[]}},"additionalProperties":{"not":[[[]]]},`+
		`"oneOf":{"a":1},"maximum":"x"}}}]},"status":{"conditions":[[]]}}`), whole)
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var a, b unstructured.Unstructured
		if json.Unmarshal(first, &a.Object) != nil || json.Unmarshal(second, &b.Object) != nil {
			return
		}
		for _, u := range []*unstructured.Unstructured{&a, &b} {
			if _, err := crds.DefinitionOf(u); err != nil {
				if _, err := crds.Compare(u, fromyaml.Object(t, small)); err == nil {
					t.Errorf("what cannot be read can be compared: %s", first)
				}
				return
			}
		}
		checkComparison(t, &a, &b)
	})
}

// checkComparison checks the rules for any two readable CRDs.
func checkComparison(t *testing.T, a, b *unstructured.Unstructured) {
	t.Helper()
	there, back := compare(t, a, b), compare(t, b, a)
	if diff := cmp.Diff(
		[][]crds.Field{there.Lost, there.Gained, there.Changed},
		[][]crds.Field{back.Gained, back.Lost, back.Changed},
	); diff != "" {
		t.Errorf("there and back, -lost gained changed +gained lost changed:\n%s", diff)
	}
	if same := hash(t, a) == hash(t, b); same != there.None() {
		t.Errorf("one hash: %v, and the difference is: %s", same, there)
	}
	if d := compare(t, a, a.DeepCopy()); !d.None() {
		t.Errorf("it differs from itself: %s", d)
	}
}

// TestMutatedCRDs makes typical changes to real CRDs. Each change must be found, except a change of a description.
func TestMutatedCRDs(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	_, istio := istioCRDs(t)
	for _, crd := range slices.Concat(gatewayAPI(t), istio) {
		for _, mutate := range []struct {
			what   string
			change func(schema map[string]any)
			none   bool
		}{
			{
				"a property less",
				func(s map[string]any) { delete(section(s, "properties"), anyKey(random, section(s, "properties"))) },
				false,
			},
			{"another type", func(s map[string]any) { s["type"] = "mutated" }, false},
			{"another description", func(s map[string]any) { s["description"] = "mutated" }, true},
			{
				"a property more",
				func(s map[string]any) { section(s, "properties")["mutated.field"] = map[string]any{"type": "string"} },
				false,
			},
		} {
			mutated := crd.DeepCopy()
			mutate.change(anySchema(random, mutated))
			if d := compare(t, crd, mutated); d.None() != mutate.none {
				t.Errorf("%s, %s: no difference: %v, want %v", crd.GetName(), mutate.what, d.None(), mutate.none)
			}
			checkComparison(t, crd, mutated)
		}
	}
}

// anySchema returns a random schema with properties, below the spec of the objects of a random version.
func anySchema(random *rand.Rand, crd *unstructured.Unstructured) map[string]any {
	versions, _ := section(crd.Object, "spec")["versions"].([]any)
	version, _ := versions[random.IntN(len(versions))].(map[string]any)
	schema := section(section(version, "schema"), "openAPIV3Schema")
	var all []map[string]any
	var visit func(map[string]any)
	visit = func(s map[string]any) {
		switch {
		case s == nil:
			return
		case len(section(s, "properties")) > 0:
			all = append(all, s)
		}
		for _, name := range sortedKeys(section(s, "properties")) {
			visit(section(section(s, "properties"), name))
		}
		for _, key := range []string{"items", "additionalProperties"} {
			visit(section(s, key))
		}
	}
	// Skip the root, whose properties exist whatever the schema says. A ReferenceGrant has everything in its spec.
	visit(section(section(schema, "properties"), "spec"))
	return all[random.IntN(len(all))]
}

func section(m map[string]any, key string) map[string]any {
	s, _ := m[key].(map[string]any)
	return s
}

func sortedKeys(m map[string]any) []string {
	out := make([]string, 0, len(m))
	for key := range m {
		out = append(out, key)
	}
	slices.Sort(out)
	return out
}

func anyKey(random *rand.Rand, m map[string]any) string { return sortedKeys(m)[random.IntN(len(m))] }
