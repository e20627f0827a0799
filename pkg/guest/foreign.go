package guest

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/watch"
)

// istioCRD is the CRD of the resources by which the Sail operator is told to install Istio.
const istioCRD = "istios.sailoperator.io"

func istioKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "sailoperator.io", Version: "v1", Kind: "Istio"}
}

func istioResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "sailoperator.io", Version: "v1", Resource: "istios"}
}

func deploymentResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
}

// foreignView watches, by their metadata, for others who may serve what is ours: istiod's Deployment in its namespace, and Istio resources while there are such.
type foreignView struct {
	istiod *watch.Watch
	istios *watch.Switch
	notify func()

	// awaited is the watch of Istio resources that arrange has seen last, and forget ends the wait for it; both are arrange's.
	awaited *watch.Watch
	forget  context.CancelFunc
	// patience is for how long it is waited for, overdue the watch that took longer.
	patience time.Duration
	overdue  atomic.Pointer[watch.Watch]
}

func newForeignView(client metadata.Interface, cfg desired.Config, budget *watch.Budget, notify func()) *foreignView {
	istios := metadataWatch(client, istioResource(), metav1.ListOptions{})
	istios.Patience = servedPatience
	deployments, selector := client.Resource(deploymentResource()).Namespace(cfg.GuestNamespace), "metadata.name="+cfg.IstiodName()
	istiod := watch.Options{
		Name: deploymentResource().Resource,
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return deployments.List(ctx, o)
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.FieldSelector = selector
			return deployments.Watch(ctx, o)
		},
		Example: &metav1.PartialObjectMetadata{}, Client: client, Transform: ownerOnly,
	}
	for _, o := range []*watch.Options{&istios, &istiod} {
		o.OnEvent, o.OnSynced, o.OnTrouble, o.Budget = func(watch.Event) { notify() }, notify, notify, budget
	}
	return &foreignView{istiod: watch.New(istiod), istios: watch.NewSwitch(istios), notify: notify, patience: servedPatience}
}

// arrange watches Istio resources while their CRD is there; key and version are its. It is not called twice at a time. They are waited for, but not for ever: they may
// never be listed, because the CRD has a conversion webhook that is dead, and who asks whether somebody else is here is not to stand still for that.
func (v *foreignView) arrange(ctx context.Context, key, version string) {
	v.istios.Set(ctx, key, version)
	on := v.istios.On()
	if on == v.awaited {
		return
	}
	if v.forget != nil {
		v.forget()
	}
	if v.awaited, v.forget = on, nil; on == nil {
		return
	}
	ctx, v.forget = context.WithCancel(ctx)
	go v.await(ctx, on)
}

// await notes, and tells, that a watch takes too long.
func (v *foreignView) await(ctx context.Context, on *watch.Watch) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(v.patience):
	}
	if !pending(on) {
		return
	}
	v.overdue.Store(on)
	cause := "there is no answer"
	if err := on.Err(); err != nil {
		cause = err.Error()
	}
	logr.FromContextOrDiscard(ctx).Info("Istio resources cannot be listed in the guest: whether the Sail operator installs an Istio of our revision is not known, and nobody waits for it any longer",
		"crd", istioCRD, "err", cause)
	v.notify()
}

// maxOwner is how many bytes are kept of an owner label's value. The API server allows 63. The rest is cut.
const maxOwner = 128

// ownerOnly keeps of an object its identity and whose it is.
func ownerOnly(obj any) (any, error) {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return obj, nil
	}
	kept := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, ResourceVersion: m.ResourceVersion}}
	owner := m.Labels[desired.OwnerLabel]
	if owner == "" && slices.ContainsFunc(m.ManagedFields, appliedByUs) {
		owner = desired.Unlabelled
	}
	if owner = bounded(owner, maxOwner); owner != "" {
		kept.Labels = map[string]string{desired.OwnerLabel: owner}
	}
	return kept, nil
}

// appliedByUs says that a hypergate has applied the object itself.
func appliedByUs(e metav1.ManagedFieldsEntry) bool {
	return e.Manager == desired.FieldManager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == ""
}

// foreignInstallations are the facts about others who may serve what is ours.
func (c *Cluster) foreignInstallations() desired.ForeignInstallations {
	var out desired.ForeignInstallations
	for _, class := range c.classes.items() {
		if class.finalized {
			out.Finalized = append(out.Finalized, class.Name)
		}
	}
	for _, obj := range c.foreign.istios.List() {
		if m, ok := obj.(*metav1.PartialObjectMetadata); ok {
			out.Istios = append(out.Istios, m.Name)
		}
	}
	slices.Sort(out.Istios)
	for _, obj := range c.foreign.istiod.List() {
		if m, ok := obj.(*metav1.PartialObjectMetadata); ok {
			out.Istiods = append(out.Istiods, desired.ForeignDeployment{Name: m.Name, Owner: m.Labels[desired.OwnerLabel]})
		}
	}
	return out
}

// istiosPending is whether there may yet be Istio resources. There are not where the API server does not know them in this version, and whoever may not see them
// is told so, and goes on; so is, after a while, whoever gets no list.
func (v *foreignView) istiosPending() bool {
	on := v.istios.On()
	return on != nil && pending(on) && v.overdue.Load() != on
}

// watchProblems are the watches that do not work.
func (v *foreignView) watchProblems() []apply.WatchProblem {
	var out []apply.WatchProblem
	if err := v.istiod.Err(); err != nil {
		out = append(out, apply.WatchProblem{
			GVK:   schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"},
			Cause: apply.Classify(err, "list", deploymentResource().GroupResource()),
		})
	}
	if err := v.istios.Err(); err != nil && !apierrors.IsNotFound(err) {
		out = append(out, apply.WatchProblem{GVK: istioKind(), Cause: apply.Classify(err, "list", istioResource().GroupResource())})
	}
	return out
}
