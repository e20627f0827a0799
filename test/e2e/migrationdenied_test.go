package e2e_test

import (
	"fmt"
	"time"

	"github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/test/origin"
)

// writesDenied denies a write of each direction by a policy of the guest: the release of the Gateway that moves last,
// and then the replicas of the origin. The migration reports the cause, and continues when the policy is gone.
func writesDenied(t *migrationTest) {
	t.addTwo()
	m := t.moving()
	last := t.small[len(t.small)-1]
	allow := t.deny(noRelease, gatewayUpdates(),
		fmt.Sprintf(`object.metadata.name == %q && %s && !(%s)`, last.name, isHeld("oldObject"), isHeld("object")))
	m.request("start")
	m.isDenied(last.String(), noRelease)
	t.Expect(t.deployedBy(m.XDS().String())).To(gomega.HaveLen(len(t.gateways())-1), "the other Gateways have moved")
	t.Expect(t.heldEverywhere()).To(gomega.HaveLen(len(t.gateways())), "those that have moved are held again until all have")
	allow()
	m.parks(migration.WriteDenied)

	allow = t.deny(noReplicas, admissionregistrationv1.Rule{
		APIGroups: []string{"apps"}, APIVersions: []string{"*"}, Resources: []string{"deployments"},
	}, fmt.Sprintf(`object.metadata.name == %q && oldObject.spec.replicas == 0 && object.spec.replicas > 0`, origin.Deployment))
	m.request("rollback")
	m.isDenied(origin.Deployment, noReplicas)
	m.allAt(m.XDS().String())
	allow()
	m.returned(migration.WriteDenied)
	m.arrives()
}

// gatewayUpdates are the requests that policies of holds are about.
func gatewayUpdates() admissionregistrationv1.Rule {
	return admissionregistrationv1.Rule{
		APIGroups: []string{"gateway.networking.k8s.io"}, APIVersions: []string{"*"}, Resources: []string{"gateways"},
	}
}

// isHeld returns the expression of a policy that reports whether a Gateway is held.
func isHeld(object string) string {
	return fmt.Sprintf(`(has(%[1]s.metadata.annotations) && %[2]q in %[1]s.metadata.annotations)`, object, model.HoldAnnotation)
}

// deny creates a policy of the guest, which denies updates for which a condition is true. It must be in force before
// hypergate sends such an update. The returned function removes it.
func (t *migrationTest) deny(name string, rule admissionregistrationv1.Rule, condition string) (allow func()) {
	t.Helper()
	policies := t.GuestClient.AdmissionregistrationV1()
	_, err := policies.ValidatingAdmissionPolicies().Create(t.ctx, &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update}, Rule: rule,
				},
			}}},
			Validations: []admissionregistrationv1.Validation{{Expression: "!(" + condition + ")", Message: "a change freeze"}},
		},
	}, metav1.CreateOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = policies.ValidatingAdmissionPolicyBindings().Create(t.ctx, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, metav1.CreateOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	return func() {
		t.Helper()
		t.Expect(policies.ValidatingAdmissionPolicyBindings().Delete(t.ctx, name, metav1.DeleteOptions{})).To(gomega.Succeed())
		t.Expect(policies.ValidatingAdmissionPolicies().Delete(t.ctx, name, metav1.DeleteOptions{})).To(gomega.Succeed())
	}
}

// denyHoldOfEdge denies the hold of the first Gateway, so that the phase Hold lasts until it is allowed.
func (t *migrationTest) denyHoldOfEdge() (allow func()) {
	t.Helper()
	return t.deny(noHold, gatewayUpdates(), fmt.Sprintf(
		`object.metadata.name == %q && !(%s) && %s`, trafficGateway, isHeld("oldObject"), isHeld("object")))
}

// The names of the policies.
const noHold, noRelease, noReplicas = "e2e-no-hold", "e2e-no-release", "e2e-no-replicas"

// isDenied waits until the migration reports that the guest denies a write to an object. It stays so while the policy
// is in force, and conditions and the command have its name.
func (m *move) isDenied(object, policy string) {
	m.Helper()
	m.until("a write to "+object+" is denied", func(r migration.Record) bool {
		return r.Report.IsFor(r.Intent) && r.Report.Why == migration.WriteDenied
	}, migration.WriteDenied)
	m.afterwards(20 * time.Second)
	last, _ := m.seen.last()
	r := last.record.Report
	m.Expect(r.Why).To(gomega.Equal(migration.WriteDenied), "%+v", r)
	m.Expect(r.Cause).To(gomega.And(gomega.ContainSubstring(object), gomega.ContainSubstring(policy)))
	m.Eventually(func() string { return m.condition(status.MigrationCondition).Message }).Should(gomega.ContainSubstring(policy))
	m.Logf("%s: %s", status.MigrationCondition, m.condition(status.MigrationCondition).Message)
	code, out := m.command("status")
	m.Log("\n" + out)
	m.Expect(code).To(gomega.Equal(2), out)
	m.Expect(out).To(gomega.ContainSubstring(policy))
}
