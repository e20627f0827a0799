package integration_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/hypergate/hypergate/pkg/desired"
)

// grantsRole is the name of the roles that hypergate has only to hand them on to istiod.
const grantsRole = "hypergate-guest-grants"

// role is a Role, or a ClusterRole when it has no namespace.
type role struct {
	Name, Namespace string
	Rules           []rbacv1.PolicyRule
}

func rolesOf(t *testing.T, objects []*unstructured.Unstructured) []role {
	t.Helper()
	var out []role
	for _, u := range objects {
		if u.GetKind() == "Role" || u.GetKind() == "ClusterRole" {
			r := rbacv1.Role{}
			convert(t, u, &r)
			out = append(out, role{Name: r.Name, Namespace: r.Namespace, Rules: r.Rules})
		}
	}
	return out
}

// permission is the smallest part of a rule.
type permission struct {
	// Namespace is where it holds; empty is everywhere.
	Namespace, Group, Resource, Verb string
	// Name is the one object that it is about; empty is any.
	Name string
}

// String is the permission in one line.
func (p permission) String() string {
	return fmt.Sprintf("%s %s.%s %s/%s", p.Verb, p.Resource, p.Group, p.Namespace, p.Name)
}

// permissionsOf takes rules apart, sorted and each once.
func permissionsOf(roles []role) []string {
	var out []string
	for _, p := range permissions(roles) {
		out = append(out, p.String())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func permissions(roles []role) []permission {
	var out []permission
	for _, r := range roles {
		for _, rule := range r.Rules {
			names := rule.ResourceNames
			if len(names) == 0 {
				names = []string{""}
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						for _, name := range names {
							out = append(out, permission{r.Namespace, group, resource, verb, name})
						}
					}
				}
			}
		}
	}
	return out
}

// request is one line of an audit log.
type request struct {
	Verb, Namespace, Group, Resource, Subresource, Name string
	Code                                                int32
}

func (r request) resource() string {
	if r.Subresource == "" {
		return r.Resource
	}
	return r.Resource + "/" + r.Subresource
}

// verbs are what the request needed to be allowed. A server-side apply that makes an object needs the verb create beside patch (apiserver
// pkg/endpoints/handlers/patch.go); the log tells it by the code 201.
func (r request) verbs() []string {
	if r.Verb == "patch" && r.Code == http.StatusCreated {
		return []string{"patch", "create"}
	}
	return []string{r.Verb}
}

func (r request) refused() bool {
	return r.Code == http.StatusForbidden || r.Code == http.StatusUnauthorized
}

// needs says whether the request needed the permission. One that holds everywhere is needed only by a request about everywhere: for one about a
// namespace, a Role would do.
func (r request) needs(p permission) bool {
	return !r.refused() && slices.Contains(r.verbs(), p.Verb) && r.Group == p.Group && r.resource() == p.Resource &&
		r.Namespace == p.Namespace && (p.Name == "" || p.Name == r.Name)
}

// unused are the permissions that no request needed.
func unused(roles []role, requests []request) []string {
	var out []string
	for _, p := range permissions(roles) {
		if !slices.ContainsFunc(requests, func(r request) bool { return r.needs(p) }) {
			out = append(out, p.String())
		}
	}
	return out
}

// beyond are the requests that the roles do not allow: refused ones, and ones that some other role allowed.
func beyond(roles []role, requests []request) []string {
	given := permissions(roles)
	var out []string
	for _, r := range requests {
		for _, verb := range r.verbs() {
			allowed := slices.ContainsFunc(given, func(p permission) bool {
				return p.Verb == verb && p.Group == r.Group && p.Resource == r.resource() &&
					(p.Namespace == "" || p.Namespace == r.Namespace) && (p.Name == "" || p.Name == r.Name)
			})
			if r.refused() || !allowed {
				out = append(out, r.String())
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// String is the request in one line.
func (r request) String() string {
	return fmt.Sprintf("%d: %s %s.%s %s/%s", r.Code, r.Verb, r.resource(), r.Group, r.Namespace, r.Name)
}

// requestsOf are a user's requests so far.
func requestsOf(t *testing.T, log, user string) []request {
	t.Helper()
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	complete := data[:bytes.LastIndexByte(data, '\n')+1] // the API server may be writing the next line
	var out []request
	for line := range bytes.Lines(complete) {
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		if e.User.Username != user || e.ObjectRef == nil || e.ResponseStatus == nil {
			continue
		}
		o := e.ObjectRef
		out = append(out, request{e.Verb, o.Namespace, o.APIGroup, o.Resource, o.Subresource, o.Name, e.ResponseStatus.Code})
	}
	return out
}

// istiodRoles are what hypergate grants istiod in the guest.
func (d *deployed) istiodRoles() []role {
	d.Helper()
	cluster, err := d.guest.RbacV1().ClusterRoles().Get(d.Context(), d.cfg.IstiodName(), metav1.GetOptions{})
	d.Expect(err).NotTo(gomega.HaveOccurred())
	namespaced, err := d.guest.RbacV1().Roles(d.cfg.GuestNamespace).Get(d.Context(), d.cfg.IstiodName(), metav1.GetOptions{})
	d.Expect(err).NotTo(gomega.HaveOccurred())
	return []role{{Name: cluster.Name, Rules: cluster.Rules}, {Name: namespaced.Name, Namespace: namespaced.Namespace, Rules: namespaced.Rules}}
}

// checkGrants: hypergate holds what it grants istiod, because it must, and in those roles no more.
func (d *deployed) checkGrants(granted []role) {
	d.Helper()
	var held []role
	for _, r := range d.roles[desired.SideGuest] {
		if r.Name == grantsRole {
			held = append(held, r)
		}
	}
	if diff := cmp.Diff(permissionsOf(granted), permissionsOf(held)); diff != "" {
		d.Errorf("role %s differs from what istiod is granted (-istiod's +%s's):\n%s", grantsRole, grantsRole, diff)
	}
}

// checkAudit: each permission of hypergate's was needed, and no request needed more.
func (d *deployed) checkAudit() {
	d.Helper()
	if d.cfg.Topology == desired.TopologyStandalone {
		d.checkUse("", append(d.roles[desired.SideMgmt], d.roles[desired.SideGuest]...), desired.SideGuest)
		return
	}
	d.checkUse("management side: ", d.roles[desired.SideMgmt], desired.SideMgmt)
	d.checkUse("guest: ", d.roles[desired.SideGuest], desired.SideGuest)
}

func (d *deployed) checkUse(where string, roles []role, side desired.Side) {
	d.Helper()
	var own []role
	for _, r := range roles {
		if r.Name != grantsRole {
			own = append(own, r)
		}
	}
	d.Expect(own).NotTo(gomega.BeEmpty())
	// The log's last lines may come a moment after the answers.
	d.Eventually(func() []string { return unused(own, requestsOf(d.T, d.logs[side], d.users[side])) }, "5s").
		Should(gomega.BeEmpty(), where+"permissions that hypergate did without")
	d.Expect(beyond(own, requestsOf(d.T, d.logs[side], d.users[side]))).To(gomega.BeEmpty(), where+"requests beyond hypergate's own roles")
}
