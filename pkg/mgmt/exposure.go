package mgmt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/watch"
)

// exposure is the way by which istiod is published. Which one that is may follow from the HostedControlPlane, so that it is taken when that was seen,
// once: HyperShift lets nobody change it. What belongs to other ways is not watched: the management cluster may not serve it.
type exposure struct {
	cfg    desired.Config
	rest   *rest.Config
	client dynamic.Interface
	// service is what the cluster hands out to our Service; theirs and ours are the Routes. All are off but those of the way.
	service, theirs, ours *watch.Watch
	// begin takes a way: its watches run from then on.
	begin func(desired.Way) error
	// served says which resources of a group and version the cluster serves.
	served discovery.ServerResourcesInterface

	// taken is the way, once it was taken, tlsRoutes the version of TLSRoutes, where those are the way.
	taken     *desired.Way
	tlsRoutes string
	// objects writes the route; nil for a way without one.
	objects *apply.Cluster
	// cleared is whether the routes of an earlier run, which went another way, are gone.
	cleared atomic.Bool
}

// newExposure prepares it, where anybody publishes anything.
func newExposure(restConfig *rest.Config, httpClient *http.Client, core coreclient.CoreV1Interface, cfg desired.Config, notify func()) (*exposure, error) {
	if cfg.Topology != desired.TopologyHosted {
		return nil, nil //nolint:nilnil // a nil exposure shows nothing, and writes nothing
	}
	client, err := dynamic.NewForConfigAndClient(restConfig, httpClient)
	if err != nil {
		return nil, err
	}
	served, err := discovery.NewDiscoveryClientForConfigAndClient(restConfig, httpClient)
	if err != nil {
		return nil, err
	}
	e := &exposure{cfg: cfg, rest: restConfig, client: client, served: served}
	service := namedWatch("services", cfg.XDSService(), core.Services(cfg.MgmtNamespace), notify)
	service.Example, service.Transform, service.OnTrouble = &corev1.Service{}, addressesOnly, notify
	e.service = watch.New(service)
	for name, into := range map[string]**watch.Watch{desired.ControlPlaneRoute: &e.theirs, cfg.XDSService(): &e.ours} {
		o := namedWatch("routes", name, client.Resource(routes()).Namespace(cfg.MgmtNamespace), notify)
		o.Example, o.OnTrouble = &unstructured.Unstructured{}, notify
		*into = watch.New(o)
	}
	return e, nil
}

func routes() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "route.openshift.io", Version: "v1", Resource: "routes"}
}

// addressesOnly keeps of a Service what was handed out to it.
func addressesOnly(obj any) (any, error) {
	s, ok := obj.(*corev1.Service)
	if !ok {
		return obj, nil
	}
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, ResourceVersion: s.ResourceVersion},
		Spec:       corev1.ServiceSpec{Type: s.Spec.Type, Ports: s.Spec.Ports},
		Status:     corev1.ServiceStatus{LoadBalancer: s.Status.LoadBalancer},
	}, nil
}

// start gets ready to take a way. What runs then ends with ctx.
func (e *exposure) start(ctx context.Context, notify func()) {
	if e == nil {
		return
	}
	e.begin = func(way desired.Way) error {
		if err := e.findTLSRoutes(way); err != nil {
			return err
		}
		if kinds := e.cfg.ExposureKinds(way, e.tlsRoutes); len(kinds) > 0 {
			objects, err := apply.New(e.rest, apply.Options{
				Name: string(desired.SideMgmt), Namespace: e.cfg.MgmtNamespace, NamespacedOnly: true, FieldManager: desired.FieldManager,
				OwnerKey: desired.OwnerLabel, OwnerValue: e.cfg.OwnerValue(desired.SideMgmt), Kinds: applyKinds(kinds),
			})
			if err == nil {
				err = objects.Start(ctx, notify)
			}
			if err != nil {
				return fmt.Errorf("publishing istiod: %w", err)
			}
			e.objects = objects
		}
		for _, w := range e.watches(way) {
			go w.Run(ctx)
		}
		go e.clear(ctx, way, notify)
		return nil
	}
}

