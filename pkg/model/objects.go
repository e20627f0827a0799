package model

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// MgmtObject is an object of the management side, as it should be. Only this package can make one.
type MgmtObject struct{ object }

// GuestObject is an object of the guest, as it should be. Only this package can make one.
type GuestObject struct{ object }

// object is an identity and the object's canonical JSON: small at rest, and the body of a server-side apply as it stands.
type object struct {
	gvk  schema.GroupVersionKind
	key  types.NamespacedName
	json []byte
}

// GVK is the object's group, version and kind.
func (o object) GVK() schema.GroupVersionKind { return o.gvk }

// Key is the object's namespace (empty when cluster-scoped) and name.
func (o object) Key() types.NamespacedName { return o.key }

// JSON is the whole object. The caller must not change it.
func (o object) JSON() []byte { return o.json }

// Unstructured decodes a fresh copy of the object.
func (o object) Unstructured() (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(o.json); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", o, err)
	}
	return u, nil
}

// String names the object: Kind namespace/name.
func (o object) String() string { return describe(o.gvk.Kind, o.key) }

func describe(kind string, key types.NamespacedName) string {
	if key.Namespace == "" {
		return kind + " " + key.Name
	}
	return kind + " " + key.Namespace + "/" + key.Name
}

// Kind is a kind of object that may stand on a side, with what an API client needs to know of it.
type Kind struct {
	GVK        schema.GroupVersionKind
	Resource   string
	Namespaced bool
	// Names are the only ones that objects of the kind may have; empty means any. They are watched by name, so that the others of the
	// namespace need not be shown to hypergate. Config.MgmtKinds has them.
	Names []string
	// NeverPrune kinds are never pruned.
	NeverPrune bool
	// Barrier kinds are written before any later kind: those could not be made otherwise.
	Barrier bool
	// RequiredByIstiod kinds must be there before istiod is: without them it would come up and not be able to do what it is for.
	RequiredByIstiod bool
}

// MgmtKinds are all kinds that may stand on the management side, in the order of applying; pruning goes backwards. The list is closed: it
// holds nothing cluster-scoped, no RBAC and nothing that hypergate's namespaced Role would have to be widened for.
func MgmtKinds() []Kind {
	return []Kind{
		{GVK: schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"}, Resource: "serviceaccounts", Namespaced: true, RequiredByIstiod: true},
		{GVK: schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, Resource: "secrets", Namespaced: true, RequiredByIstiod: true},
		{GVK: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Resource: "configmaps", Namespaced: true, RequiredByIstiod: true},
		{GVK: schema.GroupVersionKind{Version: "v1", Kind: "Service"}, Resource: "services", Namespaced: true},
		{GVK: schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}, Resource: "networkpolicies", Namespaced: true, RequiredByIstiod: true},
		{GVK: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, Resource: "deployments", Namespaced: true},
	}
}

// GuestKinds are all kinds that may stand in the guest: no Secret, no workload. CRDs and the namespace hold other people's objects, so
// they are never pruned. Roles come before bindings: whoever lacks the verb bind may make a binding only of a role that is there.
func GuestKinds() []Kind {
	rbac, admission := "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
	return []Kind{
		{GVK: schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, Resource: "namespaces", NeverPrune: true, Barrier: true, RequiredByIstiod: true},
		{GVK: schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"}, Resource: "serviceaccounts", Namespaced: true, RequiredByIstiod: true},
		{GVK: schema.GroupVersionKind{Group: rbac, Version: "v1", Kind: "ClusterRole"}, Resource: "clusterroles", RequiredByIstiod: true},
		{GVK: schema.GroupVersionKind{Group: rbac, Version: "v1", Kind: "Role"}, Resource: "roles", Namespaced: true, Barrier: true, RequiredByIstiod: true},
		{GVK: schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}, Resource: "customresourcedefinitions", NeverPrune: true},
		{GVK: schema.GroupVersionKind{Group: rbac, Version: "v1", Kind: "ClusterRoleBinding"}, Resource: "clusterrolebindings", RequiredByIstiod: true},
		{GVK: schema.GroupVersionKind{Group: rbac, Version: "v1", Kind: "RoleBinding"}, Resource: "rolebindings", Namespaced: true, RequiredByIstiod: true},
		{GVK: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Resource: "configmaps", Namespaced: true},
		{GVK: schema.GroupVersionKind{Version: "v1", Kind: "Service"}, Resource: "services", Namespaced: true},
		{GVK: schema.GroupVersionKind{Group: admission, Version: "v1", Kind: "MutatingWebhookConfiguration"}, Resource: "mutatingwebhookconfigurations"},
		{GVK: schema.GroupVersionKind{Group: admission, Version: "v1", Kind: "ValidatingWebhookConfiguration"}, Resource: "validatingwebhookconfigurations"},
		{GVK: schema.GroupVersionKind{Group: admission, Version: "v1", Kind: "ValidatingAdmissionPolicy"}, Resource: "validatingadmissionpolicies"},
		{GVK: schema.GroupVersionKind{Group: admission, Version: "v1", Kind: "ValidatingAdmissionPolicyBinding"}, Resource: "validatingadmissionpolicybindings"},
	}
}

