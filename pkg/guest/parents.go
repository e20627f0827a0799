package guest

import (
	"cmp"
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/hypergate/hypergate/pkg/watch"
)

// gatewayGroup is the default group of a parentRef. experimentalGroup has kinds of the Gateway API that can still
// change.
const (
	gatewayGroup      = "gateway.networking.k8s.io"
	experimentalGroup = "gateway.networking.x-k8s.io"
)

// isGatewayAPI reports whether a group has kinds of the Gateway API, standard or experimental.
func isGatewayAPI(group string) bool { return group == gatewayGroup || group == experimentalGroup }

// parents are the objects to which an object is attached, such as the Gateways of a route.
type parents struct {
	gateways []types.NamespacedName
	// others reports whether there are other parents than Gateways, or no parents at all. hypergate cannot find out
	// which classes these belong to.
	others bool
}

// Limits for what is kept of an object that is attached to Gateways.
const (
	// maxParents is how many parents of one object are kept. The Gateway API allows 32. An object with more parents
	// counts as attached to any Gateway.
	maxParents = 64
	// maxName is the maximum length of an object name in bytes. A longer name refers to nothing.
	maxName = 253
)

// parentsOf reads spec.parentRefs. A ListenerSet has a single parent instead. It copies nothing, because the guest
// decides how large these are.
func parentsOf(u *unstructured.Unstructured) parents {
	list, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "parentRefs")
	refs, _ := list.([]any)
	if kind := u.GetKind(); kind == "ListenerSet" || kind == "XListenerSet" {
		refs = nil
		field, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "parentRef")
		if ref, is := field.(map[string]any); is {
			refs = []any{ref}
		}
	}
	out := parents{others: len(refs) == 0 || len(refs) > maxParents}
	if len(refs) > maxParents {
		return out
	}
	for _, ref := range refs {
		ref, _ := ref.(map[string]any)
		text := func(key, otherwise string) string {
			value, _, _ := unstructured.NestedString(ref, key)
			return cmp.Or(value, otherwise)
		}
		if text("group", gatewayGroup) != gatewayGroup || text("kind", "Gateway") != "Gateway" {
			out.others = true
			continue
		}
		key := types.NamespacedName{Namespace: text("namespace", u.GetNamespace()), Name: text("name", "")}
		if len(key.Namespace)+len(key.Name) > 2*maxName {
			continue // no object has such a name
		}
		out.gateways = append(out.gateways, key)
	}
	return out
}

// gatewayItem is the part of a Gateway that is kept: its identity and its class.
type gatewayItem struct {
	metav1.ObjectMeta
	class string
}

// KeptBytes returns the number of bytes that are kept besides the metadata.
func (i *gatewayItem) KeptBytes() int { return stringSize + len(i.class) }

// newGatewayWatch returns a watch for the class of each Gateway. It is on only while objects that can be attached to
// Gateways are searched.
func newGatewayWatch(client dynamic.Interface, budget *watch.Budget, notify func()) *watch.Switch {
	resource := client.Resource(gatewayResource())
	return watch.NewSwitch(watch.Options{
		Name: "gateways",
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return resource.List(ctx, o) },
		Watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			return resource.Watch(ctx, o)
		},
		Example: &unstructured.Unstructured{}, Client: client, Patience: servedPatience, Futile: futile, Budget: budget,
		Transform: keeps(gatewayOnly),
		OnEvent:   func(watch.Event) { notify() }, OnSynced: notify, OnProblem: notify,
	})
}

// gatewayOnly keeps the identity and the class of a Gateway.
func gatewayOnly(u *unstructured.Unstructured) *gatewayItem {
	class, _, _ := unstructured.NestedString(u.Object, "spec", "gatewayClassName")
	identity := metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName(), ResourceVersion: u.GetResourceVersion()}
	return &gatewayItem{identity, bounded(class, maxName)}
}

// arrangeParents watches Gateways while a search covers objects that are attached to them. key and version are those
// of the Gateways' CRD.
func (v *useView) arrangeParents(ctx context.Context, wanted []search, key, version string) {
	if !slices.ContainsFunc(wanted, search.attached) {
		key = ""
	}
	v.gateways.Set(ctx, key, version)
	v.changes.Add(1)
}

// attached reports whether a search covers objects that can be attached to Gateways: all of the Gateway API but its
// Gateways and classes. Objects of Istio's kinds that istiod does not serve count without a look at their content.
func (s search) attached() bool {
	return (len(s.fields) > 0 || isGatewayAPI(s.gvr.Group)) && s.crd != gatewayCRD && s.crd != classCRD
}

// concern reports whether an object with these parents can belong to one of the classes. It returns true if that is
// unknown.
func (v *useView) concern(p parents, classes map[string]bool) bool {
	if p.others || !v.gateways.Synced() {
		return true
	}
	return slices.ContainsFunc(p.gateways, func(key types.NamespacedName) bool {
		obj, _ := v.gateways.Get(key.String())
		item, is := obj.(*gatewayItem)
		return is && classes[item.class]
	})
}
