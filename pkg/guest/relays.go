package guest

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/watch"
)

// relayItem is the part of the relays' StatefulSet that is kept: how many of its pods are ready.
type relayItem struct {
	metav1.ObjectMeta
	ready int
}

// KeptBytes returns the number of bytes that are kept besides the metadata.
func (i *relayItem) KeptBytes() int { return 8 }

// newRelayWatch returns a watch of the status of the tunnel's relays, by name.
func newRelayWatch(client dynamic.Interface, namespace string, budget *watch.Budget, notify func()) *watch.Watch {
	resource := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}
	options := selectedWatch(resource.Resource, client.Resource(resource).Namespace(namespace), named(model.RelayName))
	options.Example, options.Client, options.Transform, options.Budget = &unstructured.Unstructured{}, client, keeps(readyOnly), budget
	options.OnEvent = func(e watch.Event) {
		before, _ := e.Before.(*relayItem)
		if after, is := e.Object.(*relayItem); e.Gone || !is || before == nil || before.ready != after.ready {
			notify()
		}
	}
	options.OnSynced = notify
	return watch.New(options)
}

// readyOnly keeps the number of ready pods. The guest decides what it is, so it is at most the number of relays.
func readyOnly(u *unstructured.Unstructured) *relayItem {
	ready, _, _ := unstructured.NestedInt64(u.Object, "status", "readyReplicas")
	meta := metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName(), ResourceVersion: u.GetResourceVersion()}
	return &relayItem{meta, int(min(max(ready, 0), model.RelayReplicas))}
}

// readyRelays returns how many relays of the tunnel are ready. Without a tunnel there are none.
func (c *Cluster) readyRelays() int {
	obj, _ := c.relays.Get(types.NamespacedName{Namespace: c.cfg.GuestNamespace, Name: model.RelayName}.String())
	item, is := obj.(*relayItem)
	if !is {
		return 0
	}
	return item.ready
}
