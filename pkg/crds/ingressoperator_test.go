package crds_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/crds"
)

// TestTheIngressOperatorTakesOver checks a CRD of hypergate that the ingress operator overwrites, for example after
// an upgrade of the cluster added that operator. The ingress operator owns the CRD until hypergate gets consent to
// take it over.
func TestTheIngressOperatorTakesOver(t *testing.T) {
	us := crds.Identity{LabelKey: "owner", LabelValue: "us", FieldManager: "hypergate"}
	entry := func(manager string, operation metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	versions, label := `{"f:spec":{"f:versions":{}}}`, `{"f:metadata":{"f:labels":{"f:owner":{}}}}`
	for _, test := range []struct {
		name   string
		fields []metav1.ManagedFieldsEntry
		want   crds.OwnerKind
	}{
		{"ours", []metav1.ManagedFieldsEntry{entry("hypergate", metav1.ManagedFieldsOperationApply, versions)}, crds.Ours},
		{"the ingress operator wrote over it", []metav1.ManagedFieldsEntry{
			entry("hypergate", metav1.ManagedFieldsOperationApply, label),
			entry("ingress-operator", metav1.ManagedFieldsOperationUpdate, versions),
		}, crds.IngressOperator},
		{"both wrote the same", []metav1.ManagedFieldsEntry{
			entry("hypergate", metav1.ManagedFieldsOperationApply, versions),
			entry("ingress-operator", metav1.ManagedFieldsOperationUpdate, versions),
		}, crds.Ours},
		{"anybody else did", []metav1.ManagedFieldsEntry{
			entry("hypergate", metav1.ManagedFieldsOperationApply, label), entry("kubectl", metav1.ManagedFieldsOperationUpdate, versions),
		}, crds.Ours},
	} {
		marks := crds.MetadataOf(
			&metav1.ObjectMeta{
				Name: "gateways.gateway.networking.k8s.io", Labels: map[string]string{"owner": "us"},
				ManagedFields: test.fields,
			},
			us,
		)
		if got := crds.OwnerOf(marks, nil).Kind; got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}
