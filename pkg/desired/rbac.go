package desired

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
)

// istiodRBAC returns istiod's roles and bindings in the guest. They are the smallest set of rules with which istiod
// 1.29 becomes ready and serves Gateways. The set was found by removing the chart's rules one by one: without any one
// of these reads, istiod never becomes ready.
//
// istiod must list the Secrets of all namespaces, because a Gateway can name a Secret in any namespace. It writes no
// Secret.
func istiodRBAC(cfg model.Config) []*unstructured.Unstructured {
	name := cfg.GuestIstiodName()
	subjects := []any{map[string]any{"kind": "ServiceAccount", "name": name, "namespace": cfg.GuestNamespace}}
	role := func(kind, namespace string, rules []any) *unstructured.Unstructured {
		return rbacObject(kind, name, namespace, map[string]any{"rules": rules})
	}
	binding := func(kind, roleKind, namespace string) *unstructured.Unstructured {
		return rbacObject(kind, name, namespace, map[string]any{
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": roleKind, "name": name},
			"subjects": subjects,
		})
	}
	return []*unstructured.Unstructured{
		role("ClusterRole", "", istiodClusterRules(cfg.SortedIstioResources())),
		binding("ClusterRoleBinding", "ClusterRole", ""),
		role("Role", cfg.GuestNamespace, []any{
			// Leader election. The cluster-wide rule for ConfigMaps covers istiod's elections that still use
			// ConfigMaps.
			rule("coordination.k8s.io", []string{"leases"}, "get", "create", "update"),
		}),
		binding("RoleBinding", "Role", cfg.GuestNamespace),
	}
}

func istiodClusterRules(istio []model.IstioResource) []any {
	read := []string{"list", "watch"}
	gateway := "gateway.networking.k8s.io"
	rules := []any{
		rule("", []string{"pods", "nodes", "services", "namespaces", "configmaps", "secrets", "serviceaccounts"}, read...),
		// istiod writes the CA's root into a ConfigMap of every namespace, because a gateway can run in any namespace.
		rule("", []string{"configmaps"}, "get", "create", "update"),
		rule("discovery.k8s.io", []string{"endpointslices"}, read...),
		rule("apiextensions.k8s.io", []string{"customresourcedefinitions"}, read...),
		rule("admissionregistration.k8s.io", []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}, read...),
		rule("networking.k8s.io", []string{"ingresses"}, read...),
		rule(gateway, []string{
			"gatewayclasses", "gateways", "httproutes", "grpcroutes", "tlsroutes", "backendtlspolicies", "referencegrants",
		}, read...),
		rule(gateway, []string{
			"gatewayclasses/status", "gateways/status", "httproutes/status", "grpcroutes/status", "backendtlspolicies/status",
		}, "update"),
		// istiod records on a Gateway which istiod deployed it.
		rule(gateway, []string{"gateways/status"}, "patch"),
		// InferencePools, if the guest has them. istiod makes a Service of each one.
		rule("inference.networking.k8s.io", []string{"inferencepools"}, read...),
		rule("inference.networking.k8s.io", []string{"inferencepools/status"}, "update"),
		rule("authentication.k8s.io", []string{"tokenreviews"}, "create"),
		rule("authorization.k8s.io", []string{"subjectaccessreviews"}, "create"),
		// The gateways that istiod deploys. The garbage collector deletes them, because they have owner references.
		rule("apps", []string{"deployments"}, "list", "watch", "create", "patch"),
		rule("autoscaling", []string{"horizontalpodautoscalers"}, "list", "watch", "create", "patch"),
		rule("policy", []string{"poddisruptionbudgets"}, "list", "watch", "create", "patch"),
		rule("", []string{"services", "serviceaccounts"}, "create", "patch"),
	}
	return slices.Concat(rules, istioRules(istio, read))
}

// istioRules returns rules that allow istiod to read the Istio resources that it serves.
func istioRules(istio []model.IstioResource, read []string) []any {
	rules := make([]any, 0, len(istio))
	for _, r := range istio {
		rules = append(rules, rule(r.Group, []string{r.Resource}, read...))
	}
	return rules
}

func rule(group string, resources []string, verbs ...string) any {
	return map[string]any{"apiGroups": []any{group}, "resources": allOf(resources), "verbs": allOf(verbs)}
}

func allOf(in []string) []any {
	out := make([]any, len(in))
	for i, s := range in {
		out[i] = s
	}
	return out
}

func rbacObject(kind, name, namespace string, fields map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: fields}
	u.SetAPIVersion("rbac.authorization.k8s.io/v1")
	u.SetKind(kind)
	u.SetName(name)
	if namespace != "" {
		u.SetNamespace(namespace)
	}
	return u
}
