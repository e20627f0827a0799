package model

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// ForeignReason is why hypergate writes to an object that it does not own.
type ForeignReason string

const (
	// ReasonHoldGateway: istiod leaves the Deployment of a held Gateway as it is.
	ReasonHoldGateway ForeignReason = "HoldGateway"
	// ReasonReleaseGateway: istiod deploys the Gateway again.
	ReasonReleaseGateway ForeignReason = "ReleaseGateway"
)

// ForeignEffect is what a write does to its field.
type ForeignEffect string

const (
	// SetsHold sets the field to HoldValue.
	SetsHold ForeignEffect = "set"
	// Removes removes the field.
	Removes ForeignEffect = "remove"
)

// ForeignWrite is a row of the table of all writes to objects that do not belong to hypergate: a kind, a field and a
// reason.
type ForeignWrite struct {
	GVK      schema.GroupVersionKind
	Resource string
	// Annotation is the field: the key of an annotation. A row for another kind of field needs another type.
	Annotation string
	Effect     ForeignEffect
	Reason     ForeignReason
}

// Field returns the path of the field.
func (w ForeignWrite) Field() string { return fmt.Sprintf("metadata.annotations[%q]", w.Annotation) }

// GVR returns the resource that is patched.
func (w ForeignWrite) GVR() schema.GroupVersionResource {
	return w.GVK.GroupVersion().WithResource(w.Resource)
}

// ForeignWrites returns all writes to objects that do not belong to hypergate. Other than these, hypergate writes only
// its own objects, CRDs that it may take over, and status conditions of its own types. docs/security.md and
// deploy/rbac/gateway-rollout have the same rows.
func ForeignWrites() []ForeignWrite {
	gateway := schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "Gateway"}
	return []ForeignWrite{
		{GVK: gateway, Resource: "gateways", Annotation: HoldAnnotation, Effect: SetsHold, Reason: ReasonHoldGateway},
		{GVK: gateway, Resource: "gateways", Annotation: HoldAnnotation, Effect: Removes, Reason: ReasonReleaseGateway},
	}
}

// HoldAnnotation is the annotation of a Gateway by which istiod decides whether it manages the Gateway's Deployment.
// istiod 1.18 and later manages it without the annotation, and with a number up to 5
// (pilot/pkg/config/kube/gateway/deploymentcontroller.go, ManagedGatewayControllerVersion). istiod does not copy this
// annotation to the Deployment or to its pods.
const HoldAnnotation = "gateway.istio.io/controller-version"

// HoldValue returns the value of HoldAnnotation on a Gateway that the hypergate of a revision holds. Any number above 5
// makes istiod leave the Deployment as it is. This one differs between revisions, and is unlikely to be the choice of
// another client: so each hypergate releases only its own holds. It fits into 32 bits.
func HoldValue(revision string) string {
	const base = 1_000_000_000
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(revision)) // never fails
	return strconv.Itoa(base + int(sum.Sum32()%base))
}

// ForeignObject identifies the version of an object that a ForeignPatch changes. All fields are required.
type ForeignObject struct {
	Key             types.NamespacedName
	UID             types.UID
	ResourceVersion string
}

// ForeignPatch is a write to an object that does not belong to hypergate. It changes one field, of one version of the
// object: the API server refuses it (409) if the object has changed since. Only NewForeignPatch creates one.
type ForeignPatch struct {
	write ForeignWrite
	of    ForeignObject
	json  []byte
}

// NewForeignPatch returns the patch of a revision's hypergate for a reason. It returns an error if the table has no row
// for the reason, or if of is incomplete: without the preconditions, the patch could change an object that was not
// observed.
func NewForeignPatch(reason ForeignReason, revision string, of ForeignObject) (ForeignPatch, error) {
	if of.Key.Name == "" || of.Key.Namespace == "" || of.UID == "" || of.ResourceVersion == "" {
		return ForeignPatch{}, fmt.Errorf("patching %s (%s): its name, namespace, UID and resourceVersion are required", of.Key, reason)
	}
	for _, write := range ForeignWrites() {
		if write.Reason != reason {
			continue
		}
		var value any // nil removes the annotation
		if write.Effect == SetsHold {
			value = HoldValue(revision)
		}
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": of.UID, "resourceVersion": of.ResourceVersion, "annotations": map[string]any{write.Annotation: value},
		}})
		if err != nil {
			return ForeignPatch{}, fmt.Errorf("encoding a patch of %s: %w", of.Key, err)
		}
		return ForeignPatch{write: write, of: of, json: body}, nil
	}
	return ForeignPatch{}, fmt.Errorf("patching %s: no row of the table of foreign writes has the reason %q", of.Key, reason)
}

// Write returns the row of the table.
func (p ForeignPatch) Write() ForeignWrite { return p.write }

// Key returns the namespace and the name of the object.
func (p ForeignPatch) Key() types.NamespacedName { return p.of.Key }

// JSON returns the patch as a JSON merge patch (RFC 7386), with the UID and the resourceVersion of the observed object.
// The caller must not change it.
func (p ForeignPatch) JSON() []byte { return p.json }

// String returns what the patch does: Reason Kind namespace/name.
func (p ForeignPatch) String() string {
	return string(p.write.Reason) + " " + describe(p.write.GVK.Kind, p.of.Key)
}
