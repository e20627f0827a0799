package integration_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/test/audit"
	"github.com/hypergate/hypergate/test/cluster/planes"
	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/deploy"
	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/hang"
	"github.com/hypergate/hypergate/test/hypershift"
)

// checkComponent checks that the objects which HyperShift's framework renders from deploy/cpo are valid, and that the
// control plane operator can create them. It returns the objects.
func checkComponent(t *testing.T, own *planes.Pair) []*unstructured.Unstructured {
	t.Helper()
	addition := operatorAddition(t)
	component, err := hypershift.HypergateByRoute() // with all permissions of either form
	if err != nil {
		t.Fatal(err)
	}
	objects, err := component.Render(hypershift.ControlPlane{Namespace: deployedMgmtNamespace})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("cpo", func(t *testing.T) {
		serveRoutesOn(t, own.Mgmt.Config)
		if err := deploy.Apply(t.Context(), own.Mgmt.Config, objects, metav1.DryRunAll); err != nil {
			t.Error(err)
		}
		for _, u := range objects {
			if u.GetNamespace() != deployedMgmtNamespace {
				t.Errorf("%s %s is in namespace %q", u.GetKind(), u.GetName(), u.GetNamespace())
			}
		}
		for _, r := range rolesOf(t, objects) {
			refuseBroad(t, r)
		}
		checkOperatorGrants(t, own.Mgmt.Config, objects, addition)
	})
	return append(slices.Clone(objects), addition)
}

// operatorAddition returns the rules that deploy/cpo adds to the control plane operator's Role.
func operatorAddition(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(deployDir, "cpo", "control-plane-operator-role.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(data, &u.Object); err != nil {
		t.Fatal(err)
	}
	u.SetNamespace(deployedMgmtNamespace)
	return u
}

// checkOperatorGrants checks that a real API server lets the control plane operator create hypergate's Role if, and
// only if, its own Role has the rules of deploy/cpo. Each of these rules must be necessary.
func checkOperatorGrants(t *testing.T, admin *rest.Config, objects []*unstructured.Unstructured, addition *unstructured.Unstructured) {
	t.Helper()
	user := deploy.UserOf(deployedMgmtNamespace, "control-plane-operator")
	as := rest.CopyConfig(admin)
	as.Impersonate = rest.ImpersonationConfig{UserName: user}
	roles := slices.DeleteFunc(slices.Clone(objects), func(u *unstructured.Unstructured) bool { return u.GetKind() != "Role" })
	create := func() error { return deploy.Apply(t.Context(), as, roles, metav1.DryRunAll) }

	var added rbacv1.Role
	convert(t, addition, &added)
	own := rbacv1.Role{
		TypeMeta: added.TypeMeta, ObjectMeta: metav1.ObjectMeta{Name: added.Name, Namespace: added.Namespace},
		Rules: hypershift.OperatorRules(),
	}
	binding := rbacv1.RoleBinding{
		TypeMeta: metav1.TypeMeta{APIVersion: own.APIVersion, Kind: "RoleBinding"}, ObjectMeta: own.ObjectMeta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: own.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: own.Name, Namespace: own.Namespace}},
	}
	apply := func(objects ...any) {
		t.Helper()
		for _, o := range objects {
			u := unstructuredOf(t, o)
			if err := deploy.Apply(t.Context(), admin, []*unstructured.Unstructured{u}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = deploy.Delete(context.Background(), admin, []*unstructured.Unstructured{u}) })
		}
	}
	apply(&own, &binding)
	takesEffect := func(role rbacv1.Role, rules []rbacv1.PolicyRule, allowed bool) {
		t.Helper()
		permissions := audit.Permissions([]audit.Role{{Name: role.Name, Namespace: role.Namespace, Rules: rules}})
		if err := deploy.TakesEffect(t.Context(), admin, user, permissions, allowed); err != nil {
			t.Fatal(err)
		}
	}
	takesEffect(own, []rbacv1.PolicyRule{
		{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles"}, Verbs: []string{"create", "patch"}},
	}, true)
	if err := create(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "namespaces") ||
		!strings.Contains(err.Error(), "networkpolicies") {
		t.Errorf("without the addition: %v", err)
	}
	for i := range added.Rules { // with all but one of them
		with, others := own, slices.Concat(added.Rules[:i], added.Rules[i+1:])
		with.Rules = slices.Concat(own.Rules, others)
		apply(&with)
		takesEffect(own, others, true)
		takesEffect(own, added.Rules[i:i+1], false)
		if err := create(); err == nil || strings.Count(err.Error(), "APIGroups") != 1 {
			t.Errorf("without %v: %v", added.Rules[i], err)
		}
	}
	own.Rules = append(own.Rules, added.Rules...)
	apply(&own)
	takesEffect(own, added.Rules, true)
	if err := create(); err != nil {
		t.Errorf("with the addition: %v", err)
	}
}

func unstructuredOf(t *testing.T, o any) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	return u
}

// serveRoutesOn installs OpenShift's own CRD of Routes on a cluster until the end of the test.
func serveRoutesOn(t *testing.T, config *rest.Config) {
	t.Helper()
	g := hang.Gomega(t)
	dir, err := servers.ModuleDir(t.Context(), ".", "github.com/openshift/api")
	g.Expect(err).NotTo(gomega.HaveOccurred())
	data, err := os.ReadFile(filepath.Join(dir, "route", "v1", "zz_generated.crd-manifests", "routes.crd.yaml"))
	g.Expect(err).NotTo(gomega.HaveOccurred())
	crd := fromyaml.Object(t, data)
	client := dynamic.NewForConfigOrDie(config)
	_, err = client.Resource(crdResource).Create(t.Context(), crd, metav1.CreateOptions{})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(func() {
		g.Expect(client.Resource(crdResource).Delete(context.Background(), crd.GetName(), metav1.DeleteOptions{})).To(gomega.Succeed())
	})
	routes := crdResource
	routes.Group, routes.Resource = "route.openshift.io", "routes"
	g.Eventually(func() error {
		_, err := client.Resource(routes).List(t.Context(), metav1.ListOptions{})
		return err
	}).Should(gomega.Succeed())
}
