package model

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/values"
)

// Topology says which clusters play the two sides.
type Topology string

const (
	// TopologyHosted is HyperShift's: istiod runs on the management cluster, in the namespace of the hosted control plane.
	TopologyHosted Topology = "hosted"
	// TopologyStandalone is one cluster that plays both sides.
	TopologyStandalone Topology = "standalone"
)

// FieldManager is the one server-side-apply field manager of hypergate, on both sides.
const FieldManager = "hypergate"

// OwnerLabel is on every object that hypergate made; its value is OwnerValue. It is what watches select and what prune goes by.
const OwnerLabel = "gateway.hypergate.dev/owner"

// Side is one of the two sides.
type Side string

const (
	// SideMgmt is the management cluster.
	SideMgmt Side = "management"
	// SideGuest is the guest cluster.
	SideGuest Side = "guest"
)

// Config is what the flags say. It does not change while the process lives.
type Config struct {
	Topology Topology
	// MgmtNamespace is where istiod runs: HyperShift's HCP namespace, or GuestNamespace when standalone.
	MgmtNamespace string
	// GuestNamespace is istiod's system namespace in the guest, where its service account, leases and gateway defaults are.
	GuestNamespace string
	// ControllerName is the spec.controllerName of the GatewayClasses that are ours.
	ControllerName string
	// Revision is istiod's revision, in its object names and in the label istio.io/rev.
	Revision string
	// PilotImage is istiod's image, ProxyImage that of the gateways.
	PilotImage, ProxyImage string
	// XDS is where the guest's gateways reach istiod. It is the discovery address, the CA address, and a name in istiod's certificate.
	XDS HostPort
	// Publish is who publishes istiod to the guest's nodes, and how; unless somebody else does it, XDS follows from it and may be empty here.
	Publish Publish
	// Values are what the user adds to the charts' values.
	Values values.Values
	// WebhookHost is the host that the guest's kube-apiserver calls istiod's webhooks at, on port 443. Hosted only.
	WebhookHost string
	// IstioResources are the Istio kinds that istiod serves, in any order.
	IstioResources []IstioResource
	// SidecarInjection adds the pod-mutating webhook.
	SidecarInjection bool
	// NetworkPolicies is what fences istiod's pod in. Hosted only.
	NetworkPolicies NetworkPolicies
	// GuestServer is the URL of the guest's API server as istiod's pod reaches it; empty: as hypergate does.
	GuestServer string
	// CRDs is whether hypergate looks after the guest's CRDs and its installation, unless the guest says otherwise, and whether it may take over
	// CRDs that say nothing themselves.
	CRDs crds.Policy
	// CRDProtection is whether the CRDs that hypergate manages are protected from others, and CRDWriters are users of the guest's API whom that
	// does not stop, beside the platform's own.
	CRDProtection CRDProtection
	CRDWriters    []string
	// GuestKubeconfigSecret is the Secret in MgmtNamespace that holds the guest's kubeconfig; empty: hypergate has it otherwise. Hosted only.
	GuestKubeconfigSecret string
	// ReleaseVersion is the version of the OpenShift release that hypergate and istiod's image came with; empty: it came with none.
	ReleaseVersion string
}

// CRDProtection is whether an admission policy protects the CRDs that hypergate manages.
type CRDProtection int

const (
	// ProtectCRDs: it does.
	ProtectCRDs CRDProtection = iota
	// LeaveCRDsOpen: there is none.
	LeaveCRDsOpen
)

// OwnerValue is the value of OwnerLabel for one side. It holds the revision, so that two revisions do not prune each other, and the side,
// so that in a standalone cluster the two sides do not.
func (c Config) OwnerValue(side Side) string { return c.Revision + "." + string(side) }

