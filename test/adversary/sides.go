package adversary

import (
	"encoding/base64"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
		{"v1", "pods", "Pod"},
		{"apps/v1", "deployments", "Deployment"},
		{"apps/v1", "replicasets", "ReplicaSet"},
		{"apps/v1", "statefulsets", "StatefulSet"},
		{"authorization.k8s.io/v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview"},
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

// Gateway returns the YAML of a Gateway for Put. metadata adds fields to its metadata.
func Gateway(namespace, name, class, metadata string) string {
	return "{metadata: {namespace: " + namespace + ", name: " + name + ", uid: uid-of-" + name + metadata + "}, " +
		"spec: {gatewayClassName: " + class + ", listeners: [{name: http, port: 80, protocol: HTTP}]}, " +
		"status: {conditions: [{type: Programmed, status: 'True', reason: Programmed}], listeners: [{name: http, attachedRoutes: 1}]}}"
}

// GatewayDeployment returns the YAML of the Deployment that an istiod makes for such a Gateway. Its pods are ready.
// address and root are those of the istiod: host:port, and the ConfigMap with its roots.
func GatewayDeployment(namespace, gateway, class, address, root string) string {
	return "{metadata: {namespace: " + namespace + ", name: " + gateway + "-" + class + ", generation: 1, " +
		"labels: {gateway.networking.k8s.io/gateway-name: " + gateway + "}, " +
		"ownerReferences: [{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, " +
		"name: " + gateway + ", uid: uid-of-" + gateway + "}]}, " +
		"spec: {replicas: 1, template: {spec: {containers: [{name: istio-proxy, env: [{name: CA_ADDR, value: '" + address + "'}]}], " +
		"volumes: [{name: istiod-ca-cert, configMap: {name: " + root + "}}]}}}, " +
		"status: {observedGeneration: 1, replicas: 1, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1}}"
}

// PutOrigin gives a guest an istiod of its own, in a namespace, which has deployed the Gateway shop/web of the class
// demo. deployment is the name of its Deployment, and address where its gateways find it.
func PutOrigin(g *Server, namespace, deployment, address string) {
	g.Put("apps/v1", "deployments", "{metadata: {namespace: "+namespace+", name: "+deployment+", generation: 1, "+
		"labels: {app.kubernetes.io/managed-by: Helm, app.kubernetes.io/version: 1.29.0}}, "+
		"spec: {replicas: 1, template: {spec: {containers: [{name: discovery, image: 'registry.example.com/pilot:1.29.0'}]}}}, "+
		"status: {observedGeneration: 1, replicas: 1, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1}}")
	g.Put("v1", "pods", "{metadata: {namespace: "+namespace+", name: origin-1, labels: {app: istiod, istio.io/rev: rev}}}")
	g.Put("coordination.k8s.io/v1", "leases", "{metadata: {namespace: "+namespace+", name: istio-gateway-deployment-rev}, "+
		"spec: {holderIdentity: origin-1}}")
	g.Put("gateway.networking.k8s.io/v1", "gateways", Gateway("shop", "web", "demo", ""))
	g.Put("apps/v1", "deployments", GatewayDeployment("shop", "web", "demo", address, "openshift-gw-ca-root-cert"))
}

// SecretData returns the content of a Secret. It is empty if the Secret does not exist.
func SecretData(of *Server, namespace, name string) map[string][]byte {
	data, _, _ := unstructured.NestedStringMap(of.Get("v1", "secrets", namespace, name), "data")
	out := map[string][]byte{}
	for key, value := range data {
		out[key], _ = base64.StdEncoding.DecodeString(value)
	}
	return out
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
