package bundle

// scope is where the objects of a kind are.
type scope int

const (
	// ofNamespace are the objects of hypergate's namespace on that side. The zero value is a kind without namespaces.
	ofNamespace scope = iota + 1
	// ofAll are the objects of all namespaces.
	ofAll
)

// Kind is a kind of object of an archive.
type Kind struct {
	group, resource string
	scope           scope
	// selector is a label selector. Empty means all objects.
	selector string
	// prefix is what the names begin with. Empty means all names.
	prefix string
	// metadataOnly leaves out everything except the metadata.
	metadataOnly bool
}

const (
	gatewayGroup = "gateway.networking.k8s.io"
	istioGroup   = "networking.istio.io"
	rbacGroup    = "rbac.authorization.k8s.io"
	admission    = "admissionregistration.k8s.io"
	// owned selects hypergate's objects, and gateways the objects that istiod creates for Gateways.
	owned    = "gateway.hypergate.dev/owner"
	gateways = gatewayGroup + "/gateway-name"
	// pods selects the pods of hypergate and istiod.
	pods = "app in (hypergate,istiod)"
	// relays selects the pods of the tunnel's relays (model.RelayPods).
	relays = "app=istiod-relay"
	// leases is what the names of hypergate's Leases begin with. The Lease of a migration has no label.
	leases = "hypergate-"
)

// Management returns the kinds of the management side. Each is read in one namespace.
func Management() []Kind {
	return []Kind{
		{resource: "configmaps", scope: ofNamespace, selector: owned},
		{resource: "services", scope: ofNamespace, selector: owned},
		{resource: "serviceaccounts", scope: ofNamespace, selector: owned},
		{resource: "pods", scope: ofNamespace, selector: pods},
		{resource: "events", scope: ofNamespace},
		{group: "apps", resource: "deployments", scope: ofNamespace, selector: pods},
		{group: "apps", resource: "replicasets", scope: ofNamespace, selector: pods},
		{group: "coordination.k8s.io", resource: "leases", scope: ofNamespace, prefix: leases},
		{group: "networking.k8s.io", resource: "networkpolicies", scope: ofNamespace},
		{group: "policy", resource: "poddisruptionbudgets", scope: ofNamespace, selector: owned},
		{group: "route.openshift.io", resource: "routes", scope: ofNamespace, selector: owned},
		{group: gatewayGroup, resource: "tlsroutes", scope: ofNamespace, selector: owned},
		{group: "hypershift.openshift.io", resource: "hostedcontrolplanes", scope: ofNamespace},
		{group: "cluster.x-k8s.io", resource: "clusters", scope: ofNamespace},
		{group: rbacGroup, resource: "roles", scope: ofNamespace},
		{group: rbacGroup, resource: "rolebindings", scope: ofNamespace},
	}
}

// Guest returns the kinds of the guest.
func Guest() []Kind {
	return []Kind{
		{group: gatewayGroup, resource: "gatewayclasses"},
		{group: gatewayGroup, resource: "gateways", scope: ofAll},
		{group: gatewayGroup, resource: "listenersets", scope: ofAll},
		{group: gatewayGroup, resource: "httproutes", scope: ofAll},
		{group: gatewayGroup, resource: "grpcroutes", scope: ofAll},
		{group: gatewayGroup, resource: "tlsroutes", scope: ofAll},
		{group: gatewayGroup, resource: "referencegrants", scope: ofAll},
		{group: gatewayGroup, resource: "backendtlspolicies", scope: ofAll},
		{resource: "namespaces", metadataOnly: true},
		{resource: "services", scope: ofAll, selector: gateways},
		{resource: "pods", scope: ofAll, selector: gateways},
		{group: "apps", resource: "deployments", scope: ofAll, selector: gateways},
		{resource: "services", scope: ofNamespace, selector: owned},
		{resource: "serviceaccounts", scope: ofNamespace, selector: owned},
		{resource: "configmaps", scope: ofNamespace, selector: owned},
		{resource: "pods", scope: ofNamespace, selector: relays},
		{resource: "events", scope: ofNamespace},
		{group: "apps", resource: "statefulsets", scope: ofNamespace, selector: owned},
		{group: "networking.k8s.io", resource: "networkpolicies", scope: ofNamespace, selector: owned},
		{group: "policy", resource: "poddisruptionbudgets", scope: ofNamespace, selector: owned},
		{group: "coordination.k8s.io", resource: "leases", scope: ofNamespace},
		{group: "apiextensions.k8s.io", resource: "customresourcedefinitions", metadataOnly: true},
		{group: admission, resource: "validatingwebhookconfigurations"},
		{group: admission, resource: "mutatingwebhookconfigurations"},
		{group: admission, resource: "validatingadmissionpolicies", selector: owned},
		{group: admission, resource: "validatingadmissionpolicybindings", selector: owned},
		{group: rbacGroup, resource: "clusterroles", selector: owned},
		{group: rbacGroup, resource: "clusterrolebindings", selector: owned},
		{group: rbacGroup, resource: "roles", scope: ofNamespace, selector: owned},
		{group: rbacGroup, resource: "rolebindings", scope: ofNamespace, selector: owned},
		{group: "operator.openshift.io", resource: "ingresses", metadataOnly: true},
		{group: istioGroup, resource: "destinationrules", scope: ofAll, metadataOnly: true},
		{group: istioGroup, resource: "envoyfilters", scope: ofAll, metadataOnly: true},
		{group: istioGroup, resource: "serviceentries", scope: ofAll, metadataOnly: true},
		{group: istioGroup, resource: "virtualservices", scope: ofAll, metadataOnly: true},
	}
}