// NeededOnMgmt says whether istiod's pod needs what is planned of this kind on the management side when it starts: it runs as an account and
// mounts Secrets and ConfigMaps, and the fence around it stands before it does.
func NeededOnMgmt(gvk schema.GroupVersionKind) bool {
	kind, _ := kindOf(MgmtKinds(), gvk)
	return kind.RequiredByIstiod
}

// NeededInGuest says whether istiod needs what is planned of this kind in the guest when it starts. It waits for CRDs by itself, and reads
// ConfigMaps and Services as they come.
func NeededInGuest(gvk schema.GroupVersionKind) bool {
	kind, _ := kindOf(GuestKinds(), gvk)
	return kind.RequiredByIstiod
}

// HoldsRoots says whether objects of this kind tell the guest's API server which roots of the mesh CA to trust.
func HoldsRoots(gvk schema.GroupVersionKind) bool {
	return gvk.Group == "admissionregistration.k8s.io" && strings.HasSuffix(gvk.Kind, "WebhookConfiguration")
}

// newObject checks that an object may stand on its side and freezes it. It is the only place where a MgmtObject or a GuestObject begins.
func newObject(u *unstructured.Unstructured, side Side, cfg Config, kinds []Kind) (object, error) {
	key := types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}
	name := describe(u.GetKind(), key)
	if key.Name == "" {
		return object{}, fmt.Errorf("%s for the %s side has no name", u.GetKind(), side)
	}
	kind, known := kindOf(kinds, u.GroupVersionKind())
	if !known {
		return object{}, fmt.Errorf("%s must not stand on the %s side: its kind %s is not on that side's list", name, side, u.GroupVersionKind().GroupKind())
	}
	if len(kind.Names) > 0 && !slices.Contains(kind.Names, key.Name) {
		return object{}, fmt.Errorf("%s must not stand on the %s side: its name is not on the list of its kind", name, side)
	}
	if want := cfg.namespaceOn(side, kind); key.Namespace != want {
		return object{}, fmt.Errorf("%s must not stand on the %s side: its namespace must be %q", name, side, want)
	}
	out := u.DeepCopy()
	for _, path := range [][]string{{"status"}, {"metadata", "creationTimestamp"}, {"metadata", "managedFields"}, {"metadata", "resourceVersion"}, {"metadata", "uid"}} {
		unstructured.RemoveNestedField(out.Object, path...)
	}
	if _, _, err := unstructured.NestedStringMap(out.Object, "metadata", "labels"); err != nil {
		return object{}, fmt.Errorf("labelling %s: %w", name, err)
	}
	if err := unstructured.SetNestedField(out.Object, cfg.OwnerValue(side), "metadata", "labels", OwnerLabel); err != nil {
		return object{}, fmt.Errorf("labelling %s: %w", name, err)
	}
	body, err := json.Marshal(out.Object)
	if err != nil {
		return object{}, fmt.Errorf("encoding %s: %w", name, err)
	}
	return object{gvk: u.GroupVersionKind(), key: key, json: body}, nil
}

func kindOf(kinds []Kind, gvk schema.GroupVersionKind) (Kind, bool) {
	for _, k := range kinds {
		if k.GVK == gvk {
			return k, true
		}
	}
	return Kind{}, false
}

// mgmtNames are the only names that objects of a kind may have on the management side.
func (c Config) mgmtNames(kind string) []string {
	switch kind {
	case "Secret":
		return []string{CASecretName, CredentialSecretName}
	case "ConfigMap":
		return []string{"istio-" + c.Revision, "istio-sidecar-injector-" + c.Revision}
	case "Service":
		if c.Topology == TopologyStandalone {
			return []string{c.IstiodName()}
		}
		names := []string{c.IstiodName(), c.WebhookService()}
		if c.Publish.Strategy != PublishAddress {
			names = append(names, c.XDSService())
		}
		return names
	default:
		return []string{c.IstiodName()}
	}
}

// namespaceOn is the one namespace that a namespaced object of a side may be in; nothing for a cluster-scoped kind.
func (c Config) namespaceOn(side Side, kind Kind) string {
	switch {
	case !kind.Namespaced:
		return ""
	case side == SideMgmt:
		return c.MgmtNamespace
	default:
		return c.GuestNamespace
	}
}

// NewGuestObject makes a GuestObject, or says why the object must not stand in the guest.
func NewGuestObject(u *unstructured.Unstructured, cfg Config) (GuestObject, error) {
	o, err := newObject(u, SideGuest, cfg, GuestKinds())
	return GuestObject{o}, err
}

// NewMgmtObject returns an object of the management side. An error says why the object must not be there.
func NewMgmtObject(u *unstructured.Unstructured, cfg Config) (MgmtObject, error) {
	return NewMgmtObjectOf(u, cfg, cfg.MgmtKinds())
}

// NewMgmtObjectOf is NewMgmtObject for other kinds than Config.MgmtKinds, such as routes.
func NewMgmtObjectOf(u *unstructured.Unstructured, cfg Config, kinds []Kind) (MgmtObject, error) {
	o, err := newObject(u, SideMgmt, cfg, kinds)
	return MgmtObject{o}, err
}
