package model

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/pki"
)

// ManagementObservation is what was observed on the management side. No plan depends on the fields with the tag
// json:"-".
type ManagementObservation struct {
	// ControlPlane is the HostedControlPlane, or the Cluster.
	ControlPlane ControlPlane
	// ControlPlaneProblem is why ControlPlane is not reliable although such an object exists. Then nothing is planned.
	ControlPlaneProblem error `json:"-"`
	// CandidateControlPlanes are the HostedControlPlanes in that case, each as far as it could be read.
	CandidateControlPlanes []ControlPlane `json:"-"`
	// Endpoints is what was observed of the endpoints of istiod.
	Endpoints ObservedEndpoints
	// CA signs istiod's serving certificate and the certificates of the gateways.
	CA pki.CA
	// CAOwner is who created and manages the CA.
	CAOwner Owner
	// Rotation is the state of the rotation of the CA.
	Rotation pki.Rotation
	// RotationRequest is the value of RotateAnnotation on the Secret of the CA. LeaseRotationRequest is the one on
	// hypergate's Lease. Only the rotation depends on them.
	RotationRequest, LeaseRotationRequest string `json:"-"`
	// InvalidCA is why an existing CA cannot be read. CA is then empty, and must not be replaced.
	InvalidCA error `json:"-"`
	// Istiod is whether istiod is available.
	Istiod Availability
	// IstiodSince is the time since which istiod is available. The result of a webhook probe is valid for one value of
	// it.
	IstiodSince time.Time `json:"-"`
	// IstiodReady is how many pods of istiod are ready, and at most IstiodWanted, which is how many its Deployment asks
	// for. Both are 0 without a Deployment.
	IstiodReady, IstiodWanted int32 `json:"-"`
	// Rollout is the state of the rollout of istiod's newest version.
	Rollout Rollout `json:"-"`
	// IstiodConfig is the configuration that istiod's Deployment has.
	IstiodConfig IstiodConfig
	// IstiodMode is the mode that istiod's Deployment has. A plan is computed for the mode that istiod should have.
	IstiodMode IstiodMode
	// IgnoredCRDs are the CRDs of Config.ReadKinds whose objects istiod's Deployment ignores.
	IgnoredCRDs []string `json:"-"`
	// IgnoredSince is when a running istiod last stopped serving one of them. Zero: that is not known.
	IgnoredSince time.Time `json:"-"`
	// Migration is the Lease of a migration.
	Migration MigrationLease `json:"-"`
	// NamespaceUID is the UID of Config.MgmtNamespace. It is part of the names under which this installation holds
	// ownership Leases.
	NamespaceUID types.UID `json:"-"`
	// Used are the settings of the guest that istiod's Deployment was planned with.
	Used UsedSettings `json:"-"`
	// API is how hypergate reaches the management API. No object is computed from it: it is a secret that must not be
	// readable in the guest.
	API MgmtAPI
}

// MgmtAPI is the API server of the management cluster: its URL, and the CA that verifies it.
type MgmtAPI struct {
	Server   string
	CABundle []byte
}

// Owner is who manages an object.
type Owner int

const (
	// Ours means that hypergate created the object, restores it, and deletes it with the installation.
	Ours Owner = iota
	// Theirs means that another party created the object for hypergate to use. hypergate never writes it.
	Theirs
)

// Availability is whether a workload is available.
type Availability int

const (
	// Absent means that the workload does not exist.
	Absent Availability = iota
	// Unavailable means that the workload exists but is not available.
	Unavailable
	// Available means that the workload is available.
	Available
)

// Rollout is the state of the rollout of a workload's newest version.
type Rollout int

const (
	// RolledOut means that all pods have the newest version and are ready.
	RolledOut Rollout = iota
	// Rolling means that the rollout is in progress.
	Rolling
	// Stuck means that the rollout exceeded its deadline (progressDeadlineSeconds), or that its pods cannot be created.
	Stuck
)

// GuestAPI is how istiod's pod reaches the guest's API server.
type GuestAPI struct {
	// Server is the URL of the API server. CABundle is the CA that verifies it.
	Server   string
	CABundle []byte
}

