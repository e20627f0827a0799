package hypershift

import rbacv1 "k8s.io/api/rbac/v1"

// OperatorRules returns the permissions of the control plane operator in a control plane's namespace, as far as they
// concern hypergate. The operator can grant only these permissions. They are all rules about these API groups in its
// Role (control-plane-operator/controllers/hostedcontrolplane/v2/assets/control-plane-operator/role.yaml, as of
// August 2026).
func OperatorRules() []rbacv1.PolicyRule {
	all := []string{rbacv1.VerbAll}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"hypershift.openshift.io", "route.openshift.io"}, Resources: all, Verbs: all},
		{APIGroups: []string{""}, Resources: []string{
			"events", "configmaps", "configmaps/finalizers", "persistentvolumeclaims", "pods", "pods/log", "secrets", "nodes",
			"serviceaccounts", "services", "endpoints",
		}, Verbs: all},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments", "replicasets", "statefulsets"}, Verbs: all},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: all},
		{
			APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"roles", "rolebindings"},
			Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"},
		},
	}
}
