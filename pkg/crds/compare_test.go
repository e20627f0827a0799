package crds_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/test/fromyaml"
)

// v1 returns fields of version v1.
func v1(paths ...string) []crds.Field {
	out := make([]crds.Field, 0, len(paths))
	for _, path := range paths {
		out = append(out, crds.Field{Path: path, Versions: []string{"v1"}})
	}
	return out
}

// differenceCase is an edited CRD, and how it differs from small.
type differenceCase struct {
	name   string
	wanted *unstructured.Unstructured
	want   crds.Difference
}

// TestCompareFields compares small (installed) with edited copies of it (wanted), in both directions: fields.
func TestCompareFields(t *testing.T) {
	const mode = "mode: {type: string, enum: [A, B], default: A}"
	checkDifferences(t, []differenceCase{
		{"nothing", edited(t), crds.Difference{}},
		{
			"a new field",
			edited(t, mode, mode+"\n              auth: {type: object, properties: {token: {type: string}}}"),
			crds.Difference{Gained: v1("spec.auth")},
		},
		{"a field less", edited(t, mode, ""), crds.Difference{Lost: v1("spec.mode")}},
		{
			"a field less in a list", edited(t, "properties: {name: {type: string}}", "x-kubernetes-map-type: atomic"),
			crds.Difference{Lost: v1("spec.parts[].name"), Changed: v1("spec.parts[]")},
		},
		{
			"a field less in a map", edited(t, "properties: {value: {type: string}}", "properties: {values: {type: string}}"),
			crds.Difference{Lost: v1("spec.labels{}.value"), Gained: v1("spec.labels{}.values")},
		},
		{
			"a list of anything",
			edited(t, "items: {type: object, properties: {name: {type: string}}}", "description: x"),
			crds.Difference{Lost: v1("spec.parts[]")},
		},
		{"another enum", edited(t, "[A, B]", "[A, B, C]"), crds.Difference{Changed: v1("spec.mode")}},
		{"another default", edited(t, "default: A", "default: B"), crds.Difference{Changed: v1("spec.mode")}},
		{"no default", edited(t, ", default: A", ""), crds.Difference{Changed: v1("spec.mode")}},
		{"an empty default", edited(t, "default: A", "default: ''"), crds.Difference{Changed: v1("spec.mode")}},
		{"another type", edited(t, "size: {type: integer", "size: {type: number"), crds.Difference{Changed: v1("spec.size")}},
		{"no longer required", edited(t, "required: [size]", ""), crds.Difference{Changed: v1("spec")}},
		{
			"nothing is kept below a field any more", edited(t, ", x-kubernetes-preserve-unknown-fields: true", ""),
			crds.Difference{Lost: v1("spec.raw")},
		},
		{
			"a field where anything was kept",
			edited(
				t, "x-kubernetes-preserve-unknown-fields: true",
				"x-kubernetes-preserve-unknown-fields: true, properties: {a: {type: string}}",
			),
			crds.Difference{Changed: v1("spec.raw.a")},
		},
		{
			"everything is kept",
			edited(t, "scope: Namespaced", "scope: Namespaced\n  preserveUnknownFields: true"),
			crds.Difference{Gained: v1(""), Other: []string{"v1beta1, which is not served"}},
		},
		{
			"any keys",
			edited(t, "additionalProperties: {type: object, properties: {value: {type: string}}}", "additionalProperties: true"),
			crds.Difference{Lost: v1("spec.labels{}.value"), Changed: v1("spec.labels{}")},
		},
	})
}

