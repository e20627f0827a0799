package guest

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/model"
)

func listenerSetResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: gatewayGroup, Version: "v1", Resource: "listenersets"}
}

// noteRefusal notes where a ListenerSet gets its condition, and what a patch of it needs. It does nothing for other
// kinds.
func (u *usage) noteRefusal(object *unstructured.Unstructured) {
	if object.GroupVersionKind().GroupVersion() != listenerSetResource().GroupVersion() || object.GetKind() != "ListenerSet" {
		return
	}
	if place, refused := model.RefusalPlace(object.Object); !refused {
		u.refuse, u.UID, u.Generation = &place, types.UID(bounded(string(object.GetUID()), maxUID)), object.GetGeneration()
		u.CreationTimestamp = object.GetCreationTimestamp()
	}
}

// refusable returns the ListenerSets of hypergate's Gateways that do not show yet that istiod ignores them. The last
// call of inUse has found them. The caller must not change the list.
func (v *useView) refusable() []model.ListenerSet {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.listed.listenerSets
}

// listRefusable makes the list. A ListenerSet counts only if it is known that its Gateway is of one of the classes:
// another controller may serve all others. They are sorted by namespace/name. The caller holds v.mu.
func (v *useView) listRefusable(classes map[string]bool) []model.ListenerSet {
	under := v.under[listenerSetResource()]
	if under == nil || !v.gateways.Synced() {
		return nil
	}
	var out []model.ListenerSet
	for _, obj := range under.List() {
		u, is := obj.(*usage)
		if !is || u.refuse == nil || u.parents.others || !v.concern(u.parents, classes) {
			continue
		}
		out = append(out, model.ListenerSet{
			ForeignObject: model.ForeignObject{
				Key: types.NamespacedName{Namespace: u.Namespace, Name: u.Name}, UID: u.UID, ResourceVersion: u.ResourceVersion,
			},
			Generation: u.Generation, Created: u.CreationTimestamp.Time, Place: *u.refuse,
		})
	}
	slices.SortFunc(out, func(a, b model.ListenerSet) int { return cmp.Compare(a.Key.String(), b.Key.String()) })
	return out
}
