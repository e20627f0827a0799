package integration_test

import (
	"github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// guestPolicy is an admission policy of the guest. A request that it matches and that does not satisfy its validation
// is denied.
type guestPolicy struct {
	name       string
	operations []admissionregistrationv1.OperationType
	rule       admissionregistrationv1.Rule
	conditions []admissionregistrationv1.MatchCondition
	validation admissionregistrationv1.Validation
}

// enforce creates a policy in the guest, and its binding. It takes a moment until it is in force. The returned function
// removes both.
func (w *harness) enforce(p guestPolicy) (remove func()) {
	w.Helper()
	policies := w.guest.AdmissionregistrationV1()
	_, err := policies.ValidatingAdmissionPolicies().Create(w.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: p.name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{Operations: p.operations, Rule: p.rule},
			}}},
			MatchConditions: p.conditions,
			Validations:     []admissionregistrationv1.Validation{p.validation},
		},
	}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = policies.ValidatingAdmissionPolicyBindings().Create(w.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: p.name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: p.name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	return func() {
		w.Expect(policies.ValidatingAdmissionPolicyBindings().Delete(w.Context(), p.name, metav1.DeleteOptions{})).To(gomega.Succeed())
		w.Expect(policies.ValidatingAdmissionPolicies().Delete(w.Context(), p.name, metav1.DeleteOptions{})).To(gomega.Succeed())
	}
}
