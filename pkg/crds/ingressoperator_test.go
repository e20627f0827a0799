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
	version := `{"f:metadata":{"f:annotations":{"f:gateway.networking.k8s.io/bundle-version":{}}}`
	claim, whole := version+"}", version+`,"f:spec":{"f:versions":{}}}`
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
		{"the ingress operator wrote the version alone", []metav1.ManagedFieldsEntry{
			entry("hypergate", metav1.ManagedFieldsOperationApply, versions),
			entry("ingress-operator", metav1.ManagedFieldsOperationUpdate, claim),
		}, crds.IngressOperator},
		{"both wrote the same version", []metav1.ManagedFieldsEntry{
			entry("hypergate", metav1.ManagedFieldsOperationApply, whole),
			entry("ingress-operator", metav1.ManagedFieldsOperationUpdate, claim),
		}, crds.Ours},
		{"another client wrote the version alone", []metav1.ManagedFieldsEntry{
			entry("hypergate", metav1.ManagedFieldsOperationApply, versions),
			entry("kubectl", metav1.ManagedFieldsOperationUpdate, claim),
		}, crds.Ours},
		{"the ingress operator wrote another annotation", []metav1.ManagedFieldsEntry{
			entry("hypergate", metav1.ManagedFieldsOperationApply, versions),
			entry("ingress-operator", metav1.ManagedFieldsOperationUpdate, `{"f:metadata":{"f:annotations":{"f:note":{}}}}`),
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

// TestACRDThatTheIngressOperatorLacks checks that a missing CRD stays absent beside the ingress operator, unless the
// policy consents. The operator reports itself as degraded while there are CRDs of the Gateway API that it does not
// have.
func TestACRDThatTheIngressOperatorLacks(t *testing.T) {
	theirs := crds.Fact{Owner: crds.Owner{Kind: crds.IngressOperator}, Content: crds.Read}
	for _, test := range []struct {
		name   string
		fact   crds.Fact
		policy crds.Policy
		want   crds.Decision
	}{
		{"it has none", crds.Fact{}, crds.Policy{}, crds.Decision{Verdict: crds.Install, Reason: crds.IsAbsent}},
		{"absent", crds.Fact{}, crds.Policy{LeaveAbsent: true}, crds.Decision{Verdict: crds.Keep, Reason: crds.IsLeftAbsent}},
		{
			"absent, and consent is refused",
			crds.Fact{},
			crds.Policy{LeaveAbsent: true, Consent: crds.Refused},
			crds.Decision{Verdict: crds.Keep, Reason: crds.IsLeftAbsent},
		},
		{
			"absent, with consent",
			crds.Fact{},
			crds.Policy{LeaveAbsent: true, Consent: crds.Given},
			crds.Decision{Verdict: crds.Install, Reason: crds.IsAbsent},
		},
		{
			"absent, and unmanaged",
			crds.Fact{},
			crds.Policy{LeaveAbsent: true, Mode: crds.Unmanaged},
			crds.Decision{Verdict: crds.Keep, Reason: crds.IsUnmanaged},
		},
		{
			"it exists", theirs,
			crds.Policy{LeaveAbsent: true},
			crds.Decision{Verdict: crds.Keep, Reason: crds.IsIdentical},
		},
	} {
		if got := crds.Decide(test.fact, wanted()["gateway-api"], test.policy); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
	left := crds.CRD{Name: routes, Decision: crds.Decision{Verdict: crds.Keep, Reason: crds.IsLeftAbsent}}
	if broken := brokenWords(left); len(broken) > 0 {
		t.Errorf("%q", broken)
	}
}
