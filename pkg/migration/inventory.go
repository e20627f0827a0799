package migration

import (
	"slices"

	"github.com/hypergate/hypergate/pkg/model"
)

// OriginKind is how the origin was installed. It follows from evidence, and never from the version of a platform:
// feature gates decide which way OpenShift's ingress operator takes.
type OriginKind string

// The kinds.
const (
	// NoOrigin: an istiod of the revision does not exist.
	NoOrigin OriginKind = "none"
	// OLM: an Istio resource, which the Sail operator carries out. OpenShift's ingress operator installs the operator
	// with OLM.
	OLM OriginKind = "OLM"
	// SailLibrary: OpenShift's ingress operator installs istiod itself.
	SailLibrary OriginKind = "sail library"
	// Helm: Istio's own chart.
	Helm OriginKind = "Helm"
	// Changing: there is evidence of OLM and of the sail library. The ingress operator changes from one to the other.
	Changing OriginKind = "changing"
	// NotReadable: hypergate is not allowed to read the Deployment, and nothing else shows how it was installed.
	NotReadable OriginKind = "not readable"
	// OtherOrigin: none of these.
	OtherOrigin OriginKind = "other"
)

// OriginFacts are what the guest shows of the installation of the origin.
type OriginFacts struct {
	// Istio, IstioRevision and Subscription are the names of such objects for the revision, if there are any.
	Istio, IstioRevision, Subscription string
	// Finalized are the GatewayClasses with the ingress operator's finalizer.
	Finalized []string
	// Deployment is what its Deployment shows. Nil: it does not exist, or is not readable.
	Deployment *OriginDeployment
	// NotReadable reports whether hypergate is not allowed to read the Deployment.
	NotReadable bool
}

// isUndeployed reports whether its Deployment does not exist, although something else of the installation does.
func (f OriginFacts) isUndeployed() bool {
	return f.Deployment == nil && !f.NotReadable && f.Kind() != NoOrigin
}

// AfterBegin returns the findings of Run that matter to a migration that has begun.
func (i Inventory) AfterBegin(findings []Finding) []Finding {
	return slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool { return f.blocksOnlyAtFirst(i.Origin.isUndeployed()) })
}

// blocksOnlyAtFirst reports whether a finding does not block once the hosted istiod serves. An origin that is gone, or
// that has no Deployment, does not: the Gateways must get another one. Nor does a proxy of Gateways: all of them are
// held then, and those that have moved have lost it. An address that is not probed can be in use by a migration.
func (f Finding) blocksOnlyAtFirst(undeployed bool) bool {
	return f.Code == OriginUnknown && undeployed || slices.Contains([]Code{OriginMissing, ProxyLost, AddressNotAsked}, f.Code)
}

// OriginDeployment is what the origin's Deployment shows.
type OriginDeployment struct {
	// Labels are those that show who manages it: ManagedByLabel and HelmLabel.
	Labels map[string]string
	// Version is that of Istio: of a label, or of the image's tag.
	Version Version
	// Root is the ConfigMap in which it publishes its roots, in each namespace. Empty: Istio's default.
	Root string
	// Wanted, Ready and Existing are numbers of pods.
	Wanted, Ready, Existing int32
	// Rolling reports whether its newest version is not rolled out.
	Rolling bool
}

const (
	// ManagedByLabel is set by the Sail operator and by the sail library (sail-operator pkg/constants, pkg/install).
	ManagedByLabel = "managed-by"
	// managedByOperator and managedByLibrary are its values.
	managedByOperator, managedByLibrary = "sail-operator", "sail-library"
	// HelmLabel has the value Helm in all three kinds, because each of them renders Istio's chart.
	HelmLabel, helmValue = "app.kubernetes.io/managed-by", "Helm"
)

// Kind returns how the origin was installed.
func (f OriginFacts) Kind() OriginKind {
	by := f.label(ManagedByLabel)
	byOperator := f.Istio+f.IstioRevision != "" || by == managedByOperator
	byLibrary := by == managedByLibrary || len(f.Finalized) > 0
	switch {
	case byOperator && byLibrary:
		return Changing
	case byOperator:
		return OLM
	case byLibrary:
		return SailLibrary
	case f.NotReadable:
		return NotReadable
	case f.Deployment == nil:
		return NoOrigin
	case f.label(HelmLabel) == helmValue:
		return Helm
	default:
		return OtherOrigin
	}
}

// label returns the value of a label of the Deployment.
func (f OriginFacts) label(key string) string {
	if f.Deployment == nil {
		return ""
	}
	return f.Deployment.Labels[key]
}

// Object is an object of the guest, in a finding. Namespace is empty for an object without one.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String returns Kind namespace/name.
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// Inventory is what the check follows from.
type Inventory struct {
	// OneNamespace reports whether the hosted istiod would be in the namespace of the origin: in a standalone cluster,
	// unless hypergate has another namespace.
	OneNamespace bool
	// AddressNotAsked reports whether hypergate is not to connect to the address where gateways reach the hosted
	// istiod. Only hypergate run knows it: the commands do not have the flag.
	AddressNotAsked bool
	// Revision and Namespace are those of the origin. Ours is the version of the hosted istiod.
	Revision, Namespace string
	Ours                Version
	Origin              OriginFacts
	// ClassMissing is the name of hypergate's controller, if no GatewayClass has it. Otherwise, it is empty.
	ClassMissing string
	// Gateways are those of hypergate's classes.
	Gateways []InventoryGateway
	// Foreign are the objects of kinds that the origin obeys, and the hosted istiod does not: the first ones of each
	// kind.
	Foreign []Object
	// Alpha are the objects that the hosted istiod serves only with alpha features, and Istio 1.30 serves without.
	Alpha []Object
	// Sidecars are the namespaces and pods that the origin injects.
	Sidecars []Object
	// PluggedInCA reports whether the origin's root is not one that istiod made itself.
	PluggedInCA bool
	// Unread are the kinds whose reads are forbidden, with the verb.
	Unread []string
}

// InventoryGateway is a Gateway in an inventory.
type InventoryGateway struct {
	Gateway
	Class string
	// Root is the ConfigMap with the roots that its pods trust. Address is the address of their istiod.
	Root, Address string
	// Proxied reports whether its pods have an HTTP proxy of the origin's mesh configuration.
	Proxied bool
	// Second are the first ones of its other Deployments that should have pods. istiod leaves that of an earlier class
	// or name.
	Second []string
	// Invalid is an annotation for migrations whose value is not supported.
	Invalid string
}

// Ordered returns the Gateways in the order in which they move.
func (i Inventory) Ordered() []InventoryGateway {
	plain := make([]Gateway, 0, len(i.Gateways))
	for _, g := range i.Gateways {
		plain = append(plain, g.Gateway)
	}
	out := make([]InventoryGateway, 0, len(i.Gateways))
	for _, g := range InOrder(plain) {
		at := slices.IndexFunc(i.Gateways, func(o InventoryGateway) bool { return o.Key == g.Key })
		out = append(out, i.Gateways[at])
	}
	return out
}

// SubscriptionNamespace is the namespace of the Subscription that OpenShift's ingress operator creates
// (cluster-ingress-operator, pkg/operator/controller/names.go).
const SubscriptionNamespace = "openshift-operators"

// OriginWebhook returns the name of the origin's validating webhook.
func OriginWebhook(revision, namespace string) string {
	return "istio-validator-" + revision + "-" + namespace
}

// OriginAddress returns the address at which gateways reach the origin.
func OriginAddress(cfg model.Config) string {
	return cfg.IstiodName() + "." + cfg.GuestNamespace + ".svc:15012"
}