// TestCompareVersions compares as TestCompareFields does: versions, names, and schemas that are invalid.
func TestCompareVersions(t *testing.T) {
	const mode = "mode: {type: string, enum: [A, B], default: A}"
	checkDifferences(t, []differenceCase{
		{
			"a new version",
			edited(
				t, "  - name: v1beta1",
				"  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}\n  - name: v1beta1",
			),
			crds.Difference{Gained: []crds.Field{{Versions: []string{"v2"}}}},
		},
		{
			"a version that is served now", edited(t, "served: false", "served: true"),
			crds.Difference{Gained: []crds.Field{{Versions: []string{"v1beta1"}}}},
		},
		{
			"a version that is not served any more", edited(t, "served: true", "served: false"),
			crds.Difference{Lost: []crds.Field{{Versions: []string{"v1"}}}},
		},
		{
			"a version less that was not served", cutOff(t, "  - name: v1beta1"),
			crds.Difference{Other: []string{"v1beta1, which is not served"}},
		},
		{
			"another schema of what is not served",
			edited(t, "{openAPIV3Schema: {type: object}}", "{openAPIV3Schema: {type: object, properties: {a: {type: string}}}}"),
			crds.Difference{Other: []string{"v1beta1, which is not served"}},
		},
		{
			"stored in another version",
			edited(t, "storage: true", "storage: false", "storage: false", "storage: true"),
			crds.Difference{Other: []string{"storage version"}},
		},
		{"no subresource", edited(t, "subresources: {status: {}}", ""), crds.Difference{Other: []string{"status subresource of v1"}}},
		{
			"selectable fields",
			edited(t, "subresources:", "selectableFields: [{jsonPath: .spec.mode}]\n    subresources:"),
			crds.Difference{Other: []string{"selectable fields of v1"}},
		},
		{"no short name", edited(t, ", shortNames: [th]", ""), crds.Difference{Other: []string{"names"}}},
		{
			"a name that objects have anyway",
			edited(
				t, "          spec:\n",
				"          metadata: {type: object, properties: {name: {type: string, maxLength: 9}}}\n          spec:\n",
			),
			crds.Difference{Changed: v1("metadata")},
		},
		{"a property without a schema", edited(t, mode, "mode: false"), crds.Difference{Lost: v1("spec.mode"), Changed: v1("spec")}},
		{
			"items without a schema", edited(t, "items: {type: object, properties: {name: {type: string}}}", "items: [{type: string}]"),
			crds.Difference{Lost: v1("spec.parts[]"), Changed: v1("spec.parts")},
		},
		{
			"odd names",
			edited(
				t, mode,
				mode+
					"\n              a.b: {type: string}\n              '[]': {type: string}\n              "+
					"'x{}': {type: string}\n              '': {type: string}\n              \"q\\\"\": {type: "+
					"string}",
			),
			crds.Difference{Gained: v1(`spec.""`, `spec.\[]`, `spec.a\.b`, `spec.q\"`, `spec.x\{}`)},
		},
	})
}

func checkDifferences(t *testing.T, cases []differenceCase) {
	t.Helper()
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			got := compare(t, edited(t), tc.wanted)
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if same := hash(t, edited(t)) == hash(t, tc.wanted); same != got.None() {
				t.Errorf("one hash: %v, no difference: %v", same, got.None())
			}
			back := tc.want
			back.Lost, back.Gained = back.Gained, back.Lost
			if diff := cmp.Diff(back, compare(t, tc.wanted, edited(t)), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the other way round, -want +got:\n%s", diff)
			}
		})
	}
}

