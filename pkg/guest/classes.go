package guest

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/watch"
)

const (
	// classCRD is the CRD of GatewayClasses. classVersion is the version in which hypergate reads them.
	classCRD     = "gatewayclasses.gateway.networking.k8s.io"
	classVersion = "v1"
	gatewayCRD   = "gateways.gateway.networking.k8s.io"
)

// classWatch watches GatewayClasses while their CRD exists.
type classWatch struct {
	*watch.Switch
	controllerName string
}

func newClassWatch(client gatewayclient.GatewayClassInterface, controllerName string, budget *watch.Budget, notify func()) *classWatch {
	w := &classWatch{controllerName: controllerName}
	w.Switch = watch.NewSwitch(watch.Options{
		Name: "gatewayclasses",
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
		Watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			return client.Watch(ctx, o)
		},
		Example: &gatewayv1.GatewayClass{}, Transform: w.classOnly, Client: client, Patience: servedPatience, Budget: budget,
		OnEvent: func(e watch.Event) {
			if w.concerns(e.Object) || w.concerns(e.Before) {
				notify()
			}
		},
		OnSynced: notify, OnProblem: notify,
	})
	return w
}

// concerns reports whether a kept GatewayClass names hypergate's controller. Changes of other GatewayClasses cause no
// notification, however frequent they are.
func (w *classWatch) concerns(obj any) bool {
	class, ok := obj.(*classItem)
	return ok && class.controllerName == w.controllerName
}

// classItem is the part of a GatewayClass that is kept. For a class of another controller it is only the identity.
type classItem struct {
	metav1.ObjectMeta
	controllerName string
	// conditions are the conditions of hypergate's own types.
	conditions []metav1.Condition
	// finalized reports whether the class has the finalizer of OpenShift's ingress operator.
	finalized bool
	// parameters reports whether the class has a spec.parametersRef.
	parameters bool
	// writers has the other field managers that wrote a condition of hypergate's own types, by condition type.
	writers map[string]string
	// applied are the types of the conditions that hypergate has applied, as far as it still owns them.
	applied []string
}

// Limits, in bytes, for the texts of a GatewayClass that are kept. The rest is cut. hypergate's own messages are not
// longer.
const (
	maxMessage = 8<<10 + 16
	maxReason  = 256
	maxWriter  = 128
)

// KeptBytes returns the number of bytes that are kept besides the metadata.
func (i *classItem) KeptBytes() int {
	n := len(i.controllerName)
	for _, c := range i.conditions {
		n += conditionSize + len(c.Reason) + len(c.Message)
	}
	for _, writer := range i.writers {
		n += conditionSize + len(writer)
	}
	return n + stringSize*len(i.applied)
}

// conditionSize is the size of a condition in bytes, without its texts.
const conditionSize = 112

// classOnly reduces a GatewayClass to the facts that decisions depend on. A guest can have many classes, with
// annotations of any size.
func (w *classWatch) classOnly(obj any) (any, error) {
	class, ok := obj.(*gatewayv1.GatewayClass)
	if !ok {
		return obj, nil
	}
	item := &classItem{ObjectMeta: metav1.ObjectMeta{Name: class.Name, UID: class.UID, ResourceVersion: class.ResourceVersion}}
	if string(class.Spec.ControllerName) != w.controllerName {
		return item, nil
	}
	item.Generation, item.CreationTimestamp, item.DeletionTimestamp = class.Generation, class.CreationTimestamp, class.DeletionTimestamp
	item.controllerName, item.conditions = w.controllerName, ownConditions(class.Status.Conditions)
	item.finalized = slices.Contains(class.Finalizers, model.IngressOperatorFinalizer)
	item.parameters = class.Spec.ParametersRef != nil
	item.writers, item.applied = conditionOwners(class.ManagedFields)
	return item, nil
}

// ownConditions returns the conditions of hypergate's own types, the first one of each type.
func ownConditions(all []metav1.Condition) []metav1.Condition {
	var out []metav1.Condition
	for _, own := range status.OwnTypes() {
		if c := meta.FindStatusCondition(all, own); c != nil {
			kept := *c
			kept.Type = own
			kept.Status = metav1.ConditionStatus(bounded(string(kept.Status), maxReason))
			kept.Reason, kept.Message = bounded(kept.Reason, maxReason), bounded(kept.Message, maxMessage)
			out = append(out, kept)
		}
	}
	return out
}

// conditionOwners returns who owns the conditions of hypergate's own types: writers has the other field managers, by
// condition type, and applied has the types that hypergate owns, without repetitions.
func conditionOwners(entries []metav1.ManagedFieldsEntry) (writers map[string]string, applied []string) {
	for _, entry := range entries {
		for _, own := range ownedConditions(entry) {
			switch {
			case entry.Manager != model.FieldManager:
				if writers == nil {
					writers = map[string]string{}
				}
				writers[own] = bounded(entry.Manager, maxWriter)
			case !slices.Contains(applied, own):
				applied = append(applied, own)
			}
		}
	}
	return writers, applied
}

// ownedConditions returns the conditions of hypergate's own types that an entry owns.
func ownedConditions(entry metav1.ManagedFieldsEntry) (out []string) {
	if entry.FieldsV1 == nil {
		return nil
	}
	var fields struct {
		Status struct {
			Conditions map[string]json.RawMessage `json:"f:conditions"`
		} `json:"f:status"`
	}
	if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
		return nil
	}
	for key := range fields.Status.Conditions {
		var condition struct{ Type string }
		text, keyed := strings.CutPrefix(key, "k:")
		if !keyed || json.Unmarshal([]byte(text), &condition) != nil {
			continue
		}
		if own := slices.Index(status.OwnTypes(), condition.Type); own >= 0 {
			out = append(out, status.OwnTypes()[own]) // not the guest's string, which keeps all of the entry
		}
	}
	return out
}

// own returns the classes that name hypergate's controller, sorted by name. It includes a class that is being deleted
// until the class is gone: a finalizer on a GatewayClass means that the class is in use.
func (w *classWatch) own() []model.GatewayClass {
	items := w.items()
	if len(items) == 0 {
		return nil
	}
	out := make([]model.GatewayClass, 0, len(items))
	for _, class := range items {
		out = append(out, model.GatewayClass{
			Name: class.Name, UID: class.UID, Generation: class.Generation,
			Created: class.CreationTimestamp.Time, Parameters: class.parameters,
		})
	}
	return out
}

// items returns the kept parts of the classes that name hypergate's controller, sorted by name.
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

// status returns what the watch shows of the status of a class.
func (w *classWatch) status(name string) ClassStatus {
	obj, _ := w.Get(name)
	class, ok := obj.(*classItem)
	if !ok {
		return ClassStatus{}
	}
	return ClassStatus{
		UID: class.UID, ResourceVersion: class.ResourceVersion, Generation: class.Generation,
		Conditions: class.conditions, Writers: class.writers, Applied: class.applied,
	}
}
