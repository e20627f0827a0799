package crds

import (
	"encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations and labels that say whose a CRD is, and which one it claims to be.
const (
	// ManageAnnotation is how whoever looks after a CRD lets hypergate take it over ("true"), or tells it to keep off ("false"), at any time.
	ManageAnnotation = "gateway.hypergate.dev/manage"
	// IstioVersionAnnotation is on Istio's CRDs that hypergate wrote: the version of Istio. They carry no version themselves.
	IstioVersionAnnotation = "gateway.hypergate.dev/istio-version"

	// Those of the Gateway API's release (GEP-922).
	bundleVersionAnnotation = "gateway.networking.k8s.io/bundle-version"
	channelAnnotation       = "gateway.networking.k8s.io/channel"

	// ingressOperatorOwned is what OpenShift's cluster-ingress-operator puts on Istio's CRDs that it installed (sail-operator, pkg/install,
	// WithCRDOwnershipLabel). It counts as consent.
	ingressOperatorOwned = "ingress.operator.openshift.io/owned"
	// ingressOperator is that operator's field manager: client-go takes the name of the binary.
	ingressOperator = "ingress-operator"

	// olmManaged is on what OLM has installed; operatorPrefix and <package>.<namespace> on what belongs to the operator of that package
	// (operator-lifecycle-manager, pkg/controller/operators/decorators/operator.go).
	olmManaged     = "olm.managed"
	operatorPrefix = "operators.coreos.com/"
	// cutOff is how long at least a package's label is that was cut off: 63 characters, but for punctuation at its end.
	cutOff = 60

	// istioGroups is how the names of Istio's CRDs end.
	istioGroups = ".istio.io"
)

// Owner is who a CRD belongs to.
type Owner struct {
	Kind OwnerKind `json:"kind"`
	// Name is the OLM object, or the package, or the field managers that wrote the spec; for Unknown what could not be found out.
	Name string `json:"name,omitempty"`
	// Namespace is the OLM object's.
	Namespace string `json:"namespace,omitempty"`
}

// OwnerKind is the kind of an Owner.
type OwnerKind string

const (
	// Unowned: there is no such CRD.
	Unowned OwnerKind = ""
	// Ours: it carries our membership label, or we have applied it. Another revision of hypergate is a third party: it may bring another version.
	Ours OwnerKind = "hypergate"
	// LiveOLM: a Subscription, InstallPlan or ClusterServiceVersion exists that belongs to the package on its label.
	LiveOLM OwnerKind = "OLM"
	// OrphanedOLM: it carries a package's label, and all three were looked for and there is none.
	OrphanedOLM OwnerKind = "OLM (gone)"
	// IngressOperator: OpenShift's cluster-ingress-operator has written it.
	IngressOperator OwnerKind = "ingress-operator"
	// ThirdParty: somebody else.
	ThirdParty OwnerKind = "third party"
	// Unknown: it could not be found out.
	Unknown OwnerKind = "unknown"
)

// String is the owner as people read it.
func (o Owner) String() string {
	switch {
	case o.Kind == Unowned:
		return "none"
	case o.Name == "":
		return string(o.Kind)
	case o.Namespace == "":
		return string(o.Kind) + ": " + o.Name
	default:
		return string(o.Kind) + ": " + o.Name + " in " + o.Namespace
	}
}

// Consent is whether somebody has said that hypergate may manage a CRD.
type Consent int

const (
	// Unasked: nobody has said anything.
	Unasked Consent = iota
	// Given: hypergate may take it over.
	Given
	// Refused: hypergate must keep off, even from what is its own.
	Refused
	// InvalidAnnotation: something was said, and it is neither yes nor no.
	InvalidAnnotation
)

// Membership is whether a CRD shows that hypergate has made it.
type Membership int

const (
	// NotMember: it does not.
	NotMember Membership = iota
	// Member: it carries our label, or fields that we applied (somebody may have taken the label away).
	Member
)

// Trace is what OLM left on a CRD beside the labels of packages.
type Trace int

const (
	// NoTrace: nothing.
	NoTrace Trace = iota
	// Nameless: OLM has installed it, and no label says for which package. It is so for a moment while OLM installs an operator, and where
	// somebody has taken labels away.
	Nameless
)

// DeletionState is whether a CRD stays.
type DeletionState int

const (
	// NotDeleting is a CRD that stays.
	NotDeleting DeletionState = iota
	// Terminating is a CRD that is being deleted: it takes no new objects, and goes when its last object is gone.
	Terminating
)

// Metadata are what the metadata of a CRD says: enough to know whose it is, and too little to know whether it is right.
type Metadata struct {
	Membership Membership
	// Writers are the field managers that have written its versions, sorted.
	Writers []string
	// Packages are the OLM packages that it belongs to, sorted: what follows operators.coreos.com/ in the label that all objects of the package
	// have. It is <package>.<namespace>, cut off after 63 characters: good to find the others by, and not to be taken apart.
	Packages []string
	OLM      Trace
	Consent  Consent
	Deletion DeletionState
	// Version and Channel are what it claims to be; empty when it claims nothing. They are a hint: people edit annotations, and not schemas.
	Version, Channel string
}

// Identity is how hypergate knows its own: the membership label and its value, and the field manager.
type Identity struct{ LabelKey, LabelValue, FieldManager string }

// MetadataOf reads the metadata of a CRD.
func MetadataOf(m *metav1.ObjectMeta, us Identity) Metadata {
	marks := Metadata{
		Version: claimed(m, versionAnnotation(m.Name)), Channel: claimed(m, channelAnnotation), Consent: consentOf(m), Packages: packagesOf(m),
	}
	if m.DeletionTimestamp != nil {
		marks.Deletion = Terminating
	}
	if _, byOLM := m.Labels[olmManaged]; byOLM && len(marks.Packages) == 0 {
		marks.OLM = Nameless
	}
	label, labelled := m.Labels[us.LabelKey]
	marks.Writers = writersOf(m, us.FieldManager)
	// A trace of ours survives that OLM, or another revision of hypergate, has put its own CRD in the place of ours. Label and trace survive that the
	// ingress operator has: a cluster's upgrade brings it, and it writes again what we undo. Who applies last owns the versions alone.
	taken := slices.Contains(marks.Writers, ingressOperator) && !slices.Contains(marks.Writers, us.FieldManager)
	if !taken && (labelled && label == us.LabelValue || !labelled && marks.OLM == NoTrace && appliedBy(m, us.FieldManager)) {
		marks.Membership = Member
	}
	return marks
}

// longestClaim is more than any version or channel has. An annotation may have 256 KiB, and marks are kept.
const longestClaim = 64

// claimed is what an annotation claims, cut off where that can be no version and no channel.
func claimed(m *metav1.ObjectMeta, annotation string) string {
	text := m.Annotations[annotation]
	if len(text) <= longestClaim {
		return text
	}
	return strings.Clone(strings.ToValidUTF8(text[:longestClaim], "")) + "..." // the rest may go
}

func appliedBy(m *metav1.ObjectMeta, manager string) bool {
	return slices.ContainsFunc(m.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Subresource == "" && entry.Manager == manager && entry.Operation == metav1.ManagedFieldsOperationApply
	})
}