func compare(tb testing.TB, installed, wanted *unstructured.Unstructured) crds.Difference {
	tb.Helper()
	d, err := crds.Compare(installed, wanted)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// TestMeaningfulEmptyValuesAreKept checks that empty values with a meaning are not omitted.
func TestMeaningfulEmptyValuesAreKept(t *testing.T) {
	without := edited(t, ", enum: [A, B], default: A", "")
	for _, rule := range []string{
		"default: ''", "default: false", "default: {}", "default: []", "default: 0", "items: {}",
		"additionalProperties: {}", "additionalProperties: false", "not: {}", "minLength: 0",
	} {
		with := edited(t, "enum: [A, B], default: A", rule)
		if compare(t, without, with).None() || hash(t, without) == hash(t, with) {
			t.Errorf("%s makes no difference", rule)
		}
	}
}

// TestCompareStoredVersionsAndFixedFields checks the results that have no opposite direction.
func TestCompareStoredVersionsAndFixedFields(t *testing.T) {
	stored := fromyaml.Object(t, small+"status: {storedVersions: [v1beta1, v1, v1alpha1]}")
	if diff := cmp.Diff([]string{"v1alpha1"}, compare(t, stored, edited(t)).Unkept); diff != "" {
		t.Errorf("versions that are stored and not there, -want +got:\n%s", diff)
	}
	if d := compare(t, stored, edited(t)); !d.None() || (crds.Fact{Content: crds.Read, Difference: d}).Same() {
		t.Errorf("missing stored versions must be no difference, and yet not be the same: %+v", d)
	}
	without := cutOff(t, "  - name: v1beta1")
	if diff := cmp.Diff([]string{"v1alpha1", "v1beta1"}, compare(t, stored, without).Unkept); diff != "" {
		t.Errorf("versions that are stored and not there, -want +got:\n%s", diff)
	}
	want := []string{"its kind is Thing, but hypergate's is Thong", "its scope is Namespaced, but hypergate's is Cluster"}
	if diff := cmp.Diff(want, compare(t, edited(t), edited(t, "kind: Thing,", "kind: Thong,", "Namespaced", "Cluster")).Fixed); diff != "" {
		t.Errorf("what no update can change, -want +got:\n%s", diff)
	}
	relic := edited(t, "scope: Namespaced", "scope: Namespaced\n  preserveUnknownFields: true", "{openAPIV3Schema: {type: object}}", "{}")
	if _, err := crds.DefinitionOf(relic); err != nil {
		t.Errorf("a CRD of v1beta1 that has no schema cannot be read: %v", err)
	}
}

// TestDifferencesNameSecurityFieldsFirst checks that fields that can restrict access are named first, and that all are
// sorted by path.
func TestDifferencesNameSecurityFieldsFirst(t *testing.T) {
	more := "mode: {type: string, enum: [A, B], default: A}"
	wanted := edited(
		t, more,
		"aa: {type: string}\n              zz: {type: object, properties: {}}\n              "+
			"clientCertificate: {type: string}\n              Filters: {type: string}",
	)
	if diff := cmp.Diff(
		v1("spec.Filters", "spec.clientCertificate", "spec.aa", "spec.zz"), compare(t, edited(t), wanted).Gained,
	); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestDifferenceString(t *testing.T) {
	for _, tc := range []struct {
		difference crds.Difference
		want       string
	}{
		{crds.Difference{}, "no difference"},
		{
			crds.Difference{Lost: v1("spec.a"), Gained: v1("spec.b"), Changed: v1("", "spec.c", "spec.d", "spec.e", "spec.f")},
			"it also has: spec.a (v1); it lacks: spec.b (v1); it has other rules for: all of v1, spec.c (v1), spec.d (v1), and 2 more",
		},
		{
			crds.Difference{Other: []string{"names", "storage version"}, Unkept: []string{"v1alpha1"}},
			"it differs in names and in storage version; it can have objects stored in v1alpha1",
		},
		{
			crds.Difference{Fixed: []string{"its scope is Cluster, but hypergate's is Namespaced"}, Lost: v1("spec.a")},
			"its scope is Cluster, but hypergate's is Namespaced; it also has: spec.a (v1)",
		},
	} {
		if got := tc.difference.String(); got != tc.want {
			t.Errorf("%+v has the text\n%s, want\n%s", tc.difference, got, tc.want)
		}
	}
}

// TestALargeDifferenceIsAnError checks the limits of the number of fields and of the bytes in their paths. A guest's
// admin can write a CRD with a megabyte of fields.
func TestALargeDifferenceIsAnError(t *testing.T) {
	const mode = "mode: {type: string, enum: [A, B], default: A}"
	for name, tc := range map[string]struct {
		fields, length int
		want           string
	}{
		"as many fields as are kept": {2000, 10, ""},
		"one more":                   {2001, 10, "differs in 2001 fields and versions, and hypergate compares at most 2000"},
		"long names":                 {1000, 240, ""},
		"longer ones":                {1000, 280, "and hypergate compares at most 262144"},
	} {
		t.Run(name, func(t *testing.T) {
			var text strings.Builder
			text.WriteString(mode)
			for i := range tc.fields {
				fmt.Fprintf(&text, "\n              %0*d: {type: string}", tc.length, i)
			}
			installed, wanted := edited(t, mode, strings.ReplaceAll(text.String(), " 0", " x0")), edited(t)
			d, err := crds.Compare(installed, wanted)
			if tc.want == "" {
				if err != nil || len(d.Lost) != tc.fields {
					t.Errorf("%d fields would be lost, want %d: %v", len(d.Lost), tc.fields, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q in it", err, tc.want)
			}
		})
	}
}
