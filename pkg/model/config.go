package model

import (
	"net"
	"strconv"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/values"
)

// Topology determines which clusters are the two sides.
type Topology string

const (
	// TopologyHosted is the topology of HyperShift. istiod runs on the management cluster, in the namespace of the
	// hosted control plane.
	TopologyHosted Topology = "hosted"
	// TopologyStandalone is a single cluster that is both sides.
	TopologyStandalone Topology = "standalone"
)

// FieldManager is the only server-side apply field manager of hypergate, on both sides.
const FieldManager = "hypergate"

// OwnerLabel is on every object that hypergate creates. Its value is Config.OwnerValue. Watches select by it, and prune
// deletes by it.
const OwnerLabel = "gateway.hypergate.dev/owner"

// Side is one of the two sides.
type Side string

const (
	// SideMgmt is the management cluster.
	SideMgmt Side = "management"
	// SideGuest is the guest cluster.
	SideGuest Side = "guest"
)

// Config is the configuration from the flags. It does not change while the process runs.
type Config struct {
	Topology Topology
	// MgmtNamespace is the namespace of istiod: HyperShift's control plane namespace. In a standalone cluster it is
	// GuestNamespace, or a namespace of its own beside an istiod that was there before.
	MgmtNamespace string
	// GuestNamespace is istiod's system namespace in the guest. It contains istiod's service account, its Leases and
	// the gateway defaults.
	GuestNamespace string
	// ControllerName is the spec.controllerName of the GatewayClasses that hypergate serves.
	ControllerName string
	// Revision is istiod's revision. It is part of its object names, and the value of the label istio.io/rev.
	Revision string
	// PilotImage is istiod's image. ProxyImage is the image of the gateways.
	PilotImage, ProxyImage string
	// XDS is the endpoint of istiod for the guest's gateways. It is the discovery address, the CA address, and a name
	// in istiod's certificate.
	XDS HostPort
	// Publish is the publish strategy for istiod. Unless it is PublishAddress, XDS follows from it and can be empty
	// here.
	Publish Publish
	// Values are the user's additions to the values of the charts.
	Values values.Values
	// WebhookHost is the host at which the guest's kube-apiserver calls istiod's webhooks, on port 443. Hosted only.
	WebhookHost string
	// Webhooks is who writes istiod's webhook configurations in the guest. Empty means WebhooksManaged.
	Webhooks Webhooks
	// IstioResources are the Istio resources that istiod serves, in any order.
	IstioResources []IstioResource
	// SidecarInjection adds the webhook that mutates pods.
	SidecarInjection bool
	// NetworkPolicies determines the NetworkPolicy for istiod's pod. Hosted only.
	NetworkPolicies NetworkPolicies
	// GuestServer is the URL of the guest's API server for istiod's pod. If empty, the pod uses the same URL as
	// hypergate.
	GuestServer string
	// CRDs determines whether hypergate manages the guest's CRDs and its installation, and whether it can take over
	// CRDs without an annotation of their own. The guest's configuration takes precedence for the former.
	CRDs crds.Policy
	// CRDProtection determines whether an admission policy protects the CRDs that hypergate manages. CRDWriters are
	// users of the guest's API whom the policy does not restrict, in addition to the platform's own users.
	CRDProtection CRDProtection
	CRDWriters    []string
	// GuestKubeconfigSecret is the Secret in MgmtNamespace with the guest's kubeconfig. It is empty if hypergate gets
	// the kubeconfig in another way. Hosted only.
	GuestKubeconfigSecret string
	// RenewGuestKubeconfig is the Secret in MgmtNamespace into which hypergate writes the guest's kubeconfig with the
	// next token of its own account. Empty: another party renews it. Hosted only.
	RenewGuestKubeconfig string
	// GatewayRollout is how gateways get the proxies of another istiod. Empty means OneByOne.
	GatewayRollout GatewayRollout
	// Replicas is the number of istiod's pods without a HostedControlPlane: 1 or 2. 0 means that the cluster decides.
	Replicas int64
	// NotEnabled means that hypergate installs nothing, and removes from both sides what it installed.
	NotEnabled bool
	// RemovalID identifies this setting of NotEnabled. The condition Available contains it, so that its reader does not
	// take the report of an earlier removal for that of this one. It can be empty.
	RemovalID string
	// ReleaseVersion is the version of the OpenShift release that contains hypergate and istiod's image. It is empty if
	// they are not part of a release.
	ReleaseVersion string
}

// CRDProtection determines whether an admission policy protects the CRDs that hypergate manages.
type CRDProtection int

const (
	// ProtectCRDs means that the policy exists.
	ProtectCRDs CRDProtection = iota
	// LeaveCRDsOpen means that there is no policy.
	LeaveCRDsOpen
)

// OwnerValue returns the value of OwnerLabel for one side. It contains the revision, so that two revisions do not prune
// each other's objects. It also contains the side, because in a standalone cluster both sides are the same cluster.
func (c Config) OwnerValue(side Side) string { return c.Revision + "." + string(side) }

// IstiodName returns the name that the chart gives istiod's Deployment, Service and ServiceAccount. hypergate uses it
// on the management side.
func (c Config) IstiodName() string { return "istiod-" + c.Revision }

// The following objects of the guest do not have the names of Istio's chart. An istiod that another client installs in
// the guest has these names, and its uninstallation deletes objects by name.

// GuestIstiodName returns the name of istiod's service account in the guest, and of its roles and bindings there.
func (c Config) GuestIstiodName() string { return "hypergate-istiod-" + c.Revision }

// ValidatorName returns the name of the guest's ValidatingWebhookConfiguration for istiod.
func (c Config) ValidatorName() string { return "hypergate-validator-" + c.Revision }

// DefaultRevisionMarker is the name of the guest's Service that makes istiod's revision the default one. istiod finds
// it by its label, in istiod's own namespace (pkg/revisions/tag_watcher.go).
const DefaultRevisionMarker = "hypergate-revision-tag-default"

// MigrationLeasePrefix is what the name of the Lease of a migration has between "hypergate-" and the revision.
// hypergate's own Lease has nothing there. So no revision may begin with it.
const MigrationLeasePrefix = "migration-"

// ClassDefaultsName returns the name of the guest's ConfigMap with the defaults for the gateways of a class. A revision
// has no dots, so two revisions never share a name.
func (c Config) ClassDefaultsName(class string) string {
	return "hypergate-gatewayclass-" + c.Revision + "." + class
}

// WebhookService returns the name of the Service at which the guest's kube-apiserver calls istiod's webhooks. Hosted
// only.
//
// The name must not begin with istiod's name. HyperShift deletes a webhook if its host begins with the name of a
// Service without the label for webhooks. istiod's other Service does not have that label. With the longest
// revision, the name has the maximum length of a Service's name.
func (c Config) WebhookService() string { return "gw-webhook-" + c.Revision }

// WebhookPort is the port of istiod's Service for its webhooks (15017 in the pod).
const WebhookPort = 443

// IstiodPods returns the labels by which the chart selects istiod's pods.
func (c Config) IstiodPods() map[string]any {
	return map[string]any{"app": "istiod", "istio.io/rev": c.Revision}
}

// TrustBundleName returns the name of the ConfigMap with the roots that gateways trust. istiod creates it in each
// namespace of the guest.
func (c Config) TrustBundleName() string { return c.Revision + "-ca-cert" }

// HostPort is a host name or address, and a port.
type HostPort struct {
	Host string
	Port uint16
}

// String returns host:port, with brackets around an IPv6 address.
func (h HostPort) String() string { return net.JoinHostPort(h.Host, strconv.Itoa(int(h.Port))) }
