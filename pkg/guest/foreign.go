package guest

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	sailv1 "github.com/istio-ecosystem/sail-operator/api/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/watch"
)

// istioCRD is the CRD of the resources that configure the Sail operator to install Istio.
const istioCRD = "istios.sailoperator.io"

func istioKind() schema.GroupVersionKind {
	return sailv1.GroupVersion.WithKind(sailv1.IstioKind)
}

func istioResource() schema.GroupVersionResource {
	return sailv1.GroupVersion.WithResource("istios")
}

func deploymentResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
}

// foreignView watches for foreign installations that can serve the same resources as hypergate. It watches the
// metadata of istiod's Deployment in its namespace, and of Istio resources while their CRD exists.
type foreignView struct {
	istiod *watch.Watch
	istios *watch.Switch
	notify func()

	// awaited is the watch of Istio resources that arrange saw last. forget ends the wait for it. Only arrange uses
	// both.
	awaited *watch.Watch
	forget  context.CancelFunc
	// patience is how long to wait for that watch. overdue is the watch that took longer.
	patience time.Duration
	overdue  atomic.Pointer[watch.Watch]
}

func newForeignView(client metadata.Interface, cfg model.Config, budget *watch.Budget, notify func()) *foreignView {
	istios := metadataWatch(client, istioResource(), metav1.ListOptions{})
	istios.Patience = servedPatience
	deployments := client.Resource(deploymentResource()).Namespace(cfg.GuestNamespace)
	istiod := selectedWatch(deploymentResource().Resource, deployments, named(cfg.IstiodName()))
	istiod.Example, istiod.Client, istiod.Transform = &metav1.PartialObjectMetadata{}, client, ownerOnly
	for _, o := range []*watch.Options{&istios, &istiod} {
		o.OnEvent, o.OnSynced, o.OnProblem, o.Budget = func(watch.Event) { notify() }, notify, notify, budget
	}
	return &foreignView{istiod: watch.New(istiod), istios: watch.NewSwitch(istios), notify: notify, patience: servedPatience}
}

// arrange watches Istio resources while their CRD exists. key and version are those of the CRD. It is not safe for
// concurrent use.
//
// hypergate waits only a limited time for these resources. They can be impossible to list, for example if the CRD has
// a conversion webhook that is down. The check for a foreign installation must not block the controller because of
// that.
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

// await waits for patience. If the watch is still pending then, it records and logs that, and notifies.
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
	cause := "the API server does not answer"
	if err := on.Err(); err != nil {
		cause = err.Error()
	}
	logr.FromContextOrDiscard(ctx).Info("Istio resources cannot be listed in the guest; it is unknown whether the Sail operator "+
		"installs an Istio of this revision, and hypergate no longer waits for it",
		"crd", istioCRD, "err", cause)
	v.notify()
}

// maxOwner is how many bytes of an owner label's value are kept. The API server allows 63. The rest is cut.
const maxOwner = 128

// ownerOnly reduces an object to its identity and its owner.
func ownerOnly(obj any) (any, error) {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return obj, nil
	}
	kept := &metav1.PartialObjectMetadata{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, ResourceVersion: m.ResourceVersion},
	}
	owner := m.Labels[model.OwnerLabel]
	if owner == "" && slices.ContainsFunc(m.ManagedFields, appliedByUs) {
		owner = model.Unlabelled
	}
	if owner = bounded(owner, maxOwner); owner != "" {
		kept.Labels = map[string]string{model.OwnerLabel: owner}
	}
	return kept, nil
}

// appliedByUs reports whether a hypergate applied the object (not only its status).
func appliedByUs(e metav1.ManagedFieldsEntry) bool {
	return e.Manager == model.FieldManager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == ""
}

// foreignInstallations returns the facts about foreign installations that can serve the same resources as hypergate.
func (c *Cluster) foreignInstallations() model.ForeignInstallations {
	var out model.ForeignInstallations
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
			out.Istiods = append(out.Istiods, model.ForeignDeployment{Name: m.Name, Owner: m.Labels[model.OwnerLabel]})
		}
	}
	return out
}

// istiosPending reports whether the list of Istio resources is still expected. It is not in three cases:
//
//   - The API server does not know the resources in this version.
//   - hypergate is not allowed to list them. This is reported as a watch problem.
//   - The list takes longer than patience. This is logged.
func (v *foreignView) istiosPending() bool {
	on := v.istios.On()
	return on != nil && pending(on) && v.overdue.Load() != on
}

// watchProblems returns the watches that fail.
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
