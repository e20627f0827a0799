package guest

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/watch"
)

const (
	// classCRD is the CRD without which there are no GatewayClasses, classVersion the version in which they are read.
	classCRD     = "gatewayclasses.gateway.networking.k8s.io"
	classVersion = "v1"
	gatewayCRD   = "gateways.gateway.networking.k8s.io"
)

// classWatch watches GatewayClasses, while their CRD is there.
type classWatch struct {
	*watch.Switch
	controllerName string
}

func newClassWatch(client gatewayclient.GatewayClassInterface, controllerName string, notify func()) *classWatch {
	return &classWatch{
		Switch: watch.NewSwitch(watch.Options{
			Name: "gatewayclasses",
			List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
			Watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
				return client.Watch(ctx, o)
			},
			Example: &gatewayv1.GatewayClass{}, Transform: classOnly, Client: client, Patience: servedPatience,
			OnEvent: func(watch.Event) { notify() }, OnSynced: notify, OnTrouble: notify,
		}),
		controllerName: controllerName,
	}
}

// classItem is what is kept of a GatewayClass.
type classItem struct {
	metav1.ObjectMeta
	controllerName string
	conditions     []metav1.Condition
	// finalized is whether OpenShift's ingress operator looks after it.
	finalized bool
	// writers are the field managers, but ours, that have written a condition, by its type.
	writers map[string]string
}

// classOnly keeps of a GatewayClass what is decided by: a guest may have many, with annotations as large as it likes.
func classOnly(obj any) (any, error) {
	class, ok := obj.(*gatewayv1.GatewayClass)
	if !ok {
		return obj, nil
	}
	return &classItem{
		ObjectMeta: metav1.ObjectMeta{
			Name: class.Name, UID: class.UID, ResourceVersion: class.ResourceVersion, Generation: class.Generation, DeletionTimestamp: class.DeletionTimestamp,
			CreationTimestamp: class.CreationTimestamp,
		},
		controllerName: string(class.Spec.ControllerName), conditions: class.Status.Conditions,
		finalized: slices.Contains(class.Finalizers, desired.IngressOperatorFinalizer), writers: writersOf(class.ManagedFields),
	}, nil
}

// writersOf are the field managers, but ours, that have written a condition, by its type.
func writersOf(entries []metav1.ManagedFieldsEntry) map[string]string {
	var out map[string]string
	for _, entry := range entries {
		if entry.Manager == desired.FieldManager || entry.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Status struct {
				Conditions map[string]json.RawMessage `json:"f:conditions"`
			} `json:"f:status"`
		}
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		for key := range fields.Status.Conditions {
			var condition struct{ Type string }
			text, keyed := strings.CutPrefix(key, "k:")
			if !keyed || json.Unmarshal([]byte(text), &condition) != nil {
				continue
			}
			if out == nil {
				out = map[string]string{}
			}
			out[condition.Type] = entry.Manager
		}
	}
	return out
}

// ours are the classes that name our controller, by name. One that is being deleted is among them until it is gone: a finalizer on a
// GatewayClass says that it is in use.
func (w *classWatch) ours() []desired.GatewayClass {
	items := w.items()
	if len(items) == 0 {
		return nil
	}
	out := make([]desired.GatewayClass, 0, len(items))
	for _, class := range items {
		out = append(out, desired.GatewayClass{Name: class.Name, Generation: class.Generation, Created: class.CreationTimestamp.Time})
	}
	return out
}

// items are what is kept of the classes that name our controller, by name.
func (w *classWatch) items() []*classItem {
	var out []*classItem
	for _, obj := range w.List() {
		if class, ok := obj.(*classItem); ok && class.controllerName == w.controllerName {
			out = append(out, class)
		}
	}
	slices.SortFunc(out, func(a, b *classItem) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// conditions are the conditions that a class has now.
func (w *classWatch) conditions(name string) []metav1.Condition {
	obj, _ := w.Get(name)
	if class, ok := obj.(*classItem); ok {
		return class.conditions
	}
	return nil
}

// writers are the field managers, but ours, that have written a condition of a class, by its type.
func (w *classWatch) writers(name string) map[string]string {
	obj, _ := w.Get(name)
	if class, ok := obj.(*classItem); ok {
		return class.writers
	}
	return nil
}
