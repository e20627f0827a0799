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

// MgmtObject is the desired state of an object on the management side. Only this package can create one.
type MgmtObject struct{ object }

// GuestObject is the desired state of an object in the guest. Only this package can create one.
type GuestObject struct{ object }

// object has the identity of an object and its canonical JSON. The JSON needs little memory, and is the body of a
// server-side apply without changes.
type object struct {
	gvk  schema.GroupVersionKind
	key  types.NamespacedName
	json []byte
}

// GVK returns the group, version and kind of the object.
func (o object) GVK() schema.GroupVersionKind { return o.gvk }

// Key returns the namespace (empty if cluster-scoped) and the name of the object.
func (o object) Key() types.NamespacedName { return o.key }

// JSON returns the whole object. The caller must not change it.
func (o object) JSON() []byte { return o.json }

// Unstructured returns a decoded copy of the object.
func (o object) Unstructured() (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(o.json); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", o, err)
	}
	return u, nil
}

// String returns the kind, namespace and name of the object: Kind namespace/name.
func (o object) String() string { return describe(o.gvk.Kind, o.key) }

// describe returns the text for an object: Kind namespace/name.
func describe(kind string, key types.NamespacedName) string {
	if key.Namespace == "" {
		return kind + " " + key.Name
	}
	return kind + " " + key.Namespace + "/" + key.Name
}

// Kind is a kind of object that is allowed on a side, with the information that an API client needs.
type Kind struct {
	GVK        schema.GroupVersionKind
	Resource   string
	Namespaced bool
	// Names are the only allowed names for objects of the kind. Empty means any name. Objects are watched by name, so
	// that hypergate does not have to read the others in the namespace. Config.MgmtKinds sets Names.
	Names []string
	// NeverPrune is true for kinds that are never pruned.
	NeverPrune bool
	// Barrier is true for kinds that are written before any later kind. Later kinds cannot be created without them.
	Barrier bool
	// RequiredByIstiod is true for kinds that must exist before istiod. Without them, istiod would start but would
	// not work.
	RequiredByIstiod bool
	// Workload is true for kinds that run pods in the guest. NewGuestObject refuses them. The only such object is the
	// relays of the tunnel: see NewRelays.
	Workload bool
}

// MgmtKinds returns all kinds that are allowed on the management side, in the order in which they are applied. They are
// pruned in reverse order. The list is closed. It has no cluster-scoped kind and no RBAC. Every kind fits hypergate's
// namespaced Role.
func MgmtKinds() []Kind {
	return []Kind{
		{
			GVK:      schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"},
			Resource: "serviceaccounts", Namespaced: true, RequiredByIstiod: true,
		},
		{GVK: schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, Resource: "secrets", Namespaced: true, RequiredByIstiod: true},
		{GVK: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Resource: "configmaps", Namespaced: true, RequiredByIstiod: true},
		{GVK: schema.GroupVersionKind{Version: "v1", Kind: "Service"}, Resource: "services", Namespaced: true},
		{
			GVK:      schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
			Resource: "networkpolicies", Namespaced: true, RequiredByIstiod: true,
		},
		{
			GVK:      schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
			Resource: "poddisruptionbudgets", Namespaced: true,
		},
		{GVK: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, Resource: "deployments", Namespaced: true},
	}
}

// GuestKinds returns all kinds that are allowed in the guest, in the order in which they are applied. It has no
// Secret. Its only workload is the relays of the tunnel, by name: see NewRelays.
//
// CRDs and the namespace are never pruned, because they contain other users' objects. Roles come before bindings: a
// user without the verb bind can create a binding only to a role that exists.
func GuestKinds() []Kind {
	rbac, admission := "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
	return []Kind{
		{
			GVK:      schema.GroupVersionKind{Version: "v1", Kind: "Namespace"},
			Resource: "namespaces", NeverPrune: true, Barrier: true, RequiredByIstiod: true,
		},
		{
			GVK:      schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"},
			Resource: "serviceaccounts", Namespaced: true, RequiredByIstiod: true,
		},
		{GVK: schema.GroupVersionKind{Group: rbac, Version: "v1", Kind: "ClusterRole"}, Resource: "clusterroles", RequiredByIstiod: true},
		{
			GVK:      schema.GroupVersionKind{Group: rbac, Version: "v1", Kind: "Role"},
			Resource: "roles", Namespaced: true, Barrier: true, RequiredByIstiod: true,
		},
		{
			GVK:      schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
			Resource: "customresourcedefinitions", NeverPrune: true,
		},
		{
			GVK:      schema.GroupVersionKind{Group: rbac, Version: "v1", Kind: "ClusterRoleBinding"},
			Resource: "clusterrolebindings", RequiredByIstiod: true,
		},
		{
			GVK:      schema.GroupVersionKind{Group: rbac, Version: "v1", Kind: "RoleBinding"},
			Resource: "rolebindings", Namespaced: true, RequiredByIstiod: true,
		},
		{GVK: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Resource: "configmaps", Namespaced: true},
		{GVK: schema.GroupVersionKind{Version: "v1", Kind: "Service"}, Resource: "services", Namespaced: true},
		// The relays of the tunnel. Their network policy comes before their pods.
		{
			GVK:      schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
			Resource: "networkpolicies", Namespaced: true, Names: []string{RelayName},
		},
		{
			GVK:      schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
			Resource: "poddisruptionbudgets", Namespaced: true, Names: []string{RelayName},
		},
		{GVK: relaysGVK(), Resource: "statefulsets", Namespaced: true, Names: []string{RelayName}, Workload: true},
		{
			GVK:      schema.GroupVersionKind{Group: admission, Version: "v1", Kind: "MutatingWebhookConfiguration"},
			Resource: "mutatingwebhookconfigurations",
		},
		{
			GVK:      schema.GroupVersionKind{Group: admission, Version: "v1", Kind: "ValidatingWebhookConfiguration"},
			Resource: "validatingwebhookconfigurations",
		},
		{
			GVK:      schema.GroupVersionKind{Group: admission, Version: "v1", Kind: "ValidatingAdmissionPolicy"},
			Resource: "validatingadmissionpolicies",
		},
		{
			GVK:      schema.GroupVersionKind{Group: admission, Version: "v1", Kind: "ValidatingAdmissionPolicyBinding"},
			Resource: "validatingadmissionpolicybindings",
		},
	}
}