// GuestObservation is what was observed in the guest. No plan depends on the fields with the tag json:"-".
type GuestObservation struct {
	// API is the content of istiod's guest kubeconfig without the token.
	API GuestAPI
	// Classes are the GatewayClasses with hypergate's controller name, sorted by name.
	Classes []GatewayClass
	// CRDs are the facts about each CRD that hypergate can install, by name.
	CRDs map[string]crds.Fact
	// Mode is the mode from the guest's configuration. It is empty if the guest does not configure it.
	Mode crds.Mode
	// Unserved are the CRDs of the groups of the Gateway API and of Istio that the API server serves and istiod does
	// not.
	//
	// InUse are the objects that use what istiod ignores, at most the first hundred. These are objects of those CRDs,
	// and objects that use unknown fields of other CRDs. InUseTotals is their number for each CRD.
	Unserved    []string       `json:"-"`
	InUse       []crds.InUse   `json:"-"`
	InUseTotals map[string]int `json:"-"`
	// Unlisted are those of Unserved whose objects hypergate is not allowed to list. InUse lacks these.
	Unlisted []string `json:"-"`
	// SearchingInUse is true while the search for these objects is in progress. There can be more of them.
	SearchingInUse bool `json:"-"`
	// ListenerSets are those of hypergate's Gateways that do not show yet that istiod ignores them.
	ListenerSets []ListenerSet `json:"-"`
	// Leases are the ownership Leases. Foreign are the foreign installations that can serve the same resources. Both
	// determine whether a plan is carried out.
	Leases  ObservedLeases       `json:"-"`
	Foreign ForeignInstallations `json:"-"`
	// Gateways are what a rollout of gateways depends on.
	Gateways ObservedGateways `json:"-"`
	// AppliedTemplates has TemplateOf hypergate's defaults of each class. It is empty if no class has defaults.
	AppliedTemplates map[string]string `json:"-"`
	// IngressOperator is whether the guest has a CRD of OpenShift's ingress operator. The operator can have no CRDs of
	// the Gateway API, or not have installed them yet.
	IngressOperator Presence
	// Infrastructure is for how many nodes the guest's infrastructure is made.
	Infrastructure InfrastructureTopology
	// Proxy is the proxy of the guest, as far as its gateways can use it. IgnoredProxy describes what they cannot use.
	Proxy        Proxy
	IgnoredProxy []string `json:"-"`
	// ProxyChanged is when a change of Proxy was last used. Zero: that is not known. Observations of the guest lack it:
	// it follows from LastSettings, and from what was used since.
	ProxyChanged time.Time
	// LastSettings are the settings that the defaults of the classes have. If the classes differ, the last change
	// counts.
	LastSettings LastSettings `json:"-"`
	// TLSProfile is the TLS security profile of a cluster that is both sides. See ObservedTLS.
	TLSProfile TLSProfile
	// Unread are those of Infrastructure, Proxy and TLSProfile that hypergate is not allowed to read. See Keeping.
	Unread UnreadSettings `json:"-"`
	// Readability is whether istiod can read the kinds of Config.ReadKinds, by their CRDs. It omits the readable ones.
	Readability map[string]Readability `json:"-"`
	// IgnoredCRDs are the CRDs whose objects istiod ignores, sorted. IgnoredSince is when a running istiod last stopped
	// serving one of them. Zero: it never did, or that is not known. Observations of the guest lack both.
	IgnoredCRDs  []string
	IgnoredSince time.Time
	// OtherDefaults are defaults of others for the gateways of a class.
	OtherDefaults []OtherDefaults `json:"-"`
	// DefaultsExist reports whether a class has defaults, of hypergate or of others. A plan depends on it only for an
	// istiod that leads beside another one. Otherwise, and in observations of the guest, it is false.
	DefaultsExist bool
	// Namespace is whether Config.GuestNamespace exists in the guest.
	Namespace Presence
	// WebhookProbe is whether the guest's API server is known to reach istiod's webhook.
	WebhookProbe WebhookProbe
	// ReadyRelays is how many relays of the tunnel are ready: each holds a tunnel that accepts streams.
	ReadyRelays int `json:"-"`
}

// ObservedTLS returns the TLS security profile that istiod and its gateways have. With a HostedControlPlane, it is in
// its configuration, from which HyperShift makes the guest's. So a guest cannot change istiod with it.
func ObservedTLS(mgmt ManagementObservation, guest GuestObservation) TLSProfile {
	if mgmt.ControlPlane.Exists() {
		return mgmt.ControlPlane.TLSProfile
	}
	return guest.TLSProfile
}

// InfrastructureTopology is for how many nodes the infrastructure of a guest is made: whether its workloads can have
// replicas on several nodes. The values are OpenShift's (config.openshift.io Infrastructure, infrastructureTopology).
// Other guests do not have one, and each other value counts as NotStated.
type InfrastructureTopology string

const (
	// NotStated is the default.
	NotStated InfrastructureTopology = ""
	// SeveralNodes means that there are at least two nodes.
	SeveralNodes InfrastructureTopology = "HighlyAvailable"
	// SingleNode means that there is one node.
	SingleNode InfrastructureTopology = "SingleReplica"
)

// TopologyNamed returns the topology with this name. Each unknown name is the default: nothing of the guest's text is
// kept.
func TopologyNamed(name string) InfrastructureTopology {
	if topology := InfrastructureTopology(name); topology == SingleNode || topology == SeveralNodes {
		return topology
	}
	return NotStated
}

// ModeOr returns whether hypergate manages the guest's CRDs and the installation. The guest's configuration takes
// precedence over the flags. The default is crds.Managed.
func (g GuestObservation) ModeOr(cfg Config) crds.Mode {
	return cmp.Or(g.Mode, cfg.CRDs.Mode, crds.Managed)
}

// GatewayClass is a GatewayClass with hypergate's controller name.
type GatewayClass struct {
	Name       string
	UID        types.UID
	Generation int64
	// Created is the creation time.
	Created time.Time
	// Parameters reports whether the class has a spec.parametersRef. istiod does not read it.
	Parameters bool
}

// Presence is whether an object that hypergate does not own exists.
type Presence int

const (
	// Missing means that the object does not exist.
	Missing Presence = iota
	// Present means that the object exists.
	Present
)

// WebhookProbe is whether the guest's API server was observed to reach istiod's validating webhook.
type WebhookProbe int

const (
	// WebhookNotVerified means that no rejection by the webhook was observed since istiod last became available.
	WebhookNotVerified WebhookProbe = iota
	// WebhookVerified means that the webhook rejected an invalid object through the guest's API server.
	WebhookVerified
)
