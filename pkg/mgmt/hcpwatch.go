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
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/watch"
)

// controlPlaneKind is a kind of object that tells of a control plane.
type controlPlaneKind struct {
	kind string
	// resource is without its version; versions are those that may be served, the one to prefer first.
	resource schema.GroupResource
	versions []string
	// selector selects by a field; empty: all of the namespace.
	selector string
	read     func(*unstructured.Unstructured) (desired.ControlPlane, error)
}

// hostedControlPlanes is the resource.
func hostedControlPlanes() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "hypershift.openshift.io", Version: "v1beta1", Resource: "hostedcontrolplanes"}
}

// hyperShiftKind are all HostedControlPlanes of the namespace. deployment is istiod's, of which they may say something.
func hyperShiftKind(deployment string) controlPlaneKind {
	resource := hostedControlPlanes()
	return controlPlaneKind{
		kind: "HostedControlPlane", resource: resource.GroupResource(), versions: []string{resource.Version},
		read: func(u *unstructured.Unstructured) (desired.ControlPlane, error) {
			return readControlPlane(u, deployment)
		},
	}
}

// controlPlanes watches the HostedControlPlanes of the namespace, or a Cluster; nil where there can be none. Where the kind is not served, because no HyperShift is there, or may not be looked
// at, that is the answer: it is asked again, but seldom.
type controlPlanes struct {
	of    controlPlaneKind
	watch *watch.Watch
	// client is for the objects, in the version that is asked for.
	client func() dynamic.ResourceInterface
	notify func()
	// log is set when it runs.
	log logr.Logger

	// mu guards what the watch's goroutine writes and others read.
	mu sync.Mutex
	// refused is why there is nothing to see; nil while nobody was asked, and when there is an answer.
	refused error
	// refusals is how often that was said in a row, delay how long it was waited for last.
	refusals int
	delay    time.Duration
	// version is which of the versions is asked for.
	version int
}

// Waits until the kind is asked for again. HyperShift is mostly there before its control planes are; one that comes later is noticed within the
// longest. An API server that starts forbids everything until it has read its roles, so that this is asked again soon.
const (
	absentDelay     = 30 * time.Second
	longestAbsence  = 10 * time.Minute
	forbiddenDelay  = 250 * time.Millisecond
	believeRefusals = 4
)

// newControlPlanes prepares the watch, where there can be HostedControlPlanes.
func newControlPlanes(restConfig *rest.Config, httpClient *http.Client, cfg desired.Config, notify func()) (*controlPlanes, error) {
	if cfg.Topology != desired.TopologyHosted {
		return nil, nil //nolint:nilnil // a nil watch shows nothing, and that is known
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
		c.log = logr.FromContextOrDiscard(ctx) // what a request's context has is silent
		c.watch.Run(ctx)
	}
}

// watchControlPlanes prepares the watch of the namespace's objects of a kind.
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
			out := &shownControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName(), ResourceVersion: u.GetResourceVersion()}}
			if out.value, out.err = of.read(u); out.err != nil {
				out.value = certainFields(u)
			}
			out.addressee = readStatusTarget(u, out.value)
			return out, nil
		},
	})
	return c
}

// resource is the one that is asked for.
func (c *controlPlanes) resource() schema.GroupVersionResource {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of.resource.WithVersion(c.of.versions[c.version])
}

// certainFields is what is read of one that cannot be read as a whole: who it is, and whether anything may be written.
func certainFields(u *unstructured.Unstructured) desired.ControlPlane {
	out := desired.ControlPlane{Name: u.GetName(), UID: u.GetUID(), Deleting: u.GetDeletionTimestamp() != nil}
	spec, _, _ := unstructured.NestedMap(u.Object, "spec")
	switch told := spec["pausedUntil"].(type) {
	case nil:
	case string:
		out.PausedUntil = told
	default:
		out.PausedUntil = "true" // of another form: whatever it means, it means something
	}
	if paused, _ := spec["paused"].(bool); paused {
		out.PausedUntil = "true"
	}
	return out
}

// nextVersion goes on to another version, because the one that was asked for is not served.
func (c *controlPlanes) nextVersion() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version = (c.version + 1) % len(c.of.versions)
}

// shownControlPlane is what is kept of a HostedControlPlane, which is large.
type shownControlPlane struct {
	metav1.ObjectMeta
	value     desired.ControlPlane
	err       error
	addressee StatusTarget
}

// whenServed makes a request, and again from time to time while the kind is served in no version or may not be looked at. Any other answer is returned.
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
				c.log.Error(err, "Nothing is done until it is known whether there is a "+c.of.kind+" here, which hypergate may not look at: "+
					"give its service account the roles of deploy/")
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

// refuse notes why there is nothing to see, or that there is, and says how long to wait until it is asked for again.
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
		c.refusals, c.delay = 0, 0
	case apierrors.IsForbidden(err) && c.refusals < believeRefusals:
		wait = forbiddenDelay << (c.refusals - 1)
	case apierrors.IsForbidden(err), c.watch.Synced():
		wait = absentDelay // a role is given, or it was there and may be again
	default:
		c.delay = min(max(2*c.delay, absentDelay), longestAbsence)
		wait = c.delay
	}
	return wait, before != c.knownLocked()
}

// knownLocked says whether the answer is that there is nothing to see. Who may not look does not know: one that is there may be paused, and says where
// istiod's pods belong.
func (c *controlPlanes) knownLocked() bool { return apierrors.IsNotFound(c.refused) }

// err is why it is not known what there is, where that is a right that is missing.
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

// shows says whether there is one, or was.
func (c *controlPlanes) shows() bool { return c != nil && len(c.watch.List()) > 0 }

// known says whether it is known what there is.
func (c *controlPlanes) known() bool {
	if c == nil || c.watch.Synced() {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.knownLocked()
}

// absent says that the kind is not served.
func (c *controlPlanes) absent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return apierrors.IsNotFound(c.refused)
}

// problems is that the kind may not be looked at, where that is so.
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

// ErrControlPlanes says that the namespace has more than one HostedControlPlane.
var ErrControlPlanes = errors.New("the management namespace has more than one HostedControlPlane, and hypergate is for one: " +
	"delete the one that does not belong there, or run hypergate in the namespace of each")

// all are those that are shown, each as far as it could be read.
func (c *controlPlanes) all() (out []desired.ControlPlane) {
	for _, obj := range c.watch.List() {
		if s, is := obj.(*shownControlPlane); is {
			out = append(out, s.value)
		}
	}
	return out
}

// selected is the one of the namespace; the zero value when there is none. What was shown before looking was forbidden still counts, what was before
// the kind went does not.
func (c *controlPlanes) selected() (desired.ControlPlane, error) {
	if c == nil || c.absent() {
		return desired.ControlPlane{}, nil
	}
	var shown []*shownControlPlane
	for _, obj := range c.watch.List() {
		if s, is := obj.(*shownControlPlane); is {
			shown = append(shown, s)
		}
	}
	switch len(shown) {
	case 0:
		return desired.ControlPlane{}, nil
	case 1:
		return shown[0].value, shown[0].err
	}
	names := make([]string, 0, len(shown))
	for _, s := range shown {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return desired.ControlPlane{}, fmt.Errorf("%w (there are %s)", ErrControlPlanes, strings.Join(names, ", "))
}