// findTLSRoutes finds out which version of TLSRoutes the cluster serves, where those are the way.
func (e *exposure) findTLSRoutes(way desired.Way) error {
	if way != desired.WayTLSRoute {
		return nil
	}
	for _, version := range desired.TLSRouteVersions() {
		kind := e.cfg.ExposureKinds(way, version)[0]
		list, err := e.served.ServerResourcesForGroupVersion(kind.GVK.GroupVersion().String())
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return fmt.Errorf("publishing istiod: finding out which TLSRoutes the management cluster serves: %w", err)
		case slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == kind.Resource }):
			e.tlsRoutes = version
			return nil
		}
	}
	return errors.New("publishing istiod: the management cluster serves no TLSRoutes (tlsroutes.gateway.networking.k8s.io, which up to Gateway API 1.4 are in its experimental channel): " +
		"install them, or give another --publish")
}

// watches are what tells whether a way leads anywhere.
func (e *exposure) watches(way desired.Way) []*watch.Watch {
	switch way {
	case desired.WayRoute:
		return []*watch.Watch{e.theirs, e.ours}
	case desired.WayLoadBalancer, desired.WayNodePort:
		return []*watch.Watch{e.service}
	default:
		return nil
	}
}

// observe takes the way that the HostedControlPlane leads to, unless one was taken before, and adds what there is to see of it. A way that cannot be found
// is told by the plan.
func (e *exposure) observe(into *desired.Hosted) error {
	if e == nil {
		return nil
	}
	way, err := e.cfg.PublishingWay(into.ControlPlane)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	switch {
	case e.taken == nil:
		if err := e.begin(way); err != nil {
			return err
		}
		e.taken = &way
	case *e.taken != way:
		return fmt.Errorf("istiod is published by %s, and from now on should be by %s: restart hypergate, which takes a way once", *e.taken, way)
	}
	for _, w := range e.watches(way) {
		err := w.Err()
		switch {
		case w.Synced():
		case apierrors.IsNotFound(err):
			return fmt.Errorf("publishing istiod: the management cluster serves no Routes (%s): give another --publish: %w", routes().GroupResource(), err)
		default:
			return NotSyncedError{err: err}
		}
	}
	into.Exposure = e.seen(way)
	into.Exposure.TLSRouteVersion = e.tlsRoutes
	return nil
}

// seen is what the watches of a way show.
func (e *exposure) seen(way desired.Way) (out desired.Exposure) {
	if way != desired.WayRoute {
		obj, _ := e.service.Get(e.key(e.cfg.XDSService()))
		if s, is := obj.(*corev1.Service); is {
			out.NodePort, out.LoadBalancer = handedOut(s)
		}
		return out
	}
	obj, _ := e.theirs.Get(e.key(desired.ControlPlaneRoute))
	if u, is := obj.(*unstructured.Unstructured); is && u.GetDeletionTimestamp() == nil {
		host, _, _ := unstructured.NestedString(u.Object, "spec", "host")
		for _, ingress := range ingresses(u) {
			// Admitted, it is served under the name that the router says.
			if served, _ := ingress["host"].(string); admitted(ingress) == "" && served != "" {
				host = served
			}
		}
		out.ControlPlaneRoute = desired.FoundRoute{Exists: true, Host: host}
	}
	obj, _ = e.ours.Get(e.key(e.cfg.XDSService()))
	if u, is := obj.(*unstructured.Unstructured); is {
		out.RouteRefused = refusal(u)
	}
	return out
}

func (e *exposure) key(name string) string {
	return types.NamespacedName{Namespace: e.cfg.MgmtNamespace, Name: name}.String()
}

// handedOut are the port and the address of a Service, as far as its type has them.
func handedOut(s *corev1.Service) (nodePort uint16, loadBalancer string) {
	if len(s.Spec.Ports) > 0 && s.Spec.Type == corev1.ServiceTypeNodePort {
		nodePort = uint16(s.Spec.Ports[0].NodePort) //nolint:gosec // a port
	}
	if len(s.Status.LoadBalancer.Ingress) > 0 && s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		loadBalancer = cmp.Or(s.Status.LoadBalancer.Ingress[0].Hostname, s.Status.LoadBalancer.Ingress[0].IP)
	}
	return nodePort, loadBalancer
}

