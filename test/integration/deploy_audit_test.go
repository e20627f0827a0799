package integration_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/audit"
)

// grantsRole is the name of the roles that hypergate has only to grant them to istiod.
const grantsRole = "hypergate-guest-grants"

// lookupsRole is the name of the role that hypergate needs only if the guest has OLM, OpenShift's configuration, or
// CRDs of others.
const lookupsRole = "hypergate-guest-lookups"

// previousNamesRole is the name of the roles that hypergate needs only for an upgrade.
const previousNamesRole = "hypergate-guest-previous-names"

// mgmtPreviousNamesRole is the same on the management side.
const mgmtPreviousNamesRole = "hypergate-management-previous-names"

// gatewayRolloutRole is the name of the role that hypergate needs only to roll gateways one after another.
const gatewayRolloutRole = "hypergate-gateway-rollout"

// budgetRole is the name of the role that hypergate needs only for two istiods.
const budgetRole = "hypergate-disruption-budget"

// tlsProfileRole is the name of the role that hypergate needs only for OpenShift's TLS security profile.
const tlsProfileRole = "hypergate-tls-profile"

// publishRole is the name of the role for the publish strategies. hypergate uses one strategy at a time.
const publishRole = "hypergate-publish"

// tunnelRole is the name of the role for the tunnel's relays, which only one publish strategy has.
const tunnelRole = "hypergate-tunnel"

// role is a Role, or a ClusterRole if it has no namespace.
type role = audit.Role

func rolesOf(t *testing.T, objects []*unstructured.Unstructured) []role {
	t.Helper()
	roles, err := audit.RolesOf(objects)
	if err != nil {
		t.Fatal(err)
	}
	return roles
}

// istiodRoles returns the roles that hypergate grants to istiod in the guest.
func (d *deployed) istiodRoles() []role {
	d.Helper()
	cluster, err := d.guest.RbacV1().ClusterRoles().Get(d.Context(), d.cfg.GuestIstiodName(), metav1.GetOptions{})
	d.Expect(err).NotTo(gomega.HaveOccurred())
	namespaced, err := d.guest.RbacV1().Roles(d.cfg.GuestNamespace).Get(d.Context(), d.cfg.GuestIstiodName(), metav1.GetOptions{})
	d.Expect(err).NotTo(gomega.HaveOccurred())
	return []role{
		{Name: cluster.Name, Rules: cluster.Rules},
		{Name: namespaced.Name, Namespace: namespaced.Namespace, Rules: namespaced.Rules},
	}
}

// checkGrants checks that hypergate's grant roles contain exactly the permissions that it grants to istiod. hypergate
// must hold these to be able to grant them.
func (d *deployed) checkGrants(granted []role) {
	d.Helper()
	var held []role
	for _, r := range d.roles[model.SideGuest] {
		if r.Name == grantsRole {
			held = append(held, r)
		}
	}
	if diff := cmp.Diff(audit.Lines(audit.Permissions(granted)), audit.Lines(audit.Permissions(held))); diff != "" {
		d.Errorf("role %s differs from what istiod is granted (-istiod's +%s's):\n%s", grantsRole, grantsRole, diff)
	}
}

// checkAudit checks that hypergate needed each of its permissions, and that no request needed more.
func (d *deployed) checkAudit() {
	d.Helper()
	if d.cfg.Topology == model.TopologyStandalone {
		d.checkUse("", append(d.roles[model.SideMgmt], d.roles[model.SideGuest]...), model.SideGuest)
		return
	}
	d.checkUse("management side: ", d.roles[model.SideMgmt], model.SideMgmt)
	if d.later {
		d.checkBeyond("guest: ", d.roles[model.SideGuest], model.SideGuest)
		return
	}
	d.checkUse("guest: ", d.roles[model.SideGuest], model.SideGuest)
}

func (d *deployed) checkUse(where string, roles []role, side model.Side) {
	d.Helper()
	sometimes := []string{
		grantsRole, lookupsRole, publishRole, tunnelRole, previousNamesRole, mgmtPreviousNamesRole, gatewayRolloutRole,
		budgetRole, tlsProfileRole,
	}
	always := slices.DeleteFunc(slices.Clone(roles), func(r role) bool { return slices.Contains(sometimes, r.Name) })
	// Each slot has the same permissions. An installation uses one, until its configuration changes.
	slotB := []string{d.cfg.MeshConfigMap(model.SlotB), d.cfg.InjectorConfigMap(model.SlotB)}
	// Only a migration writes to its Lease. The stories of migrations in test/e2e use this permission.
	ofMigration := func(p audit.Permission) bool {
		return p.Name == model.MigrationLeaseName(d.cfg.Revision) && p.Verb == "patch"
	}
	// Only a guest with ListenerSets needs it: TestListenerSetsShowThatTheyAreIgnored.
	ofListenerSets := func(p audit.Permission) bool { return p.Resource == "listenersets/status" }
	// The log's last lines may be written shortly after the answers.
	d.Eventually(func() []string {
		unused := audit.Unused(always, d.requests(side), audit.Request.Needed)
		return audit.Lines(slices.DeleteFunc(unused, func(p audit.Permission) bool {
			return slices.Contains(slotB, p.Name) || ofMigration(p) || ofListenerSets(p)
		}))
	}).
		Should(gomega.BeEmpty(), where+"permissions that hypergate did without")
	d.checkBeyond(where, roles, side)
}

// checkBeyond checks that no request needed more permissions than the roles have.
func (d *deployed) checkBeyond(where string, roles []role, side model.Side) {
	d.Helper()
	own := slices.DeleteFunc(slices.Clone(roles), func(r role) bool { return r.Name == grantsRole })
	d.Expect(own).NotTo(gomega.BeEmpty())
	d.Expect(audit.Beyond(own, d.requests(side))).To(gomega.BeEmpty(), where+"requests beyond hypergate's own roles")
}

// requests returns hypergate's requests on a side.
func (d *deployed) requests(side model.Side) []audit.Request {
	d.Helper()
	read, err := audit.Read(d.logs[side], d.users[side])
	d.Expect(err).NotTo(gomega.HaveOccurred())
	// An earlier test used hypergate's identity to query its permissions. See nothingOutsideItsNamespace.
	return slices.DeleteFunc(read, func(r audit.Request) bool { return r.Resource == "selfsubjectrulesreviews" })
}
