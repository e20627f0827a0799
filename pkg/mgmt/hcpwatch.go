package mgmt

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/throttle"
	"github.com/hypergate/hypergate/pkg/watch"
)

// controlPlaneKind is a kind of object that describes a control plane.
type controlPlaneKind struct {
	kind string
	// resource has no version. versions are the possibly served versions, in order of preference.
	resource schema.GroupResource
	versions []string
	// selector is a field selector. If it is empty, all objects of the namespace are selected.
	selector string
	read     func(*unstructured.Unstructured) (model.ControlPlane, error)
}

// hostedControlPlanes returns the resource of HostedControlPlanes.
func hostedControlPlanes() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "hypershift.openshift.io", Version: "v1beta1", Resource: "hostedcontrolplanes"}
}

// hyperShiftKind returns the kind of all HostedControlPlanes of the namespace. deployment is the name of istiod's
// Deployment, which annotations of a HostedControlPlane can refer to.
func hyperShiftKind(deployment string) controlPlaneKind {
	resource := hostedControlPlanes()
	return controlPlaneKind{
		kind: "HostedControlPlane", resource: resource.GroupResource(), versions: []string{resource.Version},
		read: func(u *unstructured.Unstructured) (model.ControlPlane, error) {
			return readControlPlane(u, deployment)
		},
	}
}

// controlPlanes watches the HostedControlPlanes of the namespace, or a Cluster. It is nil if neither can exist.
//
// If the kind is not served (because HyperShift is not installed), or access is forbidden, controlPlanes repeats the
// request, but rarely.
type controlPlanes struct {
	of    controlPlaneKind
	watch *watch.Watch
	// client returns the client for the objects, in the current version.
	client func() dynamic.ResourceInterface
	notify func()
	// log is set by run.
	log logr.Logger

	// mu guards the fields that the goroutine of the watch writes and other goroutines read.
	mu sync.Mutex
	// refused is the NotFound or Forbidden error of the last request. It is nil before the first answer and after a
	// success.
	refused error
	// refusals counts such errors in a row. backoff spaces out requests for a kind that is absent.
	refusals int
	backoff  throttle.Backoff
	// version is the index of the version that is requested.
	version int
}

// Delays until the kind is requested again. HyperShift usually exists before its control planes do. A later
// installation is noticed within longestAbsence.
const (
	absentDelay    = 30 * time.Second
	longestAbsence = 10 * time.Minute
	// forbiddenDelay is the delay after a Forbidden error, of which only the fourth in a row is believed. A starting
	// API server forbids everything until it has read its roles.
	forbiddenDelay  = 250 * time.Millisecond
	believeRefusals = 4
)

// newControlPlanes returns a controlPlanes for HostedControlPlanes. It returns nil if the topology has none.
func newControlPlanes(restConfig *rest.Config, httpClient *http.Client, cfg model.Config, notify func()) (*controlPlanes, error) {
	if cfg.Topology != model.TopologyHosted {
		return nil, nil //nolint:nilnil // a nil watch shows nothing and counts as known
	}
	client, err := dynamic.NewForConfigAndClient(restConfig, httpClient)
	if err != nil {
		return nil, err
	}
	return watchControlPlanes(client, cfg.MgmtNamespace, hyperShiftKind(cfg.IstiodName()), notify), nil
}

// run watches until ctx ends.
func (c *controlPlanes) run(ctx context.Context) {
	if c != nil {
		c.log = logr.FromContextOrDiscard(ctx) // the logger in the context of a request discards everything
		c.watch.Run(ctx)
	}
}

// watchControlPlanes returns a controlPlanes for the namespace's objects of a kind. It does not start the watch.
func watchControlPlanes(client dynamic.Interface, namespace string, of controlPlaneKind, notify func()) *controlPlanes {
	c := &controlPlanes{of: of, notify: notify}
	served := func() dynamic.ResourceInterface { return client.Resource(c.resource()).Namespace(namespace) }
	c.client = served
	c.watch = watch.New(watch.Options{
		Name: of.resource.Resource,
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = of.selector
			return whenServed(ctx, c, func() (*unstructured.UnstructuredList, error) { return served().List(ctx, o) })
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.FieldSelector = of.selector
			return whenServed(ctx, c, func() (apiwatch.Interface, error) { return served().Watch(ctx, o) })
		},
		Client: client, Example: &unstructured.Unstructured{}, OnEvent: func(watch.Event) { notify() }, OnSynced: notify,
		Transform: func(obj any) (any, error) {
			u, is := obj.(*unstructured.Unstructured)
			if !is {
				return obj, nil
			}
			out := &shownControlPlane{ObjectMeta: metav1.ObjectMeta{
				Namespace: u.GetNamespace(), Name: u.GetName(), ResourceVersion: u.GetResourceVersion(),
			}}
			if out.value, out.err = of.read(u); out.err != nil {
				out.value = certainFields(u)
			}
			out.target = readStatusTarget(u, out.value)
			return out, nil
		},
	})
	return c
}

// resource returns the resource in the version that is requested.
func (c *controlPlanes) resource() schema.GroupVersionResource {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of.resource.WithVersion(c.of.versions[c.version])
}