// SortedIstioResources are the IstioResources in their one order, each once.
func (c Config) SortedIstioResources() []IstioResource {
	sorted := slices.SortedFunc(slices.Values(c.IstioResources), func(a, b IstioResource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	return slices.Compact(sorted)
}

// IstiodName is the name that the chart gives istiod's Deployment, Service and ServiceAccount.
func (c Config) IstiodName() string { return "istiod-" + c.Revision }

// WebhookService is the name of the Service that the guest's kube-apiserver calls istiod's webhooks at; hosted only. It must not begin with
// istiod's name: HyperShift deletes a webhook whose host begins with the name of a Service that is not labelled for webhooks, and istiod's
// other Service is not. With the longest revision it is as long as a Service's name may be.
func (c Config) WebhookService() string { return "gw-webhook-" + c.Revision }

// WebhookPort is the port of istiod's Service that leads to its webhooks (15017 in the pod).
const WebhookPort = 443

// IstiodPods returns the labels by which the chart selects istiod's pods.
func (c Config) IstiodPods() map[string]any {
	return map[string]any{"app": "istiod", "istio.io/rev": c.Revision}
}

// TrustBundleName is the name of the ConfigMap that istiod puts into each namespace of the guest, with the roots that gateways trust.
func (c Config) TrustBundleName() string { return c.Revision + "-ca-cert" }

// HostPort is a host name or address, and a port.
type HostPort struct {
	Host string
	Port uint16
}

// String is host:port, with brackets around an IPv6 address.
func (h HostPort) String() string { return net.JoinHostPort(h.Host, strconv.Itoa(int(h.Port))) }

// IstioResource is one kind of Istio's API.
type IstioResource struct{ Group, Resource string }

// CRD is the name of the resource's CustomResourceDefinition.
func (r IstioResource) CRD() string { return r.Resource + "." + r.Group }

// KnownIstioResources are the resources of Istio's API that may be asked for.
func KnownIstioResources() []IstioResource {
	var out []IstioResource
	for _, group := range []struct {
		name      string
		resources []string
	}{
		{"extensions.istio.io", []string{"wasmplugins"}},
		{"networking.istio.io", []string{
			"destinationrules", "envoyfilters", "gateways", "proxyconfigs", "serviceentries", "sidecars", "virtualservices", "workloadentries", "workloadgroups",
		}},
		{"security.istio.io", []string{"authorizationpolicies", "peerauthentications", "requestauthentications"}},
		{"telemetry.istio.io", []string{"telemetries"}},
	} {
		for _, resource := range group.resources {
			out = append(out, IstioResource{group.name, resource})
		}
	}
	return out
}

// LayeredProductResources are what products on top of OpenShift's Gateway API use: the default for Config.IstioResources
// (openshift/enhancements, ingress/gateway-api-without-olm.md).
func LayeredProductResources() []IstioResource {
	return slices.DeleteFunc(KnownIstioResources(), func(r IstioResource) bool {
		return !slices.Contains([]string{"destinationrules", "envoyfilters", "wasmplugins"}, r.Resource)
	})
}

// ManagementObservation is what the management side shows.
type ManagementObservation struct {
	// ControlPlane is the HostedControlPlane, or the Cluster.
	ControlPlane ControlPlane
	// ControlPlaneProblem is why there is no telling what that says, though there is one; nothing is planned then.
	ControlPlaneProblem error
	// CandidateControlPlanes are the HostedControlPlanes then, each as far as it could be read.
	CandidateControlPlanes []ControlPlane
	// Endpoints is what there is of the ways to istiod.
	Endpoints ObservedEndpoints
	// CA signs istiod's serving certificate and the gateways' certificates.
	CA pki.CA
	// CAOwner is who made it and looks after it.
	CAOwner Owner
	// Rotation is where the rotation of the CA stands.
	Rotation pki.Rotation
	// RotationRequest is what RotateAnnotation says on the CA's Secret. Nothing is computed from it but by the rotation.
	RotationRequest string
	// InvalidCA is why a CA that is there cannot be read; CA is then empty, and must not be replaced.
	InvalidCA error
	// Istiod is whether istiod serves.
	Istiod Availability
	// IstiodSince is since when istiod serves. Nothing is computed from it; a proof that istiod's webhook is reached holds for one value of it.
	IstiodSince time.Time
	// Rollout is how far istiod's newest version is. Nothing is computed from it.
	Rollout Rollout
	// NamespaceUID is the identity of Config.MgmtNamespace. Nothing is computed from it but by what name claims are held.
	NamespaceUID types.UID
	// API is how hypergate reaches the management API. Nothing is computed from it: it is looked for where it must not be.
	API MgmtAPI
}

// MgmtAPI is the management cluster's API server: its URL, and what it is verified with.
type MgmtAPI struct {
	Server   string
	CABundle []byte
}

// Owner is who looks after an object.
type Owner int

const (
	// Ours: hypergate made it, keeps it as it is, and deletes it with the installation.
	Ours Owner = iota
	// Theirs: somebody else put it there for us to use. It is never written.
	Theirs
)

// Availability is whether a workload serves.
type Availability int

const (
	// Absent: there is no such workload.
	Absent Availability = iota
	// Unavailable: it is there and does not serve.
	Unavailable
	// Available: it serves.
	Available
)

// Rollout is how far the newest version of a workload is.
type Rollout int

const (
	// RolledOut: all pods are of the newest version, and ready.
	RolledOut Rollout = iota
	// Rolling: not yet.
	Rolling
	// Stuck: its time is up (progressDeadlineSeconds), and it still is not ready; or its pods may not be made.
	Stuck
)

// GuestAPI is how istiod's pod reaches the guest's API server.
type GuestAPI struct {
	// Server is its URL, CABundle what it is verified with.
	Server   string
	CABundle []byte
}

// GuestObservation is what the guest shows.
type GuestObservation struct {
	// API is what istiod's guest kubeconfig says beside the token.
	API GuestAPI
	// Classes are the GatewayClasses that name our controller, sorted by name.
	Classes []GatewayClass
	// CRDs are the facts about each CRD that we might install, by name.
	CRDs map[string]crds.Fact
	// Mode is what the guest's configuration says of our looking after CRDs and installation; empty when it says nothing.
	Mode crds.Mode
	// Unserved are CRDs of the Gateway API's groups that are served and that istiod does not know, InUse the objects that use what is served and
	// not heeded: those CRDs, and fields of others, the first hundred. InUseTotals is how many there are of each CRD. Nothing is computed from them.
	Unserved    []string
	InUse       []crds.InUse
	InUseTotals map[string]int
	// SearchingInUse: those objects are still looked for, and there may be more of them.
	SearchingInUse bool
	// Leases say which hypergate the guest belongs to, Others who else may serve what is ours. Nothing is computed from them: they decide whether a
	// plan is carried out.
	Leases  ObservedLeases
	Foreign ForeignInstallations
	// Namespace is whether Config.GuestNamespace exists in the guest.
	Namespace Presence
	// WebhookProbe is what is known of the way from the guest's API server to istiod's webhook.
	WebhookProbe WebhookProbe
}

// ModeOr is whether the guest's CRDs and the installation are looked after: the guest's configuration goes before the flags.
func (g GuestObservation) ModeOr(cfg Config) crds.Mode {
	return cmp.Or(g.Mode, cfg.CRDs.Mode, crds.Managed)
}

// GatewayClass is one GatewayClass of ours.
type GatewayClass struct {
	Name       string
	Generation int64
	// Created is when it was made.
	Created time.Time
}

// Presence is whether an object that we do not own exists.
type Presence int

const (
	// Missing: it does not exist.
	Missing Presence = iota
	// Present: it exists.
	Present
)

// WebhookProbe is whether the guest's API server was seen to reach istiod's validating webhook.
type WebhookProbe int

const (
	// WebhookNotVerified: no rejection was seen since istiod last became available.
	WebhookNotVerified WebhookProbe = iota
	// WebhookVerified: an invalid object was rejected by the webhook through the guest's API server.
	WebhookVerified
)
