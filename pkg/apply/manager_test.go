package apply

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestConflictingFieldManager(t *testing.T) {
	t.Parallel()
	const us = "hypergate"
	entry := func(who, fields string, second int64, subresource string) metav1.ManagedFieldsEntry {
		operation := metav1.ManagedFieldsOperationUpdate
		if who == us {
			operation = metav1.ManagedFieldsOperationApply
		}
		now := metav1.Unix(second, 0)
		return metav1.ManagedFieldsEntry{
			Manager: who, Operation: operation, Time: &now, Subresource: subresource, FieldsV1: metav1.NewFieldsV1(fields),
		}
	}
	ours := entry(us, `{"f:data":{"f:key":{}}}`, 10, "")
	for name, test := range map[string]struct {
		entries []metav1.ManagedFieldsEntry
		want    string
	}{
		"no manager":          {nil, ""},
		"we alone":            {[]metav1.ManagedFieldsEntry{ours}, ""},
		"a manager before us": {[]metav1.ManagedFieldsEntry{entry("he", `{"f:spec":{}}`, 9, ""), ours}, ""},
		"a manager after us": {
			[]metav1.ManagedFieldsEntry{
				ours, entry("he", `{"f:metadata":{"f:labels":{"f:a":{}}},"f:spec":{"f:versions":{}}}`, 11, ""),
			},
			"he (spec.versions)",
		},
		"in the metadata alone": {
			[]metav1.ManagedFieldsEntry{ours, entry("he", `{"f:metadata":{"f:labels":{".":{},"f:a":{}}}}`, 11, "")},
			"he (metadata.labels.a)",
		},
		"in a list": {
			[]metav1.ManagedFieldsEntry{ours, entry("he", `{"f:webhooks":{"k:{\"name\":\"x\"}":{"f:url":{}}}}`, 11, "")},
			"he (webhooks)",
		},
		"the last of two": {
			[]metav1.ManagedFieldsEntry{ours, entry("he", `{"f:a":{}}`, 11, ""), entry("she", `{"f:b":{}}`, 12, "")},
			"she (b)",
		},
		"who took all that was ours": {[]metav1.ManagedFieldsEntry{entry("he", `{"f:a":{}}`, 11, "")}, "he (a)"},
		"the status":                 {[]metav1.ManagedFieldsEntry{ours, entry("he", `{"f:status":{}}`, 11, "status")}, ""},
		"unknown fields":             {[]metav1.ManagedFieldsEntry{ours, entry("he", `x`, 11, "")}, "he"},
	} {
		if got := otherManager(us, test.entries); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
