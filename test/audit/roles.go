package audit

import (
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Role is a Role, or a ClusterRole if it has no namespace.
type Role struct {
	Name, Namespace string
	Rules           []rbacv1.PolicyRule
}

// RolesOf returns the Roles and ClusterRoles in a list of objects.
func RolesOf(objects []*unstructured.Unstructured) ([]Role, error) {
	var out []Role
	for _, u := range objects {
		if u.GetKind() != "Role" && u.GetKind() != "ClusterRole" {
			continue
		}
		var r rbacv1.Role // a ClusterRole has the same fields and one more, which is not needed here
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &r); err != nil {
			return nil, fmt.Errorf("reading %s %s: %w", u.GetKind(), u.GetName(), err)
		}
		out = append(out, Role{Name: r.Name, Namespace: r.Namespace, Rules: r.Rules})
	}
	return out, nil
}

// Permission is the smallest part of a rule.
type Permission struct {
	// Namespace is where the permission applies. Empty means everywhere.
	Namespace, Group, Resource, Verb string
	// Name is the object to which the permission applies. Empty means any.
	Name string
}

// String returns the permission in one line.
func (p Permission) String() string {
	return fmt.Sprintf("%s %s.%s %s/%s", p.Verb, p.Resource, p.Group, p.Namespace, p.Name)
}

// Permissions splits the rules of roles into permissions.
func Permissions(roles []Role) []Permission {
	var out []Permission
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
							out = append(out, Permission{r.Namespace, group, resource, verb, name})
						}
					}
				}
			}
		}
	}
	return out
}

// Lines returns permissions as one line each, sorted and without duplicates.
func Lines(permissions []Permission) []string {
	out := make([]string, 0, len(permissions))
	for _, p := range permissions {
		out = append(out, p.String())
	}
	slices.Sort(out)
	return slices.Compact(out)
}
