package crds

import (
	"encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations and labels that identify the owner of a CRD and the version that it claims.
const (
	// ManageAnnotation allows hypergate to take over a CRD ("true") or forbids any change ("false"). Users can set it
	// at any time.
	ManageAnnotation = "gateway.hypergate.dev/manage"
	// IstioVersionAnnotation is on Istio's CRDs that hypergate wrote. It has Istio's version, which the CRDs
	// themselves lack.
	IstioVersionAnnotation = "gateway.hypergate.dev/istio-version"

	// Annotations of the Gateway API's releases (GEP-922).
	bundleVersionAnnotation = "gateway.networking.k8s.io/bundle-version"
	channelAnnotation       = "gateway.networking.k8s.io/channel"

	// ingressOperatorOwned is a label of OpenShift's cluster-ingress-operator on Istio's CRDs that it installs
	// (sail-operator, pkg/install, WithCRDOwnershipLabel). It counts as consent.
	ingressOperatorOwned = "ingress.operator.openshift.io/owned"
	// ingressOperator is the field manager of that operator. client-go uses the name of the binary.
	ingressOperator = "ingress-operator"

	// olmManaged is a label on objects that OLM installed. operatorPrefix, followed by <package>.<namespace>, is a
	// label on objects of the operator of that package (operator-lifecycle-manager,
	// pkg/controller/operators/decorators/operator.go).
	olmManaged     = "olm.managed"
	operatorPrefix = "operators.coreos.com/"
	// cutOff is the minimum length of a truncated package label: 63 characters, minus punctuation at the end.
	cutOff = 60

	// istioGroups is the suffix of the names of Istio's CRDs.
	istioGroups = ".istio.io"
)

// Owner is the owner of a CRD.
type Owner struct {
	Kind OwnerKind `json:"kind"`
	// Name is the OLM object, the package, or the field managers that wrote the spec. For Unknown it is what could
	// not be determined.
	Name string `json:"name,omitempty"`
	// Namespace is the namespace of the OLM object.
	Namespace string `json:"namespace,omitempty"`
}

// OwnerKind is the kind of an Owner.
type OwnerKind string

const (
	// Unowned means that the CRD does not exist.
	Unowned OwnerKind = ""
	// Ours means that the CRD has hypergate's membership label, or that hypergate applied it. Another revision of
	// hypergate is a third party, because it can need another version.
	Ours OwnerKind = "hypergate"
	// LiveOLM means that a Subscription, InstallPlan or ClusterServiceVersion of the package on its label exists.
	LiveOLM OwnerKind = "OLM"
	// OrphanedOLM means that the CRD has a package's label, but none of the three objects exists.
	OrphanedOLM OwnerKind = "OLM (gone)"
	// IngressOperator means that OpenShift's cluster-ingress-operator wrote the CRD.
	IngressOperator OwnerKind = "ingress-operator"
	// ThirdParty is any other owner.
	ThirdParty OwnerKind = "third party"
	// Unknown means that the owner could not be determined.
	Unknown OwnerKind = "unknown"
)

// String returns the owner in words.
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

// Consent is whether hypergate is allowed to manage a CRD.
type Consent int

const (
	// Unasked means that there is neither consent nor refusal.
	Unasked Consent = iota
	// Given means that hypergate is allowed to take over the CRD.
	Given
	// Refused means that hypergate must not change the CRD, even if it owns the CRD.
	Refused
	// InvalidAnnotation means that the annotation is neither true nor false.
	InvalidAnnotation
)

// Membership is whether a CRD shows that hypergate created it.
type Membership int

const (
	// NotMember means that it does not.
	NotMember Membership = iota
	// Member means that the CRD has hypergate's label, or fields that hypergate applied (the label can be removed).
	Member
)

// Authorship is whether hypergate wrote the versions of its CRD last.
type Authorship int

const (
	// NotAuthor means that only other clients wrote them, or that it is unknown who did.
	NotAuthor Authorship = iota
	// Author means that hypergate wrote them, possibly in another version of hypergate.
	Author
)

// Trace is what OLM left on a CRD in addition to package labels.
type Trace int

const (
	// NoTrace means nothing.
	NoTrace Trace = iota
	// Nameless means that OLM installed the CRD, but no label names the package. This is the case briefly while OLM
	// installs an operator, and after labels were removed.
	Nameless
)

// DeletionState is whether a CRD is being deleted.
type DeletionState int

const (
	// NotDeleting is the state of a CRD that stays.
	NotDeleting DeletionState = iota
	// Terminating is the state of a CRD that is being deleted. It accepts no new objects, and goes when its last
	// object is gone.
	Terminating
)

// Metadata is the relevant metadata of a CRD. It determines the owner, but not whether the content is correct.
type Metadata struct {
	Membership Membership
	Authorship Authorship
	// Writers has the field managers that wrote the CRD's versions, sorted. The ingress operator is also among them if
	// it only wrote which version the CRD claims.
	Writers []string
	// Packages has the OLM packages that the CRD belongs to, sorted. Each is the part after operators.coreos.com/ in
	// the label on all objects of the package.
	//
	// It is <package>.<namespace>, truncated to 63 characters. Use it to find the other objects, but do not parse it.
	Packages []string
	OLM      Trace
	Consent  Consent
	Deletion DeletionState
	// Version and Channel are what the CRD claims to be. They are empty if it claims nothing. They are hints: people
	// edit annotations without changing schemas.
	Version, Channel string
}

// Identity is how hypergate recognises its own objects: the membership label with its value, and the field manager.
type Identity struct{ LabelKey, LabelValue, FieldManager string }

// MetadataOf returns the relevant metadata of a CRD.
func MetadataOf(m *metav1.ObjectMeta, us Identity) Metadata {
	marks := Metadata{
		Version: claimed(m, versionAnnotation(m.Name)), Channel: claimed(m, channelAnnotation),
		Consent: consentOf(m), Packages: packagesOf(m),
	}
	if m.DeletionTimestamp != nil {
		marks.Deletion = Terminating
	}
	if _, byOLM := m.Labels[olmManaged]; byOLM && len(marks.Packages) == 0 {
		marks.OLM = Nameless
	}
	marks.Writers = writersOf(m, us.FieldManager)
	marks.Membership, marks.Authorship = membershipOf(m, us, marks)
	return marks
}

// membershipOf returns whether a CRD is hypergate's, and whether hypergate wrote its versions. marks has the rest.
func membershipOf(m *metav1.ObjectMeta, us Identity, marks Metadata) (member Membership, author Authorship) {
	label, labelled := m.Labels[us.LabelKey]
	// hypergate's label can survive if OLM or another revision of hypergate replaces the CRD. Label and managed
	// fields survive if the ingress operator replaces it. An upgrade of the cluster can add the ingress operator,
	// which reverts changes by hypergate.
	//
	// Only the field manager that applied last owns the versions.
	//
	// The ingress operator writes only the annotations of a CRD whose versions are those of its own release. Then it
	// owns the CRD as well: otherwise both would write their annotations again and again.
	wrote := slices.Contains(marks.Writers, us.FieldManager)
	claims := claimedBy(m, ingressOperator) && !claimedBy(m, us.FieldManager)
	taken := slices.Contains(marks.Writers, ingressOperator) && (!wrote || claims)
	if !taken && (labelled && label == us.LabelValue || !labelled && marks.OLM == NoTrace && appliedBy(m, us.FieldManager)) {
		member = Member
		if wrote {
			author = Author
		}
	}
	return member, author
}

// longestClaim is longer than any version or channel. An annotation can have 256 KiB, and Metadata is kept in memory.
const longestClaim = 64

// claimed returns the value of an annotation. It truncates values that are too long for a version or a channel.
func claimed(m *metav1.ObjectMeta, annotation string) string {
	text := m.Annotations[annotation]
	if len(text) <= longestClaim {
		return text
	}
	return strings.Clone(strings.ToValidUTF8(text[:longestClaim], "")) + "..." // a copy, so that the full text can be freed
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
	if claimedBy(m, ingressOperator) {
		out = append(out, ingressOperator)
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

// versionAnnotation returns the annotation in which the CRD with the given name claims its version.
func versionAnnotation(name string) string {
	if strings.HasSuffix(name, istioGroups) {
		return IstioVersionAnnotation
	}
	return bundleVersionAnnotation
}

// packagesOf returns the packages from OLM's labels. OLM puts a dot between package and namespace. In a long label
// the dot can be truncated.
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

// Limits for what is kept of the metadata of one CRD.
const (
	// maxPackages is how many OLM package labels are kept, the first by name. A CRD usually has one. If the CRDs have
	// more than eight packages in total, package guest does not search for all of them.
	maxPackages = 16
	// maxPackageName is how many bytes of a package are kept. The API server allows 63. The rest is truncated.
	maxPackageName = 128
	// maxWriters is how many field managers that wrote the versions are kept: those that decisions depend on, and the
	// first others by name. The list of versions has one owner unless several applied the same content.
	maxWriters = 16
	// maxWriterName is how many bytes of a field manager are kept. The API server allows 128. The rest is truncated.
	maxWriterName = 128
)

// kept returns a copy of a text, truncated to most bytes. It is a copy so that the full text can be freed.
func kept(text string, most int) string {
	return strings.Clone(strings.ToValidUTF8(text[:min(len(text), most)], ""))
}

// writesVersions reports whether a field manager owns the list of versions. The list is atomic: a change of any part
// of it makes the field manager the owner of all of it.
func writesVersions(entry metav1.ManagedFieldsEntry) bool {
	if entry.FieldsV1 == nil {
		return false
	}
	var fields struct {
		Spec map[string]json.RawMessage `json:"f:spec"`
	}
	if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
		return true // count it as a writer, so that no writer is missed
	}
	_, writes := fields.Spec["f:versions"]
	return writes
}

// claimedBy reports whether a field manager owns the annotation in which a CRD claims its version.
func claimedBy(m *metav1.ObjectMeta, manager string) bool {
	return slices.ContainsFunc(m.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		if entry.Subresource != "" || entry.Manager != manager || entry.FieldsV1 == nil {
			return false
		}
		var fields struct {
			Metadata struct {
				Annotations map[string]json.RawMessage `json:"f:annotations"`
			} `json:"f:metadata"`
		}
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
			return false
		}
		_, claims := fields.Metadata.Annotations["f:"+versionAnnotation(m.Name)]
		return claims
	})
}

// consentOf reports whether hypergate is allowed to manage a CRD. The annotation overrides the label, and can also be
// a refusal.
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

// Operator is the search result for an OLM package.
type Operator struct {
	Found Found `json:"found"`
	// Kind, Namespace and Name identify the object that was found. If Found is Unsure, Name is the reason.
	Kind, Namespace, Name string
}

// Found is the result of a search.
type Found int

const (
	// Unsure means that the search did not end, or failed.
	Unsure Found = iota
	// None means that no object was found.
	None
	// Live means that an object was found.
	Live
)

// OwnerOf returns the owner of an existing CRD. operators has the search result for each of its packages. A package
// that is not in the map is Unsure.
//
// OLM takes precedence even over CRDs that hypergate created: an operator that is installed later adopts the CRD, and
// owns it from then on.
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