// certainFields returns the reliable fields of an object that cannot be read as a whole: its identity, and the fields
// that determine whether writes are allowed.
func certainFields(u *unstructured.Unstructured) model.ControlPlane {
	out := model.ControlPlane{Name: u.GetName(), UID: u.GetUID(), Deleting: u.GetDeletionTimestamp() != nil}
	spec, _, _ := unstructured.NestedMap(u.Object, "spec")
	switch value := spec["pausedUntil"].(type) {
	case nil:
	case string:
		out.PausedUntil = value
	default:
		out.PausedUntil = "true" // unknown form: treat it as paused, whatever it means
	}
	if paused, _ := spec["paused"].(bool); paused {
		out.PausedUntil = "true"
	}
	return out
}

// nextVersion switches to the next version, because the requested one is not served.
func (c *controlPlanes) nextVersion() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version = (c.version + 1) % len(c.of.versions)
}

// shownControlPlane is the part of a HostedControlPlane that the watch keeps. The whole object is large.
type shownControlPlane struct {
	metav1.ObjectMeta
	// value is what was read. If err is not nil, value has only the fields that are certain.
	value model.ControlPlane
	err   error
	// target is what conditions are reported to.
	target StatusTarget
}

// whenServed sends a request. It repeats the request at intervals while no version of the kind is served or access is
// forbidden. It returns any other answer.
func whenServed[T any](ctx context.Context, c *controlPlanes, request func() (T, error)) (T, error) {
	for missing, denied := 0, 0; ; {
		out, err := request()
		switch {
		case apierrors.IsNotFound(err):
			c.nextVersion()
			if missing++; missing%len(c.of.versions) != 0 {
				continue
			}
		case !apierrors.IsForbidden(err):
			if err == nil {
				c.refuse(nil)
			}
			return out, err
		default:
			if denied++; denied == believeRefusals {
				c.log.Error(err, "Not allowed to read the object of the hosted control plane; "+
					"until this is allowed, hypergate does nothing. Apply the roles in deploy/rbac", "kind", c.of.kind)
			}
		}
		timer := time.NewTimer(c.refuse(err))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return out, ctx.Err()
		}
	}
}

// refuse records the error of a request, or nil. It returns the time until the next request.
func (c *controlPlanes) refuse(err error) time.Duration {
	wait, changed := c.note(err)
	if changed {
		c.notify()
	}
	return wait
}

func (c *controlPlanes) note(err error) (wait time.Duration, changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.knownLocked()
	c.refused = err
	c.refusals++
	switch {
	case err == nil:
		c.refusals = 0
		c.backoff.Reset()
	case apierrors.IsForbidden(err) && c.refusals < believeRefusals:
		wait = forbiddenDelay << (c.refusals - 1)
	case apierrors.IsForbidden(err), c.watch.Synced():
		wait = absentDelay // a role can be granted, or a kind that was served can return
	default:
		wait = c.backoff.Failed(time.Now(), absentDelay, longestAbsence)
	}
	return wait, before != c.knownLocked()
}

// knownLocked reports whether the answer is that there is nothing to observe.
//
// A Forbidden error leaves the state unknown: a HostedControlPlane can exist, can be paused, and defines on which
// nodes istiod's pods run.
func (c *controlPlanes) knownLocked() bool { return apierrors.IsNotFound(c.refused) }

// err returns the error if the state is unknown because of a missing permission.
func (c *controlPlanes) err() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if apierrors.IsForbidden(c.refused) {
		return c.refused
	}
	return nil
}

// shows reports whether the watch has an object. That object can be outdated.
func (c *controlPlanes) shows() bool { return c != nil && len(c.watch.List()) > 0 }

// known reports whether it is known which objects exist.
func (c *controlPlanes) known() bool {
	if c == nil || c.watch.Synced() {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.knownLocked()
}

// absent reports whether the kind is not served.
func (c *controlPlanes) absent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return apierrors.IsNotFound(c.refused)
}

// problems returns a problem if access to the kind is forbidden.
func (c *controlPlanes) problems() []apply.WatchProblem {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !apierrors.IsForbidden(c.refused) || c.refusals < believeRefusals {
		return nil
	}
	gvk := c.of.resource.WithVersion(c.of.versions[c.version]).GroupVersion().WithKind(c.of.kind)
	return []apply.WatchProblem{{GVK: gvk, Cause: apply.Classify(c.refused, "list", c.of.resource)}}
}

// ErrControlPlanes means that the namespace has more than one HostedControlPlane.
var ErrControlPlanes = errors.New("the management namespace has more than one HostedControlPlane, but hypergate supports only one: " +
	"delete the one that does not belong there, or run hypergate in the namespace of each")

// all returns all objects of the watch, each as far as it could be read.
func (c *controlPlanes) all() (out []model.ControlPlane) {
	for _, obj := range c.watch.List() {
		if s, is := obj.(*shownControlPlane); is {
			out = append(out, s.value)
		}
	}
	return out
}

// selected returns the only object of the namespace, or the zero value if there is none. Objects from before access
// was forbidden still count. Objects from before the kind was removed do not.
func (c *controlPlanes) selected() (model.ControlPlane, error) {
	if c == nil || c.absent() {
		return model.ControlPlane{}, nil
	}
	var shown []*shownControlPlane
	for _, obj := range c.watch.List() {
		if s, is := obj.(*shownControlPlane); is {
			shown = append(shown, s)
		}
	}
	switch len(shown) {
	case 0:
		return model.ControlPlane{}, nil
	case 1:
		return shown[0].value, shown[0].err
	}
	names := make([]string, 0, len(shown))
	for _, s := range shown {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return model.ControlPlane{}, fmt.Errorf("%w (found: %s)", ErrControlPlanes, strings.Join(names, ", "))
}