// ingresses are what routers say of a Route, one each.
func ingresses(u *unstructured.Unstructured) (out []map[string]any) {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "ingress")
	for _, entry := range list {
		if ingress, is := entry.(map[string]any); is {
			out = append(out, ingress)
		}
	}
	return out
}

// admitted is why a router does not serve a Route; empty when it does, and when it says nothing.
func admitted(ingress map[string]any) string {
	conditions, _, _ := unstructured.NestedSlice(ingress, "conditions")
	for _, entry := range conditions {
		condition, _ := entry.(map[string]any)
		if condition["type"] == "Admitted" && condition["status"] == "False" {
			reason, _ := condition["reason"].(string)
			return cmp.Or(reason, "NotAdmitted")
		}
	}
	return ""
}

// refusal is why no router serves a Route, where all that know it say so.
func refusal(u *unstructured.Unstructured) string {
	all := ingresses(u)
	if slices.ContainsFunc(all, func(i map[string]any) bool { return admitted(i) == "" }) || len(all) == 0 {
		return ""
	}
	return admitted(all[0])
}

// apply writes the route.
func (e *exposure) apply(ctx context.Context, objects []desired.MgmtObject) apply.Report {
	if e == nil || e.objects == nil {
		return apply.Report{}
	}
	return apply.Apply(ctx, e.objects, objects)
}

// prune deletes the route unless it is kept. Until it is gone, its Service must stay.
func (e *exposure) prune(ctx context.Context, keep []desired.MgmtObject) apply.Report {
	switch {
	case e == nil || e.taken == nil:
		return apply.Report{}
	case !e.cleared.Load():
		return apply.ReportOf(apply.Waiting(apply.ID{GVK: schema.GroupVersionKind{Group: routes().Group, Version: routes().Version, Kind: "Route"}}))
	case e.objects == nil:
		return apply.Report{}
	}
	return e.objects.Prune(ctx, apply.IDs(keep)...)
}

// problems are the watches of the route that do not work.
func (e *exposure) problems() []apply.WatchProblem {
	if e == nil || e.objects == nil {
		return nil
	}
	return e.objects.WatchProblems()
}

// clearDelays are the waits between tries to clear away what an earlier run left.
func clearDelays() wait.Backoff {
	return wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 20, Cap: 10 * time.Second}
}

// others are the kinds of all ways but one.
func (e *exposure) others(way desired.Way) []desired.Kind {
	out := []desired.Kind{}
	if way != desired.WayRoute {
		out = append(out, e.cfg.ExposureKinds(desired.WayRoute, "")...)
	}
	if way != desired.WayTLSRoute {
		for _, version := range desired.TLSRouteVersions() {
			out = append(out, e.cfg.ExposureKinds(desired.WayTLSRoute, version)...)
		}
	}
	return out
}

// clear deletes the routes of an earlier run that went another way. A kind that is not served, or may not be looked at, has none.
func (e *exposure) clear(ctx context.Context, way desired.Way, notify func()) {
	delays := clearDelays()
	for _, kind := range e.others(way) {
		for {
			err := e.clearOne(ctx, kind)
			if err == nil {
				break
			}
			logr.FromContextOrDiscard(ctx).Info("A route of an earlier run cannot be cleared away yet", "err", err.Error())
			timer := time.NewTimer(delays.Step())
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return
			}
		}
	}
	e.cleared.Store(true)
	notify()
}

func (e *exposure) clearOne(ctx context.Context, kind desired.Kind) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	client := e.client.Resource(kind.GVK.GroupVersion().WithResource(kind.Resource)).Namespace(e.cfg.MgmtNamespace)
	found, err := client.Get(ctx, e.cfg.XDSService(), metav1.GetOptions{})
	if err == nil && found.GetLabels()[desired.OwnerLabel] == e.cfg.OwnerValue(desired.SideMgmt) {
		err = client.Delete(ctx, found.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(found.GetUID())}})
	}
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil
	}
	return fmt.Errorf("looking for %s %s: %w", kind.GVK.Kind, e.cfg.XDSService(), err)
}
