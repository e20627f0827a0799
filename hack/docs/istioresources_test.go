package docs

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/pkg/model"
)

// TestEachIstioResourceHasItsPermissions checks that the manifests permit what hypergate does with each kind that
// --istio-resources can name, and that the page names it: to install its CRD, to let istiod read it, and to find its
// objects while istiod does not read it.
func TestEachIstioResourceHasItsPermissions(t *testing.T) {
	t.Parallel()
	served, searched := clusterRole(t, "deploy/istio-resources/clusterrole.yaml"), clusterRole(t, "deploy/rbac/guest/lookups.yaml")
	page := read(t, filepath.Join(root, "docs/reference/settings.md"))
	const definitions = "customresourcedefinitions"
	for _, r := range model.KnownIstioResources() {
		for _, verb := range []string{"get", "create", "patch"} {
			if !permits(served, verb, "apiextensions.k8s.io", definitions, r.CRD()) {
				t.Errorf("deploy/istio-resources does not permit to %s the CRD %s", verb, r.CRD())
			}
		}
		for _, verb := range []string{"list", "watch"} {
			if !permits(served, verb, r.Group, r.Resource, "") {
				t.Errorf("deploy/istio-resources does not permit to %s %s", verb, r.CRD())
			}
			if !permits(searched, verb, r.Group, r.Resource, "") {
				t.Errorf("deploy/rbac/guest/lookups.yaml does not permit to %s %s", verb, r.CRD())
			}
		}
		if !strings.Contains(page, "`"+r.Resource+"`") {
			t.Errorf("docs/reference/settings.md does not name %s", r.Resource)
		}
	}
	resources := 0
	for _, rule := range served {
		resources += len(rule.Resources) + len(rule.ResourceNames)
	}
	if want := 2*len(model.KnownIstioResources()) + 1; resources != want {
		t.Errorf("deploy/istio-resources has %d resources and names, want %d", resources, want)
	}
}

// clusterRole returns the rules of the ClusterRole in a file.
func clusterRole(t *testing.T, file string) []rbacv1.PolicyRule {
	t.Helper()
	first, _, _ := strings.Cut(read(t, filepath.Join(root, file)), "\n---\n")
	var role rbacv1.ClusterRole
	if err := yaml.UnmarshalStrict([]byte(first), &role); err != nil {
		t.Fatal(err)
	}
	return role.Rules
}

func permits(rules []rbacv1.PolicyRule, verb, group, resource, name string) bool {
	return slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.Verbs, verb) && slices.Contains(rule.APIGroups, group) && slices.Contains(rule.Resources, resource) &&
			(name == "" || slices.Contains(rule.ResourceNames, name))
	})
}
