package crds_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/test/fromyaml"
)

// small is a CRD with everything that is compared. The test tables replace parts of it.
const small = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Thing, plural: things, shortNames: [th]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        description: A thing.
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: integer, minimum: 1, maximum: 9223372036854775807}
              mode: {type: string, enum: [A, B], default: A}
              parts: {type: array, items: {type: object, properties: {name: {type: string}}}}
              labels: {type: object, additionalProperties: {type: object, properties: {value: {type: string}}}}
              raw: {type: object, x-kubernetes-preserve-unknown-fields: true}
  - name: v1beta1
    served: false
    storage: false
    schema: {openAPIV3Schema: {type: object}}
`

// edited returns small with texts replaced: old, new, old, new ... Each old text must exist.
func edited(tb testing.TB, replacements ...string) *unstructured.Unstructured {
	tb.Helper()
	for i := 0; i < len(replacements); i += 2 {
		if !strings.Contains(small, replacements[i]) {
			tb.Fatalf("there is no %q", replacements[i])
		}
	}
	return fromyaml.Object(tb, strings.NewReplacer(replacements...).Replace(small))
}

// cutOff returns small up to the given text.
func cutOff(tb testing.TB, from string) *unstructured.Unstructured {
	tb.Helper()
	head, _, found := strings.Cut(small, from)
	if !found {
		tb.Fatalf("there is no %q", from)
	}
	return fromyaml.Object(tb, head)
}

func hash(tb testing.TB, crd *unstructured.Unstructured) string {
	tb.Helper()
	d, err := crds.DefinitionOf(crd)
	if err != nil {
		tb.Fatal(err)
	}
	return d.Hash
}

func TestDefinitionOf(t *testing.T) {
	const accepted = `{type: NamesAccepted, status: "True"}`
	for _, tc := range []struct {
		name, status string
		want         crds.Definition
	}{
		{"new", ``, crds.Definition{}},
		{
			"established",
			`status: {storedVersions: [v1beta1, v1, v1], conditions: [` + accepted + `, {type: Established, status: "True"}]}`,
			crds.Definition{State: crds.Established, Stored: []string{"v1", "v1beta1"}},
		},
		{"not yet", `status: {conditions: [` + accepted + `, {type: Established, status: "False", message: soon}]}`, crds.Definition{}},
		{
			"rejected",
			`status: {conditions: [{type: NamesAccepted, status: "False", message: '"th" is already in ` +
				`use'}, {type: Established, status: "False"}]}`,
			crds.Definition{State: crds.Rejected, Why: `"th" is already in use`},
		},
		{
			"served under its old names",
			`status: {conditions: [{type: NamesAccepted, status: "False", message: taken}, {type: Established, status: "True"}]}`,
			crds.Definition{State: crds.Established},
		},
		{"conditions of nothing", `status: {conditions: [7, null, {type: 3}, {}]}`, crds.Definition{}},
		{"conditions that are none", `status: {conditions: {type: Established}}`, crds.Definition{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := crds.DefinitionOf(fromyaml.Object(t, small+tc.status))
			if err != nil {
				t.Fatal(err)
			}
			tc.want.Group, tc.want.Kind, tc.want.Plural, tc.want.Served = "example.com", "Thing", "things", []string{"v1"}
			tc.want.Hash = hash(t, fromyaml.Object(t, small)) // the hash ignores the status
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	webhook, err := crds.DefinitionOf(edited(
		t, "scope: Namespaced",
		"scope: Namespaced\n  conversion: {strategy: Webhook, webhook: {clientConfig: {url: https://x}}}",
	))
	if err != nil || webhook.Converts != crds.ConvertsByWebhook || webhook.Hash != hash(t, fromyaml.Object(t, small)) {
		t.Errorf("a conversion webhook: %+v, %v", webhook, err)
	}
}

// TestUnreadable checks that the error names the part that cannot be read.
func TestUnreadable(t *testing.T) {
	deep := strings.Repeat(`{"type":"array","items":`, 1000) + "{}" + strings.Repeat("}", 1000)
	listed := strings.Repeat(`{"not":{"anyOf":[`, 400) + "{}" + strings.Repeat("]}}", 400)
	for _, tc := range []struct {
		name string
		crd  *unstructured.Unstructured
		want string
	}{
		{"nothing", &unstructured.Unstructured{}, "it has no spec"},
		{
			"a spec that is none",
			fromyaml.Object(t, "{apiVersion: v1, kind: X, metadata: {name: things.example.com}, spec: [1]}"),
			"things.example.com: it has no spec",
		},
		{"cut off in the names", edited(t, "kind: Thing, ", ""), "its group, scope, kind or plural name is missing"},
		{"no group", edited(t, "group: example.com", "group: 7"), "group, scope, kind or plural"},
		{"cut off before the versions", cutOff(t, "  versions:"), "it has no versions"},
		{"versions that are none", edited(t, "  versions:\n", "  versions: {}\n  others:\n"), "it has no versions"},
		{"a version that is none", edited(t, "  versions:\n", "  versions:\n  - 7\n"), "spec.versions[0]: it is not an object"},
		{
			"cut off in a version", cutOff(t, "    schema: {openAPIV3Schema"),
			"spec.versions[1]: its name, served, storage or schema is missing",
		},
		{
			"served is not a boolean", edited(t, "served: true", `served: "true"`),
			"spec.versions[0]: its name, served, storage or schema is missing",
		},
		{"two versions of a name", edited(t, "name: v1beta1", "name: v1"), "spec.versions[1]: the version v1 is listed twice"},
		{
			"a bottomless schema", edited(t, "{openAPIV3Schema: {type: object}}", "{openAPIV3Schema: "+deep+"}"),
			"spec.versions[1]: its schema is nested more than 200 levels deep",
		},
		{
			"a bottomless rule", edited(t, "{openAPIV3Schema: {type: object}}", "{openAPIV3Schema: "+listed+"}"),
			"nested more than 200 levels deep",
		},
		{
			"stored versions that are none", fromyaml.Object(t, small+"status: {storedVersions: v1}"),
			"its status.storedVersions is not a list",
		},
		{
			"a stored version that is none", fromyaml.Object(t, small+"status: {storedVersions: [v1, 7]}"),
			"its status.storedVersions[1] is not a text",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := crds.DefinitionOf(tc.crd)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, want one that says %q", err, tc.want)
			}
			if _, err := crds.Compare(tc.crd, fromyaml.Object(t, small)); err == nil ||
				!strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "installed") {
				t.Errorf("compared as what is installed, the error is %v", err)
			}
			if _, err := crds.Compare(fromyaml.Object(t, small), tc.crd); err == nil && !strings.Contains(tc.want, "storedVersions") {
				t.Error("compared as what is wanted, there is no error")
			}
		})
	}
}