// NeededOnMgmt reports whether istiod's pod needs the planned objects of this kind on the management side when it
// starts. The pod runs as a service account and mounts Secrets and ConfigMaps. Its NetworkPolicy must exist before
// the pod.
func NeededOnMgmt(gvk schema.GroupVersionKind) bool {
	kind, _ := kindOf(MgmtKinds(), gvk)
	return kind.RequiredByIstiod
}

// NeededInGuest reports whether istiod needs the planned objects of this kind in the guest when it starts. istiod
// itself waits for CRDs, and reads ConfigMaps and Services when they appear.
func NeededInGuest(gvk schema.GroupVersionKind) bool {
	kind, _ := kindOf(GuestKinds(), gvk)
	return kind.RequiredByIstiod
}

// GrantsAccess reports whether objects of this kind give istiod its access to the guest: its service account, its roles
// and its bindings.
func GrantsAccess(gvk schema.GroupVersionKind) bool {
	return gvk.Kind == "ServiceAccount" || gvk.Group == "rbac.authorization.k8s.io"
}

// HoldsRoots reports whether objects of this kind configure which roots of the mesh CA the guest's API server trusts.
func HoldsRoots(gvk schema.GroupVersionKind) bool {
	return gvk.Group == "admissionregistration.k8s.io" && strings.HasSuffix(gvk.Kind, "WebhookConfiguration")
}

// newObject checks that an object is allowed on its side, and encodes it. It is the only function that creates the
// content of a MgmtObject or a GuestObject.
func newObject(u *unstructured.Unstructured, side Side, cfg Config, kinds []Kind) (object, error) {
	key := types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}
	name := describe(u.GetKind(), key)
	if key.Name == "" {
		return object{}, fmt.Errorf("%s for the %s side has no name", u.GetKind(), side)
	}
	kind, known := kindOf(kinds, u.GroupVersionKind())
	if !known {
		return object{}, fmt.Errorf("%s is not allowed on the %s side: the kind %s is not on the list of that side",
			name, side, u.GroupVersionKind().GroupKind())
	}
	if len(kind.Names) > 0 && !slices.Contains(kind.Names, key.Name) {
		return object{}, fmt.Errorf("%s is not allowed on the %s side: its name is not on the list of its kind", name, side)
	}
	if want := cfg.namespaceOn(side, kind); key.Namespace != want {
		return object{}, fmt.Errorf("%s is not allowed on the %s side: its namespace must be %q", name, side, want)
	}
	out := u.DeepCopy()
	for _, path := range [][]string{
		{"status"}, {"metadata", "creationTimestamp"}, {"metadata", "managedFields"}, {"metadata", "resourceVersion"}, {"metadata", "uid"},
	} {
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

// kindOf returns the kind with a GVK, and whether it is in the list.
func kindOf(kinds []Kind, gvk schema.GroupVersionKind) (Kind, bool) {
	for _, k := range kinds {
		if k.GVK == gvk {
			return k, true
		}
	}
	return Kind{}, false
}

// mgmtNames returns the only allowed names for objects of a kind on the management side.
func (c Config) mgmtNames(kind string) []string {
	switch kind {
	case "Secret":
		if c.Topology == TopologyStandalone {
			return []string{CASecretName, CredentialSecretName, c.WebhookSecretName()}
		}
		return []string{CASecretName, CredentialSecretName, c.WebhookSecretName(), TunnelSecretName}
	case "ConfigMap":
		// The names of an earlier version are watched until its objects are pruned.
		return append(c.SlotConfigMaps(), c.ChartMeshConfigMap(), c.ChartInjectorConfigMap())
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

// namespaceOn returns the only allowed namespace for objects of a kind on a side. It is empty for a cluster-scoped
// kind.
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

// NewGuestObject returns an object of the guest. An error is the reason why the object is not allowed there. It refuses
// every workload: NewRelays creates the only one.
func NewGuestObject(u *unstructured.Unstructured, cfg Config) (GuestObject, error) {
	if kind, _ := kindOf(GuestKinds(), u.GroupVersionKind()); kind.Workload {
		key := types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}
		return GuestObject{}, fmt.Errorf("%s is not allowed on the %s side: it is a workload, and only the relays of the tunnel can be one",
			describe(u.GetKind(), key), SideGuest)
	}
	o, err := newObject(u, SideGuest, cfg, GuestKinds())
	return GuestObject{o}, err
}

// NewMgmtObject returns an object of the management side. An error is the reason why the object is not allowed there.
func NewMgmtObject(u *unstructured.Unstructured, cfg Config) (MgmtObject, error) {
	return NewMgmtObjectOf(u, cfg, cfg.MgmtKinds())
}

// NewMgmtObjectOf is NewMgmtObject for other kinds than Config.MgmtKinds, such as routes.
func NewMgmtObjectOf(u *unstructured.Unstructured, cfg Config, kinds []Kind) (MgmtObject, error) {
	o, err := newObject(u, SideMgmt, cfg, kinds)
	return MgmtObject{o}, err
}
