package adversary

import (
	"slices"
	"testing"
)

// Mgmt returns the API server of the management side, with an empty namespace.
func Mgmt(tb testing.TB, namespace string) *Server {
	tb.Helper()
	s := serving(tb, [][3]string{
		{"v1", "namespaces", "Namespace"},
		{"v1", "serviceaccounts", "ServiceAccount"},
		{"v1", "secrets", "Secret"},
		{"v1", "configmaps", "ConfigMap"},
		{"v1", "services", "Service"},
		{"apps/v1", "deployments", "Deployment"},
		{"networking.k8s.io/v1", "networkpolicies", "NetworkPolicy"},
		{"coordination.k8s.io/v1", "leases", "Lease"},
		{"hypershift.openshift.io/v1beta1", "hostedcontrolplanes", "HostedControlPlane"},
	})
	s.Put("v1", "namespaces", "{metadata: {name: "+namespace+", uid: mgmt-ns-uid}}")
	return s
}

// Guest returns the API server of a guest without any objects but the namespace kube-system, which identifies it.
func Guest(tb testing.TB) *Server {
	tb.Helper()
	s := serving(tb, [][3]string{
		{"v1", "namespaces", "Namespace"},
		{"v1", "serviceaccounts", "ServiceAccount"},
		{"v1", "configmaps", "ConfigMap"},
		{"v1", "services", "Service"},
		{"apps/v1", "deployments", "Deployment"},
		{"apps/v1", "statefulsets", "StatefulSet"},
		{"policy/v1", "poddisruptionbudgets", "PodDisruptionBudget"},
		{"networking.k8s.io/v1", "networkpolicies", "NetworkPolicy"},
		{"rbac.authorization.k8s.io/v1", "clusterroles", "ClusterRole"},
		{"rbac.authorization.k8s.io/v1", "clusterrolebindings", "ClusterRoleBinding"},
		{"rbac.authorization.k8s.io/v1", "roles", "Role"},
		{"rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding"},
		{"admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration"},
		{"admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration"},
		{"admissionregistration.k8s.io/v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy"},
		{"admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"},
		{"apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition"},
		{"coordination.k8s.io/v1", "leases", "Lease"},
		{"gateway.networking.k8s.io/v1", "gatewayclasses", "GatewayClass"},
		{"gateway.networking.k8s.io/v1", "gateways", "Gateway"},
		{"networking.istio.io/v1", "destinationrules", "DestinationRule"},
	})
	s.Put("v1", "namespaces", "{metadata: {name: kube-system, uid: guest-uid}}")
	return s
}

func serving(tb testing.TB, kinds [][3]string) *Server {
	tb.Helper()
	s := New(tb)
	for _, kind := range kinds {
		s.Serve(kind[0], kind[1], kind[2])
	}
	return s
}

// HostedControlPlane returns the YAML of a HostedControlPlane for Put. spec adds fields to its spec, for example ",
// pausedUntil: 'true'".
func HostedControlPlane(namespace, spec string) string {
	return "{metadata: {namespace: " + namespace + ", name: guest1, uid: hcp-uid}, " +
		"spec: {controllerAvailabilityPolicy: SingleReplica, clusterID: abc, releaseImage: x" + spec + "}, status: {conditions: []}}"
}

// GatewayClass returns the YAML of a GatewayClass for Put.
func GatewayClass(name, controller string) string {
	return "{metadata: {name: " + name + ", generation: 1}, spec: {controllerName: " + controller + "}}"
}

// WebhookFailsClosed reports whether the guest has istiod's webhook of revision rev with failurePolicy Fail. This is
// the last write of an installation.
func WebhookFailsClosed(guest *Server) bool {
	o := guest.Get("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", "", "hypergate-validator-rev")
	hooks, _ := o["webhooks"].([]any)
	return len(hooks) > 0 && !slices.ContainsFunc(hooks, func(hook any) bool {
		fields, _ := hook.(map[string]any)
		return fields["failurePolicy"] != "Fail"
	})
}
