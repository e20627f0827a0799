package model

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	// ReasonScaleOrigin: a migration gives the istiod in the guest pods, or takes them away.
	ReasonScaleOrigin ForeignReason = "ScaleOrigin"
	// ReasonRelaxWebhook: without pods, the validating webhook of the istiod in the guest must not block writes.
	ReasonRelaxWebhook ForeignReason = "RelaxWebhook"
	// ReasonRestoreTemplate: a Gateway that did not arrive at the hosted istiod gets the pods of before.
	ReasonRestoreTemplate ForeignReason = "RestoreTemplate"
	// ReasonRefuseListenerSet: istiod ignores ListenerSets. Their authors should learn it from the object.
	ReasonRefuseListenerSet ForeignReason = "RefuseListenerSet"
)

// ForeignEffect is what a write does to its field.
type ForeignEffect string

const (
	// SetsHold sets the field to HoldValue.
	SetsHold ForeignEffect = "set"
	// Removes removes the field.
	Removes ForeignEffect = "remove"
	// SetsReplicas sets the field to 0, or to the earlier number.
	SetsReplicas ForeignEffect = "set to 0, or to the earlier number"
	// SetsIgnore sets the field to Ignore.
	SetsIgnore ForeignEffect = "set to Ignore"
	// SetsTemplate sets the field to the pod template of an earlier ReplicaSet.
	SetsTemplate ForeignEffect = "set to that of an earlier ReplicaSet"
	// SetsRefused sets the condition to False.
	SetsRefused ForeignEffect = "set to False"
)

// ForeignWrite is a row of the table of all writes to objects that do not belong to hypergate: a kind, a field and a
// reason.
type ForeignWrite struct {
	GVK      schema.GroupVersionKind
	Resource string
	// Subresource is the part of the object that is patched. Empty: all of it.
	Subresource string
	Namespaced  bool
	// Field is the path of the field.
	Field  string
	Effect ForeignEffect
	Reason ForeignReason
	// InMigration reports whether only a migration writes it.
	InMigration bool
}

// GVR returns the resource that is patched.
func (w ForeignWrite) GVR() schema.GroupVersionResource {
	return w.GVK.GroupVersion().WithResource(w.Resource)
}

