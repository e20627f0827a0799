package guest

import (
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/throttle"
	"github.com/hypergate/hypergate/pkg/watch"
)

// The configuration of OpenShift's ingress operator says who manages the Gateway API. It is in the object "cluster"
// of this CRD, in spec.gatewayAPI.managementMode (openshift/api, operator/v1alpha1/types_ingress.go).
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

// modeWatch watches the object with the management mode, while its CRD exists.
type modeWatch struct {
	*watch.Switch
	// unknown is called with a mode that hypergate does not know, once for each change.
	unknown func(mode string)

	// mu guards reported. A watch that ends can overlap with the next one.
	mu       sync.Mutex
	reported string
	// reports limits the calls of unknown. The guest can change the mode at any rate.
	reports throttle.Limiter
}

// modeItem is the part of the object that is kept.
type modeItem struct {
	metav1.ObjectMeta
	mode string
}

// KeptBytes returns the number of bytes that are kept besides the metadata.
func (i *modeItem) KeptBytes() int { return stringSize + len(i.mode) }

// maxMode is how many bytes of the mode are kept. An unknown mode is logged. The rest is cut.
const maxMode = 100

// modeBurst and modeEvery limit the log lines about unknown modes. The guest can change its mode as often as it
// likes.
const (
	modeBurst = 3
	modeEvery = time.Minute
)

func newModeWatch(client dynamic.Interface, budget *watch.Budget, notify func(), unknown func(mode string)) *modeWatch {
	w := &modeWatch{unknown: unknown, reports: throttle.NewLimiter(throttle.Rate{Burst: modeBurst, Every: modeEvery})}
	options := selectedWatch(modeResource().Resource, client.Resource(modeResource()), named(modeObject))
	options.Example, options.Client, options.Budget = &unstructured.Unstructured{}, client, budget
	options.Patience, options.Transform = servedPatience, keeps(modeOnly)
	options.OnEvent = func(e watch.Event) {
		w.report(e)
		notify()
	}
	options.OnSynced, options.OnProblem = notify, notify
	w.Switch = watch.NewSwitch(options)
	return w
}

// modeOnly keeps the mode.
func modeOnly(u *unstructured.Unstructured) *modeItem {
	mode, _, _ := unstructured.NestedString(u.Object, "spec", "gatewayAPI", "managementMode")
	return &modeItem{metav1.ObjectMeta{Name: u.GetName(), ResourceVersion: u.GetResourceVersion()}, bounded(mode, maxMode)}
}

// report calls unknown if an event shows a new mode that hypergate does not know.
func (w *modeWatch) report(e watch.Event) {
	item, ok := e.Object.(*modeItem)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !ok || e.Gone || item.mode == w.reported {
		return
	}
	w.reported = item.mode
	if item.mode != "" && modeOf(item.mode) == "" && w.reports.Allow(time.Now()) {
		w.unknown(item.mode)
	}
}

// modeOf returns the mode with the given name, or "" if hypergate does not know it.
func modeOf(text string) crds.Mode {
	switch mode := crds.Mode(text); mode {
	case crds.Managed, crds.Unmanaged:
		return mode
	default:
		return ""
	}
}

// mode returns the guest's management mode. It is "" if the guest sets none; the flags then decide.
func (w *modeWatch) mode() crds.Mode {
	obj, _ := w.Get(modeObject)
	if item, ok := obj.(*modeItem); ok {
		return modeOf(item.mode)
	}
	return ""
}

// pending reports whether the mode can still change because its watch has not synced. It returns false if the API
// server does not know the resource (a different OpenShift version) or if hypergate is not allowed to read it.
// Blocking the installation would not help in these cases.
func (w *modeWatch) pending() bool {
	err := w.Err()
	return w.On() != nil && !w.Synced() && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err)
}

// problem returns why the mode cannot be read, or nil.
func (w *modeWatch) problem() error {
	if err := w.Err(); !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// watchProblem returns the problem in the form of the other watch problems.
func (w *modeWatch) watchProblem() []apply.WatchProblem {
	if err := w.problem(); err != nil {
		return []apply.WatchProblem{{GVK: modeKind(), Cause: apply.Classify(err, "list", modeResource().GroupResource())}}
	}
	return nil
}
