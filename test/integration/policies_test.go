package integration_test

import (
	"github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/test/cluster/servers"
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

// guestMutation is a mutating admission policy of the guest. It applies an expression to each updated object that it
// matches.
type guestMutation struct {
	name       string
	rule       admissionregistrationv1.Rule
	conditions []admissionregistrationv1.MatchCondition
	expression string
}

// mutate creates a mutating policy in the guest, and its binding. It takes a moment until it is in force. The returned
// function removes both. Kubernetes 1.36 is the first version that serves such policies as v1. A story that needs one
// is skipped with an older guest.
func (w *harness) mutate(m guestMutation) (remove func()) {
	w.Helper()
	if servers.HasOlderGuest() {
		w.Skip("the older guest has no MutatingAdmissionPolicies")
	}
	policies := w.guest.AdmissionregistrationV1()
	_, err := policies.MutatingAdmissionPolicies().Create(w.Context(), &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: m.name},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update}, Rule: m.rule,
				},
			}}},
			MatchConditions: m.conditions,
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: m.expression},
			}},
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
		},
	}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = policies.MutatingAdmissionPolicyBindings().Create(w.Context(), &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: m.name},
		Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: m.name},
	}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	return func() {
		w.Expect(policies.MutatingAdmissionPolicyBindings().Delete(w.Context(), m.name, metav1.DeleteOptions{})).To(gomega.Succeed())
		w.Expect(policies.MutatingAdmissionPolicies().Delete(w.Context(), m.name, metav1.DeleteOptions{})).To(gomega.Succeed())
	}
}
