package desired

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hypergate/hypergate/pkg/model"
)

// These tests check the content of the policy. TestCRDPolicy in test/integration checks its effect on an API server.

func policyConfig() model.Config {
	return model.Config{
		Topology: model.TopologyHosted, MgmtNamespace: "clusters-guest1", GuestNamespace: "openshift-ingress",
		Revision: "openshift-gateway",
	}
}

// crdPolicyOf returns the policy and its binding as typed objects. A field that the API does not have is an error.
func crdPolicyOf(t *testing.T, protected, writers []string) (
	policy admissionregistrationv1.ValidatingAdmissionPolicy, binding admissionregistrationv1.ValidatingAdmissionPolicyBinding,
) {
	t.Helper()
	objects := crdPolicy(policyConfig(), protected, writers)
	if len(objects) != 2 {
		t.Fatalf("%d objects, want a policy and a binding", len(objects))
	}
	for i, into := range []any{&policy, &binding} {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(objects[i].Object, into, true); err != nil {
			t.Fatal(err)
		}
	}
	return policy, binding
}

func TestCRDPolicyWithoutCRDs(t *testing.T) {
	if got := crdPolicy(policyConfig(), nil, []string{"other-user"}); got != nil {
		t.Errorf("there is nothing to protect, and yet %v", got)
	}
}

func TestCRDPolicyIsForTheGuest(t *testing.T) {
	cfg := policyConfig()
	for _, u := range crdPolicy(cfg, []string{"a.example.com"}, nil) {
		o, err := model.NewGuestObject(u, cfg)
		if err != nil {
			t.Error(err)
		}
		if model.HoldsRoots(o.GVK()) {
			t.Errorf("%s would hold up a rotation of the CA", o)
		}
		if _, err := model.NewMgmtObject(u, cfg); err == nil {
			t.Errorf("%s is accepted on the management side", o)
		}
	}
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		if !model.HoldsRoots(admissionregistrationv1.SchemeGroupVersion.WithKind(kind)) {
			t.Errorf("a rotation of the CA does not wait for a %s", kind)
		}
	}
	cfg.Revision = strings.Repeat("r", validation.LabelValueMaxLength)
	if problems := validation.IsDNS1123Subdomain(CRDPolicyName(cfg)); len(problems) > 0 {
		t.Errorf("%s: %v", CRDPolicyName(cfg), problems)
	}
}

// TestCRDPolicyMatches checks which requests the policy applies to. It cannot block any other request.
func TestCRDPolicyMatches(t *testing.T) {
	protected := []string{"a.example.com", "b.example.com"}
	policy, binding := crdPolicyOf(t, protected, nil)
	rule := func(operation admissionregistrationv1.OperationType, names ...string) admissionregistrationv1.NamedRuleWithOperations {
		scope := admissionregistrationv1.ClusterScope
		out := admissionregistrationv1.NamedRuleWithOperations{ResourceNames: names}
		out.RuleWithOperations = admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{operation},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{"apiextensions.k8s.io"}, APIVersions: []string{"v1"}, Resources: []string{"customresourcedefinitions"},
				Scope: &scope,
			},
		}
		return out
	}
	match := policy.Spec.MatchConstraints
	rules := []admissionregistrationv1.NamedRuleWithOperations{rule("UPDATE", protected...), rule("DELETE")}
	if diff := cmp.Diff(rules, match.ResourceRules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{model.OwnerLabel: "openshift-gateway.guest"}, match.ObjectSelector.MatchLabels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if policy.Spec.ParamKind != nil || len(policy.Spec.Validations) != 1 || *policy.Spec.FailurePolicy != admissionregistrationv1.Fail {
		t.Errorf("want one validation without parameters, and failure policy Fail, got %+v", policy.Spec)
	}
	want := admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: policy.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
	}
	if diff := cmp.Diff(want, binding.Spec); diff != "" || binding.Name != CRDPolicyName(policyConfig()) {
		t.Errorf("binding %s (-want +got):\n%s", binding.Name, diff)
	}
}

// TestCRDWriters checks that every policy allows the platform's writers and the configured ones. Their order does not
// change the policy.
func TestCRDWriters(t *testing.T) {
	platform := PlatformCRDWriters()
	if !slices.IsSorted(platform) || len(slices.Compact(platform)) != len(PlatformCRDWriters()) {
		t.Errorf("not sorted, or twice: %q", PlatformCRDWriters())
	}
	given := []string{"z", platform[1], "a", "z"}
	want := "request.userInfo.username in ['a', '" + strings.Join(platform, "', '") + "', 'z'] ||"
	policy, _ := crdPolicyOf(t, []string{"a.example.com"}, given)
	if expression := policy.Spec.Validations[0].Expression; !strings.Contains(expression, want) {
		t.Errorf("want %s in\n%s", want, expression)
	}
	if diff := cmp.Diff([]string{"z", platform[1], "a", "z"}, given); diff != "" {
		t.Errorf("the list that was given was changed:\n%s", diff)
	}
	same := crdPolicy(policyConfig(), []string{"a.example.com"}, []string{"a", "z"})
	byContent := cmp.Comparer(func(a, b *unstructured.Unstructured) bool { return cmp.Equal(a.Object, b.Object) })
	if diff := cmp.Diff(same, crdPolicy(policyConfig(), []string{"a.example.com"}, given), byContent); diff != "" {
		t.Errorf("the order of writers makes another policy:\n%s", diff)
	}
	// The policy must check only names of users: a hosted cluster's ingress operator has no pod in the guest that a
	// token could be bound to.
	if expression := policy.Spec.Validations[0].Expression; strings.Contains(expression, "userInfo.extra") {
		t.Errorf("more than a name is asked of a user:\n%s", expression)
	}
}

func TestQuoteCEL(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "''",
		"system:admin":          "'system:admin'",
		`o'neil`:                `'o\'neil'`,
		`a\' || true || '`:      `'a\\\' || true || \''`,
		"two\nlines\r":          `'two\nlines\r'`,
		`"double" {{template}}`: `'"double" {{template}}'`,
	} {
		if got := quoteCEL(text); got != want {
			t.Errorf("%q becomes %s, want %s", text, got, want)
		}
	}
}
