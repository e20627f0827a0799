package e2e_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/audit"
	"github.com/hypergate/hypergate/test/world"
)

// auditDelay is the maximum delay between an API server's answer and its audit log.
const auditDelay = 5 * time.Second

// nothingForbidden checks that with the accounts and roles of deploy/, no request of hypergate or istiod is refused.
func nothingForbidden(t *fixture) {
	var refused []string
	for _, side := range t.sides() {
		requests, err := audit.Read(t.AuditLog(side), t.MgmtUser(), t.GuestUser(), t.IstiodUser())
		t.Expect(err).NotTo(gomega.HaveOccurred())
		for _, user := range []string{t.MgmtUser(), t.GuestUser()} {
			// In the hosted topology, each of hypergate's accounts exists only on its own side.
			if t.Topology == model.TopologyStandalone || (user == t.MgmtUser()) == (side == model.SideMgmt) {
				t.Expect(requests).To(gomega.ContainElement(gomega.HaveField("User", user)), "the audit log contains the users")
			}
		}
		for _, r := range requests {
			if r.Forbidden() && !t.provoked(r) {
				refused = append(refused, fmt.Sprintf("%s side, %s, in %q: %s", side, r.User, t.during(r), r))
			}
		}
	}
	t.Expect(refused).To(gomega.BeEmpty())
}

// sides returns the sides with separate audit logs.
func (t *fixture) sides() []model.Side {
	if t.Topology == model.TopologyStandalone {
		return []model.Side{model.SideGuest}
	}
	return []model.Side{model.SideMgmt, model.SideGuest}
}

// provoked reports whether a request occurred in a story that provokes such refusals.
func (t *fixture) provoked(r audit.Request) bool {
	return slices.ContainsFunc(t.finished, func(s finished) bool {
		return s.spans(r) && slices.ContainsFunc(s.provokes, func(p refusal) bool { return p.whose(t.World) == r.User })
	})
}

// during returns the name of the story in which a request occurred.
func (t *fixture) during(r audit.Request) string {
	for _, s := range t.finished {
		if s.spans(r) {
			return s.name
		}
	}
	return "between two stories"
}

func (s finished) spans(r audit.Request) bool { return !r.At.Before(s.from) && !r.At.After(s.to) }

// istiodUsesAll checks that the stories use all of istiod's permissions. An unused permission should not be granted,
// unless it is a special case.
func istiodUsesAll(t *fixture) {
	if slices.ContainsFunc(t.finished, func(s finished) bool { return !s.ran }) {
		t.Skip("only all stories together use all: run without -run")
	}
	t.Expect(t.granted).NotTo(gomega.BeEmpty())
	all := audit.Permissions(t.granted)
	for _, c := range specialCases() {
		t.Expect(slices.ContainsFunc(all, c.is)).To(gomega.BeTrue(), "nothing like this is granted: take it from the list: %+v", c)
	}
	t.Eventually(func() []string {
		requests, err := audit.Read(t.AuditLog(model.SideGuest), t.IstiodUser())
		t.Expect(err).NotTo(gomega.HaveOccurred())
		unused := audit.Unused(t.granted, requests, audit.Request.Used)
		return audit.Lines(slices.DeleteFunc(unused, func(p audit.Permission) bool {
			return slices.ContainsFunc(specialCases(), func(c specialCase) bool { return c.is(p) })
		}))
	}, auditDelay).Should(gomega.BeEmpty(), "istiod's permissions that no story needs")
}

// specialCase describes permissions that istiod does not use in these stories.
type specialCase struct {
	// Empty means any.
	verb, resource string
	// why is the reason to keep the permissions.
	why string
}

func (c specialCase) is(p audit.Permission) bool {
	return (c.verb == "" || c.verb == p.Verb) && (c.resource == "" || c.resource == p.Resource)
}

func specialCases() []specialCase {
	return []specialCase{
		{"list", "", "an API server that streams no lists is asked for them"},
		{"", "tlsroutes", "the CRD is not in the Gateway API's standard channel: where a user has it, istiod reads them"},
		{"", "inferencepools", "the guest has no InferencePools: see test/parity"},
		{"", "inferencepools/status", "the same"},
		{"", "leases", "for the elections of two istiods; one holds none"},
		{"get", "configmaps", "for one of those elections, and for roots that are there already"},
		{"create", "subjectaccessreviews", "asked when a proxy wants the certificate of a listener: may it read the Secret?"},
	}
}

// istiodRoles returns the roles that hypergate grants to istiod in the guest.
func (t *fixture) istiodRoles() []audit.Role {
	t.Helper()
	name := world.GuestIstiod
	cluster, err := t.GuestClient.RbacV1().ClusterRoles().Get(t.ctx, name, metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	namespaced, err := t.GuestClient.RbacV1().Roles(world.GuestNamespace).Get(t.ctx, name, metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	return []audit.Role{{Name: name, Rules: cluster.Rules}, {Name: name, Namespace: namespaced.Namespace, Rules: namespaced.Rules}}
}
