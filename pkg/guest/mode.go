package guest

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/watch"
)

// OpenShift's configuration of its ingress operator says who looks after the Gateway API: the object "cluster" of this CRD, in its
// spec.gatewayAPI.managementMode (openshift/api, operator/v1alpha1/types_ingress.go).
const (
	modeCRD    = "ingresses.operator.openshift.io"
	modeObject = "cluster"
)

func modeKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "operator.openshift.io", Version: "v1alpha1", Kind: "Ingress"}
}

func modeResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "operator.openshift.io", Version: "v1alpha1", Resource: "ingresses"}
}

// modeWatch watches the object that says whether the installation is looked after, where its CRD is.
type modeWatch struct {
	*watch.Switch
	// unknown is told of a mode that nobody knows, each once.
	unknown func(mode string)

	// mu guards told: a watch that ends may overlap with the next.
	mu   sync.Mutex
	told string
	// tells limits how often that is: the guest may write another one as often as it likes.
	tells rate.Sometimes
}

// modeItem is what is kept of the object.
type modeItem struct {
	metav1.ObjectMeta
	mode string
}

// KeptBytes is what is kept beside the metadata.
func (i *modeItem) KeptBytes() int { return stringSize + len(i.mode) }

// maxMode is how many bytes are kept of the mode, which is logged if it is unknown. The rest is cut.
const maxMode = 100

func newModeWatch(client dynamic.Interface, budget *watch.Budget, notify func(), unknown func(mode string)) *modeWatch {
	w := &modeWatch{unknown: unknown, tells: rate.Sometimes{First: 3, Interval: time.Minute}}
	w.Switch = watch.NewSwitch(watch.Options{
		Name: modeResource().Resource,
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = "metadata.name=" + modeObject
			return client.Resource(modeResource()).List(ctx, o)
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.FieldSelector = "metadata.name=" + modeObject
			return client.Resource(modeResource()).Watch(ctx, o)
		},
		Example: &unstructured.Unstructured{}, Client: client, Patience: servedPatience, Budget: budget,
		Transform: func(obj any) (any, error) {
			u, ok := obj.(*unstructured.Unstructured)
			if !ok {
				return obj, nil
			}
			mode, _, _ := unstructured.NestedString(u.Object, "spec", "gatewayAPI", "managementMode")
			return &modeItem{metav1.ObjectMeta{Name: u.GetName(), ResourceVersion: u.GetResourceVersion()}, bounded(mode, maxMode)}, nil
		},
		OnEvent: func(e watch.Event) {
			w.tell(e)
			notify()
		},
		OnSynced: notify, OnTrouble: notify,
	})
	return w
}

// tell tells of a mode that nobody knows.
func (w *modeWatch) tell(e watch.Event) {
	item, ok := e.Object.(*modeItem)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !ok || e.Gone || item.mode == w.told {
		return
	}
	w.told = item.mode
	if item.mode != "" && modeOf(item.mode) == "" {
		w.tells.Do(func() { w.unknown(item.mode) })
	}
}

// modeOf is the mode that a text names, and empty for what names none.
func modeOf(text string) crds.Mode {
	switch mode := crds.Mode(text); mode {
	case crds.Managed, crds.Unmanaged:
		return mode
	default:
		return ""
	}
}

// mode is what the guest says; empty when it says nothing, so that the flags decide.
func (w *modeWatch) mode() crds.Mode {
	obj, _ := w.Get(modeObject)
	if item, ok := obj.(*modeItem); ok {
		return modeOf(item.mode)
	}
	return ""
}

// pending is whether the mode may yet be another one than it seems. It is not where the API server does not know the resource (then it is another
// version of OpenShift), nor where it may not be read: nobody would be helped by an installation that stands still.
func (w *modeWatch) pending() bool {
	err := w.Err()
	return w.On() != nil && !w.Synced() && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err)
}

// problem is why the mode cannot be read, or nil.
func (w *modeWatch) problem() error {
	if err := w.Err(); !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// watchProblem is the problem as it is told of other watches.
func (w *modeWatch) watchProblem() []apply.WatchProblem {
	if err := w.problem(); err != nil {
		return []apply.WatchProblem{{GVK: modeKind(), Cause: apply.Classify(err, "list", modeResource().GroupResource())}}
	}
	return nil
}
