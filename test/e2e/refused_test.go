package e2e_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/test/audit"
	"github.com/hypergate/hypergate/test/world"
)

// auditDelay is how long an API server may take to write what it has answered.
const auditDelay = 5 * time.Second

// nobodyRefused: with the accounts and roles of deploy/, neither hypergate nor istiod ever asks for what it may not have.
func nobodyRefused(t *teller) {
	var refused []string
	for _, side := range t.sides() {
		requests, err := audit.Read(t.AuditLog(side), t.MgmtUser(), t.GuestUser(), t.IstiodUser())
		t.Expect(err).NotTo(gomega.HaveOccurred())
		for _, user := range []string{t.MgmtUser(), t.GuestUser()} {
			// Hosted, each of hypergate's accounts is known on its own side alone.
			if t.Topology == desired.TopologyStandalone || (user == t.MgmtUser()) == (side == desired.SideMgmt) {
				t.Expect(requests).To(gomega.ContainElement(gomega.HaveField("User", user)), "the audit log shows who asks")
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

// sides are those with a log of their own.
func (t *teller) sides() []desired.Side {
	if t.Topology == desired.TopologyStandalone {
		return []desired.Side{desired.SideGuest}
	}
	return []desired.Side{desired.SideMgmt, desired.SideGuest}
}

// provoked says whether a request came in a story that gets such requests refused.
func (t *teller) provoked(r audit.Request) bool {
	return slices.ContainsFunc(t.told, func(s told) bool {
		return s.spans(r) && slices.ContainsFunc(s.provokes, func(p refusal) bool { return p.whose(t.World) == r.User })
	})
}

// during is the story in which a request came.
func (t *teller) during(r audit.Request) string {
	for _, s := range t.told {
		if s.spans(r) {
			return s.name
		}
	}
	return "between two stories"
}

func (s told) spans(r audit.Request) bool { return !r.At.Before(s.from) && !r.At.After(s.to) }

// istiodUsesAll: what istiod is granted and never uses in all these stories should not be granted, unless it is a special case.
func istiodUsesAll(t *teller) {
	if slices.ContainsFunc(t.told, func(s told) bool { return !s.ran }) {
		t.Skip("only all stories together use all: run without -run")
	}
	t.Expect(t.granted).NotTo(gomega.BeEmpty())
	all := audit.Permissions(t.granted)
	for _, c := range specialCases() {
		t.Expect(slices.ContainsFunc(all, c.is)).To(gomega.BeTrue(), "nothing like this is granted: take it from the list: %+v", c)
	}
	t.Eventually(func() []string {
		requests, err := audit.Read(t.AuditLog(desired.SideGuest), t.IstiodUser())
		t.Expect(err).NotTo(gomega.HaveOccurred())
		unused := audit.Unused(t.granted, requests, audit.Request.Used)
		return audit.Lines(slices.DeleteFunc(unused, func(p audit.Permission) bool {
			return slices.ContainsFunc(specialCases(), func(c specialCase) bool { return c.is(p) })
		}))
	}, auditDelay).Should(gomega.BeEmpty(), "istiod's permissions that no story needs")
}

// specialCase are permissions that istiod has no use for in these stories.
type specialCase struct {
	// Empty is any.
	verb, resource string
	// why they are kept.
	why string
}

func (c specialCase) is(p audit.Permission) bool {
	return (c.verb == "" || c.verb == p.Verb) && (c.resource == "" || c.resource == p.Resource)
}

func specialCases() []specialCase {
	return []specialCase{
		{"list", "", "an API server that streams no lists is asked for them"},
		{"", "tlsroutes", "the CRD is not in the Gateway API's standard channel: where a user has it, istiod reads them"},
		{"", "leases", "for the elections of two istiods; one holds none"},
		{"get", "configmaps", "for one of those elections, and for roots that are there already"},
		{"create", "subjectaccessreviews", "asked when a proxy wants the certificate of a listener: may it read the Secret?"},
	}
}

// istiodRoles are what hypergate grants istiod in the guest.
func (t *teller) istiodRoles() []audit.Role {
	t.Helper()
	name := "istiod-" + world.Revision
	cluster, err := t.GuestClient.RbacV1().ClusterRoles().Get(t.ctx, name, metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	namespaced, err := t.GuestClient.RbacV1().Roles(world.GuestNamespace).Get(t.ctx, name, metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	return []audit.Role{{Name: name, Rules: cluster.Rules}, {Name: name, Namespace: namespaced.Namespace, Rules: namespaced.Rules}}
}
