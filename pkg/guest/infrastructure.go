package guest

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/watch"
)

// OpenShift's configuration says for how many nodes the infrastructure of the guest is made. It is in the object
// "cluster" of this CRD, in status.infrastructureTopology (openshift/api, config/v1/types_infrastructure.go).
const (
	infrastructureCRD    = "infrastructures.config.openshift.io"
	infrastructureObject = "cluster"
)

func infrastructureResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "config.openshift.io", Version: "v1", Resource: "infrastructures"}
}

// infrastructureWatch watches that object, while its CRD exists.
type infrastructureWatch struct{ *watch.Switch }

// infrastructureItem is the part of the object that is kept.
type infrastructureItem struct {
	metav1.ObjectMeta
	topology model.InfrastructureTopology
}

func newInfrastructureWatch(client dynamic.Interface, budget *watch.Budget, notify func()) infrastructureWatch {
	return infrastructureWatch{watch.NewSwitch(watch.Options{
		Name: infrastructureResource().Resource,
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = "metadata.name=" + infrastructureObject
			return client.Resource(infrastructureResource()).List(ctx, o)
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.FieldSelector = "metadata.name=" + infrastructureObject
			return client.Resource(infrastructureResource()).Watch(ctx, o)
		},
		Example: &unstructured.Unstructured{}, Client: client, Patience: servedPatience, Budget: budget,
		Transform: func(obj any) (any, error) {
			u, ok := obj.(*unstructured.Unstructured)
			if !ok {
				return obj, nil
			}
			return &infrastructureItem{metav1.ObjectMeta{Name: u.GetName(), ResourceVersion: u.GetResourceVersion()}, topologyOf(u)}, nil
		},
		OnEvent: func(watch.Event) { notify() }, OnSynced: notify, OnTrouble: notify,
	})}
}

// topologyOf returns what the object says. Each value but SingleReplica is the default: nothing of the guest's text is
// kept.
func topologyOf(u *unstructured.Unstructured) model.InfrastructureTopology {
	if text, _, _ := unstructured.NestedString(u.Object, "status", "infrastructureTopology"); text == string(model.SingleNode) {
		return model.SingleNode
	}
	return model.SeveralNodes
}

// topology returns for how many nodes the infrastructure is made. Without the object it is the default.
func (w infrastructureWatch) topology() model.InfrastructureTopology {
	obj, _ := w.Get(infrastructureObject)
	if item, ok := obj.(*infrastructureItem); ok {
		return item.topology
	}
	return model.SeveralNodes
}

// pending reports whether the topology can still change because its watch has not synced. Without it, a restart of
// hypergate would change the replicas of gateways, and change them back. A resource that is not served, or that
// hypergate is not allowed to read, is not waited for.
func (w infrastructureWatch) pending() bool {
	err := w.Err()
	return w.On() != nil && !w.Synced() && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err)
}

// watchProblem returns why the topology cannot be read.
func (w infrastructureWatch) watchProblem() []apply.WatchProblem {
	err := w.Err()
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return []apply.WatchProblem{{
		GVK:   schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "Infrastructure"},
		Cause: apply.Classify(err, "list", infrastructureResource().GroupResource()),
	}}
}