func writersOf(m *metav1.ObjectMeta, us string) []string {
	var out []string
	for _, entry := range m.ManagedFields {
		if entry.Subresource == "" && writesVersions(entry) {
			out = append(out, kept(entry.Manager, maxWriterName))
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	if len(out) <= maxWriters {
		return out
	}
	decides := func(name string) bool { return name == ingressOperator || name == us }
	rest := slices.DeleteFunc(slices.Clone(out), decides)
	out = slices.DeleteFunc(out, func(name string) bool { return !decides(name) })
	out = append(out, rest[:maxWriters-len(out)]...)
	slices.Sort(out)
	return out
}

// versionAnnotation is where a CRD of that name claims its version.
func versionAnnotation(name string) string {
	if strings.HasSuffix(name, istioGroups) {
		return IstioVersionAnnotation
	}
	return bundleVersionAnnotation
}

// packagesOf reads the labels of OLM's packages. OLM puts a dot between package and namespace, and if a long one is cut off it may be gone.
func packagesOf(m *metav1.ObjectMeta) []string {
	var out []string
	for key := range m.Labels {
		if name, ok := strings.CutPrefix(key, operatorPrefix); ok && (strings.Contains(name, ".") || len(name) >= cutOff) {
			out = append(out, kept(name, maxPackageName))
		}
	}
	slices.Sort(out)
	return out[:min(len(out), maxPackages)]
}

// Bounds of what is kept of the metadata of one CRD.
const (
	// maxPackages is how many labels of OLM's packages are kept, the first by name. A CRD has one; beyond eight in all they are not looked for.
	maxPackages = 16
	// maxPackageName is how many bytes are kept of one. The API server allows 63. The rest is cut.
	maxPackageName = 128
	// maxWriters is how many field managers are kept that wrote the versions, the first by name and those that are decided by. The list has one
	// owner unless several applied the same.
	maxWriters = 16
	// maxWriterName is how many bytes are kept of one. The API server allows 128. The rest is cut.
	maxWriterName = 128
)

// kept is a text, or the beginning of one that is too long. The rest may go, so that it is a copy.
func kept(text string, most int) string {
	return strings.Clone(strings.ToValidUTF8(text[:min(len(text), most)], ""))
}

// writesVersions says whether a field manager owns the list of versions. The list is atomic: whoever changes anything in it owns all of it.
func writesVersions(entry metav1.ManagedFieldsEntry) bool {
	if entry.FieldsV1 == nil {
		return false
	}
	var fields struct {
		Spec map[string]json.RawMessage `json:"f:spec"`
	}
	if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
		return true // better one writer too many than to overlook one
	}
	_, writes := fields.Spec["f:versions"]
	return writes
}

// consentOf reads who has said that hypergate may manage a CRD. The annotation is newer than any label, and says no as well as yes.
func consentOf(m *metav1.ObjectMeta) Consent {
	switch strings.ToLower(strings.TrimSpace(m.Annotations[ManageAnnotation])) {
	case "true":
		return Given
	case "false":
		return Refused
	case "":
		if owned, labelled := m.Labels[ingressOperatorOwned]; labelled && owned != "false" {
			return Given
		}
		return Unasked
	default:
		return InvalidAnnotation
	}
}

// Operator is what was found of an OLM package.
type Operator struct {
	Found Found `json:"found"`
	// Kind, Namespace and Name are those of the object that was found; for Unsure Name is why it is.
	Kind, Namespace, Name string
}

// Found is how a search ended.
type Found int

const (
	// Unsure: it did not end, or failed.
	Unsure Found = iota
	// None: there is nothing.
	None
	// Live: there is something.
	Live
)

// OwnerOf weighs whose a CRD that is there is. operators has what was found of each of its packages; one that is not in it is Unsure.
//
// OLM goes first, also for what we have made: an operator that is installed later adopts the CRD, and is its owner from then on.
func OwnerOf(m Metadata, operators map[string]Operator) Owner {
	unsure := Owner{}
	for _, name := range m.Packages {
		switch op := operators[name]; op.Found {
		case Live:
			return Owner{Kind: LiveOLM, Name: op.Kind + " " + op.Name, Namespace: op.Namespace}
		case Unsure:
			unsure = Owner{Kind: Unknown, Name: "whether OLM's " + name + " is installed" + withReason(op.Name)}
		case None:
		}
	}
	switch {
	case unsure.Kind != Unowned:
		return unsure
	case m.OLM == Nameless && m.Membership == NotMember:
		return Owner{Kind: Unknown, Name: "which of OLM's operators has installed it"}
	case m.Membership == Member:
		return Owner{Kind: Ours}
	case len(m.Packages) > 0:
		return Owner{Kind: OrphanedOLM, Name: strings.Join(m.Packages, ", ")}
	case slices.Contains(m.Writers, ingressOperator):
		return Owner{Kind: IngressOperator}
	default:
		return Owner{Kind: ThirdParty, Name: strings.Join(m.Writers, ", ")}
	}
}

func withReason(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}
