package guest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/watch"
)

// classCRD is the CRD without which there are no GatewayClasses.
const classCRD = "gatewayclasses.gateway.networking.k8s.io"

// wantedCRDs are the CRDs that a plan may hold.
func wantedCRDs(cfg desired.Config) map[string]bool {
	out := map[string]bool{}
	for _, name := range crds.GatewayAPI().Names() {
		out[name] = true
	}
	for _, r := range cfg.IstioResources {
		out[r.CRD()] = true
	}
	return out
}

// NotSyncedError says that the watches of the guest have not shown everything yet: the guest is not reachable, or something may not be listed.
type NotSyncedError struct {
	// Missing are the resources that decide what is installed and that are not known yet.
	Missing []string
	err     error
}

// Error names what is missing, and why where a watch said why.
func (e NotSyncedError) Error() string {
	text := "the guest is not known yet (waiting for " + strings.Join(e.Missing, ", ") + ")"
	if e.err != nil {
		text += ": " + e.err.Error()
	}
	return text
}

// Unwrap is why.
func (e NotSyncedError) Unwrap() error { return e.err }

// Observe reads what the guest shows. An error means "unknown", never "empty". The proof of the webhook is not observed here; see ProveWebhook.
func (c *Cluster) Observe() (desired.Guest, error) {
	if err := c.known(); err != nil {
		return desired.Guest{}, err
	}
	out := desired.Guest{API: c.api(), CRDs: c.crdFacts(), Classes: c.classes.ours()}
	if len(c.namespace.List()) > 0 {
		out.Namespace = desired.Present
	}
	return out, nil
}

// known is an error while something that decides what is installed is not known yet.
func (c *Cluster) known() error {
	if !c.crds.Synced() {
		return NotSyncedError{Missing: []string{"customresourcedefinitions"}, err: c.crds.Err()}
	}
	var missing []string
	var errs []error
	if !c.namespace.Synced() {
		missing, errs = append(missing, "namespaces"), append(errs, c.namespace.Err())
	}
	// Without the CRD there is nothing to wait for.
	if _, exists := c.crds.Get(classCRD); exists && !c.classes.Synced() {
		missing, errs = append(missing, "gatewayclasses"), append(errs, c.classes.Err())
	}
	// What is ours is not known before its watches were answered; one that is forbidden never will be, and does not hold up the rest.
	if !c.objects.Known() {
		missing = append(missing, "objects of our own")
	}
	if len(missing) > 0 {
		return NotSyncedError{Missing: missing, err: errors.Join(errs...)}
	}
	return nil
}

func (c *Cluster) crdFacts() map[string]crds.Fact {
	out := map[string]crds.Fact{}
	for name := range wantedCRDs(c.cfg) {
		obj, _ := c.crds.Get(name)
		m, ok := obj.(*metav1.PartialObjectMetadata)
		if !ok {
			continue
		}
		_, applied := m.Annotations[appliedByUs]
		ours := applied || m.Labels[desired.OwnerLabel] == c.cfg.OwnerValue(desired.SideGuest)
		out[name] = crds.FactOf(ours, m.DeletionTimestamp != nil)
	}
	return out
}

// Check is the health check of this side: it is known, the watches that decide what is installed work, and so does its kubeconfig.
func (c *Cluster) Check() error {
	return cmp.Or(c.known(), c.crds.Err(), c.namespace.Err(), c.classes.Err(), c.conn.Problem())
}

// KubeconfigProblem is why the guest kubeconfig as it is now is not in use, but the one before; nil when it is.
func (c *Cluster) KubeconfigProblem() error { return c.conn.Problem() }

// WatchProblems are the kinds of our own objects in the guest whose watch does not work.
func (c *Cluster) WatchProblems() []apply.WatchProblem { return c.objects.WatchProblems() }

// classWatch watches GatewayClasses, from when their CRD is there.
type classWatch struct {
	*watch.Watch
	controllerName string
	served         chan struct{}
}

func newClassWatch(client gatewayclient.GatewayClassInterface, controllerName string, notify func()) *classWatch {
	return &classWatch{
		Watch: watch.New(watch.Options{
			Name: "gatewayclasses",
			List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
			Watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
				return client.Watch(ctx, o)
			},
			Example: &gatewayv1.GatewayClass{}, Transform: classOnly, Client: client, OnEvent: func(watch.Event) { notify() }, OnSynced: notify,
		}),
		controllerName: controllerName,
		served:         make(chan struct{}, 1),
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

// begin says that the CRD is there. Only the first call matters.
func (w *classWatch) begin() {
	select {
	case w.served <- struct{}{}:
	default:
	}
}

// run waits for the CRD and then watches.
func (w *classWatch) run(ctx context.Context) {
	select {
	case <-w.served:
		w.Run(ctx)
	case <-ctx.Done():
	}
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