// TestACyclicSchema checks that a cyclic schema does not crash the process. Such a schema cannot come
// from JSON.
func TestACyclicSchema(t *testing.T) {
	crd := fromyaml.Object(t, small)
	versions, _ := crd.Object["spec"].(map[string]any)["versions"].([]any)
	schema, _ := versions[1].(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
	schema["items"] = schema
	if _, err := crds.DefinitionOf(crd); err == nil || !strings.Contains(err.Error(), "nested") {
		t.Errorf("the error is %v", err)
	}
}

// TestSameHash checks that the hash ignores everything that clients do not notice, and everything that the API server
// fills in or omits.
func TestSameHash(t *testing.T) {
	for name, crd := range map[string]*unstructured.Unstructured{
		"another description":    edited(t, "A thing.", "Something else."),
		"no description":         edited(t, "description: A thing.", ""),
		"a title and an example": edited(t, "description: A thing.", "title: Thing\n        example: {a: 1}"),
		"names that are filled in": edited(
			t, "shortNames: [th]", "shortNames: [th], singular: thing, listKind: ThingList, categories: []",
		),
		"the conversion": edited(t, "scope: Namespaced", "scope: Namespaced\n  conversion: {strategy: None}"),
		"labels":         edited(t, "metadata: {", "metadata: {labels: {a: b}, annotations: {c: d}, "),
		"printer columns": edited(
			t, "subresources:",
			"additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]\n    subresources:",
		),
		"a deprecation": edited(t, "subresources:", "deprecated: true\n    deprecationWarning: Use v2.\n    subresources:"),
		"the status":    fromyaml.Object(t, small+"status: {storedVersions: [v1]}"),
		"what all objects have": edited(
			t, "properties:\n          spec:",
			"properties:\n          apiVersion: {type: string, description: x}\n          kind: {type: "+
				"string}\n          metadata: {type: object}\n          spec:",
		),
		"a minimum that is float":   edited(t, "minimum: 1,", "minimum: 1.0,"),
		"a maximum as it is stored": edited(t, "9223372036854775807", "9223372036854775808"),
		"what is left out": edited(
			t, "type: string, enum",
			"type: string, nullable: false, pattern: '', properties: {}, required: [], allOf: null, enum",
		),
		"empty subresources":        edited(t, "served: false", "served: false\n    subresources: {}"),
		"the order of the versions": reversed(t, edited(t)),
	} {
		if diff := cmp.Diff(hash(t, edited(t)), hash(t, crd)); diff != "" {
			t.Errorf("%s changes the hash", name)
		}
		if d, err := crds.Compare(edited(t), crd); err != nil || !d.None() {
			t.Errorf("%s makes a difference: %s, %v", name, d, err)
		}
	}
}

func reversed(tb testing.TB, crd *unstructured.Unstructured) *unstructured.Unstructured {
	tb.Helper()
	versions, found, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil || !found {
		tb.Fatal(found, err)
	}
	versions[0], versions[1] = versions[1], versions[0]
	if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
		tb.Fatal(err)
	}
	return crd
}
