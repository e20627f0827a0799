package guest

import (
	"cmp"
	"context"
	"slices"

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

// classOnly keeps of a GatewayClass what is decided by: a guest may have many, with annotations as large as it likes.
func classOnly(obj any) (any, error) {
	class, ok := obj.(*gatewayv1.GatewayClass)
	if !ok {
		return obj, nil
	}
	return &gatewayv1.GatewayClass{
		ObjectMeta: metav1.ObjectMeta{
			Name: class.Name, UID: class.UID, ResourceVersion: class.ResourceVersion, Generation: class.Generation, DeletionTimestamp: class.DeletionTimestamp,
		},
		Spec:   gatewayv1.GatewayClassSpec{ControllerName: class.Spec.ControllerName},
		Status: gatewayv1.GatewayClassStatus{Conditions: class.Status.Conditions},
	}, nil
}

// ours are the classes that name our controller, by name. One that is being deleted is among them until it is gone: a finalizer on a
// GatewayClass says that it is in use.
func (w *classWatch) ours() []desired.GatewayClass {
	var out []desired.GatewayClass
	for _, obj := range w.List() {
		class, ok := obj.(*gatewayv1.GatewayClass)
		if ok && string(class.Spec.ControllerName) == w.controllerName {
			out = append(out, desired.GatewayClass{Name: class.Name, Generation: class.Generation})
		}
	}
	slices.SortFunc(out, func(a, b desired.GatewayClass) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// conditions are the conditions that a class has now.
func (w *classWatch) conditions(name string) []metav1.Condition {
	obj, _ := w.Get(name)
	if class, ok := obj.(*gatewayv1.GatewayClass); ok {
		return class.Status.Conditions
	}
	return nil
}
