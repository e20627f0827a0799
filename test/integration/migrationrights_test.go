package integration_test

import (
	"slices"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

// TestAMigrationLosesItsRights takes the right to patch Gateways away in the phase Hold, and that to patch Deployments
// in the phase Roll, and gives each back. Meanwhile, the migration writes nothing in the guest, and its report has the
// right and the next step.
func TestAMigrationLosesItsRights(t *testing.T) {
	w := newOriginWorld(t)
	user := "migrates-" + w.cfg.Revision
	readOnly := slices.Concat(rulesWithoutPatchOfGateways(), []rbacv1.PolicyRule{{
		APIGroups: []string{"sailoperator.io", "operators.coreos.com", "gateway.networking.x-k8s.io", "config.openshift.io"},
		Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"},
	}})
	all := slices.Concat(readOnly, []rbacv1.PolicyRule{{
		APIGroups: []string{"gateway.networking.k8s.io"}, Resources: []string{"gateways"}, Verbs: []string{"patch"},
	}})
	w.allowInGuest(user, readOnly)
	w.guestConfig = rest.CopyConfig(w.guestConfig)
	w.guestConfig.Impersonate = rest.ImpersonationConfig{UserName: user}
	w.run()

	t.Log("it does not begin without the right to patch Gateways")
	w.request(migration.Forward, "2026-01-01T00:00:00Z")
	w.stopsFor("patch gateways.gateway.networking.k8s.io")
	w.Expect(w.mode()).To(gomega.Equal("none"))
	w.allowInGuest(user, all)
	w.Eventually(w.mode).Should(gomega.Equal("Serving"))

	t.Log("the same once the hosted istiod serves: no Gateway is held")
	w.allowInGuest(user, readOnly)
	w.stopsFor("patch gateways.gateway.networking.k8s.io")
	w.playIstiod(corev1.ConditionTrue)
	w.isReadTwice()
	w.Expect(w.held()).To(gomega.BeEmpty())
	w.Expect(w.mode()).To(gomega.Equal("Serving"))
	w.allowInGuest(user, all)
	w.starts()

	t.Log("without the right to patch Deployments, a Gateway that fails could not get its pods of before")
	w.allowInGuest(user, withoutPatchOfDeployments(all))
	w.stopsFor("patch deployments.apps")
	w.Expect(w.report().Phase).To(gomega.Equal(migration.Roll))
	w.allowInGuest(user, all)
	w.Eventually(w.why).Should(gomega.Equal(migration.GatewayRolling))
}

// isReadTwice waits until a reading of the guest that began after the call has ended. Each reading reads once which
// istiod deploys Gateways. The next reading begins after the pass that uses the one before.
func (w *originWorld) isReadTwice() {
	w.Helper()
	lock := "GET /apis/coordination.k8s.io/v1/namespaces/" + w.cfg.GuestNamespace + "/leases/istio-gateway-deployment-" +
		w.cfg.Revision + "?"
	readings := func() int { return countPrefix(w.guestRequests.since(0), lock) }
	before := readings()
	w.Eventually(readings).Should(gomega.BeNumerically(">=", before+2))
}

// stopsFor waits until the migration has stopped because the guest does not permit something.
func (w *originWorld) stopsFor(what string) {
	w.Helper()
	w.Eventually(func(g gomega.Gomega) {
		r := w.report()
		g.Expect(r.Why).To(gomega.Equal(migration.Blocked))
		g.Expect(r.Findings).To(gomega.ContainElement(gomega.And(
			gomega.HaveField("Code", migration.MissingPermissions), gomega.HaveField("Message", gomega.ContainSubstring(what)),
			gomega.HaveField("NextStep", "apply deploy/rbac/migration in the guest"))))
		g.Expect(w.condition("demo", model.ConditionDomain+"Migration")).To(gomega.HaveField("Message", gomega.ContainSubstring(
			"apply deploy/rbac/migration in the guest")))
	}).Should(gomega.Succeed())
}

// withoutPatchOfDeployments returns the rules with all verbs of Deployments but those that change one.
func withoutPatchOfDeployments(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	out := []rbacv1.PolicyRule{
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"apps"}, Resources: []string{"replicasets"}, Verbs: []string{"*"}},
	}
	for _, rule := range rules {
		rule.APIGroups = slices.DeleteFunc(slices.Clone(rule.APIGroups), func(group string) bool { return group == "apps" })
		out = append(out, rule)
	}
	return out
}