// ForeignWrites returns all writes to objects that do not belong to hypergate. Other than these, hypergate writes only
// its own objects, CRDs that it may take over, and status conditions of its own types. docs/security.md,
// deploy/rbac/guest, deploy/rbac/gateway-rollout and deploy/rbac/migration have the same rows.
func ForeignWrites() []ForeignWrite {
	gateway := schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "Gateway"}
	deployment := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	webhook := schema.GroupVersionKind{
		Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfiguration",
	}
	listenerSet := schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "ListenerSet"}
	hold := fmt.Sprintf("metadata.annotations[%q]", HoldAnnotation)
	return []ForeignWrite{
		{gateway, "gateways", "", true, hold, SetsHold, ReasonHoldGateway, false},
		{gateway, "gateways", "", true, hold, Removes, ReasonReleaseGateway, false},
		{listenerSet, "listenersets", "status", true, "status.conditions[Accepted]", SetsRefused, ReasonRefuseListenerSet, false},
		{deployment, "deployments", "", true, "spec.replicas", SetsReplicas, ReasonScaleOrigin, true},
		{webhook, "validatingwebhookconfigurations", "", false, "webhooks[*].failurePolicy", SetsIgnore, ReasonRelaxWebhook, true},
		{deployment, "deployments", "", true, "spec.template", SetsTemplate, ReasonRestoreTemplate, true},
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

// ForeignObject identifies the version of an object that a ForeignPatch changes. All fields are required, but for the
// namespace of an object without one.
type ForeignObject struct {
	Key             types.NamespacedName
	UID             types.UID
	ResourceVersion string
}

// ForeignPatch is a write to an object that does not belong to hypergate. It changes one field, of one version of the
// object: the API server refuses it (409) if the object has changed since. Only the functions below create one.
type ForeignPatch struct {
	write ForeignWrite
	of    ForeignObject
	kind  types.PatchType
	body  []byte
	// reverted reports whether an object is without the change. Nil: other clients may change what the patch sets.
	reverted func(object map[string]any) bool
}

// HoldPatch returns the patch with which the hypergate of a revision holds a Gateway.
func HoldPatch(revision string, of ForeignObject) (ForeignPatch, error) {
	value := HoldValue(revision)
	patch, err := mergePatch(ReasonHoldGateway, of, "metadata", map[string]any{"annotations": map[string]any{HoldAnnotation: value}})
	patch.reverted = func(object map[string]any) bool { return holdOf(object, value) != Held }
	return patch, err
}

// ReleasePatch returns the patch with which hypergate releases a Gateway. It removes the annotation, and does not
// restore a former number up to 5: istiod does the same with it and without it. A second annotation with the former
// number would reach the pods, because istiod copies other annotations to them.
func ReleasePatch(of ForeignObject) (ForeignPatch, error) {
	patch, err := mergePatch(ReasonReleaseGateway, of, "metadata", map[string]any{"annotations": map[string]any{HoldAnnotation: nil}})
	patch.reverted = func(object map[string]any) bool { return holdOf(object, "") != Free }
	return patch, err
}

// holdOf returns the hold of a Gateway.
func holdOf(object map[string]any, own string) GatewayHold {
	value, annotated, _ := unstructured.NestedString(object, "metadata", "annotations", HoldAnnotation)
	return HoldOf(value, own, annotated)
}

// managedVersion is the highest value of HoldAnnotation with which istiod manages a Gateway's Deployment.
const managedVersion = 5

// HoldOf returns the hold that the value of HoldAnnotation means for istiod (ManagedGatewayControllerVersion). own is
// the value with which this hypergate holds Gateways.
func HoldOf(value, own string, annotated bool) GatewayHold {
	if !annotated {
		return Free
	}
	if value == own {
		return Held
	}
	if version, err := strconv.Atoi(value); err != nil || version > managedVersion {
		return HeldByOther
	}
	return Free
}

// ReplicasPatch returns the patch of the number of pods of the istiod in the guest. A webhook of the guest may change
// the number, but not from or to 0.
func ReplicasPatch(of ForeignObject, replicas int32) (ForeignPatch, error) {
	if replicas < 0 {
		return ForeignPatch{}, fmt.Errorf("patching %s: %d replicas", of.Key, replicas)
	}
	patch, err := mergePatch(ReasonScaleOrigin, of, "spec", map[string]any{"replicas": replicas})
	patch.reverted = func(object map[string]any) bool {
		now, _, _ := unstructured.NestedInt64(object, "spec", "replicas")
		return (now > 0) != (replicas > 0)
	}
	return patch, err
}

// IgnorePatch returns the patch of the failure policies of the webhooks with these indices.
func IgnorePatch(of ForeignObject, indices []int) (ForeignPatch, error) {
	operations := make([]any, 0, len(indices))
	for _, i := range indices {
		operations = append(operations, replace(fmt.Sprintf("/webhooks/%d/failurePolicy", i), "Ignore"))
	}
	patch, err := jsonPatch(ReasonRelaxWebhook, of, operations...)
	patch.reverted = func(object map[string]any) bool {
		webhooks, _, _ := unstructured.NestedSlice(object, "webhooks")
		return slices.ContainsFunc(indices, func(i int) bool {
			if i >= len(webhooks) {
				return false
			}
			webhook, _ := webhooks[i].(map[string]any)
			return webhook["failurePolicy"] != "Ignore"
		})
	}
	return patch, err
}

// TemplatePatch returns the patch of the pod template of a Gateway's Deployment. A webhook of the guest may add to the
// template.
func TemplatePatch(of ForeignObject, template map[string]any) (ForeignPatch, error) {
	return jsonPatch(ReasonRestoreTemplate, of, replace("/spec/template", template))
}

func replace(path string, value any) any {
	return map[string]any{"op": "replace", "path": path, "value": value}
}

// mergePatch returns a JSON merge patch (RFC 7386) of a part of an object.
func mergePatch(reason ForeignReason, of ForeignObject, part string, content map[string]any) (ForeignPatch, error) {
	metadata := map[string]any{"uid": of.UID, "resourceVersion": of.ResourceVersion}
	body := map[string]any{part: content, "metadata": metadata}
	if part == "metadata" {
		maps.Copy(metadata, content)
	}
	return newForeignPatch(reason, of, types.MergePatchType, body)
}

// jsonPatch returns a JSON patch (RFC 6902). It replaces the UID and the version by what they were when the object was
// observed: the API server compares both.
func jsonPatch(reason ForeignReason, of ForeignObject, operations ...any) (ForeignPatch, error) {
	body := append([]any{
		replace("/metadata/uid", of.UID), replace("/metadata/resourceVersion", of.ResourceVersion),
	}, operations...)
	return newForeignPatch(reason, of, types.JSONPatchType, body)
}

// newForeignPatch returns an error if of is incomplete: without the preconditions, the patch could change an object
// that was not observed.
func newForeignPatch(reason ForeignReason, of ForeignObject, kind types.PatchType, body any) (ForeignPatch, error) {
	rows := ForeignWrites()
	at := slices.IndexFunc(rows, func(w ForeignWrite) bool { return w.Reason == reason })
	if at < 0 {
		return ForeignPatch{}, fmt.Errorf("patching %s: no row of the table of foreign writes has the reason %q", of.Key, reason)
	}
	if of.Key.Name == "" || (of.Key.Namespace != "") != rows[at].Namespaced || of.UID == "" || of.ResourceVersion == "" {
		return ForeignPatch{}, fmt.Errorf("patching %s (%s): its name, namespace, UID and resourceVersion are required", of.Key, reason)
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		return ForeignPatch{}, fmt.Errorf("encoding a patch of %s: %w", of.Key, err)
	}
	return ForeignPatch{write: rows[at], of: of, kind: kind, body: encoded}, nil
}

// IsReverted reports whether the object that the API server returned for the patch is without its change. A mutating
// webhook or policy can revert a patch, and the API server returns no error then.
func (p ForeignPatch) IsReverted(object map[string]any) bool {
	return p.reverted != nil && p.reverted(object)
}

// Write returns the row of the table.
func (p ForeignPatch) Write() ForeignWrite { return p.write }

// Key returns the namespace and the name of the object.
func (p ForeignPatch) Key() types.NamespacedName { return p.of.Key }

// Type returns the format of JSON.
func (p ForeignPatch) Type() types.PatchType { return p.kind }

// JSON returns the patch, with the UID and the resourceVersion of the observed object. The caller must not change it.
func (p ForeignPatch) JSON() []byte { return p.body }

// String returns what the patch does: Reason Kind namespace/name.
func (p ForeignPatch) String() string {
	return string(p.write.Reason) + " " + describe(p.write.GVK.Kind, p.of.Key)
}
